"""Sensors: anything that can be pointed, and one over images already taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Int, Num
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.grid import Location, extract, require_inside, tensor_of


class LookFailed(Exception):
    """Raised by a sensor that could not look: the places that were asked for are given up for others, and nothing is learned."""


@dataclass(frozen=True)
class Seen:
    """What a sensor answers that has more to say than the glimpses."""

    glimpse: Num[Tensor, "B C g g"] | np.ndarray
    """uint8 or float in [0, 1]."""
    at: Location | None = None
    """Where the sensor really was, in rows and columns of the scene and fractions of them; None: where it was asked to be."""
    failed: Bool[Tensor, " B"] | Sequence[bool] | None = None
    """The scenes of a batch whose looks failed; their glimpses are not used. None: no look did."""


@runtime_checkable
class Sensor(Protocol):
    """Anything that can be pointed: a camera on a mount, a stage, a slow link. It is all an `Agent` ever asks."""

    def look(self, where: Num[Tensor, "B 2"]) -> Num[Tensor, "B C g g"] | Seen:
        """The glimpses whose top-left pixels are at `where` (row, column), uint8 or float in [0, 1]. LookFailed where there are none."""
        ...


GlimpseFunction = Callable[[Num[Tensor, "B 2"]], Num[Tensor, "B C g g"] | Seen]
"""A sensor as a plain function of the locations."""


class ImageSensor:
    """A sensor over images already taken, which counts and logs every pixel it hands out."""

    def __init__(self, images: Tensor | np.ndarray, glimpse_size: int) -> None:
        images = tensor_of(images)
        if images.dim() != 4:
            raise InfogazeError(
                f"images have shape {tuple(images.shape)}; (scenes, channels, height, width) is expected"
            )
        batch, _, height, width = images.shape
        if not 1 <= glimpse_size <= min(height, width):
            raise InfogazeError(f"a glimpse of {glimpse_size} pixels does not fit images of {height}x{width}")
        self._images = images
        self._glimpse_size = glimpse_size
        self.reads: Int[Tensor, "B H W"] = torch.zeros(batch, height, width, dtype=torch.int64, device=images.device)
        """How many times each pixel was handed out."""
        self.log: list[Num[Tensor, "B 2"]] = []
        """The locations asked for, in order."""

    def look(self, where: Location) -> Num[Tensor, "B C g g"]:
        """The glimpses at `where`; between pixels, every pixel that has a part in the interpolation counts as read."""
        scenes, _, height, width = self._images.shape
        where = tensor_of(where).to(self._images.device)
        if where.shape != (scenes, 2):
            raise InfogazeError(
                f"locations have shape {tuple(where.shape)}; ({scenes}, 2) is expected, one for each image"
            )
        self._require_inside(where, height - self._glimpse_size, width - self._glimpse_size)
        self.log.append(where.clone())
        first = where.floor()[..., None]  # [B, 2, 1]
        last = where.ceil()[..., None] + self._glimpse_size
        rows, cols = (torch.arange(n, device=where.device) for n in (height, width))
        in_rows = (rows >= first[:, 0]) & (rows < last[:, 0])  # [B, H]
        in_cols = (cols >= first[:, 1]) & (cols < last[:, 1])  # [B, W]
        self.reads += in_rows[:, :, None] & in_cols[:, None, :]
        return extract(self._images, where, self._glimpse_size)

    def _require_inside(self, where: Tensor, last_row: int, last_col: int) -> None:
        require_inside(where, last_row, last_col)

    @property
    def pixels_read(self) -> Int[Tensor, " B"]:
        """How many different pixels of each scene were handed out."""
        return (self.reads > 0).flatten(1).sum(1)


class EpisodeSensor(ImageSensor):
    """The same for an episode alone, which asks for nothing outside: so that nobody waits for a GPU to have that checked."""

    def _require_inside(self, where: Tensor, last_row: int, last_col: int) -> None:
        """Nothing."""
