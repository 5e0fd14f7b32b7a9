from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from infogaze.data.augmentation import Augmentation
from infogaze.methods.three_phases import CLASSIFY, IMAGINE
from infogaze.nn.model import build
from infogaze.training.phases import Batch, Objective, Outcome, Phase
from infogaze.training.recipe import Recipe
from infogaze.training.step import TrainStep
from tests.support.methods import OBJECTIVE
from tests.support.small_run import RECIPE, scenes
from tests.support.tiny import CONFIG

SPLIT = scenes(16)


def step_of(
    phase: Phase = CLASSIFY, recipe: Recipe = RECIPE, augmentation: Augmentation | None = None, *, seed: int = 0
) -> TrainStep:
    return TrainStep(
        build(CONFIG, 0), phase, objective=OBJECTIVE, recipe=recipe, augmentation=augmentation, batch_size=16, seed=seed
    )


def test_the_ema_begins_short_and_follows_the_weights() -> None:
    step, name = step_of(augmentation=Augmentation(flip=False)), "backbone.classifier.linear.weight"
    for number in range(30):
        before = step.state.ema.values[name].clone()
        step(SPLIT.images, SPLIT.labels, learning_rate=1e-2)
        weight = step.state.model.state_dict()[name]
        decay = min(RECIPE.ema_decay, (1 + number) / (10 + number))
        torch.testing.assert_close(step.state.ema.values[name], before + (1 - decay) * (weight - before))
    # After thirty steps little may be left of where it began.
    begin = build(CONFIG, 0).state_dict()[name]
    assert (step.state.ema.values[name] - weight).norm() < 0.5 * (begin - weight).norm()


def test_a_phase_ends_with_the_ema() -> None:
    step = step_of(augmentation=Augmentation(flip=False))
    for _ in range(3):
        step(SPLIT.images, SPLIT.labels, learning_rate=1e-2)
    averages = {name: value.clone() for name, value in step.state.ema.values.items()}
    step.state.finish()
    for name, value in step.state.model.state_dict().items():
        if name in averages:
            assert torch.equal(value, averages[name]), name


def test_on_the_cpu_a_recipe_in_bfloat16_is_one_in_float32() -> None:
    # Many processors have no bfloat16 products, and on some that say they have, they fail.
    states = []
    for precision in ("float32", "bfloat16"):
        step = step_of(recipe=replace(RECIPE, precision=precision))
        step(SPLIT.images, SPLIT.labels, learning_rate=1e-2)
        states.append(step.state.model.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_the_noise_of_a_step_follows_from_the_seed_and_is_another_at_each_step() -> None:
    seen: list[dict[str, torch.Tensor]] = []

    def listening(model: object, batch: Batch, *, objective: Objective, looks: None) -> Outcome:
        seen.append({name: numbers.clone() for name, numbers in batch.noise.items()})
        return CLASSIFY.loss(model, batch, objective=objective, looks=looks)

    for seed in (0, 0, 1):
        step = step_of(replace(CLASSIFY, loss=listening), seed=seed)
        for _ in range(2):
            step(SPLIT.images, SPLIT.labels, learning_rate=1e-2)
    one, then, again, then_again, other, _ = (torch.cat([part.flatten() for part in noise.values()]) for noise in seen)
    assert torch.equal(one, again)
    assert torch.equal(then, then_again)
    assert not torch.equal(one, then)
    assert not torch.equal(one, other)


def test_parts_that_a_phase_freezes_are_in_eval_mode_while_it_trains_and_the_others_are_not() -> None:
    modes: list[tuple[bool, bool]] = []

    def listening(model: torch.nn.Module, batch: Batch, *, objective: Objective, looks: None) -> Outcome:
        modes.append((model.get_submodule("backbone").training, model.get_submodule("imagination").training))
        return IMAGINE.loss(model, batch, objective=objective, looks=looks)

    step = step_of(replace(IMAGINE, loss=listening))
    step(SPLIT.images, SPLIT.labels, learning_rate=1e-2)
    assert modes == [(False, True)]


@pytest.mark.parametrize("progress", [0.0, 0.25, 1.0])
def test_a_loss_hears_how_much_of_its_phase_is_done(progress: float) -> None:
    told: list[float] = []

    def listening(model: object, batch: Batch, *, objective: Objective, looks: None) -> Outcome:
        told.append(float(batch.progress))
        return CLASSIFY.loss(model, batch, objective=objective, looks=looks)

    step_of(replace(CLASSIFY, loss=listening))(SPLIT.images, SPLIT.labels, learning_rate=1e-2, progress=progress)
    assert told == [progress]
