"""Where a scene lies under a stage: pixels of the scene to micrometres, and back."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.grid import Location, tensor_of


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The scene in the coordinates of a stage, which is driven to the middle of a glimpse."""

    glimpse_size: int
    """Side of a glimpse in pixels of the model."""
    um_per_pixel: float
    """Micrometres from a pixel of the model's scene to the next."""
    x: float = 0.0
    """Stage position of the scene's top-left corner, in micrometres."""
    y: float = 0.0
    """The same, downwards."""
    x_grows_left: bool = False
    """Whether x grows from right to left of the scene, as it does where the stage moves under a camera that stands still."""
    y_grows_up: bool = False
    """Whether y grows from bottom to top."""

    def __post_init__(self) -> None:
        if self.glimpse_size < 1:
            raise InfogazeError(f"glimpse_size is {self.glimpse_size}; it must be at least 1")
        if not 0.0 < self.um_per_pixel < math.inf:
            raise InfogazeError(f"um_per_pixel is {self.um_per_pixel}; it must be above 0")
        if not (math.isfinite(self.x) and math.isfinite(self.y)):
            raise InfogazeError(f"the corner is at x {self.x}, y {self.y}; finite numbers are needed")

    def to_stage(self, where: Location) -> Float[Tensor, "*batch 2"]:
        """The x and y, in micrometres, of the middle of the glimpse whose top-left pixel is at `where` (row, column)."""
        row, col = (_pairs(where) + self.glimpse_size / 2).unbind(-1)
        return torch.stack([self.x + self._right * col, self.y + self._down * row], -1)

    def from_stage(self, position: Location) -> Float[Tensor, "*batch 2"]:
        """The row and column, fractions too, of the glimpse whose middle is at this x and y."""
        x, y = _pairs(position).unbind(-1)
        return torch.stack([(y - self.y) / self._down, (x - self.x) / self._right], -1) - self.glimpse_size / 2

    @property
    def side(self) -> float:
        """Of a glimpse, in micrometres."""
        return self.glimpse_size * self.um_per_pixel

    @property
    def _right(self) -> float:
        return -self.um_per_pixel if self.x_grows_left else self.um_per_pixel

    @property
    def _down(self) -> float:
        return -self.um_per_pixel if self.y_grows_up else self.um_per_pixel


def _pairs(values: Location) -> Float[Tensor, "*batch 2"]:
    given = tensor_of(values).double()
    if given.shape[-1:] != (2,):
        raise InfogazeError(f"positions have shape {tuple(given.shape)}; two numbers each are needed")
    return given
