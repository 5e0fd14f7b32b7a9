from __future__ import annotations

import pytest
import torch

from infogaze.evaluation.accuracy import accuracy, lead


def test_accuracy_has_wilsons_interval() -> None:
    # Newcombe (1998), table I, the score method: 81 of 263 gives 0.2553 to 0.3662, 15 of 148 0.0624 to 0.1605, 0 of 20 0 to 0.1611.
    for right, n, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)):
        shares = torch.arange(n)[:, None] < right
        estimate = accuracy(shares)
        assert float(estimate.value[0]) == pytest.approx(right / n)
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
    right = torch.rand(n, runs, generator=generator) < truth
    estimate = accuracy(right)
    covered = float(((estimate.low <= truth) & (truth <= estimate.high)).double().mean())
    assert 0.93 < covered < 0.97
