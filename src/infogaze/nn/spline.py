"""The monotonic rational-quadratic spline of neural spline flows (paper, appendix D; Durkan et al., 2019), with its log-derivative.

Written without cumulative sums, searches or gathers: K is small, so sums and choices are spelt out bin by bin, which a compiler fuses
into few passes over memory. A choice is a product with ones and zeros: as good to a compiler, and faster than `where` on a CPU without one.
Outside [-bound, bound] the spline is the identity, and its slope at both ends is 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from infogaze.nn.precision import precise

_SMALLEST_BIN = 1e-3  # of the range
_SMALLEST_SLOPE = 1e-3
_SLOPE_ONE = math.log(math.expm1(1.0 - _SMALLEST_SLOPE))  # softplus of this, plus the smallest slope, is 1


@dataclass(frozen=True, kw_only=True)
class Knots:
    """A spline for each element of `*batch`: K bins between K + 1 knots."""

    widths: tuple[Float[Tensor, "*batch"], ...]
    """Of the K bins, positive, 2 * bound together."""
    heights: tuple[Float[Tensor, "*batch"], ...]
    """Of the K bins, positive, 2 * bound together."""
    slopes: tuple[Float[Tensor, "*batch"], ...]
    """At the K - 1 inner knots, positive."""
    bound: float

    def double(self) -> Knots:
        """The same in float64."""
        widths, heights, slopes = (
            tuple(value.double() for value in part) for part in (self.widths, self.heights, self.slopes)
        )
        return Knots(widths=widths, heights=heights, slopes=slopes, bound=self.bound)


def parameters(bins: int) -> int:
    """How many free numbers a spline of this many bins has."""
    return 3 * bins - 1


def knots(raw: Float[Tensor, "*batch n d"], bound: float) -> Knots:
    """Any real numbers, n = 3K - 1 for each element, as a valid spline; zeros give the identity. At least float32 inside."""
    raw = precise(raw)
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
    peak = reduce(torch.maximum, numbers).detach()  # It cancels out, and so would its gradient.
    weights = [torch.exp(number - peak) for number in numbers]
    scale = 2 * bound * (1.0 - _SMALLEST_BIN * len(numbers)) / sum(weights[1:], weights[0])
    return tuple(2 * bound * _SMALLEST_BIN + scale * weight for weight in weights)


def forward(x: Float[Tensor, "*batch"], spline: Knots) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """f(x) and log f'(x)."""
    inside = x.abs() < spline.bound
    bin = _bin(torch.where(inside, x, 0.0), spline, spline.widths)
    xi = ((bin.value - bin.left) / bin.width).clamp(0.0, 1.0)
    s, rest = bin.height / bin.width, 1.0 - xi
    # Only sums of positive terms: none can reach zero by rounding.
    near_left, near_right = s * xi + bin.slope_left * rest, s * rest + bin.slope_right * xi
    below, above = xi * near_left, rest * near_right
    y = bin.bottom + bin.height * (below / (below + above))
    log_slope = torch.log((xi * near_right + rest * near_left) * (s / (below + above)).square())
    return torch.where(inside, y, x), torch.where(inside, log_slope, 0.0)


def inverse(y: Float[Tensor, "*batch"], spline: Knots) -> Float[Tensor, "*batch"]:
    """The x with f(x) = y, in float64 inside.

    In the bin, with t the share of its height below y and u = xi / (1 - xi), f(x) = y is a quadratic in u whose coefficients of the
    second and zeroth power have opposite signs:

        (1 - t) s u^2 + ((1 - t) slope_left - t slope_right) u - t s = 0.

    So its discriminant is a sum of squares, and its one positive root loses no digits. Where the spline is flat, a rounding of a knot in
    float32 would move x by thousands of times as much; hence float64.
    """
    inside = y.abs() < spline.bound
    precise = spline.double()
    bin = _bin(torch.where(inside, y, 0.0).double(), precise, precise.heights)
    s = bin.height / bin.width
    t = ((bin.value - bin.bottom) / bin.height).clamp(0.0, 1.0)
    half = 0.5 * ((1.0 - t) * bin.slope_left - t * bin.slope_right)
    root = torch.sqrt(half.square() + t * (1.0 - t) * s.square())
    # The root as a ratio of two numbers that are not negative, neither of them a difference.
    over = torch.where(half >= 0.0, t * s, root - half)
    under = torch.where(half >= 0.0, half + root, (1.0 - t) * s)
    xi = over / (over + under)
    kind = torch.promote_types(y.dtype, spline.widths[0].dtype)
    return torch.where(inside, bin.left + xi * bin.width, y.double()).to(kind)


@dataclass(frozen=True, kw_only=True)
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
    left = bottom = knot = -spline.bound * one
    beyond = [one]  # for each bin, 1 where the value lies in it or further
    for width, height, size in zip(spline.widths[:-1], spline.heights[:-1], sizes[:-1], strict=True):
        knot = knot + size
        beyond.append((value >= knot).to(one.dtype))
        left, bottom = left + beyond[-1] * width, bottom + beyond[-1] * height
    here = [*(this - further for this, further in pairwise(beyond)), beyond[-1]]
    return _Bin(
        value=value, left=left, bottom=bottom,
        width=_chosen(here, spline.widths),
        height=_chosen(here, spline.heights),
        slope_left=_chosen(here, (one, *spline.slopes)),
        slope_right=_chosen(here, (*spline.slopes, one)),
    )  # fmt: skip


def _chosen(here: Sequence[Tensor], candidates: Sequence[Tensor]) -> Tensor:
    """Of one candidate a bin, that of the bin which is marked by a 1; exact, since all others add zero."""
    first, *others = (mark * candidate for mark, candidate in zip(here, candidates, strict=True))
    return sum(others, first)
