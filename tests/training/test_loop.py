from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import torch

from infogaze.files import write_whole
from infogaze.methods.registry import METHODS
from infogaze.methods.three_phases import PHASES
from infogaze.nn.model import Recogniser
from infogaze.training import checkpoint as checkpoints
from infogaze.training.loop import Diverged, Step, Stopped, Surroundings
from infogaze.training.phases import Batch, Draw, Objective, Outcome, believe, classified, random_places
from infogaze.training.recipe import PhaseRecipe, Recipe
from infogaze.training.schedule import Plateau, cycle
from tests.support.paths import ROOT
from tests.support.small_run import PRESET, RECIPE, run, scenes
from tests.support.tiny import CONFIG


def same(one: Recogniser, other: Recogniser) -> bool:
    """Bit for bit."""
    states = one.state_dict(), other.state_dict()
    return all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recogniser, str]:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    return run(folder), (folder / "metrics.jsonl").read_text()


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(
    undisturbed: tuple[Recogniser, str], tmp_path: Path
) -> None:
    assert same(undisturbed[0], run(tmp_path / "again"))
    assert not same(undisturbed[0], run(tmp_path / "other", seed=1))


def test_three_phases_run_in_order_and_lower_their_losses(tmp_path: Path) -> None:
    steps: list[Step] = []
    part = PhaseRecipe(15, 16, 1e-2)
    recipe = Recipe(part, part, part, part, augmentation=None)
    run(tmp_path / "run", recipe, around=Surroundings(notice=steps.append))
    assert list(dict.fromkeys(step.phase for step in steps)) == [phase.name for phase in PHASES]
    for name in ("recognise", "imagine"):
        losses = [step.loss for step in steps if step.phase == name and step.fresh]
        assert losses[-1] < 0.95 * losses[0], name
    assert steps[-1].accuracy[-1] > 0.8


@pytest.mark.parametrize("stop_at", [1, 7, 17, 18, 19, 29, 31, 41])
def test_a_run_that_is_stopped_anywhere_ends_bit_for_bit_where_it_would_have(
    stop_at: int, undisturbed: tuple[Recogniser, str], tmp_path: Path
) -> None:
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == stop_at

    with pytest.raises(Stopped, match="stopped in phase"):
        run(tmp_path / "run", around=Surroundings(asked_to_stop=stop))
    assert same(undisturbed[0], run(tmp_path / "run"))
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == undisturbed[1]


def test_a_model_whose_weights_lie_otherwise_in_memory_resumes_too(tmp_path: Path) -> None:
    steps, layout = count(1), torch.channels_last
    straight = run(tmp_path / "straight", memory_format=layout)
    with pytest.raises(Stopped):
        run(tmp_path / "run", around=Surroundings(asked_to_stop=lambda: next(steps) == 5), memory_format=layout)
    assert same(straight, run(tmp_path / "run", memory_format=layout))


KILLED = """
import os, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from infogaze.training import checkpoint as checkpoints
from infogaze.training.loop import Surroundings
from tests.support.small_run import run

where, count = sys.argv[2].split(":")
left = int(count)
if where == "write":
    # Killed half way through writing a checkpoint's file.
    real = checkpoints.write_whole
    def half(path, data):
        global left
        left -= 1
        if left == 0:
            path.with_name(path.name + ".partial").write_bytes(data[: len(data) // 2])
            os.kill(os.getpid(), 9)
        real(path, data)
    checkpoints.write_whole = half
def asked():
    global left
    if where == "step":
        left -= 1
        if left == 0:
            os.kill(os.getpid(), 9)
    return False
run(Path(sys.argv[1]), around=Surroundings(asked_to_stop=asked, save_every=0.0))
"""


@pytest.mark.parametrize(
    "moment", ["step:1", "step:9", "step:19", "step:31", "step:40", "write:1", "write:19", "write:33"]
)
def test_kill_9_at_any_moment_and_the_same_command_again_end_in_identical_weights(
    moment: str, undisturbed: tuple[Recogniser, str], tmp_path: Path
) -> None:
    script = tmp_path / "killed.py"
    script.write_text(textwrap.dedent(KILLED))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "run"), moment],
        env=environment,
        cwd=tmp_path,
        check=False,
        capture_output=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert same(undisturbed[0], run(tmp_path / "run"))
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == undisturbed[1]


def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(
    undisturbed: tuple[Recogniser, str], tmp_path: Path
) -> None:
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == 25

    with pytest.raises(Stopped):
        run(tmp_path / "run", around=Surroundings(asked_to_stop=stop, save_every=0.0))
    newest = max((tmp_path / "run" / "checkpoints").iterdir())
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    said: list[str] = []
    assert same(undisturbed[0], run(tmp_path / "run", around=Surroundings(complain=said.append)))
    assert said == [f"{newest}: damaged, the checkpoint before it is used"]


