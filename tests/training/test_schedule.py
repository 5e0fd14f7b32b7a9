from __future__ import annotations

import pytest

from infogaze.training.schedule import Plateau, one_cycle


def test_one_cycle_rises_for_a_fifth_and_falls_to_nearly_nothing() -> None:
    factors = [one_cycle(step, 100) for step in range(100)]
    assert factors[19] == max(factors) == pytest.approx(1.0)
    assert factors[:20] == sorted(factors[:20])
    assert factors[20:] == sorted(factors[20:], reverse=True)
    assert 0 < factors[-1] < 1e-3
    assert 0 < one_cycle(0, 1) <= 1


def test_the_plateau_halves_after_ten_epochs_without_a_lower_loss() -> None:
    state = Plateau()
    for loss in [3.0, 2.0, *[2.5] * 9]:
        state = state.after(loss)
    assert state.factor == 1.0
    assert state.after(2.0).factor == 0.5
    assert state.after(1.9).factor == 1.0
