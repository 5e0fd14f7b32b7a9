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

from infogaze.training import distributed
from tests.support.paths import ROOT

PROCESS = """
import os, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)  # so that no rounding adds up over the steps
from infogaze.training.distributed import first_process_first, processes, rank, world_size
from infogaze.training.loop import train
from infogaze.training.plan import Callbacks
from infogaze.runs import RunFolder
from infogaze.methods.registry import build_for
from infogaze.models import make_agent, save
from infogaze.gaze.agent import Origin
from infogaze.tasks.train import plan_of
from infogaze.tasks.validation import split_validation, validator
from tests.support.small_run import configuration, scenes

def threads():
    return set(os.listdir("/proc/self/task"))

dies_at, alone = int(sys.argv[2]), threads()
with processes(torch.device("cpu")):
    talking, number = threads() - alone, rank()
    asked = 0
    def stop():
        global asked
        asked += 1
        if asked == dies_at and number == world_size() - 1 and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
            os._exit(1)
        return False
    from infogaze.training import phase_run
    phase_run.LOG_EVERY = 1
    for method in sys.argv[3:]:
        out, config = Path(sys.argv[1]) / method, configuration(method, val_fraction=float(os.environ["VAL_FRACTION"]))
        model = build_for(method, config.preset.model, 0)
        for part in model.eval().modules():
            if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
                part.train = lambda mode=True, part=part: part   # the CPU has no synchronised batch norm
        with first_process_first():
            folder = RunFolder(out, config)
        training, validation = split_validation(scenes(), config)
        validate = validator(validation, config) if len(validation) else None
        callbacks = Callbacks(should_stop=stop, save_every=0.0, validate=validate)
        train(model, plan_of(config, model), split=training, folder=folder, callbacks=callbacks)
        if number == 0:
            origin = Origin(method=method, config=config.preset.model, num_samples=5)
            save(make_agent(model, ("a", "b", "c"), origin=origin, num_looks=4), out / "model")
(Path(sys.argv[1]) / f"threads-{number}").write_text(f"{len(talking)} {len(talking & threads())}")
"""

Lines = list[dict[str, Any]]


def run(
    folder: Path,
    world_size: int,
    *,
    dies_at: int = -1,
    restarts: int = 0,
    methods: tuple[str, ...] = ("infogaze",),
    val_fraction: float = 0.0,
) -> dict[str, Lines]:
    """Train under torchrun, each method in a folder of its own, and return their metrics."""
    script = folder.parent / "process.py"
    script.write_text(PROCESS)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "VAL_FRACTION": str(val_fraction)}
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={world_size}",
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


COMPARED = ("infogaze", "paper-corrected", "ram-plus", "discriminative")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Lines], dict[str, Lines]]:
    """The metrics of one process and of two."""
    folder = tmp_path_factory.mktemp("both")
    return run(folder / "one", 1, methods=COMPARED), run(folder / "two", 2, methods=COMPARED)


@pytest.mark.slow
@pytest.mark.parametrize("method", COMPARED)
def test_two_processes_give_the_losses_of_one_on_the_same_global_batch(
    method: str, both: tuple[dict[str, Lines], dict[str, Lines]]
) -> None:
    one, two = (lines[method] for lines in both)
    assert len(one) == len(two) == 42
    for single, double in zip(one, two, strict=True):
        assert (single["phase"], single["step"]) == (double["phase"], double["step"])
        assert double["loss"] == pytest.approx(single["loss"], rel=1e-7), single["step"]
        assert double["visit_entropy"] == pytest.approx(single["visit_entropy"], rel=1e-7)


@pytest.mark.slow
def test_a_killed_rank_restarts_from_the_checkpoint_and_ends_where_it_would_have(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", 2)
    killed = run(tmp_path / "killed", 2, dies_at=25, restarts=1)
    assert killed == whole
    weights = [(tmp_path / name / "infogaze/model/model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_two_processes_end_with_the_weights_that_were_best_on_the_validation_split(tmp_path: Path) -> None:
    lines = run(tmp_path / "two", 2, methods=("random",), val_fraction=0.25)["random"]
    judged = [line for line in lines if line["phase"] == 2 and "val_accuracy" in line]
    most = max(line["val_accuracy"][-1] for line in judged)
    step = max(line["step"] for line in judged if line["val_accuracy"][-1] == most)
    (best,) = (tmp_path / "two" / "random" / "checkpoints").glob("*-best-*")
    assert best.name.startswith(f"phase2-step{step:08d}-best")
    kept, model = load_file(best), load_file(tmp_path / "two" / "random" / "model" / "model.safetensors")
    assert all(torch.equal(kept[f"model.{name}"].to(value.dtype), value) for name, value in model.items())


@pytest.mark.slow
def test_no_thread_of_the_group_outlives_it(tmp_path: Path) -> None:
    # One that does may abort its process at the interpreter's end, with the training done.
    run(tmp_path / "two", 2)
    for rank in range(2):
        made, left = map(int, (tmp_path / "two" / f"threads-{rank}").read_text().split())
        assert made > 0
        assert left == 0


@pytest.mark.slow
def test_only_one_process_writes(both: tuple[dict[str, Lines], dict[str, Lines]]) -> None:
    lines = both[1]["infogaze"]
    steps = [(line["phase"], line["step"]) for line in lines]
    assert len(steps) == len(set(steps))


def test_parts_divide_a_batch_without_gap_or_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    assert distributed.own_part(12) == slice(0, 12), "alone it has all"
    monkeypatch.setattr(distributed, "world_size", lambda: 3)
    parts = []
    for number in range(3):
        monkeypatch.setattr(distributed, "rank", lambda number=number: number)
        parts += list(range(12))[distributed.own_part(12)]
    assert parts == list(range(12))


def test_a_process_alone_is_the_first_of_one_and_needs_no_agreement() -> None:
    with distributed.processes(torch.device("cpu")) as device, distributed.first_process_first():
        assert device == torch.device("cpu")
        assert (distributed.rank(), distributed.world_size()) == (0, 1)
        assert [distributed.any_process(flag, device) for flag in (True, False)] == [True, False]
