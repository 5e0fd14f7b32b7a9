from __future__ import annotations

import math
import platform
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats
from torch import Tensor

from infogaze import Belief, Model, ModelConfig, build
from infogaze.nn.gain import (
    CRITERIA,
    Criterion,
    class_entropy,
    coherent_information,
    expected_information_gain,
    feature_variance,
    incoherence,
    mutual_information,
    predictive_uncertainty,
)
from tests.support.small_model import vae_of

every_criterion = pytest.mark.parametrize("criterion", CRITERIA.values(), ids=CRITERIA.keys())


def _logs(*probabilities: float) -> Tensor:
    return torch.tensor(probabilities, dtype=torch.float64).log()


def _random_log_probabilities(*shape: int, seed: int, spread: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (spread * torch.randn(*shape, generator=generator, dtype=torch.float64)).log_softmax(-1)


def _equally_likely(*shape: int) -> Tensor:
    return torch.full(shape, 1.0 / shape[-1], dtype=torch.float64)


def _random_weights(*shape: int, seed: int) -> Tensor:
    return _random_log_probabilities(*shape, seed=seed, spread=1.0).exp()


def test_gain_of_one_sample_is_the_divergence_computed_by_hand() -> None:
    now = _logs(0.25, 0.75)
    lookahead = torch.stack(
        [_logs(0.5, 0.5), _logs(0.25, 0.75), _logs(0.75, 0.25), torch.tensor([0.0, -200.0], dtype=torch.float64)]
    )
    gain = expected_information_gain(lookahead[None, :, None], _equally_likely(1, 4, 1), now[None])
    # 1/2 ln 2 + 1/2 ln 2/3; nothing; 3/4 ln 3 + 1/4 ln 1/3; certain of what had one chance in four.
    by_hand = [0.5 * math.log(4 / 3), 0.0, 0.5 * math.log(3), math.log(4)]
    torch.testing.assert_close(gain, torch.tensor([by_hand], dtype=torch.float64), rtol=0, atol=1e-12)


def test_gain_is_the_mean_over_samples_and_keeps_scenes_and_places_apart() -> None:
    now = torch.stack([_logs(0.5, 0.5), _logs(0.2, 0.8)])
    sure, unsure = torch.tensor([0.0, -300.0]).double(), _logs(0.5, 0.5)
    lookahead = torch.stack(
        [
            torch.stack([torch.stack([sure, unsure]), torch.stack([unsure, unsure])]),
            torch.stack([torch.stack([unsure, sure]), torch.stack([sure, sure])]),
        ]
    )  # [B, L, M, classes]
    half = 0.5 * math.log(0.5 / 0.2) + 0.5 * math.log(0.5 / 0.8)
    by_hand = [[math.log(2) / 2, 0.0], [(half + math.log(5)) / 2, math.log(5)]]
    gain = expected_information_gain(lookahead, _equally_likely(2, 2, 2), now)
    torch.testing.assert_close(gain, torch.tensor(by_hand, dtype=torch.float64), rtol=0, atol=1e-12)


@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 5), st.integers(2, 6), st.floats(0.0, 50.0))
def test_a_look_that_changes_nothing_gains_nothing(
    seed: int, scenes: int, places: int, classes: int, spread: float
) -> None:
    now = _random_log_probabilities(scenes, classes, seed=seed, spread=spread)
    lookahead = now[:, None, None].expand(scenes, places, 3, classes)
    gain = expected_information_gain(lookahead, _equally_likely(scenes, places, 3), now)
    assert torch.equal(gain, torch.zeros(scenes, places).double())


@given(st.integers(0, 2**31), st.integers(2, 6), st.floats(0.0, 100.0))
def test_gain_is_never_negative(seed: int, classes: int, spread: float) -> None:
    now = _random_log_probabilities(4, classes, seed=seed, spread=spread)
    lookahead = _random_log_probabilities(4, 5, 3, classes, seed=seed + 1, spread=spread)
    assert (expected_information_gain(lookahead, _random_weights(4, 5, 3, seed=seed + 2), now) >= -1e-10).all()


