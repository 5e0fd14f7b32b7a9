"""Small models of every method with weights that are not faint, and a batch with the numbers drawn for it."""

from __future__ import annotations

from dataclasses import fields
from typing import TypeVar

import torch
from torch import Tensor, nn

from infogaze import METHODS, ModelConfig, Recogniser
from infogaze.methods.registry import build_for
from infogaze.training.phases import Batch, Draw, Objective, Phase, draw
from tests.support.tiny import CONFIG, WITH_HINDSIGHT

R = TypeVar("R", bound=Recogniser)

LOOKS = 4
OBJECTIVE = Objective(LOOKS, alpha=0.25, beta=2.0, dropout=0.5)


def sizes(method: str) -> ModelConfig:
    return METHODS[method].sizes(WITH_HINDSIGHT)


def made(method: str, seed: int = 0) -> Recogniser:
    """A model of the method whose predictions and choices differ from scene to scene."""
    model = build_for(method, sizes(method), seed)
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.4, generator=generator)
    return model


def still(model: R) -> R:
    """The model with its batch norms held in eval mode, so that scenes do not touch each other, whatever mode the rest is in."""
    for part in model.eval().modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.train = lambda mode=True, part=part: part  # type: ignore[method-assign, misc]
    return model


def batch(count: int = 6, progress: float = 0.0) -> Batch:
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(count, CONFIG.channels, CONFIG.height, CONFIG.width, generator=generator) * 2 - 1
    labels = torch.randint(0, CONFIG.classes, (count,), generator=generator)
    return Batch(images, labels, torch.tensor(progress))


def drawn(phase: Phase, model: Recogniser, scenes: int = 6, seed: int = 0) -> Draw:
    return draw(phase, model, scenes, OBJECTIVE, torch.Generator().manual_seed(seed))


def in_float64(model: R, given: Batch, numbers: Draw) -> tuple[R, Batch, Draw]:
    doubled = Draw(*(getattr(numbers, field.name).double() for field in fields(numbers)))
    return model.double(), Batch(given.images.double(), given.labels, given.progress), doubled


def gradients(loss: Tensor, model: Recogniser) -> dict[str, Tensor]:
    """By parameter; zeros where none arrives."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters, allow_unused=True, retain_graph=True)
    return {
        name: torch.zeros_like(parameter) if gradient is None else gradient
        for name, parameter, gradient in zip(names, parameters, found, strict=True)
    }


def reached(loss: Tensor, model: Recogniser) -> set[str]:
    """The parameters that a gradient arrives at."""
    return {name for name, gradient in gradients(loss, model).items() if bool(gradient.abs().sum() > 0)}


def under(model: Recogniser, *parts: str) -> set[str]:
    """The parameters of some parts of the model."""
    return {name for name, _ in model.named_parameters() if name.startswith(parts)}
