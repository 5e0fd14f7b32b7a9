"""F: a glimpse and its location to a feature vector, F(g, l) = F_g(g) + F_l(l) (section 3.1, table 1)."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float, Num
from torch import Tensor, nn

from infogaze.errors import InfogazeError
from infogaze.grid import GlimpseGrid


class Residual(nn.Module):
    """x + BN(LeakyReLU(3x3 convolution of x)), of the same size: a deeper F_g that still sees one glimpse."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.change = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.LeakyReLU(), nn.BatchNorm2d(width))

    def forward(self, x: Float[Tensor, "N c h w"]) -> Float[Tensor, "N c h w"]:
        """The input and what is made of it."""
        return x + self.change(x)


class GlimpseFeatures(nn.Module):
    """F_g is a small CNN whose receptive field is one glimpse; F_l is linear in the location.

    `content` is F_g alone: what the decoder imagines. `place` is F_l: known for every location, so it is added, not imagined.
    """

    def __init__(
        self, grid: GlimpseGrid, *, channels: int, widths: Sequence[int], size: int, residuals: int = 0
    ) -> None:
        super().__init__()
        last = grid.glimpse_size - 2 * len(widths)
        if last < 1:
            raise InfogazeError(
                f"{len(widths)} convolutions of 3x3 need a glimpse of at least {2 * len(widths) + 1} pixels, "
                f"not {grid.glimpse_size}"
            )
        self.grid = grid
        self.size = size
        layers: list[nn.Module] = []
        for width in widths:
            layers += [nn.Conv2d(channels, width, 3), nn.LeakyReLU(), nn.BatchNorm2d(width)]
            layers += [Residual(width) for _ in range(residuals)]
            channels = width
        self.glimpse_network = nn.Sequential(*layers, nn.Conv2d(channels, size, last))
        self.location_network = nn.Linear(2, size)

    def content(self, glimpses: Float[Tensor, "*batch C g g"]) -> Float[Tensor, "*batch f"]:
        """F_g: the features of the glimpses, pixels in [-1, 1], before their location is known."""
        flat = self.glimpse_network(glimpses.reshape(-1, *glimpses.shape[-3:]))  # [N, f, 1, 1]
        return flat.view(*glimpses.shape[:-3], self.size)

    def place(self, locations: Num[Tensor, "*batch 2"]) -> Float[Tensor, "*batch f"]:
        """F_l: the location's part of the features."""
        weight = self.location_network.weight
        return self.location_network(self.grid.coordinates(locations).to(weight.dtype))

    def forward(
        self, glimpses: Float[Tensor, "*batch C g g"], locations: Num[Tensor, "*batch 2"]
    ) -> Float[Tensor, "*batch f"]:
        """F(g, l)."""
        return self.content(glimpses) + self.place(locations)
