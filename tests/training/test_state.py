from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from infogaze.methods.three_phases import CLASSIFY
from infogaze.nn.model import GlimpseClassifier, build
from infogaze.training import checkpoint as checkpoints
from infogaze.training.checkpoint import Checkpoint
from infogaze.training.schedule import Plateau
from infogaze.training.state import TrainState
from infogaze.training.step import TrainStep
from tests.support.methods import OBJECTIVE
from tests.support.small_run import RECIPE, scenes
from tests.support.tiny import CONFIG

SPLIT = scenes(32)


def _step(model: GlimpseClassifier, ema_decay: float = 0.9) -> TrainStep:
    recipe = replace(RECIPE, ema_decay=ema_decay)
    return TrainStep(model, CLASSIFY, objective=OBJECTIVE, recipe=recipe, augmentation=None, batch_size=16, seed=3)


def _take(step: TrainStep, steps: int) -> None:
    for _ in range(steps):
        step(SPLIT.images[:16], SPLIT.labels[:16], learning_rate=1e-2)


def _half_way(ema_decay: float = 0.9) -> TrainStep:
    """A phase in training, with everything in its state that can be."""
    step = _step(build(CONFIG, 0), ema_decay)
    _take(step, 3)
    step.state.keep_best(0.5)
    _take(step, 2)
    step.state.plateau, step.state.epoch_loss = Plateau(0.25, 1.5, 4), (7.0, 5.0)
    return step


def _same(one: Checkpoint, other: Checkpoint) -> bool:
    assert one.tensors.keys() == other.tensors.keys()
    assert (one.phase, one.step, one.facts) == (other.phase, other.step, other.facts)
    return all(torch.equal(value, other.tensors[name]) for name, value in one.tensors.items())


@pytest.mark.parametrize("ema_decay", [0.0, 0.9])
def test_what_is_restored_from_a_checkpoint_is_what_was_written(ema_decay: float) -> None:
    saved = _half_way(ema_decay).state.checkpoint(1)
    other = _step(build(CONFIG, 1), ema_decay).state
    assert not torch.equal(other.model.state_dict()["backbone.classifier.linear.weight"],
                           saved.tensors["model.backbone.classifier.linear.weight"])  # fmt: skip
    other.restore(saved)
    assert _same(other.checkpoint(1), saved)
    assert (other.step, other.plateau, other.epoch_loss) == (5, Plateau(0.25, 1.5, 4), (7.0, 5.0))
    assert other.best_accuracy == 0.5


def test_it_goes_through_a_file_unchanged(tmp_path: Path) -> None:
    saved = _half_way().state.checkpoint(1)
    checkpoints.write(tmp_path, saved)
    read = checkpoints.latest(tmp_path, pytest.fail)
    assert read is not None
    assert read.tensors.keys() == saved.tensors.keys()
    assert all(torch.equal(value, saved.tensors[name]) for name, value in read.tensors.items())
    state = _step(build(CONFIG, 1)).state
    state.restore(read)
    assert _same(state.checkpoint(1), saved)


def test_a_restored_state_takes_the_steps_that_the_other_takes() -> None:
    straight = _half_way()
    resumed = _step(build(CONFIG, 1))
    resumed.state.restore(straight.state.checkpoint(1))
    _take(straight, 3)
    _take(resumed, 3)
    assert _same(resumed.state.checkpoint(1), straight.state.checkpoint(1))


def test_of_equally_good_weights_the_later_are_kept_and_worse_ones_are_not() -> None:
    state, name = _step(build(CONFIG, 0)).state, "backbone.classifier.linear.bias"
    kept = []
    for accuracy in (0.5, 0.4, 0.5, 0.49):
        with torch.no_grad():
            state.model.get_parameter(name).add_(1.0)
        kept.append(state.keep_best(accuracy))
    assert kept == [True, False, True, False]
    assert state.best_accuracy == 0.5
    torch.testing.assert_close(state.best_weights[name], state.model.get_parameter(name).detach() - 1.0)


def _end(state: TrainState) -> dict[str, torch.Tensor]:
    state.finish()
    return state.model.state_dict()


def test_a_phase_ends_with_the_best_weights_or_else_with_the_ema_or_else_with_the_last() -> None:
    best = _half_way().state
    expected = {name: value.clone() for name, value in best.best_weights.items()}
    assert all(torch.equal(value, expected[name]) for name, value in _end(best).items())

    averaged = _step(build(CONFIG, 0))
    _take(averaged, 3)
    values = {name: value.clone() for name, value in averaged.state.ema.values.items()}
    found = _end(averaged.state)
    assert all(torch.equal(found[name], value) for name, value in values.items())

    last = _step(build(CONFIG, 0), ema_decay=0.0)
    _take(last, 3)
    own = {name: value.clone() for name, value in last.state.model.state_dict().items()}
    assert all(torch.equal(value, own[name]) for name, value in _end(last.state).items())


def test_only_what_the_phase_trains_has_gradients() -> None:
    state = _step(build(CONFIG, 0)).state
    asked = {name for name, parameter in state.model.named_parameters() if parameter.requires_grad}
    assert asked == {name for name, _ in state.model.named_parameters() if name.startswith("backbone.")}
    assert len(state.trained) == len(asked)


def test_before_the_first_step_nothing_is_known() -> None:
    state = _step(build(CONFIG, 0)).state
    assert (state.step, state.best_accuracy, state.best_weights, state.plateau.lowest) == (0, None, {}, math.inf)
