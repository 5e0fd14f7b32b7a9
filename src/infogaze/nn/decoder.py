"""D: a latent z to the content features of every place of the grid (section 3.1, table 1).

As the paper: transposed convolutions grow one pixel to the grid (three of 3x3 make 7x7), five convolutions refine it with its
surroundings, a last one gives the features. Other grids get the transposed convolutions they need: 3x3 up to 7 places a side, and
steps of stride two beyond, so that a large grid costs a few more layers and not large kernels.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from infogaze.grid import GlimpseGrid
from infogaze.nn.precision import precise

_REFINEMENTS = 5


class _Step(NamedTuple):
    size: int
    kernel: int
    stride: int


def growth(size: int) -> list[_Step]:
    """Transposed convolutions, without padding, from 1 to `size` along one axis."""
    if size == 1:
        return []
    if size > 7:
        half = (size - 1) // 2
        return [*growth(half), _Step(size, size - 2 * (half - 1), 2)]
    smaller = max(size - 2, 1)
    return [*growth(smaller), _Step(size, size - smaller + 1, 1)]


class Refine(nn.Module):
    """LN(LeakyReLU(convolution)); the normalisation spans channels and places.

    Feature maps are kept as [N, rows, cols, channels], which is what both operations are fastest on.
    """

    def __init__(self, convolution: nn.Conv2d | nn.ConvTranspose2d, rows: int, cols: int) -> None:
        super().__init__()
        self.convolution = convolution
        self.norm = nn.LayerNorm(rows * cols * convolution.out_channels)

    def forward(self, maps: Float[Tensor, "N r c w"]) -> Float[Tensor, "N rows cols v"]:
        """The refined maps."""
        refined = functional.leaky_relu(_convolve(self.convolution, maps))
        return self.norm(refined.flatten(1)).view(refined.shape)


def _convolve(convolution: nn.Module, maps: Tensor) -> Tensor:
    return convolution(maps.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class Decoder(nn.Module):
    """D(z): one content feature vector a place."""

    def __init__(self, latent_size: int, feature_size: int, grid: GlimpseGrid) -> None:
        super().__init__()
        self.grid = grid
        down, across = growth(grid.rows), growth(grid.cols)
        steps = max(len(down), len(across))
        down = [_Step(1, 1, 1)] * (steps - len(down)) + down
        across = [_Step(1, 1, 1)] * (steps - len(across)) + across
        layers: list[nn.Module] = []
        width = latent_size
        for high, wide in zip(down, across, strict=True):
            grow = nn.ConvTranspose2d(width, feature_size, (high.kernel, wide.kernel), (high.stride, wide.stride))
            layers.append(Refine(grow, high.size, wide.size))
            width = feature_size
        for _ in range(_REFINEMENTS):
            layers.append(Refine(nn.Conv2d(width, feature_size, 3, padding=1), grid.rows, grid.cols))
        self.layers = nn.Sequential(*layers)
        self.last = nn.Conv2d(feature_size, feature_size, 3, padding=1)

    def forward(self, z: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch L f"]:
        """The content features of every place, row by row."""
        maps = self.layers(z.to(self.last.weight.dtype).reshape(-1, 1, 1, z.shape[-1]))  # [N, rows, cols, f]
        content = _convolve(self.last, maps)
        return content.reshape(*z.shape[:-1], self.grid.num_locations, -1)

    @torch.no_grad()
    def initialise(self, z: Float[Tensor, "N d"], mean: Float[Tensor, " f"], spread: Float[Tensor, ""]) -> None:
        """Scale and shift the last convolution so that these z give features of this mean and, on the whole, this standard deviation."""
        bias = self.last.get_parameter("bias")
        self.last.weight.mul_(spread / precise(self(z)).flatten(0, 1).var(0).mean().sqrt().clamp(min=1e-8))
        bias.add_(mean - precise(self(z)).flatten(0, 1).mean(0))
