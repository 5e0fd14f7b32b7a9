"""The monotonic rational-quadratic spline of neural spline flows (paper, appendix D; Durkan et al., 2019), with its log-derivative.

Written without cumulative sums, searches or gathers: K is small, so sums and choices are spelt out bin by bin, which a compiler fuses
into one pass over memory. Outside [-bound, bound] the spline is the identity, and its slope at both ends is 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

_SMALLEST_BIN = 1e-3  # of the range
_SMALLEST_SLOPE = 1e-3
_SLOPE_ONE = math.log(math.expm1(1.0 - _SMALLEST_SLOPE))  # softplus of this, plus the smallest slope, is 1


@dataclass(frozen=True)
class Knots:
    """A spline for each element of `*batch`: K bins between K + 1 knots."""

    widths: tuple[Float[Tensor, "*batch"], ...]
    """Of the K bins, positive, 2 * bound together."""
    heights: tuple[Float[Tensor, "*batch"], ...]
    """Of the K bins, positive, 2 * bound together."""
    slopes: tuple[Float[Tensor, "*batch"], ...]
    """At the K - 1 inner knots, positive."""
    bound: float


def parameters(bins: int) -> int:
    """How many free numbers a spline of this many bins has."""
    return 3 * bins - 1


def knots(raw: Float[Tensor, "*batch n d"], bound: float) -> Knots:
    """Any real numbers, n = 3K - 1 for each element, as a valid spline; zeros give the identity. At least float32 inside."""
    raw = raw.to(torch.promote_types(raw.dtype, torch.float32))
    bins = (raw.shape[-2] + 1) // 3
    numbers = raw.unbind(-2)
    return Knots(
        widths=_sizes(numbers[:bins], bound),
        heights=_sizes(numbers[bins : 2 * bins], bound),
        slopes=tuple(_SMALLEST_SLOPE + functional.softplus(slope + _SLOPE_ONE) for slope in numbers[2 * bins :]),
        bound=bound,
    )


def _sizes(numbers: tuple[Tensor, ...], bound: float) -> tuple[Tensor, ...]:
    """Bin sizes that add up to the range: a softmax, with a smallest size."""
    peak = reduce(torch.maximum, numbers)
    weights = [torch.exp(number - peak) for number in numbers]
    scale = 2 * bound * (1.0 - _SMALLEST_BIN * len(numbers)) / sum(weights[1:], weights[0])
    return tuple(2 * bound * _SMALLEST_BIN + scale * weight for weight in weights)


def forward(x: Float[Tensor, "*batch"], spline: Knots) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """f(x) and log f'(x)."""
    inside = x.abs() < spline.bound
    bin = _bin(torch.where(inside, x, 0.0), spline, spline.widths)
    xi = ((bin.value - bin.left) / bin.width).clamp(0.0, 1.0)
    s, mix = bin.height / bin.width, xi * (1.0 - xi)
    # s (1 - 2 mix) + (slope_left + slope_right) mix: a sum of positive terms, so it cannot reach zero by rounding.
    denominator = s * (1.0 - 2.0 * mix) + (bin.slope_left + bin.slope_right) * mix
    y = bin.bottom + bin.height * (s * xi.square() + bin.slope_left * mix) / denominator
    numerator = bin.slope_right * xi.square() + 2.0 * s * mix + bin.slope_left * (1.0 - xi).square()
    log_slope = 2.0 * torch.log(s) + torch.log(numerator) - 2.0 * torch.log(denominator)
    return torch.where(inside, y, x), torch.where(inside, log_slope, 0.0)


def inverse(y: Float[Tensor, "*batch"], spline: Knots) -> Float[Tensor, "*batch"]:
    """The x with f(x) = y: the root of a quadratic within its bin."""
    inside = y.abs() < spline.bound
    bin = _bin(torch.where(inside, y, 0.0), spline, spline.heights)
    s, rise = bin.height / bin.width, bin.value - bin.bottom
    bend = rise * (bin.slope_left + bin.slope_right - 2.0 * s)
    a = bin.height * (s - bin.slope_left) + bend
    b = bin.height * bin.slope_left - bend
    c = -s * rise
    xi = 2.0 * c / (-b - torch.sqrt((b.square() - 4.0 * a * c).clamp(min=0.0)))
    return torch.where(inside, bin.left + xi * bin.width, y)


@dataclass(frozen=True)
class _Bin:
    """The bin that a value falls in, by its left, bottom corner, size and the slopes at both ends."""

    value: Tensor
    left: Tensor
    bottom: Tensor
    width: Tensor
    height: Tensor
    slope_left: Tensor
    slope_right: Tensor


def _bin(value: Tensor, spline: Knots, sizes: tuple[Tensor, ...]) -> _Bin:
    """Choose the bin along the axis whose bin sizes are given, by going from knot to knot."""
    one = torch.ones_like(spline.widths[0])
    slopes = (one, *spline.slopes, one)
    x = y = knot = -spline.bound * one
    left, bottom, width, height = x, y, spline.widths[0], spline.heights[0]
    slope_left, slope_right = slopes[0], slopes[1]
    for k in range(1, len(spline.widths)):
        x, y, knot = x + spline.widths[k - 1], y + spline.heights[k - 1], knot + sizes[k - 1]
        beyond = value >= knot
        left, bottom = torch.where(beyond, x, left), torch.where(beyond, y, bottom)
        width, height = torch.where(beyond, spline.widths[k], width), torch.where(beyond, spline.heights[k], height)
        slope_left = torch.where(beyond, slopes[k], slope_left)
        slope_right = torch.where(beyond, slopes[k + 1], slope_right)
    return _Bin(value, left, bottom, width, height, slope_left, slope_right)