@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(2, 6))
def test_predictive_uncertainty_is_the_entropy_of_the_mean(seed: int, samples: int, classes: int) -> None:
    lookahead = _random_log_probabilities(2, 5, samples, classes, seed=seed)
    mean = np.exp(lookahead.numpy()).mean(2)
    now = _random_log_probabilities(2, classes, seed=seed + 1)
    uncertainty = predictive_uncertainty(lookahead, _equally_likely(2, 5, samples), now)
    np.testing.assert_allclose(uncertainty.numpy(), -(mean * np.log(mean)).sum(-1), rtol=1e-10)


@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 6))
def test_feature_variance_is_the_variance_between_samples(seed: int, samples: int, size: int) -> None:
    features = torch.randn(2, 5, samples, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    lookahead, now = torch.zeros(2, 5, samples, 1).double(), torch.zeros(2, 1).double()
    variance = feature_variance(lookahead, _equally_likely(2, 5, samples), now, features=features)
    np.testing.assert_allclose(variance.numpy(), features.numpy().var(2).mean(-1), rtol=1e-9, atol=1e-12)


@dataclass(frozen=True)
class Looks:
    """Imagined looks at 5 locations of 2 scenes, all at random."""

    lookahead: Tensor  # [2, 5, M, classes]
    weights: Tensor  # [2, 5, M]
    current: Tensor  # [2, classes]
    features: Tensor  # [2, 5, M, 3]

    def by(self, criterion: Criterion) -> Tensor:
        return criterion(self.lookahead, self.weights, self.current, features=self.features)

    @property
    def expected(self) -> Tensor:
        """The mean of p(y | f~, h), [2, 5, classes]."""
        return torch.einsum("blm,blmc->blc", self.weights, self.lookahead.exp())


def _looks(seed: int, count: int, classes: int, spread: float = 2.0) -> Looks:
    generator = torch.Generator().manual_seed(seed)
    return Looks(
        lookahead=_random_log_probabilities(2, 5, count, classes, seed=seed, spread=spread),
        weights=_random_weights(2, 5, count, seed=seed + 1),
        current=_random_log_probabilities(2, classes, seed=seed + 2, spread=spread),
        features=torch.randn(2, 5, count, 3, generator=generator, dtype=torch.float64),
    )


any_looks = st.builds(_looks, st.integers(0, 2**31), st.integers(1, 6), st.integers(2, 6), st.floats(0.0, 50.0))


@every_criterion
@given(st.integers(0, 2**31), st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_a_look_that_weighs_k_times_as_much_counts_as_k_equal_samples(
    criterion: Criterion, seed: int, counts: list[int]
) -> None:
    looks, times = _looks(seed, len(counts), 4), torch.tensor(counts)
    weighted = replace(looks, weights=(times.double() / times.sum()).expand(2, 5, -1))
    repeated = Looks(
        lookahead=looks.lookahead.repeat_interleave(times, 2),
        weights=_equally_likely(2, 5, sum(counts)),
        current=looks.current,
        features=looks.features.repeat_interleave(times, 2),
    )
    torch.testing.assert_close(weighted.by(criterion), repeated.by(criterion), rtol=1e-9, atol=1e-9)


@every_criterion
@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 4), st.floats(0.0, 100.0))
def test_a_look_that_weighs_nothing_counts_nothing(
    criterion: Criterion, seed: int, count: int, more: int, spread: float
) -> None:
    looks, others = _looks(seed, count, 4), _looks(seed + 9, more, 4, spread)
    mixed = Looks(
        lookahead=torch.cat([looks.lookahead, others.lookahead], 2),
        weights=torch.cat([looks.weights, torch.zeros_like(others.weights)], 2),
        current=looks.current,
        features=torch.cat([looks.features, 1e3 * others.features], 2),
    )
    torch.testing.assert_close(mixed.by(criterion), looks.by(criterion), rtol=1e-9, atol=1e-12)


@every_criterion
@given(any_looks, st.integers(0, 2**31))
def test_the_order_of_imagined_looks_does_not_matter(criterion: Criterion, looks: Looks, seed: int) -> None:
    order = torch.randperm(looks.weights.shape[2], generator=torch.Generator().manual_seed(seed))
    shuffled = Looks(
        looks.lookahead[:, :, order], looks.weights[:, :, order], looks.current, looks.features[:, :, order]
    )
    torch.testing.assert_close(shuffled.by(criterion), looks.by(criterion), rtol=1e-9, atol=1e-12)


