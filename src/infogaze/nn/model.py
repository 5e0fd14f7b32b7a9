"""The parts together: what is believed, imagined and expected of a scene, as batched tensors (figure 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from infogaze.grid import GlimpseGrid
from infogaze.nn.backbone import Backbone, GlimpseBackbone
from infogaze.nn.belief import AttentiveBeliefUpdate, Belief, BeliefUpdate
from infogaze.nn.classifier import Classifier
from infogaze.nn.config import ModelConfig
from infogaze.nn.correction import GainCorrection
from infogaze.nn.decoder import Decoder
from infogaze.nn.features import GlimpseFeatures
from infogaze.nn.gain import Criterion, class_entropy, expected_information_gain
from infogaze.nn.posterior import Posterior
from infogaze.rng import stream_seed

N = TypeVar("N", bound="GlimpseClassifier")

_ELEMENTS_AT_ONCE, _ON_CUDA = 1 << 26, 1 << 29
"""How many hidden elements a lookahead may hold at once: 256 MiB in float32 on the CPU. Larger ones are done in pieces."""


class GlimpseClassifier(nn.Module):
    """A backbone that sees, remembers and classifies, over a grid: what every method has, whatever chooses its looks."""

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


class Model(GlimpseClassifier):
    """A backbone that sees and classifies, a Partial VAE that imagines, and the gain that follows from both."""

    def __init__(
        self,
        grid: GlimpseGrid,
        backbone: Backbone,
        *,
        posterior: Posterior,
        decoder: Decoder,
        correction: GainCorrection | None = None,
    ) -> None:
        super().__init__(grid, backbone)
        self.posterior = posterior
        self.decoder = decoder
        self.correction = correction
        self.log_variance = nn.Parameter(torch.zeros(()))
        """log sigma^2 of the likelihood p(f | z), equation 3."""

    def compile_parts(self) -> None:
        """The backbone's, D, the layers of S and the lookahead with its gain."""
        super().compile_parts()
        self.decoder.compile(dynamic=False)
        for layer in self.posterior.layers:
            layer.compile(dynamic=False)
            layer.sample = torch.compile(layer.sample, dynamic=False)  # type: ignore[arg-type, assignment]
        self.posterior.encode.compile(dynamic=False)
        self.lookahead_gain = torch.compile(self.lookahead_gain, dynamic=False)  # type: ignore[method-assign]

    def imagine(self, belief: Belief, noise: Float[Tensor, "P B d"]) -> Float[Tensor, "P B L f"]:
        """P feature maps of the complete scene, D(z) with z from q(z | h)."""
        return self.decoder(self.posterior(belief.hidden).rsample(noise))

    def lookahead(
        self, belief: Belief, content: Float[Tensor, "P B L f"], locations: Num[Tensor, "L 2"]
    ) -> Float[Tensor, "P B L classes"]:
        """log p(y | f~(l), h): the class distribution after a look at l, should it hold the imagined content."""
        return self.backbone.classify(self.backbone.update(belief.unsqueeze(1), content, locations))

    def lookahead_gain(
        self,
        belief: Belief,
        content: Float[Tensor, "P B L f"],
        *,
        locations: Num[Tensor, "L 2"],
        criterion: Criterion,
    ) -> Float[Tensor, "B L"]:
        """What looks at these locations are expected to be worth, should they hold the imagined content."""
        return criterion(self.lookahead(belief, content, locations), self.backbone.classify(belief), content)

    def gain(
        self,
        belief: Belief,
        noise: Float[Tensor, "P B d"],
        *,
        criterion: Criterion = expected_information_gain,
        elements: int | None = None,
    ) -> Float[Tensor, "B L"]:
        """What a look at each location is expected to be worth: as imagined, and corrected where it is an information gain and there is a
        correction."""
        gain = self.imagined_gain(belief, noise, criterion=criterion, elements=elements)
        if self.correction is None or criterion is not expected_information_gain:
            return gain
        return self.correction(gain, belief.hidden, class_entropy(self.backbone.classify(belief)))

    def imagined_gain(
        self,
        belief: Belief,
        noise: Float[Tensor, "P B d"],
        *,
        criterion: Criterion = expected_information_gain,
        elements: int | None = None,
    ) -> Float[Tensor, "B L"]:
        """The same from imagined scenes alone; in pieces of scenes and locations of about `elements` hidden elements."""
        samples, scenes, _ = noise.shape
        row = samples * belief.hidden.shape[-1]
        if elements is None:
            elements = _ON_CUDA if noise.is_cuda else _ELEMENTS_AT_ONCE
        scenes_at_once = max(1, min(scenes, elements // (row * self.grid.num_locations)))
        locations_at_once = max(1, min(self.grid.num_locations, elements // row))
        locations = self.grid.locations(noise.device)
        maps = []
        for first in range(0, scenes, scenes_at_once):
            some = slice(first, first + scenes_at_once)
            content = self.imagine(belief[some], noise[:, some])  # [P, b, L, f]
            values = []
            for part, where in zip(
                content.split(locations_at_once, 2), locations.split(locations_at_once), strict=True
            ):
                values.append(self.lookahead_gain(belief[some], part, locations=where, criterion=criterion))
            maps.append(torch.cat(values, 1))
        return torch.cat(maps)


def build(config: ModelConfig, seed: int = 0) -> Model:
    """A model with fresh weights, which the seed fixes."""
    return seeded(build_model, config, seed)


def seeded(make: Callable[[ModelConfig], N], config: ModelConfig, seed: int) -> N:
    """What `make` makes, with fresh weights that the seed fixes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(seed, "weights"))
        return make(config)


def build_glimpse_classifier(config: ModelConfig) -> GlimpseClassifier:
    """F, R and C of these sizes, and nothing that chooses."""
    return GlimpseClassifier(config.grid, build_backbone(config))


def build_backbone(config: ModelConfig) -> GlimpseBackbone:
    """F, R and C of these sizes."""
    features = GlimpseFeatures(
        config.grid,
        channels=config.channels,
        widths=config.glimpse_widths,
        size=config.feature_size,
        residuals=config.glimpse_residuals,
    )
    sizes = {"feature_size": config.feature_size, "belief_size": config.belief_size}
    update = (
        AttentiveBeliefUpdate(**sizes, hops=config.attention_hops, residual=config.residual_belief)
        if config.attention_hops
        else BeliefUpdate(**sizes, residual=config.residual_belief)
    )
    return GlimpseBackbone(features, update, Classifier(config.belief_size, config.num_classes))


def build_model(config: ModelConfig) -> Model:
    """F, R and C of these sizes, with S and D. The backbone is made first: it is the same for every method of a seed."""
    return Model(
        config.grid,
        build_backbone(config),
        posterior=Posterior(
            belief_size=config.belief_size,
            latent_size=config.latent_size,
            context_size=config.feature_size,
            layers=config.flow_layers,
            bins=config.spline_bins,
            bound=config.spline_bound,
        ),
        decoder=Decoder(config.latent_size, config.feature_size, config.grid),
        correction=GainCorrection(config.belief_size, config.grid.num_locations) if config.gain_correction else None,
    )