def test_the_last_two_checkpoints_and_the_best_are_kept(tmp_path: Path) -> None:
    run(tmp_path / "run", around=Surroundings(save_every=0.0), hold_out=0.2)
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert sum("-best-" in name for name in names) == 1
    assert len(names) == 3


def test_a_run_that_dies_before_its_first_checkpoint_notes_nothing_twice(
    undisturbed: tuple[Recogniser, str], tmp_path: Path
) -> None:
    class Died(Exception):
        pass

    def die(step: Step) -> None:
        if step.step == 10:
            raise Died

    with pytest.raises(Died):
        run(tmp_path / "run", around=Surroundings(notice=die))
    noted = tmp_path / "run" / "metrics.jsonl"
    assert noted.read_text()
    noted.write_text(noted.read_text() + '{"phase": 1, "st')
    assert same(undisturbed[0], run(tmp_path / "run"))
    assert noted.read_text() == undisturbed[1]


def test_a_finished_run_is_not_trained_again(undisturbed: tuple[Recogniser, str], tmp_path: Path) -> None:
    run(tmp_path / "run")
    steps: list[Step] = []
    assert same(undisturbed[0], run(tmp_path / "run", around=Surroundings(notice=steps.append)))
    assert not steps


def test_a_folder_of_another_configuration_is_refused_by_name(tmp_path: Path) -> None:
    run(tmp_path / "run")
    with pytest.raises(
        ValueError, match=r"run holds a run of another configuration: recipe.clip is 1.0 there and 2.0 here"
    ):
        run(tmp_path / "run", replace(RECIPE, clip=2.0))
    with pytest.raises(ValueError, match=r"another configuration: seed is 0 there and 5 here"):
        run(tmp_path / "run", seed=5)
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "config.json.partial").write_text("{")
    run(tmp_path / "torn")  # was killed while its first file was written
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match="not empty and not a run"):
        run(tmp_path / "mine")


def test_the_run_folder_says_what_made_it(tmp_path: Path) -> None:
    run(tmp_path / "run")
    record = json.loads((tmp_path / "run" / "config.json").read_text())
    assert record["versions"]["torch"] == torch.__version__
    assert record["config"]["recipe"]["recognise"] == {"epochs": 3, "batch": 16, "learning_rate": 0.01}
    assert "revision" in record


