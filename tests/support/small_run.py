"""A run small enough to be killed many times: a tiny model on scenes whose brightness tells their class."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from infogaze.data.options import ReadOptions
from infogaze.data.sets import Split
from infogaze.methods.registry import METHODS, build_for
from infogaze.nn.config import ModelConfig
from infogaze.nn.model import GlimpseClassifier
from infogaze.presets import Preset
from infogaze.runs import DataChoice, RunConfig, RunFolder
from infogaze.tasks.train import plan_of
from infogaze.tasks.validation import split_validation, validator
from infogaze.training.loop import train
from infogaze.training.plan import Callbacks
from infogaze.training.recipe import PhaseRecipe, Recipe
from infogaze.training.targets import Teacher
from tests.support.tiny import CONFIG, PRESET_SIZES


def epochs(count: float, learning_rate: float = 1e-2) -> PhaseRecipe:
    """A phase in batches of 16 scenes."""
    return PhaseRecipe(epochs=count, batch_size=16, learning_rate=learning_rate)


RECIPE = Recipe(
    phase1=epochs(3), phase2=epochs(2), phase3=epochs(2), full_image=epochs(2), ema_decay=0.9, grad_clip=1.0
)
PRESET = Preset(model=PRESET_SIZES, beta=2.0, learning_rates=(1e-3, 1e-3, 1e-3), horizontal_flip=False, num_looks=4)


def scenes(count: int = 96) -> Split:
    """Labels at random; class k has brightness 100 k, and a little noise."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, CONFIG.num_classes, (count,), generator=generator)
    noise = torch.randint(0, 30, (count, CONFIG.channels, CONFIG.height, CONFIG.width), generator=generator)
    return Split((labels.view(-1, 1, 1, 1) * 100 + noise).to(torch.uint8), labels)


def configuration(
    method: str = "infogaze",
    recipe: Recipe = RECIPE,
    *,
    seed: int = 0,
    val_fraction: float = 0.0,
    sizes: ModelConfig = PRESET_SIZES,
) -> RunConfig:
    """All phases of a method."""
    return RunConfig(
        method=method,
        preset=replace(PRESET, model=METHODS[method].sizes(sizes)),
        recipe=recipe,
        data=DataChoice("made up", None, ReadOptions()),
        seed=seed,
        phases=tuple(range(1, len(METHODS[method].phases) + 1)),
        val_fraction=val_fraction,
    )


def run(
    folder: Path,
    recipe: Recipe = RECIPE,
    *,
    method: str = "infogaze",
    seed: int = 0,
    val_fraction: float = 0.0,
    callbacks: Callbacks | None = None,
    device: str = "cpu",
    memory_format: torch.memory_format = torch.contiguous_format,
    sizes: ModelConfig = PRESET_SIZES,
    teacher: Teacher | None = None,
) -> GlimpseClassifier:
    """Train, or go on training, in this folder. With a validation split it is validated as real runs are, unless `callbacks` do."""
    config = configuration(method, recipe, seed=seed, val_fraction=val_fraction, sizes=sizes)
    model = build_for(method, config.preset.model, seed).to(device).to(memory_format=memory_format)  # type: ignore[call-overload]
    training, validation = split_validation(scenes(), config)
    callbacks = Callbacks() if callbacks is None else callbacks
    if len(validation) and callbacks.validate is None:
        callbacks = replace(callbacks, validate=validator(validation, config))
    plan = replace(plan_of(config, model), teacher=teacher)
    train(model, plan, split=training, folder=RunFolder(folder, config), callbacks=callbacks)
    return model
