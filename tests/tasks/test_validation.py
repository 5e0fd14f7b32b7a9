from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from infogaze.data.sets import Split
from infogaze.errors import InfogazeError
from infogaze.methods.registry import METHODS, build_for
from infogaze.nn.model import GlimpseClassifier
from infogaze.tasks.validation import LARGEST, split_validation, validator
from infogaze.training import phase_run
from infogaze.training.loop import Stopped
from infogaze.training.phase_run import PhaseRun
from infogaze.training.plan import Callbacks
from tests.support.small_run import configuration, run, scenes

SHARE = 0.25


def same(one: GlimpseClassifier, other: GlimpseClassifier) -> bool:
    """The same weights, but for how a processor may round."""
    states = one.state_dict(), other.state_dict()
    return all(torch.allclose(states[0][name], states[1][name], rtol=1e-4, atol=1e-6) for name in states[0])


def shares(folder: Path) -> list[tuple[int, int, list[float]]]:
    """Phase, step and accuracy by look wherever the validation split was looked at."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["phase"], line["step"], line["val_accuracy"]) for line in lines if "val_accuracy" in line]


def test_the_validation_split_is_not_learned_from_and_all_other_scenes_are() -> None:
    numbered = Split(torch.arange(96, dtype=torch.uint8).view(-1, 1, 1, 1), torch.arange(96))
    training, validation = split_validation(numbered, configuration(val_fraction=SHARE))
    assert len(validation) == 24
    assert sorted([*training.labels.tolist(), *validation.labels.tolist()]) == list(range(96))
    assert torch.equal(training.images.flatten().long(), training.labels)
    many = Split(torch.zeros(8 * LARGEST, 1, 1, 1, dtype=torch.uint8), torch.zeros(8 * LARGEST, dtype=torch.int64))
    training, validation = split_validation(many, configuration(val_fraction=SHARE))
    assert (len(training), len(validation)) == (6 * LARGEST, 2 * LARGEST)


def test_another_seed_has_another_validation_split_and_a_fraction_of_nothing_none() -> None:
    numbered = Split(torch.arange(96, dtype=torch.uint8).view(-1, 1, 1, 1), torch.arange(96))
    one, again, other = (
        set(split_validation(numbered, configuration(val_fraction=SHARE, seed=seed))[1].labels.tolist())
        for seed in (0, 0, 1)
    )
    assert one == again != other
    training, validation = split_validation(numbered, configuration())
    assert (len(training), len(validation)) == (96, 0)


def test_a_validation_split_that_leaves_nothing_to_train_on_is_refused_with_what_would_leave_something() -> None:
    two = Split(torch.zeros(2, 1, 1, 1, dtype=torch.uint8), torch.arange(2))
    with pytest.raises(InfogazeError, match=r"val_fraction is 0\.9; .*below 0\.75 with 2 images"):
        split_validation(two, configuration(val_fraction=0.9))
    assert len(split_validation(two, configuration(val_fraction=0.74))[0]) == 1


@pytest.mark.parametrize(("steps", "times"), [(1, 1), (7, 7), (10, 10), (95, 11), (4000, 10)])
def test_it_is_looked_at_ten_times_or_so_and_after_the_last_step(steps: int, times: int) -> None:
    def due(step: int) -> bool:
        run: Any = SimpleNamespace(
            _callbacks=Callbacks(validate=lambda *given: ()),
            state=SimpleNamespace(step=step), steps=steps, done=step == steps,
        )  # fmt: skip
        return PhaseRun.validation_due.__get__(run)

    validated = [step for step in range(1, steps + 1) if due(step)]
    assert len(validated) == times
    assert validated[-1] == steps


def test_every_phase_says_what_the_weights_that_it_would_end_with_are_worth(tmp_path: Path) -> None:
    # A dictionary's entries follow F once more at the end, which may change its looks; nothing does where there is none.
    model = run(tmp_path / "run", val_fraction=SHARE, method="paper")
    config = configuration("paper", val_fraction=SHARE)
    said = shares(tmp_path / "run")
    steps = METHODS["paper"].phases[2].budget(config.recipe).num_steps(72)
    assert steps < 20, "each is a tenth or more"
    assert [phase for phase, _, _ in said if phase == 3] == [3] * steps
    assert {phase for phase, _, _ in said} == {1, 2, 3}
    _, validation = split_validation(scenes(), config)
    measured = validator(validation, config)(model, METHODS["paper"].phases[2])
    of_phase_3 = [accuracy for phase, _, accuracy in said if phase == 3]
    assert any(list(measured) == pytest.approx(accuracy) for accuracy in of_phase_3)
    assert measured[-1] == pytest.approx(max(accuracy[-1] for accuracy in of_phase_3))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_validated_look_by_look(method: str) -> None:
    config = configuration(method, val_fraction=SHARE)
    _, validation = split_validation(scenes(), config)
    model = build_for(method, config.preset.model)
    for phase in METHODS[method].phases:
        accuracy = validator(validation, config)(model, phase)
        assert len(accuracy) == (1 if method == "cnn" else config.preset.num_looks)
        assert all(0.0 <= share <= 1.0 for share in accuracy)


def test_a_phase_ends_with_the_weights_of_the_best_accuracy_and_of_equals_the_later(tmp_path: Path) -> None:
    judged: list[tuple[float, dict[str, Tensor]]] = []

    def scripted(model: GlimpseClassifier, *given: object) -> tuple[float, ...]:
        share = (0.9, 0.5, 0.9, 0.1)[len(judged) % 4]
        judged.append((share, {name: value.clone() for name, value in model.state_dict().items()}))
        return 0.95, share

    model = run(tmp_path / "run", method="random", val_fraction=SHARE, callbacks=Callbacks(validate=scripted))
    steps = [step for phase, step, _ in shares(tmp_path / "run") if phase == 2]
    last_phase = judged[-len(steps) :]
    place = max(place for place, (share, _) in enumerate(last_phase) if share == 0.9)
    assert place < len(steps) - 1
    (path,) = (tmp_path / "run" / "checkpoints").glob("*-best-*")
    assert path.name.startswith(f"phase2-step{steps[place]:08d}-best")
    stored = load_file(path)
    for name, value in model.state_dict().items():
        assert torch.equal(value, last_phase[place][1][name])
        assert torch.equal(value, stored[f"model.{name}"])


def test_validation_on_the_way_changes_nothing_of_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    equals = Callbacks(validate=lambda *given: (1.0,))  # so that a phase ends with its last weights
    often = run(tmp_path / "often", method="random", val_fraction=SHARE, callbacks=equals)
    monkeypatch.setattr(phase_run, "_VALIDATIONS", 1)
    seldom = run(tmp_path / "seldom", method="random", val_fraction=SHARE, callbacks=equals)
    assert len(shares(tmp_path / "often")) > len(shares(tmp_path / "seldom")) == 2
    assert same(often, seldom)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> tuple[GlimpseClassifier, Path]:
    folder = tmp_path_factory.mktemp("straight") / "run"
    return run(folder, method="random", val_fraction=SHARE), folder


@pytest.mark.parametrize("stop_at", [1, 9, 14, 20])
def test_a_run_with_a_validation_split_that_is_stopped_ends_where_it_would_have(
    stop_at: int, straight: tuple[GlimpseClassifier, Path], tmp_path: Path
) -> None:
    asked = count(1)
    callbacks = Callbacks(should_stop=lambda: next(asked) == stop_at)
    with pytest.raises(Stopped):
        run(tmp_path / "run", method="random", val_fraction=SHARE, callbacks=callbacks)
    assert same(straight[0], run(tmp_path / "run", method="random", val_fraction=SHARE))
    assert shares(tmp_path / "run") == shares(straight[1])


@pytest.mark.parametrize("stop_at", [9, 20])
def test_a_run_that_goes_on_remembers_its_best_weights(stop_at: int, tmp_path: Path) -> None:
    judged, asked, firsts = count(), count(1), (0, 14)  # a phase's first weights, after one step, are best

    def scripted(*given: object) -> tuple[float, ...]:
        return (0.9 if next(judged) in firsts else 0.1,)

    validating = Callbacks(validate=scripted)
    straight = run(tmp_path / "straight", method="random", val_fraction=SHARE, callbacks=validating)
    assert [phase for phase, _, accuracy in shares(tmp_path / "straight") if accuracy == [0.9]] == [1, 2]
    judged = count()
    stopping = Callbacks(validate=scripted, should_stop=lambda: next(asked) == stop_at)
    with pytest.raises(Stopped):
        run(tmp_path / "run", method="random", val_fraction=SHARE, callbacks=stopping)
    assert same(straight, run(tmp_path / "run", method="random", val_fraction=SHARE, callbacks=validating))
