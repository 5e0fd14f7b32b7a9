from __future__ import annotations

import errno
import json
import math
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from infogaze import InfogazeError
from infogaze.data.augmentation import Augmentation
from infogaze.files import FileError
from infogaze.methods.random_looks import FINETUNE_AT_RANDOM
from infogaze.methods.registry import build_for
from infogaze.methods.three_phases import PHASES
from infogaze.nn.model import GlimpseClassifier
from infogaze.nn.pixels import normalise_pixels
from infogaze.training import checkpoint as checkpoints
from infogaze.training import state as states
from infogaze.training import step as stepping
from infogaze.training.folder import TrainingFolder
from infogaze.training.loop import Stopped, train
from infogaze.training.phase_run import Diverged
from infogaze.training.phases import Batch, Objective, Outcome, Phase
from infogaze.training.plan import Callbacks, Plan, Progress
from infogaze.training.recipe import Recipe
from infogaze.training.rollout import classification_outcome, random_places, unroll_places
from infogaze.training.schedule import Plateau
from tests.support.methods import OBJECTIVE
from tests.support.paths import ROOT
from tests.support.small_run import PRESET, RECIPE, epochs, run, scenes
from tests.support.tiny import CONFIG


def same(one: GlimpseClassifier, other: GlimpseClassifier) -> bool:
    """Bit for bit."""
    states = one.state_dict(), other.state_dict()
    return all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[GlimpseClassifier, str]:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    return run(folder), (folder / "metrics.jsonl").read_text()


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(
    undisturbed: tuple[GlimpseClassifier, str], tmp_path: Path
) -> None:
    assert same(undisturbed[0], run(tmp_path / "again"))
    assert not same(undisturbed[0], run(tmp_path / "other", seed=1))


@pytest.mark.slow
def test_three_phases_run_in_order_and_lower_their_losses(tmp_path: Path) -> None:
    steps: list[Progress] = []
    part = epochs(15)
    recipe = Recipe(phase1=part, phase2=part, phase3=part, full_image=part, augmentation=None)
    run(tmp_path / "run", recipe, callbacks=Callbacks(on_step=steps.append))
    assert list(dict.fromkeys((step.phase, step.name) for step in steps)) == [
        (number, phase.name) for number, phase in enumerate(PHASES, 1)
    ]
    for name in ("classify", "imagine"):
        losses = [step.reading.loss for step in steps if step.name == name and step.fresh]
        assert losses[-1] < 0.95 * losses[0], name
    assert steps[-1].reading.accuracy[-1] > 0.7


@pytest.mark.parametrize("stop_at", [1, 7, 17, 18, 19, 29, 31, 41])
def test_a_run_that_is_stopped_anywhere_ends_bit_for_bit_where_it_would_have(
    stop_at: int, undisturbed: tuple[GlimpseClassifier, str], tmp_path: Path
) -> None:
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == stop_at

    with pytest.raises(Stopped, match="stopped in phase"):
        run(tmp_path / "run", callbacks=Callbacks(should_stop=stop))
    assert same(undisturbed[0], run(tmp_path / "run"))
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == undisturbed[1]


def test_a_model_whose_weights_lie_otherwise_in_memory_resumes_too(tmp_path: Path) -> None:
    steps, layout = count(1), torch.channels_last
    straight = run(tmp_path / "straight", memory_format=layout)
    with pytest.raises(Stopped):
        run(tmp_path / "run", callbacks=Callbacks(should_stop=lambda: next(steps) == 5), memory_format=layout)
    assert same(straight, run(tmp_path / "run", memory_format=layout))


