"""The CNN that sees the complete image: an upper bound (section 4.1), and the common judge of looks, on images masked but for them.

A residual network (He et al., 2016) of nine layers: each stage doubles the channels and halves the image, the second and the fourth
have a residual pair. In an episode its belief is the picture as far as it was seen, grey where it was not, which it classifies whole.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn
from torch.nn import functional

from infogaze.gaze.policies import RandomPolicy
from infogaze.grid import GlimpseGrid
from infogaze.methods.method import Method
from infogaze.nn.backbone import Backbone
from infogaze.nn.belief import Belief
from infogaze.nn.config import ModelConfig
from infogaze.nn.model import GlimpseClassifier
from infogaze.nn.precision import precise
from infogaze.training.phases import Batch, Objective, Outcome, Phase
from infogaze.training.rollout import accuracy, taught_loss


class _Block(nn.Sequential):
    def __init__(self, channels: int, width: int, *, pool: bool = False) -> None:
        layers: list[nn.Module] = [
            nn.Conv2d(channels, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        ]
        super().__init__(*layers[:1], *([nn.MaxPool2d(2)] if pool else []), *layers[1:])


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.pair = nn.Sequential(_Block(width, width), _Block(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pair(x)


class PictureNetwork(nn.Module):
    """From a complete image to log p(y)."""

    def __init__(self, channels: int, width: int, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _Block(channels, width),
            _Block(width, 2 * width, pool=True), _Residual(2 * width),
            _Block(2 * width, 4 * width, pool=True),
            _Block(4 * width, 8 * width, pool=True), _Residual(8 * width),
        )  # fmt: skip
        self.head = nn.Linear(8 * width, classes)

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B classes"]:
        """log p(y | image), pixels in [-1, 1]."""
        return functional.log_softmax(precise(self.head(self.body(images).amax((2, 3)))), -1)


class PictureBackbone(Backbone):
    """The network behind the protocol of F, R and C: what is remembered is the picture itself, as far as it was seen."""

    def __init__(self, grid: GlimpseGrid, channels: int, network: PictureNetwork) -> None:
        super().__init__()
        self.grid, self.channels, self.network = grid, channels, network

    def compile_parts(self) -> None:
        """The whole network."""
        self.network.compile(dynamic=False)

    def features(self, glimpses: Float[Tensor, "*batch C g g"]) -> Float[Tensor, "*batch f"]:
        """The pixels themselves."""
        return glimpses.flatten(-3)

    def start(self, batch: int) -> Belief:
        """Grey everywhere."""
        pixels = self.channels * self.grid.height * self.grid.width
        empty = self.network.head.weight.new_zeros
        return Belief(empty(batch, pixels), empty(batch, 0))

    def update(self, belief: Belief, content: Float[Tensor, "*batch f"], locations: Num[Tensor, "*places 2"]) -> Belief:
        """The picture with these glimpses put in where they were seen, to the nearest pixel."""
        grid, side = self.grid, self.grid.glimpse_size
        shape = torch.broadcast_shapes(belief.hidden.shape[:-1], content.shape[:-1], locations.shape[:-1])
        canvas = belief.hidden.expand(*shape, -1).reshape(-1, self.channels, grid.height, grid.width).clone()
        pixels = content.expand(*shape, -1).reshape(-1, self.channels, side, side).to(canvas.dtype)
        corner = locations.round().long().expand(*shape, 2).reshape(-1, 2)
        span = torch.arange(side, device=canvas.device)
        rows = corner[:, 0, None, None] + span[:, None]  # [N, g, 1]
        cols = corner[:, 1, None, None] + span  # [N, 1, g]
        scene = torch.arange(len(canvas), device=canvas.device)[:, None, None]
        canvas.movedim(1, -1)[scene, rows, cols] = pixels.movedim(1, -1)
        return Belief(canvas.view(*shape, -1), belief.memory)

    def classify(self, belief: Belief) -> Float[Tensor, "*batch classes"]:
        """What the network says of the picture."""
        shape = (self.channels, self.grid.height, self.grid.width)
        flat = belief.hidden.reshape(-1, *shape)
        return self.network(flat).unflatten(0, belief.hidden.shape[:-1])


def picture_network(config: ModelConfig) -> GlimpseClassifier:
    """A network for scenes of this size, as wide as the preset's own first layer."""
    network = PictureNetwork(config.channels, config.glimpse_widths[0], config.num_classes)
    return GlimpseClassifier(config.grid, PictureBackbone(config.grid, config.channels, network))


def classify_whole(model: GlimpseClassifier, batch: Batch, *, objective: Objective, looks: None = None) -> Outcome:
    """Cross-entropy of complete images."""
    picture = Belief(batch.images.flatten(1), batch.images.new_zeros(len(batch.labels), 0))
    predicted = model.backbone.classify(picture)[None]  # [1, B, classes]
    loss = taught_loss(predicted, batch)
    nowhere = torch.zeros(1, model.grid.num_locations, device=predicted.device)
    return Outcome(loss, accuracy(predicted, batch.labels), nowhere)


PHASES = (
    Phase(
        name="classify",
        trained=lambda model: model.parameters(),
        noise=lambda model, objective: {},
        loss=classify_whole,
        budget=lambda recipe: recipe.full_image,
        rate=0,
        mixes=True,
        sees_whole=True,
    ),
)

METHODS = {
    "cnn": Method(
        summary="a bound: sees the complete image at once",
        phases=PHASES,
        build=picture_network,
        policy=lambda num_samples: RandomPolicy(),
        sees="everything",
    )
}
