from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from infogaze.evaluation.honesty import binned, happened, rank_correlation


def test_the_gain_that_happened_is_the_divergence_from_the_look_before() -> None:
    probabilities = torch.tensor([[[0.5, 0.5], [0.75, 0.25], [0.75, 0.25], [1.0, 0.0]]])
    gains = happened(probabilities.log())[0].tolist()
    # Known answers: nothing before the first, log 2 - H(3/4), nothing new, and -log 3/4 for certainty.
    certain = math.log(2) + 0.75 * math.log(0.75) + 0.25 * math.log(0.25)
    assert gains == pytest.approx([0.0, certain, 0.0, -math.log(0.75)], abs=1e-7)


def test_the_gain_that_happened_is_scipys_relative_entropy() -> None:
    log_probabilities = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    p = log_probabilities.exp().numpy()
    expected = torch.from_numpy(stats.entropy(p[:, 1:], p[:, :-1], axis=-1))
    torch.testing.assert_close(happened(log_probabilities)[:, 1:], expected)


def test_bins_hold_equal_numbers_from_least_to_greatest_expected() -> None:
    generator = torch.Generator().manual_seed(0)
    expected = torch.randperm(100, generator=generator).float()
    bins = binned(expected, 2 * expected, bins=4)
    assert bins.count.tolist() == [25, 25, 25, 25]
    assert bins.expected.tolist() == [12.0, 37.0, 62.0, 87.0]
    assert bins.happened.tolist() == [24.0, 74.0, 124.0, 174.0]


def test_a_bin_has_the_normal_interval_of_its_mean() -> None:
    bins = binned(torch.tensor([0.0, 0.0, 0.0, 0.0, 9.0]), torch.tensor([1.0, 2.0, 3.0, 6.0, 5.0]), bins=5)
    assert bins.count.tolist() == [4, 1]  # equal values share a bin, and the empty ones are gone
    assert bins.happened.tolist() == [3.0, 5.0]
    half = stats.norm.ppf(0.975) * stats.sem([1.0, 2.0, 3.0, 6.0])
    assert bins.low.tolist() == pytest.approx([3.0 - half, 5.0])
    assert bins.high.tolist() == pytest.approx([3.0 + half, 5.0])


def test_a_constant_expectation_is_one_bin() -> None:
    bins = binned(torch.zeros(30), torch.linspace(0, 1, 30))
    assert bins.count.tolist() == [30]
    assert float(bins.happened[0]) == pytest.approx(0.5)


def test_rank_correlation_is_one_for_what_rises_together_and_minus_one_for_the_reverse() -> None:
    a = torch.randn(20, generator=torch.Generator().manual_seed(0))
    assert rank_correlation(a, a.exp()) == pytest.approx(1.0)
    assert rank_correlation(a, -(a**3)) == pytest.approx(-1.0)


def test_rank_correlation_with_ties_is_scipys() -> None:
    generator = torch.Generator().manual_seed(1)
    a = torch.randint(0, 6, (80,), generator=generator).float()
    b = (a + torch.randint(0, 9, (80,), generator=generator)).float()
    assert rank_correlation(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)


def test_nothing_correlates_with_a_constant() -> None:
    assert rank_correlation(torch.zeros(7), torch.arange(7.0)) == 0.0
    assert rank_correlation(torch.arange(7.0), torch.ones(7)) == 0.0
