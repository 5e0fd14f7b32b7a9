from __future__ import annotations

import math

import pytest
import torch

from infogaze.training.meters import Meters, Reading

LOOKS, PLACES = 2, 4


def _meters() -> Meters:
    return Meters(num_readings=LOOKS, num_looks=LOOKS, num_locations=PLACES, device=torch.device("cpu"))


def _add(
    meters: Meters,
    loss: float = 1.0,
    accuracy: tuple[float, ...] = (0.5, 0.5),
    visits: tuple[tuple[float, ...], ...] = ((1.0,) * PLACES,) * LOOKS,
    *,
    skipped: bool = False,
) -> None:
    meters.add(
        loss=torch.tensor(loss),
        accuracy=torch.tensor(accuracy),
        visits=torch.tensor(visits),
        skipped=torch.tensor(skipped),
    )


def test_a_reading_is_the_mean_over_the_steps_since_the_last() -> None:
    meters = _meters()
    for loss, accuracy in ((1.0, (0.25, 0.5)), (2.0, (0.75, 1.0)), (6.0, (0.5, 0.75))):
        _add(meters, loss, accuracy)
    read = meters.read()
    assert read.loss == pytest.approx(3.0)
    assert read.accuracy == pytest.approx((0.5, 0.75))
    assert (read.steps, read.skipped, read.skipped_in_a_row) == (3, 0, 0)
    _add(meters, 5.0)
    assert meters.read().loss == pytest.approx(5.0), "the sums begin anew"


def test_of_a_skipped_step_nothing_counts_but_that_it_was() -> None:
    meters = _meters()
    _add(meters, 2.0, (1.0, 0.5))
    _add(meters, math.nan, (math.nan, 0.0), ((9.0, 0.0, 0.0, 0.0),) * LOOKS, skipped=True)
    _add(meters, math.inf, skipped=True)
    read = meters.read()
    assert read.loss == pytest.approx(2.0)
    assert read.accuracy == pytest.approx((1.0, 0.5))
    assert read.visit_entropy == pytest.approx((math.log(PLACES),) * LOOKS)
    assert (read.steps, read.skipped, read.skipped_in_a_row) == (1, 2, 2)


def test_skipped_steps_in_a_row_are_counted_over_readings_and_a_good_one_ends_them() -> None:
    meters = _meters()
    for expected in (2, 4):
        _add(meters, skipped=True)
        _add(meters, skipped=True)
        read = meters.read()
        assert (read.steps, read.skipped, read.skipped_in_a_row) == (0, 2, expected)
        assert read.loss == 0.0
    _add(meters)
    assert meters.read().skipped_in_a_row == 0


def test_the_entropy_of_the_visited_places_is_read_look_by_look() -> None:
    meters = _meters()
    _add(meters, visits=((3.0, 3.0, 0.0, 0.0), (0.0, 8.0, 0.0, 0.0)))
    _add(meters, visits=((3.0, 3.0, 0.0, 0.0), (0.0, 8.0, 0.0, 0.0)))
    assert meters.read().visit_entropy == pytest.approx((math.log(2), 0.0))


def test_where_nothing_is_looked_at_there_is_no_entropy() -> None:
    meters = _meters()
    _add(meters, visits=((0.0,) * PLACES,) * LOOKS)
    assert meters.read().visit_entropy == ()


def test_before_any_step_there_is_nothing_to_read() -> None:
    assert _meters().read() == Reading(accuracy=(0.0,) * LOOKS)
