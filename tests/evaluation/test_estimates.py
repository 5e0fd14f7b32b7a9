from __future__ import annotations

import pytest
import torch
from scipy import stats
from torch import Tensor

from infogaze.evaluation.estimates import accuracy, accuracy_over_runs, lead, lead_over_runs, mean_over_runs


def _runs(seed: int, count: int, share: float) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(50, 3, generator=generator) < share for _ in range(count)]


def test_accuracy_has_wilsons_interval() -> None:
    # Newcombe (1998), table I, the score method: 81 of 263 gives 0.2553 to 0.3662, 15 of 148 0.0624 to 0.1605, 0 of 20 0 to 0.1611.
    for correct, n, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)):
        shares = torch.arange(n)[:, None] < correct
        estimate = accuracy(shares)
        assert float(estimate.value[0]) == pytest.approx(correct / n)
        assert float(estimate.low[0]) == pytest.approx(low, abs=5e-5)
        assert float(estimate.high[0]) == pytest.approx(high, abs=5e-5)
        assert estimate.n == n


def test_a_lead_is_measured_scene_by_scene() -> None:
    ours = torch.tensor([[1, 1], [1, 1], [0, 1], [1, 1]]).bool()
    other = torch.tensor([[1, 0], [0, 0], [0, 0], [1, 0]]).bool()
    estimate = lead(ours, other)
    assert estimate.value.tolist() == [0.25, 1.0]
    # Differences 0, 1, 0, 0: standard deviation 0.5, half an interval 1.96 * 0.5 / 2.
    assert float(estimate.high[0] - estimate.low[0]) == pytest.approx(2 * 1.959964 * 0.25)
    assert float(estimate.high[1] - estimate.low[1]) == 0.0


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    generator = torch.Generator().manual_seed(0)
    truth, n, runs = 0.8, 200, 2000
    correct = torch.rand(n, runs, generator=generator) < truth
    estimate = accuracy(correct)
    covered = float(((estimate.low <= truth) & (truth <= estimate.high)).double().mean())
    assert 0.93 < covered < 0.97


def test_a_mean_over_runs_has_students_interval() -> None:
    # Values 1, 2, 3: mean 2, standard error 1 / sqrt(3); the 97.5 % point of t with 2 degrees of freedom is 4.302653 in any table.
    estimate = mean_over_runs([torch.tensor([1.0, 5.0]), torch.tensor([2.0, 5.0]), torch.tensor([3.0, 5.0])])
    assert estimate.value.tolist() == [2.0, 5.0]
    assert float(estimate.high[0]) == pytest.approx(2 + 4.302653 / 3**0.5, abs=1e-6)
    assert float(estimate.low[0]) == pytest.approx(2 - 4.302653 / 3**0.5, abs=1e-6)
    assert float(estimate.low[1]) == float(estimate.high[1]) == 5.0
    assert (estimate.n, estimate.unit) == (3, "seeds")


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_a_mean_over_runs_keeps_the_shape_of_what_is_averaged(shape: tuple[int, ...]) -> None:
    estimate = mean_over_runs([torch.ones(shape), torch.zeros(shape)])
    assert estimate.value.shape == estimate.low.shape == estimate.high.shape == shape


def test_the_mean_over_one_run_is_the_run_and_claims_no_interval() -> None:
    estimate = mean_over_runs([torch.tensor([0.25, 0.75])])
    assert estimate.value.tolist() == estimate.low.tolist() == estimate.high.tolist() == [0.25, 0.75]
    assert (estimate.n, estimate.unit) == (1, "seeds")


def test_accuracy_counts_scenes_of_one_run_and_seeds_of_several() -> None:
    runs = _runs(0, 4, 0.7)
    one, several = accuracy_over_runs(runs[:1]), accuracy_over_runs(runs)
    assert torch.equal(one.low, accuracy(runs[0]).low)
    assert (one.n, one.unit, several.n, several.unit) == (50, "scenes", 4, "seeds")
    for look in range(3):
        shares = [float(run[:, look].double().mean()) for run in runs]
        low, high = stats.t.interval(0.95, 3, loc=sum(shares) / 4, scale=stats.sem(shares))
        assert float(several.low[look]) == pytest.approx(low)
        assert float(several.high[look]) == pytest.approx(high)


def test_a_lead_over_one_run_each_is_paired_and_over_several_has_welchs_interval() -> None:
    ours, other = _runs(1, 4, 0.8), _runs(2, 4, 0.5)
    one = lead_over_runs(ours[:1], other[:1])
    assert torch.equal(one.high, lead(ours[0], other[0]).high)
    assert (one.n, one.unit) == (50, "scenes")
    several = lead_over_runs(ours, other)
    assert (several.n, several.unit) == (4, "seeds")
    for look in range(3):
        first, second = ([float(run[:, look].double().mean()) for run in runs] for runs in (ours, other))
        theirs = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
        assert float(several.value[look]) == pytest.approx(sum(first) / 4 - sum(second) / 4)
        assert float(several.low[look]) == pytest.approx(theirs.low)
        assert float(several.high[look]) == pytest.approx(theirs.high)


def test_a_lead_between_runs_that_never_differ_has_no_width() -> None:
    ours, other = torch.ones(5, 2).bool(), torch.zeros(5, 2).bool()
    estimate = lead_over_runs([ours, ours], [other, other])
    assert estimate.value.tolist() == estimate.low.tolist() == estimate.high.tolist() == [1.0, 1.0]


def test_a_lead_over_unequal_numbers_of_runs_is_refused() -> None:
    with pytest.raises(ValueError, match="3 runs against 1"):
        lead_over_runs(_runs(0, 3, 0.5), _runs(0, 1, 0.5))
