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
from infogaze.data.options import Options
from infogaze.data.sets import ImageSet, Split
from infogaze.evaluation.rollouts import roll_out
from infogaze.gaze.policies import Policy
from infogaze.methods.cnn import PictureBackbone
from infogaze.methods.registry import build_for
from infogaze.nn.model import Recogniser
from infogaze.nn.pixels import to_pixels
from infogaze.presets import preset
from infogaze.runs import DataChoice, RunConfig, RunFolder
from infogaze.training.loop import Surroundings, train
from infogaze.training.recipe import PhaseRecipe, Recipe

LOOKS = 4
SIZES = replace(
    preset("digits").model, glimpse=12, stride=5, glimpse_widths=(8, 12), belief_size=64, latent_size=16, flow_layers=1
)
"""Large glimpses and small networks, which learn in seconds."""
RECIPE = Recipe(
    PhaseRecipe(6, 48, 6e-3), PhaseRecipe(0.25, 32, 1e-3), PhaseRecipe(0.4, 32, 1e-3), PhaseRecipe(1, 64, 6e-3),
    augmentation=None,
)  # fmt: skip
CHANCE = 0.1


def trained(
    method: str, images: ImageSet, folder: Path, state: dict[str, Any] | None = None, recipe: Recipe = RECIPE
) -> Recogniser:
    """The method's model after all its phases, or from the state after phase 1 on after the others."""
    settings = replace(preset("digits"), model=METHODS[method].sizes(SIZES), looks=LOOKS)
    model = build_for(method, settings.model)
    phases = tuple(range(1, len(METHODS[method].phases) + 1))
    if state is not None:
        model.backbone.load_state_dict(state)
        phases = phases[1:]
    data = DataChoice("digits", None, Options())
    config = RunConfig(settings, recipe, data, 0, method, phases, start_from=None if state is None else "phase 1")
    train(model, images.train, config, RunFolder(folder / "run", config), Surroundings())
    return model


@pytest.fixture(scope="module")
def images() -> ImageSet:
    drawn = digits(copies=2)
    return replace(drawn, test=Split(drawn.test.images[:300], drawn.test.labels[:300]))


@pytest.fixture(scope="module")
def first_phase(images: ImageSet, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """F, R and C after the phase that the methods share."""
    settings = replace(preset("digits"), model=SIZES, looks=LOOKS)
    config = RunConfig(settings, RECIPE, DataChoice("digits", None, Options()), 0, "random", (1,))
    model = build_for("random", SIZES)
    train(model, images.train, config, RunFolder(tmp_path_factory.mktemp("first") / "run", config), Surroundings())
    return model.backbone.state_dict()


def by_look(method: str, model: Recogniser, images: ImageSet, policy: Policy | None = None) -> Tensor:
    """The share named right after each look."""
    agent = Agent(model, images.classes, looks=LOOKS, samples=5, method=method)
    return roll_out(agent, images.test, agent.policy if policy is None else policy).right.double().mean(0)


def above_chance(right: Tensor) -> bool:
    """Three times as often right as by guessing, and more so with more looks."""
    return float(right[-1]) > 3 * CHANCE and float(right[-1]) > float(right[0]) + 0.05


@pytest.mark.parametrize("method", ["infogaze", "gaussian", "random", "ram", "ram-plus", "discriminative"])
def test_a_method_learns_the_digits(method: str, images: ImageSet, first_phase: dict[str, Any], tmp_path: Path) -> None:
    right = by_look(method, trained(method, images, tmp_path, first_phase), images)
    assert above_chance(right), right


def test_with_attention_the_digits_are_learned_from_a_first_phase_of_its_own(images: ImageSet, tmp_path: Path) -> None:
    recipe = replace(RECIPE, recognise=replace(RECIPE.recognise, epochs=3.5))
    right = by_look("attention", trained("attention", images, tmp_path, recipe=recipe), images)
    assert above_chance(right), right


def test_the_oracle_is_far_above_looks_at_random_on_the_same_model(
    images: ImageSet, first_phase: dict[str, Any], tmp_path: Path
) -> None:
    model = trained("oracle", images, tmp_path, first_phase)
    oracle, chance = by_look("oracle", model, images), by_look("oracle", model, images, RandomPolicy())
    assert oracle[0] == chance[0], "the first look is at random for both"
    assert bool((oracle[1:] > chance[1:] + 0.15).all())
    assert oracle[-1] > 0.75


def test_the_cnn_names_complete_images(images: ImageSet, tmp_path: Path) -> None:
    model = trained("cnn", images, tmp_path)
    assert isinstance(model.backbone, PictureBackbone)
    with torch.no_grad():
        named = model.backbone.network(to_pixels(images.test.images)).argmax(1)
    assert float((named == images.test.labels).double().mean()) > 0.8