def test_a_step_that_is_not_finite_is_skipped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from infogaze.training import step as stepping

    real, calls, states = stepping.PhaseLoss.forward, 0, []

    def spoiled(self: stepping.PhaseLoss, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        nonlocal calls
        calls += 1
        states.append({name: value.clone() for name, value in self.model.state_dict().items()})
        if calls == 5:
            for part in self.model.modules():
                if isinstance(part, torch.nn.BatchNorm2d) and part.running_mean is not None:
                    part.running_mean.fill_(float("nan"))
            loss, *told = real(self, *given)  # type: ignore[arg-type]
            return loss * float("nan"), *told
        return real(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(stepping.PhaseLoss, "forward", spoiled)
    run(tmp_path / "run")
    for name, value in states[4].items():
        if "num_batches" not in name:
            assert torch.equal(value, states[5][name]), f"{name} was changed by the bad step"
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert sum(line["skipped"] for line in lines) == 1


def test_an_epoch_without_a_finite_step_does_not_count_as_a_low_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from infogaze.training import loop
    from infogaze.training import step as stepping

    real, calls, seen = stepping.PhaseLoss.forward, 0, []

    def spoiled(self: stepping.PhaseLoss, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        nonlocal calls
        calls += 1
        loss, *told = real(self, *given)  # type: ignore[arg-type]
        return (loss * float("nan") if 7 <= calls <= 12 else loss), *told  # the second epoch of six steps

    class Watched(Plateau):
        def after(self, loss: float) -> Plateau:
            seen.append(loss)
            return super().after(loss)

    monkeypatch.setattr(stepping.PhaseLoss, "forward", spoiled)
    monkeypatch.setattr(loop, "Plateau", Watched)
    run(tmp_path / "run", replace(RECIPE, schedule="plateau", recognise=PhaseRecipe(4, 16, 1e-2)))
    assert all(loss > 0 for loss in seen)
    assert len(seen) == 3 + 2 + 2, "the epochs of three phases but for one"


def test_too_many_bad_steps_in_a_row_stop_the_run_and_say_where(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"phase 1, step \d+: \d+ steps in a row .* not finite"):
        run(tmp_path / "run", replace(RECIPE, recognise=PhaseRecipe(20, 16, float("inf"))))


def test_a_full_disk_leaves_the_last_good_checkpoint(
    undisturbed: tuple[Recogniser, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, writes = write_whole, 0

    def full(path: Path, data: bytes) -> None:
        nonlocal writes
        writes += 1
        if writes > 6:
            raise OSError(28, "No space left on device")
        real(path, data)

    with monkeypatch.context() as patch:
        patch.setattr("infogaze.training.checkpoint.write_whole", full)
        with pytest.raises(OSError, match="No space left"):
            run(tmp_path / "run", around=Surroundings(save_every=0.0))
    assert checkpoints.latest(tmp_path / "run" / "checkpoints", pytest.fail) is not None
    assert same(undisturbed[0], run(tmp_path / "run"))


def _read(folder: Path, phase: str) -> list[list[float]]:
    """The entropies of visited places at each look, line by line."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["visited_entropy"] for line in lines if line["name"] == phase]


def test_looks_at_random_have_the_entropy_of_all_places_and_are_no_collapse(tmp_path: Path) -> None:
    said: list[str] = []
    run(tmp_path / "run", method="random", around=Surroundings(complain=said.append))
    lines, places = _read(tmp_path / "run", "settle"), CONFIG.grid.places
    # n draws from K equal chances have, by Miller and Madow, (K - 1) / 2n nats less; a line is an epoch.
    expected = math.log(places) - (places - 1) / (2 * len(scenes()))
    for line in lines:
        assert len(line) == PRESET.looks
        assert line == pytest.approx([expected] * PRESET.looks, abs=0.12)
    assert len(lines) == 4
    assert not said


def _stare(model: Recogniser, batch: Batch, numbers: Draw, objective: Objective) -> Outcome:
    """A first look at random and all others at the same place."""
    places = random_places(numbers, objective.looks).clone()
    places[1:] = 7
    beliefs, _ = believe(model, batch, places)
    return classified(model, beliefs, model.grid.locations()[places], batch, numbers, objective)


def test_a_policy_that_looks_at_one_place_has_no_entropy_and_is_complained_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phase = replace(METHODS["random"].phases[1], name="stare", loss=_stare)
    monkeypatch.setitem(METHODS, "made up", replace(METHODS["random"], phases=(phase,)))
    said: list[str] = []
    run(tmp_path / "run", method="made up", around=Surroundings(complain=said.append))
    lines = _read(tmp_path / "run", "stare")
    assert len(lines) == 4
    for line in lines:
        assert line[0] > 2.0
        assert line[1:] == [0.0] * (PRESET.looks - 1)
    assert said == ["phase 1, step 6: look 1 falls on 1.0 places in all scenes together; the policy has collapsed"]


def test_a_phase_is_told_how_much_of_it_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []

    def listening(model: Recogniser, batch: Batch, numbers: Draw, objective: Objective) -> Outcome:
        told.append(float(batch.progress))
        return _stare(model, batch, numbers, objective)

    phase = replace(METHODS["random"].phases[1], loss=listening)
    monkeypatch.setitem(METHODS, "made up", replace(METHODS["random"], phases=(phase,)))
    steps = count(1)
    with pytest.raises(Stopped):
        run(tmp_path / "run", method="made up", around=Surroundings(asked_to_stop=lambda: next(steps) == 5))
    run(tmp_path / "run", method="made up")
    assert told == pytest.approx([step / 24 for step in range(24)])


def test_a_method_that_looks_at_nothing_has_no_entropy_and_is_no_collapse(tmp_path: Path) -> None:
    said: list[str] = []
    run(tmp_path / "run", method="cnn", around=Surroundings(complain=said.append))
    assert _read(tmp_path / "run", "see all") == [[], []]
    assert not said


def test_the_cycle_rises_for_a_fifth_and_falls_to_nearly_nothing() -> None:
    shares = [cycle(step, 100) for step in range(100)]
    assert shares[19] == max(shares) == 1.0
    assert shares[:20] == sorted(shares[:20])
    assert shares[20:] == sorted(shares[20:], reverse=True)
    assert 0 < shares[-1] < 1e-3
    assert 0 < cycle(0, 1) <= 1


def test_the_plateau_halves_after_ten_epochs_without_a_lower_loss() -> None:
    state = Plateau()
    for loss in [3.0, 2.0, *[2.5] * 9]:
        state = state.after(loss)
    assert state.share == 1.0
    assert state.after(2.0).share == 0.5
    assert state.after(1.9).share == 1.0


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_says_how_to_go_on(signal_number: signal.Signals, tmp_path: Path) -> None:
    program = str(Path(sys.executable).parent / "infogaze")
    command = [program, "train", "digits", "--recipe", "quickstart", "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        metrics = tmp_path / "run" / "metrics.jsonl"
        while process.poll() is None and not metrics.exists():
            time.sleep(0.1)
        process.send_signal(signal_number)
        said, _ = process.communicate()
    assert process.returncode == 128 + signal_number
    assert "the same command again goes on from there" in said
    assert "Traceback" not in said
    assert list((tmp_path / "run" / "checkpoints").iterdir())
