"""Accuracy by look with its interval, and the difference between two policies on the same scenes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_Z = 1.959963984540054  # the 97.5 % point of the standard normal


@dataclass(frozen=True)
class Estimate:
    """A number for each look, and its 95 % interval."""

    value: Float[Tensor, " T"]
    low: Float[Tensor, " T"]
    high: Float[Tensor, " T"]
    n: int
    """Scenes behind it."""


def accuracy(right: Bool[Tensor, "N T"]) -> Estimate:
    """The share of scenes named right at each look, with Wilson's interval."""
    n = len(right)
    p = right.double().mean(0)
    middle = (p + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * torch.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
    return Estimate(p, middle - half, middle + half, n)


def lead(right: Bool[Tensor, "N T"], other: Bool[Tensor, "N T"]) -> Estimate:
    """How much larger the first share is, scene by scene on the same scenes, with the normal interval of paired differences."""
    n = len(right)
    difference = right.double() - other.double()
    mean = difference.mean(0)
    half = _Z * difference.std(0) / n**0.5
    return Estimate(mean, mean - half, mean + half, n)
