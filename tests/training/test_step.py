from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from infogaze.data.augmentation import Augmentation
from infogaze.methods.three_phases import PHASES
from infogaze.nn.model import build
from infogaze.training.phases import Objective
from infogaze.training.step import Share, Stepper
from tests.support.small_run import RECIPE, scenes
from tests.support.tiny import CONFIG

OBJECTIVE = Objective(4, alpha=0.25, beta=2.0, dropout=0.5)


def stepper(share: Share = Share()) -> Stepper:
    model = build(CONFIG, 0)
    made = Stepper(model.train(), PHASES[0], OBJECTIVE, RECIPE, Augmentation(flip=False), 16, 0, share)
    model.train()
    return made


def test_the_average_begins_short_and_follows_its_definition() -> None:
    state, split = stepper(), scenes()
    name = "backbone.classifier.linear.weight"
    expected: Tensor | None = None
    for step in range(30):
        before = state.average[name].clone()
        state.step(split.images[:16], split.labels[:16], 1e-2)
        weight = state._model.state_dict()[name]
        decay = min(RECIPE.average, (1 + step) / (10 + step))
        expected = before + (1 - decay) * (weight - before)
        torch.testing.assert_close(state.average[name], expected)
    # After thirty steps little may be left of where it began.
    begin = build(CONFIG, 0).state_dict()[name]
    weight = state._model.state_dict()[name]
    assert (state.average[name] - weight).norm() < 0.3 * (begin - weight).norm()


def test_a_phase_hands_on_the_average() -> None:
    state, split = stepper(), scenes()
    for _ in range(3):
        state.step(split.images[:16], split.labels[:16], 1e-2)
    averages = {name: value.clone() for name, value in state.average.items()}
    state.hand_on()
    for name, value in state._model.state_dict().items():
        if name in averages:
            assert torch.equal(value, averages[name]), name


def test_on_the_cpu_a_recipe_in_bfloat16_is_one_in_float32() -> None:
    # Many processors have no bfloat16 products, and on some that say they have, they fail.
    split, states = scenes(), []
    for precision in ("float32", "bfloat16"):
        model = build(CONFIG, 0).train()
        state = Stepper(model, PHASES[0], OBJECTIVE, replace(RECIPE, precision=precision), None, 16, 0)
        state.step(split.images[:16], split.labels[:16], 1e-2)
        states.append(model.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_shares_divide_a_batch_without_gap_or_overlap() -> None:
    parts = [list(range(12))[Share(rank, 3).of(12)] for rank in range(3)]
    assert sum(parts, []) == list(range(12))  # noqa: RUF017
