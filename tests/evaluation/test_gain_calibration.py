from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from infogaze.evaluation.gain_calibration import binned, rank_correlation, realised_gain


def test_the_realised_gain_is_the_divergence_from_the_look_before() -> None:
    probabilities = torch.tensor([[[0.5, 0.5], [0.75, 0.25], [0.75, 0.25], [1.0, 0.0]]])
    gains = realised_gain(probabilities.log())[0].tolist()
    # Known answers: nothing before the first, log 2 - H(3/4), nothing new, and -log 3/4 for certainty.
    certain = math.log(2) + 0.75 * math.log(0.75) + 0.25 * math.log(0.25)
    assert gains == pytest.approx([0.0, certain, 0.0, -math.log(0.75)], abs=1e-7)


def test_the_realised_gain_is_scipys_relative_entropy() -> None:
    log_probabilities = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    p = log_probabilities.exp().numpy()
    expected = torch.from_numpy(stats.entropy(p[:, 1:], p[:, :-1], axis=-1))
    torch.testing.assert_close(realised_gain(log_probabilities)[:, 1:], expected)


def test_bins_hold_equal_numbers_from_least_to_greatest_expected() -> None:
    generator = torch.Generator().manual_seed(0)
    expected = torch.randperm(100, generator=generator).float().view(1, 100, 1)
    bins = binned(expected, 2 * expected, bins=4)
    assert (bins.n.tolist(), bins.unit) == ([25, 25, 25, 25], "scenes")
    assert bins.expected.tolist() == [12.0, 37.0, 62.0, 87.0]
    assert bins.realised.tolist() == [24.0, 74.0, 124.0, 174.0]


def test_a_bin_of_one_run_has_students_interval_over_its_scenes() -> None:
    expected, came = torch.tensor([0.0, 0.0, 0.0, 0.0, 9.0]), torch.tensor([1.0, 2.0, 3.0, 6.0, 5.0])
    bins = binned(expected.view(1, 5, 1), came.view(1, 5, 1), bins=5)
    assert bins.n.tolist() == [4, 1]  # equal values share a bin, and the empty ones are gone
    assert bins.realised.tolist() == [3.0, 5.0]
    half = stats.t.ppf(0.975, 3) * stats.sem([1.0, 2.0, 3.0, 6.0])
    assert bins.low.tolist() == pytest.approx([3.0 - half, 5.0])
    assert bins.high.tolist() == pytest.approx([3.0 + half, 5.0])


def _gains(runs: int, scenes: int, looks: int) -> tuple[Tensor, Tensor]:
    """Expected and realised gains; what is realised goes with the scene and the run as well."""
    generator = torch.Generator().manual_seed(3)
    expected = torch.rand(runs, scenes, looks, generator=generator)
    of_scene, of_run = torch.randn(scenes, 1, generator=generator), torch.randn(runs, 1, 1, generator=generator)
    return expected, expected + of_scene + of_run + 0.1 * torch.randn(runs, scenes, looks, generator=generator)


def test_more_looks_at_the_same_scenes_are_no_more_evidence() -> None:
    expected, came = _gains(1, 200, 1)
    once, often = binned(expected, came), binned(expected.repeat(1, 1, 9), came.repeat(1, 1, 9))
    torch.testing.assert_close(often.high - often.low, once.high - once.low)
    assert often.n.tolist() == once.n.tolist() == [20] * 10


def test_scenes_weigh_by_their_looks_in_the_bin_so_that_its_mean_is_that_of_all_looks() -> None:
    expected, came = _gains(1, 30, 6)
    bins = binned(expected, came, bins=3)
    edges = np.quantile(expected, [1 / 3, 2 / 3])
    inside = np.digitize(expected[0], edges) == 1
    values = came[0].double().numpy()
    mean = values[inside].mean()
    # The standard error of a ratio of sums over scenes, scene by scene.
    off = [(values[scene][inside[scene]] - mean).sum() for scene in range(30) if inside[scene].any()]
    assert min(inside.sum(1)) < max(inside.sum(1))
    half = stats.t.ppf(0.975, len(off) - 1) * math.sqrt(len(off) / (len(off) - 1) * np.square(off).sum()) / inside.sum()
    assert int(bins.n[1]) == len(off)
    assert float(bins.realised[1]) == pytest.approx(mean)
    assert float(bins.high[1] - bins.realised[1]) == pytest.approx(half)


def test_of_several_runs_each_has_its_mean_in_a_bin_and_the_interval_is_students_over_them() -> None:
    expected, came = _gains(3, 40, 5)
    bins = binned(expected, came, bins=2)
    assert (bins.n.tolist(), bins.unit) == ([3, 3], "seeds")
    upper = expected >= expected.double().quantile(0.5)
    means = [float(values[inside].double().mean()) for values, inside in zip(came, upper, strict=True)]
    low, high = stats.t.interval(0.95, 2, np.mean(means), stats.sem(means))
    assert float(bins.realised[1]) == pytest.approx(np.mean(means))
    assert [float(bins.low[1]), float(bins.high[1])] == pytest.approx([low, high])


def test_a_run_without_looks_in_a_bin_does_not_count_there() -> None:
    expected = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 9.0]])[:, :, None]
    bins = binned(expected, 2 * expected + 1, bins=6)
    assert bins.n.tolist() == [3, 1]
    assert (bins.expected.tolist(), bins.realised.tolist()) == ([0.0, 9.0], [1.0, 19.0])
    assert (float(bins.low[1]), float(bins.high[1])) == (19.0, 19.0), "one alone tells nothing of its spread"


def test_a_constant_expectation_is_one_bin() -> None:
    bins = binned(torch.zeros(1, 30, 1), torch.linspace(0, 1, 30).view(1, 30, 1))
    assert bins.n.tolist() == [30]
    assert float(bins.realised[0]) == pytest.approx(0.5)


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
