"""The parts together: what is believed, imagined and expected of a scene, as batched tensors (figure 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from infogaze.errors import InfogazeError
from infogaze.grid import GlimpseGrid
from infogaze.nn.backbone import Backbone, GlimpseBackbone
from infogaze.nn.belief import AttentiveBeliefUpdate, Belief, BeliefUpdate
from infogaze.nn.classifier import Classifier
from infogaze.nn.correction import Hindsight
from infogaze.nn.decoder import Decoder
from infogaze.nn.features import GlimpseFeatures
from infogaze.nn.gain import Criterion, class_entropy, expected_information_gain
from infogaze.nn.posterior import Posterior
from infogaze.rng import stream_seed

R = TypeVar("R", bound="Recogniser")

_ELEMENTS_AT_ONCE, _ON_CUDA = 1 << 26, 1 << 29
"""How many hidden elements a lookahead may hold at once: 256 MiB in float32 on the CPU. Larger ones are done in pieces."""

_WIDEST, _DEEPEST = 65_536, 64
"""The largest size and the most layers of a kind that a model may have: sizes may be read from a stranger's file."""


@dataclass(frozen=True)
class ModelConfig:
    """The sizes of a model. Anything that fits together is allowed; what does not is refused when the model is built."""

    height: int
    """Scene height in pixels."""
    width: int
    """Scene width in pixels."""
    channels: int
    """Colour channels of a scene."""
    classes: int
    """Number of labels."""
    glimpse: int
    """Side of a glimpse in pixels."""
    stride: int
    """Distance between neighbouring places in pixels."""
    glimpse_widths: tuple[int, ...]
    """Channels of the 3x3 convolutions of F_g, n_g of them; a last convolution takes in what is left of the glimpse."""
    feature_size: int
    """Dimensions of the features f."""
    belief_size: int
    """Dimensions of the hidden state h."""
    latent_size: int
    """Dimensions of the latent z."""
    flow_layers: int
    """n_s, how many times ActNorm, Flip and spline; 0 is the Gaussian posterior."""
    spline_bins: int = 5
    """Bins of each spline."""
    spline_bound: float = 3.0
    """The splines bend what lies between minus and plus this."""
    attention_hops: int = 0
    """Hops of structured self-attention in R; 0 is the plain update."""
    glimpse_residuals: int = 0
    """Residual blocks after each 3x3 convolution of F_g; the paper's network has none."""
    keeping: bool = False
    """Whether R adds to the belief, as a residual block does, in place of making it anew; the paper's does not."""
    hindsight: bool = False
    """Whether gains are corrected by what looks turned out to be worth in phase 3; the paper's are not."""

    def __post_init__(self) -> None:
        ranges = {
            "channels": (1, 1024), "classes": (2, _WIDEST), "feature_size": (1, _WIDEST), "belief_size": (1, _WIDEST),
            "latent_size": (1, _WIDEST), "flow_layers": (0, _DEEPEST), "spline_bins": (1, 500), "attention_hops": (0, _DEEPEST),
            "glimpse_residuals": (0, _DEEPEST),
        }  # fmt: skip
        for name, (least, most) in ranges.items():
            if not least <= getattr(self, name) <= most:
                raise InfogazeError(f"{name} is {getattr(self, name)}; it must be from {least} to {most}")
        if len(self.glimpse_widths) > _DEEPEST:
            raise InfogazeError(f"glimpse_widths are {len(self.glimpse_widths)}; at most {_DEEPEST} are allowed")
        if not self.spline_bound > 0.0:
            raise InfogazeError(f"spline_bound is {self.spline_bound}; it must be above 0")
        if not all(1 <= width <= _WIDEST for width in self.glimpse_widths):
            raise InfogazeError(f"glimpse_widths are {self.glimpse_widths}; each must be from 1 to {_WIDEST}")
        if 2 * len(self.glimpse_widths) >= self.glimpse:
            raise InfogazeError(
                f"{len(self.glimpse_widths)} convolutions of 3x3 (glimpse_widths) need a glimpse of at least "
                f"{2 * len(self.glimpse_widths) + 1} pixels, not {self.glimpse}"
            )
        _ = self.grid

    @property
    def grid(self) -> GlimpseGrid:
        """The candidate places."""
        return GlimpseGrid(self.height, self.width, self.glimpse, self.stride)


class Recogniser(nn.Module):
    """A backbone that sees, remembers and names, over a grid of places: what every method has, whatever chooses its looks."""

    def __init__(self, grid: GlimpseGrid, backbone: Backbone) -> None:
        super().__init__()
        self.grid = grid
        self.backbone = backbone

    def compile_parts(self) -> None:
        """Compile what gains from it; see `infogaze.nn.compilation`."""
        self.backbone.compile_parts()

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device


