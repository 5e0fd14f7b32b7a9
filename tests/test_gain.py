from __future__ import annotations

import math
import platform
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional

from infogaze import Backbone, Belief, GlimpseGrid, Model, ModelConfig, build
from infogaze.decoder import Decoder
from infogaze.features import to_pixels
from infogaze.gain import (
    CRITERIA,
    Criterion,
    class_entropy,
    expected_information_gain,
    feature_variance,
    predictive_uncertainty,
)
from infogaze.posterior import FlowDistribution, Posterior
from infogaze.sensing import extract

every_criterion = pytest.mark.parametrize("criterion", CRITERIA.values(), ids=CRITERIA.keys())


def _logs(*probabilities: float) -> Tensor:
    return torch.tensor(probabilities, dtype=torch.float64).log()


def _random_log_probabilities(*shape: int, seed: int, spread: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (spread * torch.randn(*shape, generator=generator, dtype=torch.float64)).log_softmax(-1)


def test_gain_of_one_sample_is_the_divergence_computed_by_hand() -> None:
    now = _logs(0.25, 0.75)
    lookahead = torch.stack(
        [_logs(0.5, 0.5), _logs(0.25, 0.75), _logs(0.75, 0.25), torch.tensor([0.0, -200.0], dtype=torch.float64)]
    )
    gain = expected_information_gain(lookahead[None, None], now[None])
    # 1/2 ln 2 + 1/2 ln 2/3; nothing; 3/4 ln 3 + 1/4 ln 1/3; certain of what had one chance in four.
    by_hand = [0.5 * math.log(4 / 3), 0.0, 0.5 * math.log(3), math.log(4)]
    torch.testing.assert_close(gain, torch.tensor([by_hand], dtype=torch.float64), rtol=0, atol=1e-12)


def test_gain_is_the_mean_over_samples_and_keeps_scenes_and_places_apart() -> None:
    now = torch.stack([_logs(0.5, 0.5), _logs(0.2, 0.8)])
    sure, unsure = torch.tensor([0.0, -300.0]).double(), _logs(0.5, 0.5)
    lookahead = torch.stack(
        [
            torch.stack([torch.stack([sure, unsure]), torch.stack([unsure, sure])]),
            torch.stack([torch.stack([unsure, unsure]), torch.stack([sure, sure])]),
        ]
    )  # [P, B, L, classes]
    half = 0.5 * math.log(0.5 / 0.2) + 0.5 * math.log(0.5 / 0.8)
    by_hand = [[math.log(2) / 2, 0.0], [(half + math.log(5)) / 2, math.log(5)]]
    torch.testing.assert_close(
        expected_information_gain(lookahead, now), torch.tensor(by_hand, dtype=torch.float64), rtol=0, atol=1e-12
    )


@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 5), st.integers(2, 6), st.floats(0.0, 50.0))
def test_a_look_that_changes_nothing_gains_nothing(
    seed: int, scenes: int, places: int, classes: int, spread: float
) -> None:
    now = _random_log_probabilities(scenes, classes, seed=seed, spread=spread)
    gain = expected_information_gain(now[None, :, None].expand(3, scenes, places, classes), now)
    assert torch.equal(gain, torch.zeros(scenes, places).double())


@given(st.integers(0, 2**31), st.integers(2, 6), st.floats(0.0, 100.0))
def test_gain_is_never_negative(seed: int, classes: int, spread: float) -> None:
    now = _random_log_probabilities(4, classes, seed=seed, spread=spread)
    lookahead = _random_log_probabilities(3, 4, 5, classes, seed=seed + 1, spread=spread)
    assert (expected_information_gain(lookahead, now) >= -1e-12).all()


@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(2, 6))
def test_predictive_uncertainty_is_the_entropy_of_the_mean(seed: int, samples: int, classes: int) -> None:
    lookahead = _random_log_probabilities(samples, 2, 5, classes, seed=seed)
    mean = np.exp(lookahead.numpy()).mean(0)
    uncertainty = predictive_uncertainty(lookahead, _random_log_probabilities(2, classes, seed=seed + 1))
    np.testing.assert_allclose(uncertainty.numpy(), -(mean * np.log(mean)).sum(-1), rtol=1e-12)


