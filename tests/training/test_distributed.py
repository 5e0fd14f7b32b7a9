from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.support.paths import ROOT

PROCESS = """
import os, sys
from pathlib import Path
from typing import Any
import torch
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)  # so that no rounding adds up over the steps
from infogaze.training.distributed import first_process_first, processes
from infogaze.training.loop import Surroundings, train
from infogaze.runs import RunFolder
from infogaze.methods.registry import build_for
from infogaze.models import save
from infogaze.gaze.agent import Agent
from tests.support.small_run import configuration, scenes
from tests.support.paths import ROOT

def threads():
    return set(os.listdir("/proc/self/task"))

dies_at, alone = int(sys.argv[2]), threads()
with processes(torch.device("cpu")) as (share, device):
    talking = threads() - alone
    asked = 0
    def stop():
        global asked
        asked += 1
        if asked == dies_at and share.rank == share.world - 1 and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
            os._exit(1)
        return False
    from infogaze.training import loop
    loop._LOG_EVERY = 1
    for method in sys.argv[3:]:
        out, config = Path(sys.argv[1]) / method, configuration(method, hold_out=float(os.environ["HOLD_OUT"]))
        model = build_for(method, config.preset.model, 0)
        for part in model.eval().modules():
            if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
                part.train = lambda mode=True, part=part: part   # the CPU has no synchronised batch norm
        with first_process_first(share):
            folder = RunFolder(out, config)
        train(model, scenes(), config, folder, Surroundings(asked_to_stop=stop, save_every=0.0, share=share))
        if share.rank == 0:
            save(Agent(model, ["a", "b", "c"], config=config.preset.model, method=method), out / "model")
(Path(sys.argv[1]) / f"threads-{share.rank}").write_text(f"{len(talking)} {len(talking & threads())}")
"""

Lines = list[dict[str, Any]]


def run(
    folder: Path,
    world: int,
    dies_at: int = -1,
    restarts: int = 0,
    methods: tuple[str, ...] = ("infogaze",),
    hold_out: float = 0.0,
) -> dict[str, Lines]:
    """Train under torchrun, each method in a folder of its own, and return their metrics."""
    script = folder.parent / "process.py"
    script.write_text(PROCESS)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HOLD_OUT": str(hold_out)}
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={world}",
        f"--max-restarts={restarts}",
    ]
    done = subprocess.run(
        [*command, str(script), str(folder), str(dies_at), *methods],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    written = {method: (folder / method / "metrics.jsonl").read_text().splitlines() for method in methods}
    return {method: [json.loads(line) for line in lines] for method, lines in written.items()}


COMPARED = ("infogaze", "ram-plus", "discriminative")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Lines], dict[str, Lines]]:
    """The metrics of one process and of two."""
    folder = tmp_path_factory.mktemp("both")
    return run(folder / "one", 1, methods=COMPARED), run(folder / "two", 2, methods=COMPARED)


@pytest.mark.parametrize("method", COMPARED)
def test_two_processes_give_the_losses_of_one_on_the_same_global_batch(
    method: str, both: tuple[dict[str, Lines], dict[str, Lines]]
) -> None:
    one, two = (lines[method] for lines in both)
    assert len(one) == len(two) == 42
    for single, double in zip(one, two, strict=True):
        assert (single["phase"], single["step"]) == (double["phase"], double["step"])
        assert double["loss"] == pytest.approx(single["loss"], rel=1e-9), single["step"]
        assert double["visited_entropy"] == pytest.approx(single["visited_entropy"], rel=1e-9)


def test_a_killed_rank_restarts_from_the_checkpoint_and_ends_where_it_would_have(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", 2)
    killed = run(tmp_path / "killed", 2, dies_at=25, restarts=1)
    assert killed == whole
    weights = [(tmp_path / name / "infogaze/model/model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert weights[0] == weights[1]


def test_two_processes_hand_on_the_weights_that_named_most_scenes_held_out(tmp_path: Path) -> None:
    lines = run(tmp_path / "two", 2, methods=("random",), hold_out=0.25)["random"]
    judged = [line for line in lines if line["phase"] == 2 and "held_out" in line]
    most = max(line["held_out"][-1] for line in judged)
    step = max(line["step"] for line in judged if line["held_out"][-1] == most)
    (best,) = (tmp_path / "two" / "random" / "checkpoints").glob("*-best-*")
    assert best.name.startswith(f"phase2-step{step:08d}-best")
    kept, model = load_file(best), load_file(tmp_path / "two" / "random" / "model" / "model.safetensors")
    assert all(torch.equal(kept[f"model.{name}"].to(value.dtype), value) for name, value in model.items())


def test_no_thread_of_the_group_outlives_it(tmp_path: Path) -> None:
    # One that does may abort its process at the interpreter's end, with the training done.
    run(tmp_path / "two", 2)
    for rank in range(2):
        made, left = map(int, (tmp_path / "two" / f"threads-{rank}").read_text().split())
        assert made > 0
        assert left == 0


def test_only_one_process_writes(both: tuple[dict[str, Lines], dict[str, Lines]]) -> None:
    lines = both[1]["infogaze"]
    steps = [(line["phase"], line["step"]) for line in lines]
    assert len(steps) == len(set(steps))
