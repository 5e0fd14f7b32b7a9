"""The temperature of each number of looks, fitted on scenes that training did not see, so that stated probabilities come true (Guo et al.,
2017)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from scipy.optimize import minimize_scalar
from torch import Tensor

from infogaze.evaluation.calibration import surprise
from infogaze.nn.temperature import tempered

_LARGEST = 10.0
"""Temperatures are from one over this to this."""
_SPREAD = 0.5
"""How far the logarithm of a temperature is from 0 before anything is seen, one standard deviation: few scenes do not change much."""


def fit_temperatures(labels: Int[Tensor, " N"], log_probabilities: Float[Tensor, "N T classes"]) -> tuple[float, ...]:
    """The likeliest temperature after each look, given the labels."""
    return tuple(_fit(labels, look.double()) for look in log_probabilities.unbind(1))


def _fit(labels: Int[Tensor, " N"], log_probabilities: Float[Tensor, "N classes"]) -> float:
    def cost(log_temperature: float) -> float:
        temperature = torch.full(labels.shape, math.exp(log_temperature), dtype=torch.float64)
        stated = tempered(log_probabilities, temperature)
        return float(surprise(labels, stated[:, None]).sum()) + 0.5 * (log_temperature / _SPREAD) ** 2

    most = math.log(_LARGEST)
    return math.exp(minimize_scalar(cost, bounds=(-most, most), method="bounded", options={"xatol": 1e-6}).x)