@given(any_looks)
def test_the_expected_gain_is_the_mutual_information_and_the_incoherence(looks: Looks) -> None:
    parts = looks.by(mutual_information) + looks.by(incoherence)
    torch.testing.assert_close(looks.by(expected_information_gain), parts, rtol=1e-9, atol=1e-9)


@given(any_looks)
def test_the_mutual_information_is_that_of_the_table_of_label_and_look(looks: Looks) -> None:
    joint = (looks.weights[..., None] * looks.lookahead.exp()).numpy()  # [2, 5, M, classes]
    apart = joint.sum(2, keepdims=True) * joint.sum(3, keepdims=True)
    table = special.rel_entr(joint, apart).sum((2, 3))
    np.testing.assert_allclose(looks.by(mutual_information).numpy(), table, rtol=1e-9, atol=1e-9)


@given(any_looks)
def test_mutual_information_is_not_negative_and_no_more_than_there_is_to_know(looks: Looks) -> None:
    information = looks.by(mutual_information)
    assert (information >= -1e-10).all()
    assert (information <= looks.by(predictive_uncertainty) + 1e-10).all()
    assert (information <= math.log(looks.lookahead.shape[-1]) + 1e-10).all()


def test_looks_that_each_settle_the_label_tell_all_of_its_entropy() -> None:
    certain = torch.eye(4, dtype=torch.float64).log().expand(1, 1, 4, 4)  # one look a label
    weights = torch.tensor([[[0.5, 0.25, 0.125, 0.125]]]).double()
    information = mutual_information(certain, weights, _logs(0.25, 0.25, 0.25, 0.25)[None])
    assert information.item() == pytest.approx(1.75 * math.log(2))
    equal = mutual_information(certain, _equally_likely(1, 1, 4), _logs(0.25, 0.25, 0.25, 0.25)[None])
    assert equal.item() == pytest.approx(math.log(4)), "the most there can be"