@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 6))
def test_feature_variance_is_the_variance_between_samples(seed: int, samples: int, size: int) -> None:
    features = torch.randn(samples, 2, 5, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    lookahead, now = torch.zeros(samples, 2, 5, 1).double(), torch.zeros(2, 1).double()
    variance = feature_variance(lookahead, now, features)
    np.testing.assert_allclose(variance.numpy(), features.numpy().var(0).mean(-1), rtol=1e-12, atol=1e-15)


@every_criterion
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("extreme", [-200.0, -1e4])
def test_vanishing_probabilities_leave_every_criterion_finite(
    criterion: Criterion, dtype: torch.dtype, extreme: float
) -> None:
    sure = torch.full((3, 3), extreme, dtype=dtype).fill_diagonal_(0.0)  # one row a label that is certain
    lookahead = sure[None, None].expand(4, 3, 3, 3)
    values = criterion(lookahead, sure, torch.ones(4, 3, 3, 2, dtype=dtype))
    assert values.shape == (3, 3)
    assert values.isfinite().all()


def test_a_label_ruled_out_before_and_after_adds_nothing() -> None:
    # 0 log 0 is 0: a backbone that reasons exactly gives such a label a log-probability of minus infinity.
    now, lookahead = _logs(0.25, 0.75, 0.0), _logs(0.5, 0.5, 0.0)
    gain = expected_information_gain(lookahead[None, None, None], now[None])
    torch.testing.assert_close(gain, torch.tensor([[0.5 * math.log(4 / 3)]], dtype=torch.float64))


@pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="torch has this mode for x86 alone for sure")
def test_a_vanishing_probability_has_no_entropy_where_denormals_are_flushed() -> None:
    assert torch.set_flush_denormal(True)
    try:
        uncertainty = predictive_uncertainty(torch.tensor([[[[0.0, -200.0]]]]), torch.tensor([[0.0, -200.0]]))
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(uncertainty, torch.zeros(1, 1))


TINY = ModelConfig(
    height=12, width=12, channels=1, classes=3, glimpse=4, stride=2, glimpse_widths=(4,),
    feature_size=5, belief_size=6, latent_size=4, flow_layers=2,
)  # fmt: skip


def _model_and_belief(config: ModelConfig, scenes: int, seed: int = 0) -> tuple[Model, Belief]:
    """A real model in float64, and its belief after two looks."""
    torch.manual_seed(seed)
    model = build(config).double().eval()
    with torch.no_grad():
        for parameter in model.posterior.parameters():
            parameter.normal_(0.0, 0.5)
        # Fresh weights barely listen to a look: ones this large make maps that differ from place to place.
        for parameter in model.backbone.parameters():
            parameter.mul_(3.0)
    belief = model.backbone.start(scenes)
    for place in (0, 3):
        where = model.grid.locations()[place].expand(scenes, 2)
        content = torch.randn(scenes, config.feature_size).double()
        belief = model.backbone.update(belief, content, where)
    return model, belief


@every_criterion
@torch.no_grad()
def test_every_criterion_may_stand_for_another_in_the_model(criterion: Criterion) -> None:
    model, belief = _model_and_belief(TINY, scenes=2)
    noise = torch.randn(6, 2, 4).double()
    values = model.gain(belief, noise, criterion)
    assert values.shape == (2, model.grid.places)
    assert values.isfinite().all()
    content = model.imagine(belief, noise)
    lookahead = model.lookahead(belief, content, model.grid.locations())
    torch.testing.assert_close(values, criterion(lookahead, model.backbone.classify(belief), content))
    # Maps with nothing on them would agree too.
    assert values.std(1).min() > 1e-3