KILLED = """
import os, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from infogaze.training import checkpoint as checkpoints
from infogaze.training.plan import Callbacks
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
run(Path(sys.argv[1]), callbacks=Callbacks(should_stop=asked, save_every=0.0))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment", ["step:1", "step:9", "step:19", "step:31", "step:40", "write:1", "write:19", "write:33"]
)
def test_kill_9_at_any_moment_and_the_same_command_again_end_in_identical_weights(
    moment: str, undisturbed: tuple[GlimpseClassifier, str], tmp_path: Path
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
    undisturbed: tuple[GlimpseClassifier, str], tmp_path: Path
) -> None:
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == 25

    with pytest.raises(Stopped):
        run(tmp_path / "run", callbacks=Callbacks(should_stop=stop, save_every=0.0))
    newest = max((tmp_path / "run" / "checkpoints").iterdir())
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    said: list[str] = []
    assert same(undisturbed[0], run(tmp_path / "run", callbacks=Callbacks(on_warning=said.append)))
    assert len(said) == 1
    assert str(newest) in said[0]
    assert "damaged" in said[0]


def test_the_last_two_checkpoints_and_the_best_are_kept(tmp_path: Path) -> None:
    run(tmp_path / "run", callbacks=Callbacks(save_every=0.0), val_fraction=0.2)
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert sum("-best-" in name for name in names) == 1
    assert len(names) == 3


def test_a_run_that_dies_before_its_first_checkpoint_notes_nothing_twice(
    undisturbed: tuple[GlimpseClassifier, str], tmp_path: Path
) -> None:
    class Died(Exception):
        pass

    def die(step: Progress) -> None:
        if step.step == 10:
            raise Died

    with pytest.raises(Died):
        run(tmp_path / "run", callbacks=Callbacks(on_step=die))
    noted = tmp_path / "run" / "metrics.jsonl"
    assert noted.read_text()
    noted.write_text(noted.read_text() + '{"phase": 1, "st')
    assert same(undisturbed[0], run(tmp_path / "run"))
    assert noted.read_text() == undisturbed[1]


def test_a_finished_run_is_not_trained_again(undisturbed: tuple[GlimpseClassifier, str], tmp_path: Path) -> None:
    run(tmp_path / "run")
    steps: list[Progress] = []
    assert same(undisturbed[0], run(tmp_path / "run", callbacks=Callbacks(on_step=steps.append)))
    assert not steps


def test_a_folder_of_another_configuration_is_refused_by_name(tmp_path: Path) -> None:
    run(tmp_path / "run")
    with pytest.raises(InfogazeError, match=r"recipe.grad_clip is 1.0.*2.0"):
        run(tmp_path / "run", replace(RECIPE, grad_clip=2.0))
    with pytest.raises(InfogazeError, match=r"seed is 0.*5"):
        run(tmp_path / "run", seed=5)
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "config.json.partial").write_text("{")
    run(tmp_path / "torn")  # was killed while its first file was written
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(InfogazeError, match="mine: not empty"):
        run(tmp_path / "mine")


def test_the_run_folder_says_what_made_it(tmp_path: Path) -> None:
    run(tmp_path / "run")
    record = json.loads((tmp_path / "run" / "config.json").read_text())
    assert record["versions"]["torch"] == torch.__version__
    expected = {"epochs": 3, "steps": None, "batch_size": 16, "learning_rate": 0.01}
    assert record["config"]["recipe"]["phase1"] == expected
    assert "revision" in record


def test_a_step_that_is_not_finite_is_skipped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls, weights = stepping.PhaseLoss.forward, 0, []

    def spoiled(self: stepping.PhaseLoss, *given: Any) -> tuple[torch.Tensor, ...]:
        nonlocal calls
        calls += 1
        weights.append({name: value.clone() for name, value in self.model.state_dict().items()})
        if calls == 5:
            for part in self.model.modules():
                if isinstance(part, torch.nn.BatchNorm2d) and part.running_mean is not None:
                    part.running_mean.fill_(float("nan"))
            loss, *told = real(self, *given)
            return loss * float("nan"), *told
        return real(self, *given)

    monkeypatch.setattr(stepping.PhaseLoss, "forward", spoiled)
    run(tmp_path / "run")
    for name, value in weights[4].items():
        if "num_batches" not in name:
            assert torch.equal(value, weights[5][name]), f"{name} was changed by the bad step"
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert sum(line["skipped"] for line in lines) == 1


def test_an_epoch_without_a_finite_step_does_not_count_as_a_low_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls, seen = stepping.PhaseLoss.forward, 0, []

    def spoiled(self: stepping.PhaseLoss, *given: Any) -> tuple[torch.Tensor, ...]:
        nonlocal calls
        calls += 1
        loss, *told = real(self, *given)
        return (loss * float("nan") if 7 <= calls <= 12 else loss), *told  # the second epoch of six steps

    class Watched(Plateau):
        def after(self, loss: float) -> Plateau:
            seen.append(loss)
            return super().after(loss)

    monkeypatch.setattr(stepping.PhaseLoss, "forward", spoiled)
    monkeypatch.setattr(states, "Plateau", Watched)
    run(tmp_path / "run", replace(RECIPE, schedule="plateau", phase1=epochs(4), phase2=epochs(4)))
    assert all(loss > 0 for loss in seen)
    assert len(seen) == 3 + 1 + 5, "the epochs of three phases but for one"


def test_too_many_bad_steps_in_a_row_stop_the_run_and_say_where(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"phase 1, step \d+: \d+ steps in a row .* not finite"):
        run(tmp_path / "run", replace(RECIPE, phase1=epochs(20, learning_rate=1e38)))


def test_a_full_disk_leaves_the_last_good_checkpoint(
    undisturbed: tuple[GlimpseClassifier, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, writes = os.fsync, 0

    def full(file: int) -> None:
        nonlocal writes
        writes += 1
        if writes > 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file)

    with monkeypatch.context() as patch:
        patch.setattr("infogaze.files.os.fsync", full)
        with pytest.raises(FileError, match="the disk is full") as error:
            run(tmp_path / "run", callbacks=Callbacks(save_every=0.0))
    assert error.value.disk_full
    assert checkpoints.latest(tmp_path / "run" / "checkpoints", pytest.fail) is not None
    assert same(undisturbed[0], run(tmp_path / "run"))


def _read(folder: Path, phase: str) -> list[list[float]]:
    """The entropies of visited places at each look, line by line."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["visit_entropy"] for line in lines if line["name"] == phase]


