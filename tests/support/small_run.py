"""A run small enough to be killed many times: a tiny model on scenes whose brightness tells their class."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from infogaze.data.options import Options
from infogaze.data.sets import Split
from infogaze.methods.registry import METHODS, build_for
from infogaze.nn.model import Recogniser
from infogaze.presets import Preset
from infogaze.runs import DataChoice, RunConfig, RunFolder
from infogaze.training.loop import Surroundings, train
from infogaze.training.recipe import PhaseRecipe, Recipe
from tests.support.tiny import CONFIG, WITH_HINDSIGHT

RECIPE = Recipe(
    PhaseRecipe(3, 16, 1e-2), PhaseRecipe(2, 16, 1e-2), PhaseRecipe(2, 16, 1e-2), PhaseRecipe(2, 16, 1e-2), average=0.9,
)  # fmt: skip
PRESET = Preset(WITH_HINDSIGHT, beta=2.0, learning_rates=(1e-3, 1e-3, 1e-3), mirror=False, looks=4)


def scenes(count: int = 96) -> Split:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, CONFIG.classes, (count,), generator=generator)
    noise = torch.randint(0, 30, (count, CONFIG.channels, CONFIG.height, CONFIG.width), generator=generator)
    return Split((labels.view(-1, 1, 1, 1) * 100 + noise).to(torch.uint8), labels)


def configuration(method: str = "infogaze", recipe: Recipe = RECIPE, seed: int = 0, hold_out: float = 0.0) -> RunConfig:
    """All phases of a method."""
    preset = replace(PRESET, model=METHODS[method].sizes(WITH_HINDSIGHT))
    phases = tuple(range(1, len(METHODS[method].phases) + 1))
    return RunConfig(preset, recipe, DataChoice("made up", None, Options()), seed, method, phases, hold_out=hold_out)


def run(
    folder: Path,
    recipe: Recipe = RECIPE,
    seed: int = 0,
    around: Surroundings | None = None,
    hold_out: float = 0.0,
    device: str = "cpu",
    memory_format: torch.memory_format = torch.contiguous_format,
    method: str = "infogaze",
) -> Recogniser:
    """Train, or go on training, in this folder."""
    config = configuration(method, recipe, seed, hold_out)
    model = build_for(method, config.preset.model, seed).to(device).to(memory_format=memory_format)  # type: ignore[call-overload]
    train(model, scenes(), config, RunFolder(folder, config), Surroundings() if around is None else around)
    return model
