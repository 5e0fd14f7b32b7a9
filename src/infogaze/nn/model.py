"""The parts together: what is believed, imagined and expected of a scene, as batched tensors (figure 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from infogaze.grid import GlimpseGrid
from infogaze.nn.backbone import Backbone, GlimpseBackbone, TokenBackbone
from infogaze.nn.belief import AttentiveBeliefUpdate, Belief, BeliefUpdate
from infogaze.nn.classifier import Classifier
from infogaze.nn.config import ModelConfig
from infogaze.nn.correction import GainCorrection
from infogaze.nn.decoder import Decoder
from infogaze.nn.dictionary import Dictionary
from infogaze.nn.features import GlimpseFeatures
from infogaze.nn.gain import (
    BY_LOOKAHEAD,
    EXPECTED_GAINS,
    Criterion,
    class_entropy,
    coherent,
    coherent_information,
    expected_information_gain,
    mutual_information,
)
from infogaze.nn.imagination import Imagination, Imagined
from infogaze.nn.partial_vae import PartialVAE
from infogaze.nn.posterior import Posterior
from infogaze.nn.token_belief import TokenBelief
from infogaze.nn.token_features import TokenFeatures
from infogaze.rng import stream_seed

N = TypeVar("N", bound="GlimpseClassifier")

_ELEMENTS_AT_ONCE, _ON_CUDA = 1 << 26, 1 << 29
"""How many hidden elements may be imagined at once: 256 MiB in float32 on the CPU. More are done in pieces."""
_IN_CACHE = 1 << 19
"""How many hidden elements a lookahead holds at once on the CPU: 2 MiB in float32."""

_LARGEST_TABLE = 1 << 27
"""How many elements may be kept of what R makes of a dictionary: 512 MiB in float32."""


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
    def weights_version(self) -> tuple[object, ...]:
        """Another after every change of the weights that what is kept from decision to decision follows from; here nothing is."""
        return ()

    @property
    def kept(self) -> object:
        """What is kept from decision to decision, and must stay in memory while a captured decision is replayed; here nothing."""
        return None

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device


class Model(GlimpseClassifier):
    """A backbone that sees and classifies, an imagination of what it has not seen, and the gain that follows from both."""

    def __init__(
        self,
        grid: GlimpseGrid,
        backbone: Backbone,
        *,
        imagination: Imagination,
        correction: GainCorrection | None = None,
    ) -> None:
        super().__init__(grid, backbone)
        self.imagination = imagination
        self.correction = correction
        self._table: tuple[tuple[object, ...], Tensor] | None = None

    def train(self, mode: bool = True) -> Model:
        """Set the mode, and forget what follows from weights that training may have changed unseen: a fused optimiser leaves no trace."""
        self._table = None
        super().train(mode)
        return self

    def compile_parts(self) -> None:
        """The backbone's, the imagination's, and the lookahead with its gain."""
        super().compile_parts()
        self.imagination.compile_parts()
        self.lookahead_gain = torch.compile(self.lookahead_gain, dynamic=False)  # type: ignore[method-assign]
        self.table_gain = torch.compile(self.table_gain, dynamic=False)  # type: ignore[method-assign]

    def lookahead(
        self, belief: Belief, content: Float[Tensor, "B L M f"], locations: Num[Tensor, "L 2"]
    ) -> Float[Tensor, "B L M classes"]:
        """log p(y | f~(l), h): the class distribution after a look at l, should it hold the imagined content."""
        received = self.backbone.receive(content, locations[:, None])
        return self.backbone.classes(self.backbone.foresee(belief.unsqueeze(1).unsqueeze(1), received))

    def lookahead_gain(
        self, belief: Belief, imagined: Imagined, *, locations: Num[Tensor, "L 2"], criterion: Criterion
    ) -> Float[Tensor, "B L"]:
        """What looks at these locations are expected to be worth, should they hold what is imagined."""
        return self._worth(belief, imagined, self.lookahead(belief, imagined.features, locations), criterion=criterion)

    def table_gain(
        self, belief: Belief, imagined: Imagined, *, table: Float[Tensor, "L K r"], criterion: Criterion
    ) -> Float[Tensor, "B L"]:
        """The same where a dictionary is imagined, and what R makes of each entry at each location is known."""
        return self._worth(belief, imagined, self.table_lookahead(belief, imagined, table), criterion=criterion)

    def table_lookahead(
        self, belief: Belief, imagined: Imagined, table: Float[Tensor, "L K r"]
    ) -> Float[Tensor, "B L M classes"]:
        """log p(y | f~(l), h), should l hold what is imagined."""
        assert imagined.index is not None
        first = torch.arange(len(table), device=table.device)[:, None] * table.shape[1]
        # Row by row of one long table: on the CPU several times as fast as by two indices.
        rows = table.flatten(0, 1).index_select(0, (imagined.index + first).flatten())
        received = rows.view(*imagined.index.shape, -1)  # [B, L, M, r]
        return self.backbone.classes(self.backbone.foresee(belief.unsqueeze(1).unsqueeze(1), received))

    def _worth(
        self, belief: Belief, imagined: Imagined, after: Float[Tensor, "B L M classes"], *, criterion: Criterion
    ) -> Float[Tensor, "B L"]:
        """The criterion, of the answers. Imagined looks are made coherent while they still are of classes: groups know less."""
        current = self.backbone.classes(belief)
        if criterion is coherent_information:
            after, criterion = coherent(after, imagined.weights, current), mutual_information
        # They are looked up for a criterion that reads them, and no other.
        features = None if criterion in BY_LOOKAHEAD else imagined.features
        answers = self.backbone.answers
        return criterion(answers(after), imagined.weights, answers(current), features=features)

    @torch.no_grad()
    def entry_table(self) -> Float[Tensor, "L K r"] | None:
        """What R receives of each entry of the dictionary at each location of the grid: all of a lookahead that needs no belief. None where
        nothing is imagined by dictionary, or it would be too large to keep."""
        if not isinstance(self.imagination, Dictionary):
            return None
        entries, locations = self.imagination.entries, self.grid.locations(self.device)
        if self.grid.num_locations * len(entries) * self.backbone.start(1).hidden.shape[-1] > _LARGEST_TABLE:
            return None
        return self.backbone.receive(entries.expand(len(locations), *entries.shape), locations[:, None])

    @property
    def weights_version(self) -> tuple[object, ...]:
        """Another after every change of the weights that what is kept from decision to decision follows from."""
        if not isinstance(self.imagination, Dictionary):
            return ()
        weights = [*self.backbone.parameters(), *self.backbone.buffers(), self.imagination.entries]
        mine = tuple((value._version, value.data_ptr(), value.dtype) for value in weights)
        return (*mine, *self.imagination.weights_version)

    @property
    def kept(self) -> object:
        """The table, if there is one, and what the imagination keeps."""
        return self._table, self.imagination.kept if isinstance(self.imagination, Dictionary) else None

    def _kept_table(self) -> Tensor | None:
        if not isinstance(self.imagination, Dictionary):
            return None
        kind = self.device.type
        version = (*self.weights_version, kind != "meta" and torch.is_autocast_enabled(kind))
        if self._table is None or self._table[0] != version:
            table = self.entry_table()
            if table is None:
                return None
            self._table = (version, table)
        return self._table[1]

    def gain(
        self,
        belief: Belief,
        num_samples: int,
        *,
        noise: Float[Tensor, "B ..."],
        criterion: Criterion = expected_information_gain,
        elements: int | None = None,
    ) -> Float[Tensor, "B L"]:
        """What a look at each location is expected to be worth: as imagined, and corrected where it is an information gain and there is a
        correction."""
        gain = self.imagined_gain(belief, num_samples, noise=noise, criterion=criterion, elements=elements)
        if self.correction is None or criterion not in EXPECTED_GAINS:
            return gain
        return self.correction(gain, belief.hidden, class_entropy(self.backbone.classify(belief)))

    def imagined_gain(
        self,
        belief: Belief,
        num_samples: int,
        *,
        noise: Float[Tensor, "B ..."],
        criterion: Criterion = expected_information_gain,
        elements: int | None = None,
        table: Float[Tensor, "L K r"] | None = None,
    ) -> Float[Tensor, "B L"]:
        """The same from what is imagined alone; in pieces of scenes and locations of about `elements` hidden elements.

        `table` is `entry_table()` of the weights as they are; if not given, the one of the last decision serves until weights change.
        """
        if torch.compiler.is_exporting():
            return self._gain_at_once(belief, num_samples, noise=noise, criterion=criterion)
        if table is None:
            table = self._kept_table()
        belief = self.backbone.rounded(belief)
        scenes, row = len(noise), num_samples * self.backbone.lookahead_width(belief)
        if elements is None:
            elements = _ON_CUDA if noise.is_cuda else _ELEMENTS_AT_ONCE
        scenes_at_once = max(1, elements // (row * self.grid.num_locations))
        # Batches are often powers of two: pieces of one size are compiled once.
        scenes_at_once = scenes if scenes_at_once >= scenes else 1 << (scenes_at_once.bit_length() - 1)
        locations = self.grid.locations(noise.device)
        others = None if self.grid == self.imagination.grid else locations
        maps = []
        for first in range(0, scenes, scenes_at_once):
            some = slice(first, first + scenes_at_once)
            imagined = self.imagination.imagine(belief[some], num_samples, noise=noise[some], locations=others)
            maps.append(
                self._gain_in_pieces(belief[some], imagined, table=table, criterion=criterion, elements=elements)
            )
        return torch.cat(maps)

    def _gain_at_once(
        self, belief: Belief, num_samples: int, *, noise: Float[Tensor, "B ..."], criterion: Criterion
    ) -> Float[Tensor, "B L"]:
        """The same as a graph for batches of any size, whose pieces cannot be counted; and with no table, which is larger than all weights
        together."""
        belief, locations = self.backbone.rounded(belief), self.grid.locations(noise.device)
        others = None if self.grid == self.imagination.grid else locations
        imagined = self.imagination.imagine(belief, num_samples, noise=noise, locations=others)
        return self.lookahead_gain(belief, imagined, locations=locations, criterion=criterion)

    def _gain_in_pieces(
        self, belief: Belief, imagined: Imagined, *, table: Tensor | None, criterion: Criterion, elements: int
    ) -> Float[Tensor, "B L"]:
        """The gain of what is imagined, in pieces.

        On the CPU only the lookahead is: pieces stay in its cache, which is several times as fast, and what their classes are worth is one
        step for all of them. A CUDA device takes a piece's lookahead and worth as one compiled step.
        """
        scenes, places, contents = imagined.weights.shape
        whole = belief.hidden.device.type != "cpu"
        if not whole:
            elements = min(elements, _IN_CACHE)
        row = contents * self.backbone.lookahead_width(belief)
        many, some = max(1, elements // (row * places)), max(1, min(places, elements // row))
        locations = self.grid.locations(belief.hidden.device)

        def piece(scene: int, place: int) -> Tensor:
            of, at = slice(scene, scene + many), slice(place, place + some)
            held, here = belief[of], imagined[of, at]
            if table is not None:
                if whole:
                    return self.table_gain(held, here, table=table[at], criterion=criterion)
                return self.table_lookahead(held, here, table[at]).movedim(-1, 0)
            if whole:
                return self.lookahead_gain(held, here, locations=locations[at], criterion=criterion)
            return self.lookahead(held, here.features, locations[at]).movedim(-1, 0)

        pieces = [[piece(scene, place) for place in range(0, places, some)] for scene in range(0, scenes, many)]
        if whole:
            return torch.cat([torch.cat(row_of, 1) for row_of in pieces])
        # The few classes stay first in memory: sums over them are many times as fast.
        after = torch.cat([torch.cat(row_of, 2) for row_of in pieces], 1).movedim(0, -1)
        return self._worth(belief, imagined, after, criterion=criterion)


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


def build_backbone(config: ModelConfig) -> Backbone:
    """F, R and C of these sizes: the paper's, or with looks that are kept as tokens."""
    if config.token_layers:
        tokens = TokenFeatures(
            config.grid,
            channels=config.channels,
            widths=config.glimpse_widths,
            blocks=1 + config.glimpse_residuals,
            feature_size=config.feature_size,
            token_size=config.belief_size,
        )
        belief = TokenBelief(config.belief_size, config.token_layers, config.token_heads)
        return TokenBackbone(tokens, belief, Classifier(config.belief_size, config.num_classes))
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
    """F, R and C of these sizes, and an imagination. The backbone is made first: it is the same for every method of a seed."""
    return Model(
        config.grid,
        build_backbone(config),
        imagination=build_dictionary(config) if config.dictionary_entries else build_partial_vae(config),
        correction=GainCorrection(config.belief_size, config.grid.num_locations) if config.gain_correction else None,
    )


def build_partial_vae(config: ModelConfig) -> PartialVAE:
    """S and D of these sizes."""
    return PartialVAE(
        Posterior(
            belief_size=config.belief_size,
            latent_size=config.latent_size,
            context_size=config.feature_size,
            layers=config.flow_layers,
            bins=config.spline_bins,
            bound=config.spline_bound,
        ),
        Decoder(config.latent_size, config.feature_size, config.grid),
    )


def build_dictionary(config: ModelConfig) -> Dictionary:
    """A dictionary and its head, of these sizes."""
    return Dictionary(
        config.grid,
        belief_size=config.belief_size,
        feature_size=config.feature_size,
        channels=config.channels,
        entries=config.dictionary_entries,
        width=config.belief_size,
    )
