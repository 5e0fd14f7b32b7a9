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
from torch import Tensor

from infogaze import Belief, Model, ModelConfig, build
from infogaze.nn.gain import (
    CRITERIA,
    Criterion,
    class_entropy,
    expected_information_gain,
    feature_variance,
    predictive_uncertainty,
)

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
    assert (expected_information_gain(lookahead, now) >= -1e-10).all()


@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(2, 6))
def test_predictive_uncertainty_is_the_entropy_of_the_mean(seed: int, samples: int, classes: int) -> None:
    lookahead = _random_log_probabilities(samples, 2, 5, classes, seed=seed)
    mean = np.exp(lookahead.numpy()).mean(0)
    uncertainty = predictive_uncertainty(lookahead, _random_log_probabilities(2, classes, seed=seed + 1))
    np.testing.assert_allclose(uncertainty.numpy(), -(mean * np.log(mean)).sum(-1), rtol=1e-10)


@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 6))
def test_feature_variance_is_the_variance_between_samples(seed: int, samples: int, size: int) -> None:
    features = torch.randn(samples, 2, 5, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    lookahead, now = torch.zeros(samples, 2, 5, 1).double(), torch.zeros(2, 1).double()
    variance = feature_variance(lookahead, now, features)
    np.testing.assert_allclose(variance.numpy(), features.numpy().var(0).mean(-1), rtol=1e-9, atol=1e-12)


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
    height=12, width=12, channels=1, num_classes=3, glimpse_size=4, stride=2, glimpse_widths=(4,),
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
    values = model.gain(belief, noise, criterion=criterion)
    assert values.shape == (2, model.grid.num_locations)
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
    whole = model.gain(belief, noise, criterion=criterion, elements=1 << 30)
    pieces = model.gain(belief, noise, criterion=criterion, elements=elements)
    torch.testing.assert_close(pieces, whole, rtol=1e-9, atol=1e-12)


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
    content = torch.randn(3, 2, model.grid.num_locations, 5).double()
    lookahead = model.lookahead(belief, content, model.grid.locations())
    for p, place in product(range(3), range(model.grid.num_locations)):
        where = model.grid.locations()[place].expand(2, 2)
        after = model.backbone.classify(model.backbone.update(belief, content[p, :, place], where))
        torch.testing.assert_close(lookahead[p, :, place], after)


def test_entropy_is_log_of_the_classes_where_all_are_as_likely_and_zero_where_one_is_certain() -> None:
    probabilities = torch.tensor([[[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]])
    assert class_entropy(probabilities.log())[0].tolist() == pytest.approx([math.log(4), math.log(2), 0.0])


def test_entropy_is_scipys() -> None:
    log_probabilities = _random_log_probabilities(6, 3, 5, seed=0)
    expected = torch.from_numpy(stats.entropy(log_probabilities.exp().numpy(), axis=-1))
    torch.testing.assert_close(class_entropy(log_probabilities), expected)


@every_criterion
def test_gains_are_in_float32_whatever_was_imagined_in_bfloat16(criterion: Criterion) -> None:
    lookahead, now = (
        _random_log_probabilities(3, 2, 4, 5, seed=0).float(),
        _random_log_probabilities(2, 5, seed=1).float(),
    )
    features = torch.randn(3, 2, 4, 6, generator=torch.Generator().manual_seed(2))
    gain = criterion(lookahead, now, features.bfloat16())
    assert gain.dtype == torch.float32
    torch.testing.assert_close(gain, criterion(lookahead, now, features), rtol=0.02, atol=0.02)
