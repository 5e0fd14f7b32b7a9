"""Where one may look, and what a look returns: the glimpse grid and the extraction of glimpses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Num, Shaped
from torch import Tensor

from infogaze.errors import InfogazeError

Location = Num[Tensor, "B 2"] | Num[Tensor, "2"] | np.ndarray | Sequence[float] | Sequence[Sequence[float]]
"""Row and column of a glimpse's top-left pixel: one for all scenes, or one for each."""

_LONGEST_SIDE, _MOST_LOCATIONS = 1 << 20, 1 << 20


@dataclass(frozen=True, kw_only=True)
class GlimpseGrid:
    """The locations of a scene that can be chosen: square glimpses, a stride apart, from the top-left corner on.

    A location is a row and a column in pixels; a place is the index of a location on the grid. Where the last of them would leave pixels at
    the edge unseen, there is one more at the edge, less than a stride away.
    """

    height: int
    """Scene height in pixels."""
    width: int
    """Scene width in pixels."""
    glimpse_size: int
    """Side of a glimpse in pixels."""
    stride: int
    """Distance between neighbouring locations in pixels."""

    def __post_init__(self) -> None:
        for name in ("height", "width", "glimpse_size", "stride"):
            if not 1 <= getattr(self, name) <= _LONGEST_SIDE:
                raise InfogazeError(f"{name} is {getattr(self, name)}; it must be from 1 to {_LONGEST_SIDE}")
        if self.glimpse_size > min(self.height, self.width):
            raise InfogazeError(
                f"a glimpse of {self.glimpse_size} pixels does not fit a scene of {self.height}x{self.width}"
            )
        if self.num_locations < 2:
            raise InfogazeError(
                f"a glimpse of {self.glimpse_size} leaves one location on a scene of {self.height}x{self.width}: there is nothing to choose"
            )
        if self.num_locations > _MOST_LOCATIONS:
            raise InfogazeError(
                f"a stride of {self.stride} makes {self.num_locations} locations on a scene of {self.height}x{self.width}; at most "
                f"{_MOST_LOCATIONS} are allowed"
            )

    @property
    def rows(self) -> int:
        """Locations from top to bottom."""
        return -(-(self.height - self.glimpse_size) // self.stride) + 1

    @property
    def cols(self) -> int:
        """Locations from left to right."""
        return -(-(self.width - self.glimpse_size) // self.stride) + 1

    @property
    def num_locations(self) -> int:
        """All locations of the grid."""
        return self.rows * self.cols

    def locations(self, device: torch.device | str | None = None) -> Int[Tensor, "L 2"]:
        """Row and column of the top-left pixel of every location, row by row."""
        rows, cols = self.axes(device)
        return torch.cartesian_prod(rows, cols).view(self.num_locations, 2)

    def axes(self, device: torch.device | str | None = None) -> tuple[Int[Tensor, " rows"], Int[Tensor, " cols"]]:
        """The top rows and the left columns of the locations."""
        rows = torch.arange(self.rows, device=device) * self.stride
        cols = torch.arange(self.cols, device=device) * self.stride
        return rows.clamp(max=self.height - self.glimpse_size), cols.clamp(max=self.width - self.glimpse_size)

    def coordinates(self, locations: Shaped[Tensor, "*batch 2"]) -> Float[Tensor, "*batch 2"]:
        """Pixel locations on a scale from -1 (top, left) to 1 (bottom, right)."""
        rows = locations[..., 0] * (2.0 / max(self.height - self.glimpse_size, 1)) - 1.0
        cols = locations[..., 1] * (2.0 / max(self.width - self.glimpse_size, 1)) - 1.0
        return torch.stack([rows, cols], -1)

    def mirrored(self, locations: Num[Tensor, "*batch 2"]) -> Num[Tensor, "*batch 2"]:
        """Where the same glimpses are in the scene mirrored left to right."""
        rows, cols = locations.unbind(-1)
        return torch.stack([rows, self.width - self.glimpse_size - cols], -1)

    def nearest(self, locations: Num[Tensor, "*batch 2"]) -> Int[Tensor, "*batch"]:
        """The index of the place nearest to each location."""
        rows, cols = self.axes(locations.device)
        row, col = locations.unbind(-1)
        return _nearest(row, rows) * self.cols + _nearest(col, cols)

    def interpolation(self, locations: Num[Tensor, "N 2"]) -> Float[Tensor, "N L"]:
        """The weights of all places in what lies at these locations, bilinearly: rows that add up to one."""
        down, across = (
            _hats(values, starts)
            for values, starts in zip(locations.unbind(-1), self.axes(locations.device), strict=True)
        )
        return (down[:, :, None] * across[:, None, :]).flatten(1)

    def within(self, pixels: Bool[Tensor, "H W"]) -> Bool[Tensor, "rows cols"]:
        """Which locations have their whole glimpse on these pixels of a scene."""
        if pixels.shape != (self.height, self.width):
            raise InfogazeError(
                f"pixels have shape {tuple(pixels.shape)}; that of a scene, ({self.height}, {self.width}), is needed"
            )
        glimpses = extract_grid(pixels[None, None], self)  # [1, L, 1, g, g]
        return glimpses.flatten(2).all(2).view(self.rows, self.cols)

    def at(self, locations: Num[Tensor, "B 2"]) -> Bool[Tensor, "B L"]:
        """Which place a location falls on: the one less than half a pixel away, if any."""
        distance = locations[:, None] - self.locations(locations.device)  # [B, L, 2]
        return (distance.abs() < 0.5).all(-1)


def _nearest(values: Num[Tensor, "*batch"], starts: Int[Tensor, " n"]) -> Int[Tensor, "*batch"]:
    """The index of the start nearest to each value; of two as near, the later."""
    between = (starts[1:] + starts[:-1]) / 2
    return torch.bucketize(values.double().contiguous(), between.double(), right=True)


def _hats(values: Num[Tensor, " N"], starts: Int[Tensor, " n"]) -> Float[Tensor, "N n"]:
    """The weight of each start in a value between two of them."""
    if len(starts) == 1:
        return torch.ones(len(values), 1, device=values.device)
    left = (torch.bucketize(values.double().contiguous(), starts.double(), right=True) - 1).clamp(0, len(starts) - 2)
    share = (values - starts[left]) / (starts[left + 1] - starts[left])
    weights = torch.zeros(len(values), len(starts), device=values.device)
    return weights.scatter(1, left[:, None], 1.0 - share[:, None].float()).scatter(
        1, left[:, None] + 1, share[:, None].float()
    )


def tensor_of(values: Tensor | np.ndarray | Sequence[float] | Sequence[Sequence[float]]) -> Tensor:
    """A tensor of these values; an array's may lie in memory in any order, and are copied, so that it may be written to or not."""
    return torch.as_tensor(np.array(values, order="C") if isinstance(values, np.ndarray) else values)


def require_inside(locations: Num[Tensor, "*batch 2"], last_row: int, last_col: int) -> None:
    """Refuse a location, row and column, that is not within 0 and the last allowed."""
    inside = ((locations >= 0) & (locations <= torch.tensor([last_row, last_col], device=locations.device))).all(-1)
    if not bool(inside.all()):
        row, col = locations[~inside][0].tolist()
        raise InfogazeError(
            f"location ({row:g}, {col:g}) leaves the scene: rows 0 to {last_row} and columns 0 to {last_col} are allowed"
        )


def extract(
    images: Shaped[Tensor, "B C H W"], locations: Num[Tensor, "B *looks 2"], size: int
) -> Shaped[Tensor, "B *looks C {size} {size}"]:
    """Cut the glimpses at these locations; between pixels (fractional locations) by bilinear interpolation.

    Whole-pixel locations give the images' own type and values; fractional ones give float, uint8 scaled to [0, 1].
    """
    if locations.is_floating_point():
        return _extract_between(images, locations, size)
    return _cut(images, (locations[..., 0], locations[..., 1]), size)


def extract_grid(images: Shaped[Tensor, "B C H W"], grid: GlimpseGrid) -> Shaped[Tensor, "B L C g g"]:
    """Cut every glimpse of the grid."""
    return extract(images, grid.locations(images.device).expand(len(images), -1, 2), grid.glimpse_size)


def _cut(images: Tensor, corner: tuple[Tensor, Tensor], size: int) -> Tensor:
    (top, left), (height, width) = corner, images.shape[-2:]
    span = torch.arange(size, device=images.device)
    # The clamp matters only to the neighbours of the last pixel, whose weight is zero in the interpolation below.
    rows = (top[..., None, None] + span[:, None]).clamp(max=height - 1)  # [B, *looks, g, 1]
    cols = (left[..., None, None] + span).clamp(max=width - 1)  # [B, *looks, 1, g]
    scene = torch.arange(images.shape[0], device=images.device).view(-1, *[1] * (rows.dim() - 1))
    return images.permute(0, 2, 3, 1)[scene, rows, cols].movedim(-1, -3)  # [B, *looks, C, g, g]


def _extract_between(images: Tensor, locations: Tensor, size: int) -> Tensor:
    if not images.is_floating_point():
        images = images / 255.0
    corner = locations.floor()
    below, right = (locations - corner).to(images.dtype)[..., None, None, None].unbind(locations.dim() - 1)
    top, left = corner.long().unbind(-1)
    upper = (1 - right) * _cut(images, (top, left), size) + right * _cut(images, (top, left + 1), size)
    lower = (1 - right) * _cut(images, (top + 1, left), size) + right * _cut(images, (top + 1, left + 1), size)
    return (1 - below) * upper + below * lower
