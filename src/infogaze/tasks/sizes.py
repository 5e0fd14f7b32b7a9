"""Sensible sizes for pictures of any size: how large a glimpse, how far apart, how many looks, and an F_g that takes it in."""

from __future__ import annotations

from dataclasses import dataclass

from infogaze.grid import GlimpseGrid

SEEN = 0.4375
"""The share of a scene that seven looks of the paper show at most."""
MANY_LOCATIONS = 200
"""More are slow to imagine, all of them at every look."""
_LARGEST_GLIMPSE = 32


@dataclass(frozen=True, kw_only=True)
class SuggestedSizes:
    """What fits a picture size."""

    glimpse_size: int
    stride: int
    num_looks: int
    num_locations: int


def suggest_sizes(height: int, width: int) -> SuggestedSizes:
    """As in the paper a glimpse is a quarter of the shorter side and the stride half of it, as far as multiples of four go.

    Where that makes many locations the stride is larger, up to the size of a glimpse, so that no pixel is out of reach.
    """
    glimpse_size = min(max(4 * round(min(height, width) / 16), 8), _LARGEST_GLIMPSE, height, width)
    strides = range(max(1, glimpse_size // 2), glimpse_size + 1)
    grids = (GlimpseGrid(height=height, width=width, glimpse_size=glimpse_size, stride=stride) for stride in strides)
    grid = next(grid for grid in grids if grid.num_locations <= MANY_LOCATIONS or grid.stride == glimpse_size)
    looks = round(SEEN * height * width / glimpse_size**2)
    return SuggestedSizes(
        glimpse_size=glimpse_size,
        stride=grid.stride,
        num_looks=min(max(looks, 4), 16, grid.num_locations),
        num_locations=grid.num_locations,
    )
