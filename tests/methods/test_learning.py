"""Every method learns the embedded digits: a short phase 1 that they share, then a short phase of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from infogaze import METHODS, Agent, RandomPolicy
from infogaze.data.digits import digits
from infogaze.data.options import ReadOptions
from infogaze.data.sets import ImageSet, Split
from infogaze.evaluation.rollouts import roll_out
from infogaze.gaze.policies import Policy
from infogaze.methods.cnn import PictureBackbone
from infogaze.methods.registry import build_for
from infogaze.nn.model import GlimpseClassifier
from infogaze.nn.pixels import normalise_pixels
from infogaze.presets import preset
from infogaze.runs import DataChoice, RunConfig, RunFolder
from infogaze.tasks.train import plan_of
from infogaze.training.loop import train
from infogaze.training.plan import Callbacks
from infogaze.training.recipe import PhaseRecipe, Recipe

pytestmark = pytest.mark.slow

LOOKS = 4
SIZES = replace(
    preset("digits").model,
    glimpse_size=12,
    stride=5,
    glimpse_widths=(8, 12),
    belief_size=64,
    latent_size=16,
    flow_layers=1,
)
"""Large glimpses and small networks, which learn in seconds."""
RECIPE = Recipe(
    phase1=PhaseRecipe(epochs=6, batch_size=48, learning_rate=6e-3),
    phase2=PhaseRecipe(epochs=0.25, batch_size=32, learning_rate=1e-3),
    phase3=PhaseRecipe(epochs=0.4, batch_size=32, learning_rate=1e-3),
    full_image=PhaseRecipe(epochs=1, batch_size=64, learning_rate=6e-3),
    augmentation=None,
)
CHANCE = 0.1


def trained(
    method: str,
    images: ImageSet,
    folder: Path,
    *,
    state: dict[str, Any] | None = None,
    recipe: Recipe = RECIPE,
    phases: tuple[int, ...] | None = None,
) -> GlimpseClassifier:
    """The method's model after all its phases or some, or from the state after phase 1 on after the others."""
    settings = replace(preset("digits"), model=METHODS[method].sizes(SIZES), num_looks=LOOKS)
    model = build_for(method, settings.model)
    if state is not None:
        model.backbone.load_state_dict(state)
    every = tuple(range(1 if state is None else 2, len(METHODS[method].phases) + 1))
    config = RunConfig(
        method=method,
        preset=settings,
        recipe=recipe,
        data=DataChoice("digits", None, ReadOptions()),
        seed=0,
        phases=every if phases is None else phases,
        start_from=None if state is None else "phase 1",
    )
    place = RunFolder(folder / "run", config)
    train(model, plan_of(config, model), split=images.train, folder=place, callbacks=Callbacks())
    return model


@pytest.fixture(scope="module")
def images() -> ImageSet:
    drawn = digits(copies=2)
    return replace(drawn, test=Split(drawn.test.images[:300], drawn.test.labels[:300]))


@pytest.fixture(scope="module")
def first_phase(images: ImageSet, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """F, R and C after the phase that the methods share."""
    return trained("random", images, tmp_path_factory.mktemp("first"), phases=(1,)).backbone.state_dict()


def by_look(method: str, model: GlimpseClassifier, images: ImageSet, policy: Policy | None = None) -> Tensor:
    """The accuracy after each look."""
    chosen_by = METHODS[method].policy(5) if policy is None else policy
    return (
        roll_out(Agent(model, images.classes, policy=chosen_by, num_looks=LOOKS), images.test).correct.double().mean(0)
    )


def above_chance(correct: Tensor) -> bool:
    """Three times as often correct as by guessing, and more so with more looks."""
    return float(correct[-1]) > 3 * CHANCE and float(correct[-1]) > float(correct[0]) + 0.05


@pytest.mark.parametrize(
    "method", ["infogaze", "paper-corrected", "gaussian-corrected", "random", "ram", "ram-plus", "discriminative"]
)
def test_a_method_learns_the_digits(method: str, images: ImageSet, first_phase: dict[str, Any], tmp_path: Path) -> None:
    correct = by_look(method, trained(method, images, tmp_path, state=first_phase), images)
    assert above_chance(correct), correct


def test_with_attention_the_digits_are_learned_from_a_first_phase_of_its_own(images: ImageSet, tmp_path: Path) -> None:
    recipe = replace(RECIPE, phase1=replace(RECIPE.phase1, epochs=6))
    correct = by_look("attention", trained("attention", images, tmp_path, recipe=recipe), images)
    assert above_chance(correct), correct


def test_the_oracle_is_far_above_looks_at_random_on_the_same_model(
    images: ImageSet, first_phase: dict[str, Any], tmp_path: Path
) -> None:
    model = trained("oracle", images, tmp_path, state=first_phase)
    oracle, chance = by_look("oracle", model, images), by_look("oracle", model, images, RandomPolicy())
    assert oracle[0] == chance[0], "the first look is at random for both"
    assert bool((oracle[1:] > chance[1:] + 0.15).all())
    assert oracle[-1] > 0.75


def test_the_cnn_classifies_complete_images(images: ImageSet, tmp_path: Path) -> None:
    model = trained("cnn", images, tmp_path)
    assert isinstance(model.backbone, PictureBackbone)
    with torch.no_grad():
        predictions = model.backbone.network(normalise_pixels(images.test.images)).argmax(1)
    assert float((predictions == images.test.labels).double().mean()) > 0.8
