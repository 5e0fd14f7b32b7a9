"""Our imagination: a dictionary of glimpse contents, and a head that reads from the belief which of them each location holds.

A gain depends on the marginal of each location alone, and imagined contents must look like real ones, which R and C know. So the content of
a location is one of K entries, means of what glimpses of training scenes hold, and the head gives p(entry | h, location). It is learned
without labels. Nothing is sampled: the same belief gives the same gain every time.

A gain takes M of the K: the entries are in M groups, and each group stands as its likeliest entry, as likely as all of the group together.
So no probability is left out, as the K - M least likely would be, which together hold much of the information. With M = K it is exact.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor, nn
from torch.nn import functional

from infogaze.grid import GlimpseGrid
from infogaze.nn.belief import Belief
from infogaze.nn.gain import entropy
from infogaze.nn.imagination import Imagination, Imagined, ImaginedScene
from infogaze.nn.k_means import nearest
from infogaze.nn.precision import precise
from infogaze.nn.waves import NUM_WAVES, location_waves


class Places(NamedTuple):
    """What the head makes of locations, whatever the belief."""

    scale: Float[Tensor, "*places w"]
    """Of what is read from the belief."""
    shift: Float[Tensor, "*places w"]
    """Added to it."""
    usual: Float[Tensor, "*places K"]
    """What a location holds whatever the scene, as logits."""


class Dictionary(Imagination):
    """K entries, and which of them each location may hold."""

    def __init__(
        self, grid: GlimpseGrid, *, belief_size: int, feature_size: int, channels: int, entries: int, width: int
    ) -> None:
        super().__init__()
        self.grid = grid
        fresh = torch.empty(entries, feature_size)
        if not fresh.is_meta:  # which has no numbers, and whose random ones load torch's compiler, a second of work
            fresh.normal_()
        self.entries = nn.Parameter(fresh)
        """The contents."""
        side = grid.glimpse_size
        self.register_buffer("patches", torch.zeros(entries, channels, side, side))
        self.read = nn.Sequential(nn.Linear(belief_size, width), nn.GELU(), nn.LayerNorm(width))
        self.locate = nn.Sequential(nn.Linear(NUM_WAVES, width), nn.GELU())
        self.steer = nn.Linear(width, 2 * width)
        self.mix = nn.Sequential(nn.Linear(width, width), nn.GELU())
        self.keys = nn.Linear(width, entries)
        self.usual = nn.Linear(width, entries, bias=False)
        """What a location holds whatever the scene."""
        self._kept: tuple[tuple[object, ...], Places] | None = None

    patches: Float[Tensor, "K C g g"]
    """Mean pixels of the glimpses behind each entry, in [-1, 1]."""

    def noise_shape(self, num_samples: int) -> tuple[int, ...]:
        """None are needed."""
        return (0,)

    def train(self, mode: bool = True) -> Dictionary:
        """Set the mode, and forget what follows from weights that training may have changed unseen: a fused optimiser leaves no trace."""
        self._kept = None
        super().train(mode)
        return self

    def places(self, locations: Num[Tensor, "*places 2"]) -> Places:
        """The part of the head that needs no belief, so that it can be done once for many."""
        where = self.locate(location_waves(self.grid, locations, self.entries.dtype))  # [..., L, w]
        scale, shift = self.steer(where).chunk(2, -1)
        return Places(1.0 + scale, shift, self.usual(where))

    @property
    def weights_version(self) -> tuple[object, ...]:
        """Another after every change of the weights that what is kept from decision to decision follows from."""
        weights = [*self.locate.parameters(), *self.steer.parameters(), *self.usual.parameters()]
        return tuple((value._version, value.data_ptr(), value.dtype) for value in weights)

    @property
    def kept(self) -> object:
        """What is kept of its own grid, if anything."""
        return self._kept

    def _own_places(self) -> Places:
        """Those of its own grid, made anew only when weights have changed."""
        kind = self.entries.device.type
        locations = self.grid.locations(self.entries.device)
        if self.training or torch.is_grad_enabled() or torch.compiler.is_exporting() or kind == "meta":
            return self.places(locations)
        version = (*self.weights_version, torch.is_autocast_enabled(kind))
        if self._kept is None or self._kept[0] != version:
            self._kept = version, self.places(locations)
        return self._kept[1]

    def log_probabilities(
        self, hidden: Float[Tensor, "*batch h"], locations: Num[Tensor, "*places 2"]
    ) -> Float[Tensor, "*batch L K"]:
        """log p(entry | h, location) at L locations; these are the same for all beliefs [L, 2], or each belief's own [*batch, L, 2]."""
        return functional.log_softmax(precise(self.logits(hidden, self.places(locations))), -1)

    def logits(self, hidden: Float[Tensor, "*batch h"], places: Places) -> Float[Tensor, "*batch L K"]:
        """The same but for a number added to all entries of a location."""
        mixed = self.mix(self.read(hidden)[..., None, :] * places.scale + places.shift)
        return self.keys(mixed) + places.usual

    def imagine(
        self,
        belief: Belief,
        num_samples: int,
        *,
        noise: Float[Tensor, "B ..."],
        locations: Num[Tensor, "L 2"] | None = None,
    ) -> Imagined:
        """The likeliest entry of each of `num_samples` groups, or a few less where K has no so many of equal size, with the group's
        probability."""
        places = self._own_places() if locations is None else self.places(locations)
        weights, index = self.grouped(belief.hidden, places, groups=num_samples)
        return Imagined(weights, self.entries, index)

    def grouped(
        self, hidden: Float[Tensor, "*batch h"], places: Places, *, groups: int
    ) -> tuple[Float[Tensor, "*batch L M"], Int[Tensor, "*batch L M"]]:
        """The probability of each group of entries at L places, and its likeliest entry."""
        count = len(self.entries)
        size = -(-count // min(groups, count))
        groups = -(-count // size)
        logits = functional.pad(self.logits(hidden, places), (0, groups * size - count), value=-torch.inf)
        # Members first: so many numbers side by side are compared at once.
        members = precise(logits).unflatten(-1, (groups, size)).movedim(-1, 0).contiguous()
        first = torch.arange(groups, device=members.device) * size
        return members.logsumexp(0).softmax(-1), members.max(0).indices + first

    def uncertainty(self, belief: Belief, locations: Num[Tensor, "L 2"] | None = None) -> Float[Tensor, "B L"]:
        """The entropy of what each location holds, in nats."""
        where = self.grid.locations(belief.hidden.device) if locations is None else locations
        return entropy(self.log_probabilities(belief.hidden, where).exp())

    def picture(self, belief: Belief) -> Float[Tensor, "B C H W"]:
        """The expected scene, in [-1, 1]: at each location of the grid its expected patch, and their mean where these overlap."""
        grid, where = self.grid, self.grid.locations(belief.hidden.device)
        expected = self.log_probabilities(belief.hidden, where).exp() @ self.patches.flatten(1)  # [B, L, C g g]
        patches = expected.unflatten(-1, self.patches.shape[1:]).unflatten(1, (grid.rows, grid.cols))
        side_by_side = patches.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)  # [B, C, rows g, cols g]
        # Sums over what overlaps, as two products: one look at a time would be as many steps as there are locations.
        tops, lefts = grid.axes(where.device)
        down, across = (
            _laid(starts, grid.glimpse_size, length).to(expected.dtype)
            for starts, length in ((tops, grid.height), (lefts, grid.width))
        )
        covered = down.sum(1)[:, None] * across.sum(1)
        return down @ side_by_side @ across.mT / covered.clamp(min=1.0)

    @torch.no_grad()
    def draw(self, belief: Belief, grid: GlimpseGrid | None = None) -> ImaginedScene:
        """The expected scene as pixels, and how uncertain each location of the grid is."""
        grid = self.grid if grid is None else grid
        uncertainty = self.uncertainty(belief, grid.locations(belief.hidden.device))
        return ImaginedScene(
            picture=((self.picture(belief) + 1.0) * 127.5).round().clamp(0, 255).to(torch.uint8),
            uncertainty=uncertainty.unflatten(1, (grid.rows, grid.cols)),
        )

    @torch.no_grad()
    def nearest(self, content: Float[Tensor, "*batch f"]) -> Int[Tensor, "*batch"]:
        """The entry that each content is nearest to."""
        return nearest(content, self.entries)

    def compile_parts(self) -> None:
        """The head, with the distribution that training takes and with the groups that a gain takes."""
        self.grouped = torch.compile(self.grouped, dynamic=False)  # type: ignore[method-assign]
        self.log_probabilities = torch.compile(self.log_probabilities, dynamic=False)  # type: ignore[method-assign]


def _laid(starts: Int[Tensor, " n"], side: int, length: int) -> Bool[Tensor, "{length} pixels"]:
    """Which pixel along an axis each pixel of each patch lies on, patch by patch."""
    pixels = (starts[:, None] + torch.arange(side, device=starts.device)).flatten()
    return torch.arange(length, device=starts.device)[:, None] == pixels