def test_looks_at_random_have_the_entropy_of_all_places_and_are_no_collapse(tmp_path: Path) -> None:
    said: list[str] = []
    run(tmp_path / "run", method="random", callbacks=Callbacks(on_warning=said.append))
    lines, places = _read(tmp_path / "run", "finetune"), CONFIG.grid.num_locations
    # n draws from K equal chances have, by Miller and Madow, (K - 1) / 2n nats less; a line is an epoch.
    expected = math.log(places) - (places - 1) / (2 * len(scenes()))
    for line in lines:
        assert len(line) == PRESET.num_looks
        assert line == pytest.approx([expected] * PRESET.num_looks, abs=0.12)
    assert len(lines) == 4
    assert not said


def _stare(model: GlimpseClassifier, batch: Batch, *, objective: Objective, looks: None) -> Outcome:
    """A first look at random and all others at the same place."""
    places = random_places(batch, objective.num_looks).clone()
    places[1:] = 7
    beliefs, _ = unroll_places(model, batch, places)
    locations = model.grid.locations()[places]
    return classification_outcome(model, beliefs, locations=locations, batch=batch, objective=objective)


def _run_phase(
    folder: Path, phase: Phase, callbacks: Callbacks, augmentation: Augmentation | None = None
) -> GlimpseClassifier:
    """A phase of one's own, without a method, a preset or a configuration around it."""
    folder.mkdir(exist_ok=True)
    plan = Plan(
        phases={1: phase},
        recipe=RECIPE,
        learning_rates=PRESET.learning_rates,
        objective=OBJECTIVE,
        augmentation=augmentation,
        seed=0,
    )
    model = build_for("random", CONFIG)
    train(model, plan, split=scenes(), folder=TrainingFolder(folder), callbacks=callbacks)
    return model


