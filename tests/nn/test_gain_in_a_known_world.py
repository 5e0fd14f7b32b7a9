"""The gain against the exact mutual information, in a world small enough to enumerate."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from infogaze import Backbone, Belief, GlimpseGrid, Model
from infogaze.grid import extract
from infogaze.nn.decoder import Decoder
from infogaze.nn.dictionary import Dictionary, Places
from infogaze.nn.gain import CRITERIA
from infogaze.nn.imagination import Imagined
from infogaze.nn.partial_vae import PartialVAE
from infogaze.nn.pixels import normalise_pixels
from infogaze.nn.posterior import FlowDistribution, Posterior

# The world: a label of 3, and 4 places that each show one of 3 symbols. The symbols depend on the label
# and on their neighbours; a state of the world is a label and what all places show.
LABELS, SYMBOLS, PLACES = 3, 3, 4
GRID = GlimpseGrid(height=4, width=4, glimpse_size=2, stride=2)
STATES = torch.cartesian_prod(
    torch.arange(LABELS), *[torch.arange(SYMBOLS)] * PLACES
)  # [243, 5]: the label, the symbols
SHOWN = functional.one_hot(STATES[:, 1:], SYMBOLS).double()  # [243, 4, 3]
PIXELS = torch.tensor([0, 128, 255], dtype=torch.uint8)  # what a symbol looks like


def _log_joint() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    of_label = torch.randn(LABELS, generator=generator, dtype=torch.float64)
    of_symbol = torch.randn(PLACES, LABELS, SYMBOLS, generator=generator, dtype=torch.float64)
    of_neighbours = torch.randn(PLACES, SYMBOLS, SYMBOLS, generator=generator, dtype=torch.float64)
    label, symbols = STATES[:, 0], STATES[:, 1:]
    energy = 0.5 * of_label[label]
    for place in range(PLACES):
        energy += of_symbol[place, label, symbols[:, place]]
        energy += of_neighbours[place, symbols[:, place], symbols[:, (place + 1) % PLACES]]
    return energy.log_softmax(0)


LOG_JOINT = _log_joint()


class WorldBackbone(Backbone):
    """Sees a symbol, remembers the log-posterior over the states of the world, names the label: exact Bayesian reasoning."""

    def features(self, glimpses: Tensor) -> Tensor:
        symbol = (glimpses.mean((-3, -2, -1)) + 1).round().long()
        return functional.one_hot(symbol, SYMBOLS).double()

    def start(self, batch: int) -> Belief:
        return Belief(LOG_JOINT.expand(batch, -1), torch.zeros(batch, 0))

    def update(self, belief: Belief, content: Tensor, locations: Tensor) -> Belief:
        row, col = (locations // GRID.stride).long().unbind(-1)
        place = row * GRID.cols + col
        agrees = content[..., None, :] @ SHOWN.movedim(1, 0)[place].mT  # [..., 1, states]
        return Belief((belief.hidden + agrees.squeeze(-2).log()).log_softmax(-1), belief.memory)

    def classify(self, belief: Belief) -> Tensor:
        return belief.hidden.unflatten(-1, (LABELS, -1)).logsumexp(-1)


class WorldDistribution(FlowDistribution):
    """The belief itself: noise to a uniform number, and that to a state by the inverse of the cumulative distribution."""

    def rsample(self, noise: Tensor) -> Tensor:
        return self.rsample_with_log_prob(noise)[0]

    def rsample_with_log_prob(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        log_posterior = self.mean.expand(*noise.shape[:-1], -1).contiguous()
        cumulative = log_posterior.exp().cumsum(-1)
        uniform = torch.special.ndtr(noise.contiguous())
        state = torch.searchsorted(cumulative, uniform * cumulative[..., -1:])
        return state.double(), log_posterior.gather(-1, state).squeeze(-1)


class WorldPosterior(Posterior):
    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.latent_size = 1

    def forward(self, hidden: Tensor) -> FlowDistribution:
        return WorldDistribution(mean=hidden, scale=torch.ones_like(hidden), context=hidden, layers=[])


class WorldDecoder(Decoder):
    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.grid = GRID

    def forward(self, z: Tensor) -> Tensor:
        return SHOWN[z.long().squeeze(-1)]


WORLD = Model(GRID, WorldBackbone(), imagination=PartialVAE(WorldPosterior(), WorldDecoder()))

# One scene of this world, and the places looked at before the map is made.
SCENE = (2, 0, 1, 1)
every_stage = pytest.mark.parametrize("seen", [(), (2,), (0, 3), (0, 1, 2)], ids=str)


def _belief(seen: tuple[int, ...], scenes: int) -> Belief:
    """What is believed of the scene, seen through its pixels."""
    image = (
        PIXELS[list(SCENE)]
        .view(1, 1, 2, 2)
        .repeat_interleave(2, -1)
        .repeat_interleave(2, -2)
        .expand(scenes, -1, -1, -1)
    )
    belief = WORLD.backbone.start(scenes)
    for place in seen:
        where = GRID.locations()[place].expand(scenes, 2)
        content = WORLD.backbone.features(normalise_pixels(extract(image, where, GRID.glimpse_size)))
        belief = WORLD.backbone.update(belief, content, where)
    return belief


def _exact_information(seen: tuple[int, ...]) -> list[float]:
    """I(label; symbol at a place | what was seen) in nats, from the table of all states."""
    possible: dict[tuple[int, ...], float] = {}
    for state, log_probability in zip(STATES.tolist(), LOG_JOINT.tolist(), strict=True):
        if all(state[1 + place] == SCENE[place] for place in seen):
            possible[tuple(state)] = math.exp(log_probability)
    total = sum(possible.values())

    def probability(**wanted: int) -> float:
        index = {"label": 0, **{f"place{place}": 1 + place for place in range(PLACES)}}
        fits = (p for state, p in possible.items() if all(state[index[k]] == v for k, v in wanted.items()))
        return sum(fits) / total

    information = []
    for place in range(PLACES):
        nats = 0.0
        for label, symbol in product(range(LABELS), range(SYMBOLS)):
            both = probability(label=label, **{f"place{place}": symbol})
            if both > 0:
                nats += both * math.log(both / probability(label=label) / probability(**{f"place{place}": symbol}))
        information.append(nats)
    return information


def _maps(seen: tuple[int, ...], samples: int, repeats: int) -> Tensor:
    """[repeats, places]: gain maps of the same belief from different noise."""
    noise = torch.randn(repeats, samples, 1, generator=torch.Generator().manual_seed(samples), dtype=torch.float64)
    return WORLD.gain(_belief(seen, repeats), samples, noise=noise, elements=1 << 20).double()


def test_the_world_is_worth_looking_at() -> None:
    # Else the tests below would compare zeros: looks must differ in worth, and places must tell of each other.
    before, after = _exact_information(()), _exact_information((2,))
    assert min(before) > 0.01
    assert max(before) > 2 * min(before)
    assert all(abs(before[place] - after[place]) > 0.01 for place in (0, 1, 3))


@every_stage
def test_the_world_is_reasoned_about_exactly(seen: tuple[int, ...]) -> None:
    fits = [all(state[1 + place] == SCENE[place] for place in seen) for state in STATES.tolist()]
    joint = LOG_JOINT.exp() * torch.tensor(fits)
    expected = joint.view(LABELS, -1).sum(1) / joint.sum()
    torch.testing.assert_close(WORLD.backbone.classify(_belief(seen, 1)).exp()[0], expected)


@every_stage
def test_gain_converges_to_the_exact_information_as_samples_grow(seen: tuple[int, ...]) -> None:
    budgets = (1, 4, 16, 64)
    exact = torch.tensor(_exact_information(seen), dtype=torch.float64)
    table = ["P    place  exact     mean      bias       4 s.e.    variance"]
    variances, biased, lowest = [], False, math.inf
    for samples in budgets:
        repeats = 12_800 // samples
        maps = _maps(seen, samples, repeats)
        mean, variance = maps.mean(0), maps.var(0)
        allowed = 4 * (variance / repeats).sqrt() + 1e-12
        biased |= bool(((mean - exact).abs() > allowed).any())
        lowest = min(lowest, maps.min().item())
        variances.append(variance)
        for place in range(PLACES):
            row = exact[place], mean[place], mean[place] - exact[place], allowed[place], variance[place]
            table.append(f"{samples:<4} {place:<5} " + " ".join(f"{value:9.6f}" for value in row))
    report = "\n".join(["", *table])
    assert not biased, report
    assert lowest >= -1e-6, report
    unseen = [place for place in range(PLACES) if place not in seen]
    slope = np.polyfit(np.log(budgets), torch.stack(variances)[:, unseen].log().numpy(), 1)[0]  # one a place
    assert np.abs(slope + 1).max() < 0.15, f"the variance falls like P^{slope}{report}"


@pytest.mark.parametrize("seen", [(2,), (0, 3), (0, 1, 2, 3)], ids=str)
def test_a_place_already_seen_has_nothing_more_to_tell(seen: tuple[int, ...]) -> None:
    maps = _maps(seen, 8, 20)
    assert maps[:, list(seen)].abs().max() < 1e-12
    unseen = [place for place in range(PLACES) if place not in seen]
    assert (maps[:, unseen] > 1e-4).any(0).all()


def _all_that_a_place_may_hold(seen: tuple[int, ...]) -> tuple[list[int], Imagined]:
    """The places not seen yet, and every symbol there with its exact probability, instead of samples."""
    unseen = [place for place in range(PLACES) if place not in seen]
    weights = torch.einsum("s,sln->ln", _belief(seen, 1).hidden[0].exp(), SHOWN)[unseen]
    symbols = torch.eye(SYMBOLS, dtype=torch.float64).expand(1, len(unseen), -1, -1)
    return unseen, Imagined(weights[None], symbols)


@every_stage
def test_with_the_exact_probability_of_every_content_gain_and_mutual_information_are_the_exact_information(
    seen: tuple[int, ...],
) -> None:
    unseen, imagined = _all_that_a_place_may_hold(seen)
    exact = torch.tensor(_exact_information(seen), dtype=torch.float64)[None, unseen]
    maps = {
        name: WORLD.lookahead_gain(
            _belief(seen, 1), imagined, locations=GRID.locations()[unseen], criterion=CRITERIA[name]
        )
        for name in ("information-gain", "mutual-information", "incoherence")
    }
    torch.testing.assert_close(maps["information-gain"], exact, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(maps["mutual-information"], exact, rtol=1e-9, atol=1e-12)
    # The world's looks are coherent.
    torch.testing.assert_close(maps["incoherence"], torch.zeros_like(exact), rtol=0, atol=1e-12)


class WorldDictionary(Dictionary):
    """All symbols as entries, and how likely each is at each place by the belief: exact as well."""

    def __init__(self) -> None:
        super().__init__(GRID, belief_size=len(STATES), feature_size=SYMBOLS, channels=1, entries=SYMBOLS, width=1)
        self.double()
        self.entries.data = torch.eye(SYMBOLS, dtype=torch.float64)

    def logits(self, hidden: Tensor, places: Places) -> Tensor:
        return torch.einsum("bs,sln->bln", hidden.exp(), SHOWN).log()


@pytest.mark.parametrize("seen", [(), (2,), (0, 3), (0, 1, 2), (0, 1, 2, 3)], ids=str)
@pytest.mark.parametrize("entries", [SYMBOLS, SYMBOLS + 4])
@torch.no_grad()
def test_a_dictionary_of_all_that_there_is_gives_the_exact_information_without_a_sample(
    seen: tuple[int, ...], entries: int
) -> None:
    model = Model(GRID, WorldBackbone(), imagination=WorldDictionary())
    exact = torch.tensor(_exact_information(seen), dtype=torch.float64)
    unseen = [place for place in range(PLACES) if place not in seen]
    for criterion in ("mutual-information", "information-gain"):
        found = model.gain(_belief(seen, 2), entries, noise=torch.zeros(2, 0), criterion=CRITERIA[criterion])
        torch.testing.assert_close(found[:, unseen], exact[unseen].expand(2, -1), rtol=1e-9, atol=1e-12)
    assert model._table is not None


@every_stage
def test_wrong_probabilities_of_the_contents_show_as_incoherence(seen: tuple[int, ...]) -> None:
    unseen, imagined = _all_that_a_place_may_hold(seen)
    wrong = Imagined(torch.full_like(imagined.weights, 1 / SYMBOLS), imagined.features)
    found = WORLD.lookahead_gain(
        _belief(seen, 1), wrong, locations=GRID.locations()[unseen], criterion=CRITERIA["incoherence"]
    )
    assert (found > 1e-5).all()


@pytest.mark.parametrize("elements", [1, 1_000, 5_000, 50_000])
def test_the_world_in_pieces_is_the_world(elements: int) -> None:
    noise = torch.randn(5, 7, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    belief = _belief((1,), 5)
    pieces = WORLD.gain(belief, 7, noise=noise, elements=elements)
    torch.testing.assert_close(pieces, WORLD.gain(belief, 7, noise=noise))
