"""Small models of every method with weights that are not faint, and the batches of their phases with the noise drawn for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from infogaze import METHODS, Agent, GlimpseClassifier, ModelConfig, Origin
from infogaze.methods.registry import build_for
from infogaze.models import make_agent
from infogaze.training.phases import Batch, Objective, Outcome, Phase, draw_noise
from tests.support.tiny import CONFIG, PRESET_SIZES

R = TypeVar("R", bound=GlimpseClassifier)

LOOKS = 4
OBJECTIVE = Objective(num_looks=LOOKS, num_classes=CONFIG.num_classes, alpha=0.25, beta=2.0, dropout=0.5)


def sizes(method: str, preset: ModelConfig = PRESET_SIZES) -> ModelConfig:
    return METHODS[method].sizes(preset)


def made(method: str, seed: int = 0, *, preset: ModelConfig = PRESET_SIZES) -> GlimpseClassifier:
    """A model of the method whose predictions and choices differ from scene to scene."""
    model = build_for(method, sizes(method, preset), seed)
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.4, generator=generator)
    return model


def agent_of(
    method: str,
    model: GlimpseClassifier,
    *,
    num_looks: int = LOOKS,
    num_samples: int = 5,
    preset: ModelConfig = PRESET_SIZES,
) -> Agent:
    """An agent around the method's model, choosing its looks as the method does."""
    origin = Origin(method=method, config=sizes(method, preset), num_samples=num_samples)
    names = tuple(f"class {index}" for index in range(CONFIG.num_classes))
    return make_agent(model, names, origin=origin, num_looks=num_looks)


def still(model: R) -> R:
    """The model with its batch norms held in eval mode, so that scenes do not touch each other, whatever mode the rest is in."""
    for part in model.eval().modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.train = lambda mode=True, part=part: part  # type: ignore[method-assign, misc]
    return model


def batch_for(
    phase: Phase,
    model: GlimpseClassifier,
    count: int = 6,
    *,
    progress: float = 0.0,
    seed: int = 0,
    objective: Objective = OBJECTIVE,
) -> Batch:
    """Scenes of noise, with the random numbers that the phase declares."""
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(count, CONFIG.channels, CONFIG.height, CONFIG.width, generator=generator) * 2 - 1
    labels = torch.randint(0, CONFIG.num_classes, (count,), generator=generator)
    noise = draw_noise(phase.noise(model, objective), count, torch.Generator().manual_seed(seed))
    return Batch(images=images, labels=labels, noise=noise, progress=torch.tensor(progress))


def some_of(batch: Batch, part: slice) -> Batch:
    """Some scenes of a batch with their noise."""
    noise = {name: numbers[part] for name, numbers in batch.noise.items()}
    return replace(batch, images=batch.images[part], labels=batch.labels[part], noise=noise)


@torch.no_grad()
def chosen(phase: Phase, model: GlimpseClassifier, batch: Batch, objective: Objective = OBJECTIVE) -> Any:
    """The looks that the phase chooses, as a training step has them chosen: in eval mode, without gradient."""
    model.eval()
    return None if phase.choose is None else phase.choose(model, batch, objective)


def outcome(phase: Phase, model: GlimpseClassifier, batch: Batch, objective: Objective = OBJECTIVE) -> Outcome:
    """A phase's looks, then its loss, each in the mode that a training step has it in."""
    looks = chosen(phase, model, batch, objective)
    model.train()
    for part in phase.frozen(model):
        part.eval()
    return phase.loss(model, batch, objective=objective, looks=looks)


def in_float64(model: R, batch: Batch) -> tuple[R, Batch]:
    noise = {name: numbers.double() for name, numbers in batch.noise.items()}
    return model.double(), replace(batch, images=batch.images.double(), noise=noise)


def gradients(loss: Tensor, model: GlimpseClassifier) -> dict[str, Tensor]:
    """By parameter; zeros where none arrives."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters, allow_unused=True, retain_graph=True)
    return {
        name: torch.zeros_like(parameter) if gradient is None else gradient
        for name, parameter, gradient in zip(names, parameters, found, strict=True)
    }


def reached(loss: Tensor, model: GlimpseClassifier) -> set[str]:
    """The parameters that a gradient arrives at."""
    return {name for name, gradient in gradients(loss, model).items() if bool(gradient.abs().sum() > 0)}


def under(model: GlimpseClassifier, *parts: str) -> set[str]:
    """The parameters of some parts of the model."""
    return {name for name, _ in model.named_parameters() if name.startswith(parts)}