def test_a_policy_that_looks_at_one_place_has_no_entropy_and_is_warned_of_once(tmp_path: Path) -> None:
    said: list[str] = []
    phase = replace(FINETUNE_AT_RANDOM, name="stare", loss=_stare)
    _run_phase(tmp_path / "run", phase, Callbacks(on_warning=said.append))
    lines = _read(tmp_path / "run", "stare")
    assert len(lines) == 4
    for line in lines:
        assert line[0] > 2.0
        assert line[1:] == pytest.approx([0.0] * (PRESET.num_looks - 1), abs=1e-9)
    assert len(said) == 1
    assert re.search(r"phase 1, step 6: look 1 .* 1\.0 places .* collapsed", said[0])


def test_a_phase_is_told_how_much_of_it_is_done(tmp_path: Path) -> None:
    told: list[float] = []

    def listening(model: GlimpseClassifier, batch: Batch, *, objective: Objective, looks: None) -> Outcome:
        told.append(float(batch.progress))
        return _stare(model, batch, objective=objective, looks=looks)

    phase, steps = replace(FINETUNE_AT_RANDOM, loss=listening), count(1)
    with pytest.raises(Stopped):
        _run_phase(tmp_path / "run", phase, Callbacks(should_stop=lambda: next(steps) == 5))
    _run_phase(tmp_path / "run", phase, Callbacks())
    assert told == pytest.approx([step / 24 for step in range(24)])


def _images(batches: Iterable[Batch]) -> list[bytes]:
    return sorted(image.numpy().tobytes() for batch in batches for image in batch.images)


def test_before_its_first_step_and_after_its_last_a_phase_sees_all_images_once_as_they_are(tmp_path: Path) -> None:
    # A mean and a variance of images that are cropped and brightened are not those of images as the agent will see them.
    events: list[str] = []
    known = sorted(image.numpy().tobytes() for image in normalise_pixels(scenes().images))
    bias = "backbone.classifier.linear.bias"

    def begin(model: GlimpseClassifier, batches: Iterator[Batch], objective: Objective) -> None:
        seen = list(batches)
        assert _images(seen) == known
        assert {float(batch.progress) for batch in seen} == {0.0}
        assert [set(batch.noise) for batch in seen] == [set(FINETUNE_AT_RANDOM.noise(model, objective))] * 6
        assert objective == OBJECTIVE
        events.append("prepare")

    def end(model: GlimpseClassifier, batches: Iterator[Batch], objective: Objective) -> None:
        seen = list(batches)
        assert _images(seen) == known
        assert {float(batch.progress) for batch in seen} == {1.0}
        with torch.no_grad():
            model.get_parameter(bias).fill_(7.0)
        events.append("conclude")

    def listening(model: GlimpseClassifier, batch: Batch, *, objective: Objective, looks: None) -> Outcome:
        assert not set(_images([batch])) & set(known), "augmented"
        events.append("step")
        return FINETUNE_AT_RANDOM.loss(model, batch, objective=objective, looks=looks)

    phase = replace(FINETUNE_AT_RANDOM, loss=listening, prepare=begin, conclude=end)
    steps, augmentation = count(1), Augmentation(flip=False, brightness=0.5)
    with pytest.raises(Stopped):
        _run_phase(tmp_path / "run", phase, Callbacks(should_stop=lambda: next(steps) == 5), augmentation)
    assert events == ["prepare"] + ["step"] * 5
    model = _run_phase(tmp_path / "run", phase, Callbacks(), augmentation)
    assert events == ["prepare"] + ["step"] * 24 + ["conclude"], "neither again where a run goes on"
    # What it does at the end is in the checkpoint that the next phase begins with.
    for ended in (model, _run_phase(tmp_path / "run", phase, Callbacks(), augmentation)):
        assert ended.get_parameter(bias).tolist() == [7.0] * CONFIG.num_classes
    assert len(events) == 26


def test_a_method_that_looks_at_nothing_has_no_entropy_and_is_no_collapse(tmp_path: Path) -> None:
    said: list[str] = []
    run(tmp_path / "run", method="cnn", callbacks=Callbacks(on_warning=said.append))
    assert _read(tmp_path / "run", "classify") == [[], []]
    assert not said


@pytest.mark.slow
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
