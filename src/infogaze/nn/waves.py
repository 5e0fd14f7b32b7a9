"""A location as waves: what small networks tell places apart by, on the grid and between its places."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Num
from torch import Tensor

from infogaze.grid import GlimpseGrid

_OCTAVES = 4
"""Of the waves along each side, from one half over the scene on."""
NUM_WAVES = 2 + 4 * _OCTAVES
"""The numbers that describe a location."""


def location_waves(
    grid: GlimpseGrid, locations: Num[Tensor, "*places 2"], dtype: torch.dtype
) -> Float[Tensor, "*places waves"]:
    """Row and column from -1 to 1, and their sines and cosines."""
    at = grid.coordinates(locations).to(dtype)
    octaves = math.pi / 2 * 2.0 ** torch.arange(_OCTAVES, device=at.device, dtype=at.dtype)
    phases = (at[..., None] * octaves).flatten(-2)
    return torch.cat([at, phases.sin(), phases.cos()], -1)