@given(st.integers(0, 2**31), st.integers(2, 6))
def test_one_imagined_look_tells_nothing_and_is_all_incoherence(seed: int, classes: int) -> None:
    looks = _looks(seed, 1, classes)
    torch.testing.assert_close(looks.by(mutual_information), torch.zeros(2, 5).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(looks.by(incoherence), looks.by(expected_information_gain))


@given(any_looks)
def test_incoherence_is_the_divergence_of_the_mean_prediction_from_the_current_one(looks: Looks) -> None:
    now = looks.current.exp()[:, None].expand_as(looks.expected)
    divergence = special.rel_entr(looks.expected.numpy(), now.numpy()).sum(-1)
    np.testing.assert_allclose(looks.by(incoherence).numpy(), divergence, rtol=1e-9, atol=1e-9)
    assert (looks.by(incoherence) >= -1e-10).all()


@given(any_looks)
def test_coherent_looks_have_no_incoherence_and_their_expected_gain_is_the_information(looks: Looks) -> None:
    # Where the current prediction is the mean of those after the look, at one location at a time.
    for place in range(5):
        here = slice(place, place + 1)
        coherent = Looks(
            looks.lookahead[:, here], looks.weights[:, here], looks.expected[:, place].log(), looks.features[:, here]
        )
        torch.testing.assert_close(coherent.by(incoherence), torch.zeros(2, 1).double(), rtol=0, atol=1e-10)
        torch.testing.assert_close(
            coherent.by(expected_information_gain), coherent.by(mutual_information), rtol=1e-9, atol=1e-9
        )


@given(any_looks)
def test_coherent_information_is_that_of_predictions_brought_towards_the_current_one(looks: Looks) -> None:
    after, weights = looks.lookahead.exp().numpy(), looks.weights.numpy()
    tilted = after * (looks.current.exp()[:, None] / looks.expected).numpy()[:, :, None]
    tilted = tilted / tilted.sum(-1, keepdims=True)
    mean = (weights[..., None] * tilted).sum(2)
    known = stats.entropy(mean, axis=-1) - (weights * stats.entropy(tilted, axis=-1)).sum(-1)
    np.testing.assert_allclose(looks.by(coherent_information).numpy(), known, rtol=1e-8, atol=1e-9)


@given(any_looks)
def test_coherent_information_of_coherent_looks_is_the_mutual_information(looks: Looks) -> None:
    for place in range(5):
        here = slice(place, place + 1)
        coherent = Looks(
            looks.lookahead[:, here], looks.weights[:, here], looks.expected[:, place].log(), looks.features[:, here]
        )
        torch.testing.assert_close(
            coherent.by(coherent_information), coherent.by(mutual_information), rtol=1e-8, atol=1e-9
        )


def test_coherent_information_counts_for_little_what_a_settled_belief_would_not_take() -> None:
    # Two imagined looks that tell two labels apart, where a third is all but certain already.
    lookahead = torch.stack([_logs(0.98, 0.01, 0.01), _logs(0.01, 0.98, 0.01)])[None, None]
    weights, now = torch.tensor([[[0.5, 0.5]]]).double(), _logs(0.005, 0.005, 0.99)[None]
    assert mutual_information(lookahead, weights, now).item() > 0.5
    assert coherent_information(lookahead, weights, now).item() < 0.05


@pytest.mark.parametrize(
    "criterion", [expected_information_gain, mutual_information, coherent_information, incoherence]
)
def test_a_label_ruled_out_by_every_look_adds_nothing(criterion: Criterion) -> None:
    lookahead, now = torch.stack([_logs(0.5, 0.5, 0.0), _logs(0.9, 0.1, 0.0)])[None, None], _logs(0.25, 0.75, 0.0)[None]
    weights, features = torch.tensor([[[0.3, 0.7]]]).double(), torch.zeros(1, 1, 2, 1).double()
    without = criterion(lookahead[..., :2], weights, now[..., :2], features=features)
    torch.testing.assert_close(criterion(lookahead, weights, now, features=features), without)


@every_criterion
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("extreme", [-200.0, -1e4])
def test_vanishing_probabilities_leave_every_criterion_finite(
    criterion: Criterion, dtype: torch.dtype, extreme: float
) -> None:
    sure = torch.full((3, 3), extreme, dtype=dtype).fill_diagonal_(0.0)  # one row a label that is certain
    lookahead = sure[None, :, None].expand(3, 3, 4, 3)
    values = criterion(
        lookahead, _equally_likely(3, 3, 4).to(dtype), sure, features=torch.ones(3, 3, 4, 2, dtype=dtype)
    )
    assert values.shape == (3, 3)
    assert values.isfinite().all()


def test_a_label_ruled_out_before_and_after_adds_nothing() -> None:
    # 0 log 0 is 0: a backbone that reasons exactly gives such a label a log-probability of minus infinity.
    now, lookahead = _logs(0.25, 0.75, 0.0), _logs(0.5, 0.5, 0.0)
    gain = expected_information_gain(lookahead[None, None, None], _equally_likely(1, 1, 1), now[None])
    torch.testing.assert_close(gain, torch.tensor([[0.5 * math.log(4 / 3)]], dtype=torch.float64))


@pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="torch has this mode for x86 alone for sure")
def test_a_vanishing_probability_has_no_entropy_where_denormals_are_flushed() -> None:
    assert torch.set_flush_denormal(True)
    try:
        lookahead, now = torch.tensor([[[[0.0, -200.0]]]]), torch.tensor([[0.0, -200.0]])
        uncertainty = predictive_uncertainty(lookahead, torch.ones(1, 1, 1), now)
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(uncertainty, torch.zeros(1, 1))


TINY = ModelConfig(
    height=12, width=12, channels=1, num_classes=3, glimpse_size=4, stride=2, glimpse_widths=(4,),
    feature_size=5, belief_size=6, latent_size=4, flow_layers=2,
)  # fmt: skip
every_belief = pytest.mark.parametrize(
    "sizes", [{}, {"attention_hops": 2}, {"token_layers": 2}], ids=["plain", "attention", "tokens"]
)