@pytest.mark.parametrize("elements", [1, 100, 2_000])
@pytest.mark.parametrize(
    ("height", "width", "hops", "criterion"),
    [
        (12, 12, 0, expected_information_gain),
        (10, 16, 2, expected_information_gain),
        (4, 15, 0, predictive_uncertainty),
        (10, 8, 0, feature_variance),
    ],
)
@torch.no_grad()
def test_a_map_made_in_pieces_is_the_map(
    height: int, width: int, hops: int, criterion: Criterion, elements: int
) -> None:
    config = replace(TINY, height=height, width=width, attention_hops=hops)
    model, belief = _model_and_belief(config, scenes=3)
    noise = torch.randn(5, 3, 4).double()
    whole = model.gain(belief, noise, criterion, elements=1 << 30)
    torch.testing.assert_close(model.gain(belief, noise, criterion, elements=elements), whole, rtol=1e-9, atol=1e-12)


@torch.no_grad()
def test_a_scene_has_the_same_map_alone_and_among_others() -> None:
    model, belief = _model_and_belief(replace(TINY, width=16), scenes=3)
    noise = torch.randn(5, 3, 4).double()
    together = model.gain(belief, noise)
    for scene in range(3):
        some = slice(scene, scene + 1)
        torch.testing.assert_close(model.gain(belief[some], noise[:, some]), together[some])


@torch.no_grad()
def test_lookahead_is_what_the_look_would_do() -> None:
    model, belief = _model_and_belief(replace(TINY, width=16, attention_hops=2), scenes=2)
    content = torch.randn(3, 2, model.grid.places, 5).double()
    lookahead = model.lookahead(belief, content, model.grid.locations())
    for p, place in product(range(3), range(model.grid.places)):
        where = model.grid.locations()[place].expand(2, 2)
        after = model.backbone.classify(model.backbone.update(belief, content[p, :, place], where))
        torch.testing.assert_close(lookahead[p, :, place], after)


# A world small enough to enumerate: a label of 3, and 4 places that each show one of 3 symbols. The symbols depend on the label
# and on their neighbours; a state of the world is a label and what all places show.
LABELS, SYMBOLS, PLACES = 3, 3, 4
GRID = GlimpseGrid(height=4, width=4, glimpse=2, stride=2)
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
        place = locations[..., 0] // GRID.stride * GRID.cols + locations[..., 1] // GRID.stride
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
        state = torch.searchsorted(cumulative, torch.special.ndtr(noise) * cumulative[..., -1:])
        return state.double(), log_posterior.gather(-1, state).squeeze(-1)


class WorldPosterior(Posterior):
    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.latent_size = 1

    def forward(self, hidden: Tensor) -> FlowDistribution:
        return WorldDistribution(hidden, torch.ones_like(hidden), hidden, [])


class WorldDecoder(Decoder):
    def __init__(self) -> None:
        nn.Module.__init__(self)

    def forward(self, z: Tensor) -> Tensor:
        return SHOWN[z.long().squeeze(-1)]


WORLD = Model(GRID, WorldBackbone(), WorldPosterior(), WorldDecoder())

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
        content = WORLD.backbone.features(to_pixels(extract(image, where, GRID.glimpse)))
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
    noise = torch.randn(samples, repeats, 1, generator=torch.Generator().manual_seed(samples), dtype=torch.float64)
    return WORLD.gain(_belief(seen, repeats), noise, elements=1 << 20).double()


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


@pytest.mark.parametrize("elements", [1, 1_000, 5_000, 50_000])
def test_the_world_in_pieces_is_the_world(elements: int) -> None:
    noise = torch.randn(7, 5, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    belief = _belief((1,), 5)
    torch.testing.assert_close(WORLD.gain(belief, noise, elements=elements), WORLD.gain(belief, noise))


def test_entropy_is_log_of_the_classes_where_all_are_as_likely_and_zero_where_one_is_certain() -> None:
    probabilities = torch.tensor([[[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]])
    assert class_entropy(probabilities.log())[0].tolist() == pytest.approx([math.log(4), math.log(2), 0.0])


def test_entropy_is_scipys() -> None:
    log_probabilities = torch.randn(6, 3, 5, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    expected = torch.from_numpy(stats.entropy(log_probabilities.exp().numpy(), axis=-1))
    torch.testing.assert_close(class_entropy(log_probabilities), expected)
