"""F of a belief that keeps its looks as tokens: a padded residual CNN sees the glimpse, a small network says where it was."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float, Num
from torch import Tensor, nn
from torch.nn import functional

from infogaze.grid import GlimpseGrid
from infogaze.nn.waves import NUM_WAVES, location_waves


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions beside a way past them, which is as it was where width and side stay."""

    def __init__(self, channels: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.change = nn.Sequential(
            nn.Conv2d(channels, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.past: nn.Module = nn.Identity()
        if channels != width or stride != 1:
            self.past = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Float[Tensor, "N c h w"]) -> Float[Tensor, "N width rows cols"]:
        """Both together."""
        return functional.relu(self.past(x) + self.change(x))


def padded_network(side: int, *, channels: int, widths: Sequence[int], blocks: int, size: int) -> nn.Sequential:
    """From glimpses of this side to `size` numbers: one stage a width, of so many blocks. Each stage after the first halves the side,
    until one pixel is left."""
    layers: list[nn.Module] = []
    for stage, width in enumerate(widths):
        stride = 2 if stage and side > 1 else 1
        if not stage:
            layers += [nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
        layers += [ResidualBlock(channels, width, stride), *(ResidualBlock(width, width) for _ in range(blocks - 1))]
        channels, side = width, -(-side // stride)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * side * side, size))


class TokenFeatures(nn.Module):
    """What was seen, as content, and where it was, put together as a token.

    `content` is what a dictionary, or a decoder, imagines; the location is known for every place, so it is added, not imagined.
    """

    def __init__(
        self,
        grid: GlimpseGrid,
        *,
        channels: int,
        widths: Sequence[int],
        blocks: int,
        feature_size: int,
        token_size: int,
    ) -> None:
        super().__init__()
        self.grid = grid
        self.glimpse_network = padded_network(
            grid.glimpse_size, channels=channels, widths=widths, blocks=blocks, size=feature_size
        )
        self.from_content = nn.Identity() if feature_size == token_size else nn.Linear(feature_size, token_size)
        self.location_network = nn.Sequential(
            nn.Linear(NUM_WAVES, token_size), nn.GELU(), nn.Linear(token_size, token_size)
        )

    def content(self, glimpses: Float[Tensor, "*batch C g g"]) -> Float[Tensor, "*batch f"]:
        """The features of the glimpses, pixels in [-1, 1], before their location is known."""
        flat = self.glimpse_network(glimpses.reshape(-1, *glimpses.shape[-3:]))
        return flat.view(*glimpses.shape[:-3], flat.shape[-1])

    def token(
        self, content: Float[Tensor, "*batch f"], locations: Num[Tensor, "*places 2"]
    ) -> Float[Tensor, "*both d"]:
        """Content and location together."""
        weight = self.location_network.get_parameter("0.weight")
        place = self.location_network(location_waves(self.grid, locations, weight.dtype))
        # In the type that networks compute in: a dictionary's entries are float32 under autocast too.
        return self.from_content(content).to(place.dtype) + place