def _model_and_belief(config: ModelConfig, scenes: int, seed: int = 0) -> tuple[Model, Belief]:
    """A real model in float64, and its belief after two looks."""
    torch.manual_seed(seed)
    model = build(config).double().eval()
    with torch.no_grad():
        for parameter in vae_of(model).posterior.parameters():
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
    noise = torch.randn(2, 6, 4).double()
    values = model.gain(belief, 6, noise=noise, criterion=criterion)
    assert values.shape == (2, model.grid.num_locations)
    assert values.isfinite().all()
    imagined = model.imagination.imagine(belief, 6, noise=noise)
    lookahead = model.lookahead(belief, imagined.features, model.grid.locations())
    now = model.backbone.classify(belief)
    torch.testing.assert_close(values, criterion(lookahead, imagined.weights, now, features=imagined.features))
    # Maps with nothing on them would agree too.
    assert values.std(1).min() > 1e-3


@pytest.mark.parametrize("elements", [1, 100, 2_000])
@pytest.mark.parametrize(
    ("sizes", "criterion"),
    [
        ({}, expected_information_gain),
        ({"height": 10, "width": 16, "attention_hops": 2}, expected_information_gain),
        ({"height": 10, "width": 16, "token_layers": 2}, expected_information_gain),
        ({}, mutual_information),
        ({"height": 10, "width": 16, "attention_hops": 2}, incoherence),
        ({"height": 10, "width": 8, "token_layers": 1}, incoherence),
        ({"height": 4, "width": 15}, predictive_uncertainty),
        ({"height": 10, "width": 8}, feature_variance),
    ],
)
@torch.no_grad()
def test_a_map_made_in_pieces_is_the_map(sizes: dict[str, Any], criterion: Criterion, elements: int) -> None:
    model, belief = _model_and_belief(replace(TINY, **sizes), scenes=3)
    noise = torch.randn(3, 5, 4).double()
    whole = model.gain(belief, 5, noise=noise, criterion=criterion, elements=1 << 30)
    pieces = model.gain(belief, 5, noise=noise, criterion=criterion, elements=elements)
    torch.testing.assert_close(pieces, whole, rtol=1e-9, atol=1e-12)


@every_belief
@torch.no_grad()
def test_a_scene_has_the_same_map_alone_and_among_others(sizes: dict[str, Any]) -> None:
    model, belief = _model_and_belief(replace(TINY, width=16, **sizes), scenes=3)
    noise = torch.randn(3, 5, 4).double()
    together = model.gain(belief, 5, noise=noise)
    for scene in range(3):
        some = slice(scene, scene + 1)
        torch.testing.assert_close(model.gain(belief[some], 5, noise=noise[some]), together[some])


@every_belief
@torch.no_grad()
def test_lookahead_is_what_the_look_would_do(sizes: dict[str, Any]) -> None:
    model, belief = _model_and_belief(replace(TINY, width=16, **sizes), scenes=2)
    content = torch.randn(2, model.grid.num_locations, 3, 5).double()
    lookahead = model.lookahead(belief, content, model.grid.locations())
    for place, m in product(range(model.grid.num_locations), range(3)):
        where = model.grid.locations()[place].expand(2, 2)
        after = model.backbone.classify(model.backbone.update(belief, content[:, place, m], where))
        torch.testing.assert_close(lookahead[:, place, m], after)


def test_entropy_is_log_of_the_classes_where_all_are_as_likely_and_zero_where_one_is_certain() -> None:
    probabilities = torch.tensor([[[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]])
    assert class_entropy(probabilities.log())[0].tolist() == pytest.approx([math.log(4), math.log(2), 0.0])


def test_entropy_is_scipys() -> None:
    log_probabilities = _random_log_probabilities(6, 3, 5, seed=0)
    expected = torch.from_numpy(stats.entropy(log_probabilities.exp().numpy(), axis=-1))
    torch.testing.assert_close(class_entropy(log_probabilities), expected)


@every_criterion
def test_gains_are_in_float32_whatever_was_imagined_in_bfloat16(criterion: Criterion) -> None:
    lookahead = _random_log_probabilities(2, 4, 3, 5, seed=0).float()
    now, weights = _random_log_probabilities(2, 5, seed=1).float(), _random_weights(2, 4, 3, seed=3).float()
    features = torch.randn(2, 4, 3, 6, generator=torch.Generator().manual_seed(2))
    gain = criterion(lookahead, weights, now, features=features.bfloat16())
    assert gain.dtype == torch.float32
    torch.testing.assert_close(gain, criterion(lookahead, weights, now, features=features), rtol=0.02, atol=0.02)