class Model(Recogniser):
    """A backbone that sees and names, a Partial VAE that imagines, and the gain that follows from both."""

    def __init__(
        self,
        grid: GlimpseGrid,
        backbone: Backbone,
        posterior: Posterior,
        decoder: Decoder,
        hindsight: Hindsight | None = None,
    ) -> None:
        super().__init__(grid, backbone)
        self.posterior = posterior
        self.decoder = decoder
        self.hindsight = hindsight
        self.log_variance = nn.Parameter(torch.zeros(()))
        """log sigma^2 of the likelihood p(f | z), equation 4."""

    def compile_parts(self) -> None:
        """The backbone's, D, the layers of S and the lookahead with its gain."""
        super().compile_parts()
        self.decoder.compile(dynamic=False)
        for layer in self.posterior.layers:
            layer.compile(dynamic=False)
            layer.sample = torch.compile(layer.sample, dynamic=False)  # type: ignore[arg-type, assignment]
        self.posterior.encode.compile(dynamic=False)
        self.worth = torch.compile(self.worth, dynamic=False)  # type: ignore[method-assign]

    def imagine(self, belief: Belief, noise: Float[Tensor, "P B d"]) -> Float[Tensor, "P B L f"]:
        """P feature maps of the complete scene, D(z) with z from q(z | h)."""
        return self.decoder(self.posterior(belief.hidden).rsample(noise))

    def lookahead(
        self, belief: Belief, content: Float[Tensor, "P B L f"], locations: Num[Tensor, "L 2"]
    ) -> Float[Tensor, "P B L classes"]:
        """log p(y | f~(l), h): the class distribution after a look at l, should it hold the imagined content."""
        return self.backbone.classify(self.backbone.update(belief.unsqueeze(1), content, locations))

    def worth(
        self,
        belief: Belief,
        content: Float[Tensor, "P B L f"],
        locations: Num[Tensor, "L 2"],
        criterion: Criterion,
    ) -> Float[Tensor, "B L"]:
        """What looks at these places are expected to be worth, should they hold the imagined content."""
        return criterion(self.lookahead(belief, content, locations), self.backbone.classify(belief), content)

    def gain(
        self,
        belief: Belief,
        noise: Float[Tensor, "P B d"],
        criterion: Criterion = expected_information_gain,
        elements: int | None = None,
    ) -> Float[Tensor, "B L"]:
        """What a look at each place is expected to be worth: as imagined, and an information gain with hindsight where there is any."""
        gain = self.imagined_gain(belief, noise, criterion, elements)
        if self.hindsight is None or criterion is not expected_information_gain:
            return gain
        return self.hindsight(gain, belief.hidden, class_entropy(self.backbone.classify(belief)))

    def imagined_gain(
        self,
        belief: Belief,
        noise: Float[Tensor, "P B d"],
        criterion: Criterion = expected_information_gain,
        elements: int | None = None,
    ) -> Float[Tensor, "B L"]:
        """The same from imagined scenes alone; in pieces of scenes and places of about `elements` hidden elements."""
        samples, scenes, _ = noise.shape
        row = samples * belief.hidden.shape[-1]
        if elements is None:
            elements = _ON_CUDA if noise.is_cuda else _ELEMENTS_AT_ONCE
        scenes_at_once = max(1, min(scenes, elements // (row * self.grid.places)))
        places_at_once = max(1, min(self.grid.places, elements // row))
        locations = self.grid.locations(noise.device)
        maps = []
        for first in range(0, scenes, scenes_at_once):
            some = slice(first, first + scenes_at_once)
            content = self.imagine(belief[some], noise[:, some])  # [P, b, L, f]
            values = []
            for seen, where in zip(content.split(places_at_once, 2), locations.split(places_at_once), strict=True):
                values.append(self.worth(belief[some], seen, where, criterion))
            maps.append(torch.cat(values, 1))
        return torch.cat(maps)


def build(config: ModelConfig, seed: int = 0) -> Model:
    """A model with fresh weights, which the seed fixes."""
    return seeded(imagining, config, seed)


def seeded(make: Callable[[ModelConfig], R], config: ModelConfig, seed: int) -> R:
    """What `make` makes, with fresh weights that the seed fixes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(seed, "weights"))
        return make(config)


def recognising(config: ModelConfig) -> Recogniser:
    """F, R and C of these sizes, and nothing that chooses."""
    return Recogniser(config.grid, glimpse_backbone(config))


def glimpse_backbone(config: ModelConfig) -> GlimpseBackbone:
    """F, R and C of these sizes."""
    features = GlimpseFeatures(
        config.grid, config.channels, config.glimpse_widths, config.feature_size, config.glimpse_residuals
    )
    update = (
        AttentiveBeliefUpdate(config.feature_size, config.belief_size, config.attention_hops, config.keeping)
        if config.attention_hops
        else BeliefUpdate(config.feature_size, config.belief_size, config.keeping)
    )
    return GlimpseBackbone(features, update, Classifier(config.belief_size, config.classes))


def imagining(config: ModelConfig) -> Model:
    """F, R and C of these sizes, with S and D. The backbone is made first: it is the same for every method of a seed."""
    return Model(
        config.grid,
        glimpse_backbone(config),
        Posterior(
            config.belief_size,
            config.latent_size,
            config.feature_size,
            config.flow_layers,
            config.spline_bins,
            config.spline_bound,
        ),
        Decoder(config.latent_size, config.feature_size, config.grid),
        Hindsight(config.belief_size, config.grid.places) if config.hindsight else None,
    )
