"""Looks that take time: what is counted, what is chosen, and when the time ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from infogaze import (
    Agent,
    Confident,
    Episode,
    ImageSensor,
    InfogazeError,
    RandomPolicy,
    Stage,
    Travel,
    scene_seeds,
)
from infogaze.gaze.policies import Choice
from infogaze.gaze.stopping import CalibratedStop
from infogaze.gaze.travel import per_second
from infogaze.nn.belief import Belief
from infogaze.rng import SceneNoise
from tests.support.looks import looked_alike
from tests.support.tiny import CONFIG, scenes, tiny_agent

AGENT = tiny_agent()
GRID = CONFIG.grid
L = GRID.num_locations
PLACES = GRID.locations()
SLOW = Stage(speed=(3.0, 0.7), settle=0.3)


def a_matrix(seed: int = 0) -> Tensor:
    """Another time for every way, there and back."""
    return torch.rand(L, L, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def as_the_crow_flies(here: Tensor, there: Tensor) -> Tensor:
    return 0.25 * (there - here).norm(dim=-1)


WAYS: dict[str, Any] = {"stage": SLOW, "matrix": a_matrix().numpy(), "function": as_the_crow_flies}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def run(batch: int = 3, *, agent: Agent = AGENT, seed: int = 0, **given_to_run: Any) -> Episode:
    sensor = ImageSensor(scenes(batch, seed), CONFIG.glimpse_size)
    return agent.run(sensor, batch=batch, seed=scene_seeds(seed, batch), **given_to_run)


def way_plainly(way: object, here: list[float], there: list[float]) -> float:
    """The seconds between two locations, by hand."""
    rows, cols = abs(there[0] - here[0]), abs(there[1] - here[1])
    if isinstance(way, Stage):
        assert isinstance(way.speed, tuple)
        return max(rows / way.speed[0], cols / way.speed[1]) + (way.settle if rows or cols else 0.0)
    if callable(way):
        return 0.25 * math.hypot(rows, cols)
    index = [int(GRID.nearest(torch.tensor(location))) for location in (here, there)]
    return float(torch.as_tensor(way)[index[0], index[1]])


@every_way
@pytest.mark.parametrize("start", [None, (0.0, 7.0)])
def test_time_is_the_sum_of_all_ways_and_exposures(way: Any, start: tuple[float, float] | None) -> None:
    travel = Travel(way=way, exposure=0.2, start=start)
    episode = run(travel=travel, budget=6)
    for scene in range(3):
        here, spent = None if start is None else list(start), 0.0
        for look in episode.history:
            there = look.location[scene].tolist()
            spent += 0.2 + (0.0 if here is None else way_plainly(way, here, there))
            here = there
            assert look.seconds is not None
            assert float(look.seconds[scene]) == pytest.approx(spent, rel=1e-12)
    assert episode.seconds_spent is not None
    assert episode.seconds_spent.dtype == torch.float64


@every_way
def test_what_is_told_of_the_next_look_is_what_it_takes(way: Any) -> None:
    episode = AGENT.episode(2, travel=Travel(way=way, start=(2.0, 1.0)), budget=5)
    sensor = ImageSensor(scenes(2), CONFIG.glimpse_size)
    while not episode.done:
        told, before = episode.next_seconds, episode.seconds_spent
        where = episode.next_location()
        episode.observe(sensor.look(where))
        after = episode.seconds_spent
        assert told is not None
        assert before is not None
        assert after is not None
        expected = told.flatten(1).gather(1, GRID.nearest(where)[:, None])[:, 0]
        torch.testing.assert_close(after - before, expected, rtol=1e-12, atol=0)


@every_way
def test_a_location_given_by_the_user_is_counted_between_pixels_too(way: Any) -> None:
    episode = AGENT.episode(travel=Travel(way=way, exposure=0.5))
    sensor = ImageSensor(scenes(1), CONFIG.glimpse_size)
    for at in ([[2.25, 3.5]], [[0.5, 6.75]]):
        episode.observe(sensor.look(torch.tensor(at)), at=at)
    assert episode.seconds_spent is not None
    assert float(episode.seconds_spent) == pytest.approx(1.0 + way_plainly(way, [2.25, 3.5], [0.5, 6.75]), rel=1e-12)


def test_without_travel_no_time_is_known() -> None:
    episode = run()
    assert (episode.seconds_spent, episode.next_seconds, episode.history[0].seconds) == (None, None, None)


@pytest.mark.parametrize("travel", [Travel(), Travel(way=SLOW, exposure=0.1, weighed=False)], ids=["no way", "ignored"])
@pytest.mark.parametrize("policy", [None, RandomPolicy()], ids=["own", "random"])
def test_a_way_that_takes_no_time_or_is_not_weighed_changes_no_look(
    travel: Travel, policy: RandomPolicy | None
) -> None:
    counted, plain = run(travel=travel, policy=policy, budget=8), run(policy=policy, budget=8)
    for one, other in zip(counted.history, plain.history, strict=True):
        assert torch.equal(one.location, other.location)
        assert torch.equal(one.gain, other.gain)


@every_way
def test_each_look_has_the_most_gain_a_second_of_all_candidates(way: Any) -> None:
    episode = AGENT.episode(3, travel=Travel(way=way, exposure=0.3), budget=6)
    sensor = ImageSensor(scenes(3), CONFIG.glimpse_size)
    episode.observe(sensor.look(episode.next_location()))
    differ = False
    while not episode.done:
        assert episode.next_seconds is not None
        rate = (episode.next_gain.double() / episode.next_seconds).masked_fill(~episode.candidates, -math.inf)
        where = episode.next_location()
        assert torch.equal(where, PLACES[rate.flatten(1).argmax(1)])
        most = episode.next_gain.masked_fill(~episode.candidates, -math.inf).flatten(1).argmax(1)
        differ |= not torch.equal(where, PLACES[most])
        episode.observe(sensor.look(where))
    assert differ, "gain a second and gain never disagreed, so that nothing was tested"


def test_the_last_look_that_there_is_time_for_has_the_most_gain_of_all_that_can_be_reached() -> None:
    differ, batch = 0, 8
    episode = AGENT.episode(batch, travel=Travel(way=SLOW), seconds=9.0)
    sensor = ImageSensor(scenes(batch), CONFIG.glimpse_size)
    while not episode.done:
        needed, spent = episode.next_seconds, episode.seconds_spent
        assert needed is not None
        assert spent is not None
        where, open_, gain = episode.next_location(), episode.candidates.flatten(1), episode.next_gain.flatten(1)
        shortest = needed.flatten(1).masked_fill(~open_, math.inf).amin(1)
        last = episode.running & (spent + 2 * shortest > 9.0)
        if episode.history:
            most = PLACES[gain.masked_fill(~open_, -math.inf).argmax(1)]
            rate = PLACES[(gain / needed.flatten(1)).masked_fill(~open_, -math.inf).argmax(1)]
            assert torch.equal(where[last], most[last])
            differ += int((most[last] != rate[last]).any(1).sum())
        episode.observe(sensor.look(where))
    assert differ > 0, "the most gain and the most a second never disagreed, so that nothing was tested"


def test_of_two_that_are_worth_less_than_nothing_the_longer_is_the_worse() -> None:
    rate = per_second(torch.tensor([[-1.0, -1.0, 0.0, 1.0, 1.0]]), torch.tensor([[2.0, 1.0, 3.0, 2.0, 1.0]]).double())
    assert rate.argsort(1).tolist() == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("axis", [0, 1], ids=["rows", "columns"])
def test_looks_cluster_along_a_slow_axis(axis: int) -> None:
    speed = (1.0, 1000.0) if axis == 0 else (1000.0, 1.0)

    def moved(episode: Episode) -> float:
        where = torch.stack([look.location for look in episode.history], 1).double()
        return float(where.diff(dim=1)[..., axis].abs().mean())

    weighed = run(16, budget=8, travel=Travel(way=Stage(speed=speed), exposure=0.2))
    ignored = run(16, budget=8, travel=Travel(way=Stage(speed=speed), exposure=0.2, weighed=False))
    assert moved(weighed) < 0.5 * moved(ignored)


@every_way
@pytest.mark.parametrize("policy", [None, RandomPolicy()], ids=["own", "random"])
@settings(max_examples=6)
@given(seed=st.integers(0, 2**20), seconds=st.floats(0.4, 12.0))
def test_the_time_is_never_exceeded_and_used_up_but_for_less_than_the_next_look(
    way: Any, policy: Any, seed: int, seconds: float
) -> None:
    episode = run(2, seed=seed, travel=Travel(way=way, exposure=0.4), seconds=seconds, policy=policy)
    assert episode.seconds_spent is not None
    assert episode.next_seconds is not None
    assert bool((episode.seconds_spent <= seconds * (1 + 1e-9)).all())
    assert not bool(episode.candidates.any())
    looked = torch.zeros(2, L, dtype=torch.bool)
    for number, look in enumerate(episode.history):
        looked |= GRID.at(look.location) & (number < episode.looks_taken)[:, None]
    for scene, why in enumerate(episode.ended_by):
        assert why == ("no location left" if bool(looked[scene].all()) else "seconds")
        left = episode.next_seconds[scene].flatten()[~looked[scene]]
        assert bool((episode.seconds_spent[scene] + left > seconds).all())


def test_sums_of_seconds_may_be_rounded() -> None:
    episode = run(travel=Travel(exposure=0.1), seconds=0.3)
    assert 0.1 + 0.1 + 0.1 > 0.3
    assert episode.looks_taken.tolist() == [3, 3, 3]


def test_a_location_given_by_the_user_may_take_more_time_than_is_left_and_ends_the_scene() -> None:
    episode = AGENT.episode(travel=Travel(way=Stage(speed=1.0)), seconds=4.0)
    glimpse = torch.zeros(1, CONFIG.channels, 4, 4)
    episode.observe(glimpse, at=(0, 0))
    episode.observe(glimpse, at=(9, 7))
    assert episode.seconds_spent is not None
    assert (episode.seconds_spent.tolist(), episode.ended_by, episode.done) == ([11.0], ("seconds",), True)


def test_the_number_of_looks_limits_too_where_it_is_given() -> None:
    assert run(travel=Travel(exposure=0.1), seconds=100.0, budget=3).ended_by == ("budget",) * 3
    assert run(travel=Travel(exposure=0.1), seconds=100.0).ended_by == ("no location left",) * 3


def test_a_matrix_may_be_an_array_or_a_tensor() -> None:
    array, tensor = (run(travel=Travel(way=way)).seconds_spent for way in (a_matrix().numpy(), a_matrix()))
    assert array is not None
    assert tensor is not None
    assert torch.equal(array, tensor)


def test_a_scene_of_a_batch_is_as_it_is_alone_though_others_end_sooner() -> None:
    batch = 10
    limits: dict[str, Any] = {"travel": Travel(way=SLOW, exposure=0.3, start=(4.0, 4.0)), "seconds": 8.0}
    together = run(batch, **limits)
    assert len(together.looks_taken.unique()) > 1, "no scene ended sooner than another"
    seeds, images = scene_seeds(0, batch), scenes(batch)
    alone = [
        AGENT.run(ImageSensor(images[[scene]], CONFIG.glimpse_size), seed=seeds[[scene]], **limits)
        for scene in range(batch)
    ]
    assert together.seconds_spent is not None

    def looks(episode: Episode, scene: int) -> Tensor:
        taken = int(episode.looks_taken[scene])
        found = torch.stack([look.location[scene] for look in episode.history[:taken]])
        return torch.cat([found, -torch.ones(L - taken, 2, dtype=found.dtype)])

    alike = looked_alike(
        torch.stack([looks(together, scene) for scene in range(batch)]),
        torch.stack([looks(episode, 0) for episode in alone]),
    )
    for scene in alike.nonzero().flatten().tolist():
        spent = alone[scene].seconds_spent
        assert spent is not None
        assert float(together.seconds_spent[scene]) == pytest.approx(float(spent), rel=1e-12)
        torch.testing.assert_close(together.probabilities[scene], alone[scene].probabilities[0], rtol=1e-4, atol=1e-5)
        assert together.ended_by[scene] == alone[scene].ended_by[0]


@settings(max_examples=10)
@given(seed=st.integers(0, 2**20), share=st.floats(0.1, 0.9))
def test_a_mask_of_each_scene_is_never_violated(seed: int, share: float) -> None:
    allowed = torch.rand(3, GRID.rows, GRID.cols, generator=torch.Generator().manual_seed(seed)) < share
    allowed[:, 1, 2] = True
    episode = run(seed=seed, allowed=allowed, travel=Travel(way=SLOW), seconds=8.0)
    for number, look in enumerate(episode.history):
        place = GRID.nearest(look.location)
        ok = allowed.flatten(1).gather(1, place[:, None])[:, 0]
        assert bool((ok | (number >= episode.looks_taken)).all())


class Wanderer:
    """Looks at one location between places, whatever is allowed, as RAM does."""

    def __init__(self, location: Tensor) -> None:
        self.location = location

    def __call__(self, model: Any, belief: Belief, *, candidates: Tensor, noise: SceneNoise) -> Choice:
        return Choice(self.location.expand(len(candidates), 2), torch.zeros(candidates.shape), has_map=False)


def test_a_policy_that_looks_where_it_likes_keeps_to_the_time_too() -> None:
    limits: dict[str, Any] = {"travel": Travel(way=Stage(speed=1.0), start=(0.0, 0.0)), "first": (0, 0)}
    agent = AGENT.with_policy(Wanderer(torch.tensor([5, 5])))
    far = run(1, agent=agent, seconds=7.0, **limits)
    assert far.history[1].location.tolist() == [[5, 5]], "where there is time it looks there"
    near = run(1, agent=agent, seconds=5.5, **limits)
    assert near.history[1].location.tolist() == [[2, 2]] or near.history[1].location.tolist() == [[3, 3]]
    assert near.seconds_spent is not None
    assert float(near.seconds_spent) <= 5.5


@pytest.mark.parametrize("travel", [None, Travel(way=SLOW)], ids=["at once", "travelling"])
def test_a_policy_that_looks_where_it_likes_keeps_to_a_mask_too(travel: Travel | None) -> None:
    allowed = torch.zeros(GRID.rows, GRID.cols, dtype=torch.bool)
    allowed[0, :2] = True
    allowed[3, 1] = True
    episode = run(2, agent=AGENT.with_policy(Wanderer(torch.tensor([5, 5]))), allowed=allowed, travel=travel, budget=9)
    looked = {tuple(where) for look in episode.history for where in look.location.tolist()}
    assert looked == {(0, 0), (0, 2), (6, 2)}
    assert episode.ended_by == ("no location left",) * 2


def test_a_place_that_there_is_no_way_to_is_no_candidate() -> None:
    matrix = torch.zeros(L, L, dtype=torch.float64)
    matrix[:, 5] = math.inf
    episode = run(travel=Travel(way=matrix, start=(0.0, 0.0)), budget=L)
    assert episode.looks_taken.tolist() == [L - 1] * 3
    assert not any(bool((GRID.nearest(look.location) == 5).any()) for look in episode.history)


def test_a_calibrated_rule_is_not_asked_of_looks_it_does_not_know() -> None:
    stop = CalibratedStop(
        rule="confidence", thresholds=(0.0 + 1e-9,) * 3, budget=4, gap=0.1, delta=0.1, by_look=False, scenes=9
    )
    agent = AGENT.with_stop(stop)
    assert run(agent=agent).ended_by == ("rule",) * 3
    assert run(agent=agent, travel=Travel()).ended_by == ("budget",) * 3
    assert run(agent=agent, travel=Travel(), stop=Confident(1e-9)).ended_by == ("rule",) * 3


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "no speed": (lambda: Stage(speed=0.0), "speed is 0.0"),
    "settle": (lambda: Stage(settle=-1.0), "settle is -1.0"),
    "exposure": (lambda: Travel(exposure=0.0), "exposure is 0.0; it must be above 0"),
    "not square": (lambda: Travel(way=np.zeros((3, 4))), r"shape \(3, 4\); it must be square"),
    "NaN": (lambda: Travel(way=np.full((3, 3), np.nan)), "with no NaN"),
    "other grid": (lambda: run(travel=Travel(way=np.zeros((3, 3)))), f"matrix of 3 places; the grid has {L}"),
    "shape": (lambda: run(travel=Travel(way=lambda here, there: here)), "the way has shape"),
    "negative": (
        lambda: run(travel=Travel(way=lambda here, there: -(there - here).norm(dim=-1))),
        "seconds; at least 0 is needed",
    ),
    "no travel": (lambda: run(seconds=3.0), "seconds needs travel"),
    "no time": (lambda: run(travel=Travel(), seconds=-1.0), "seconds is -1.0; it must be above 0"),
    "too short": (lambda: run(travel=Travel(), seconds=0.5), "seconds is 0.5; the first look takes 1 at least"),
    "first": (
        lambda: run(travel=Travel(way=Stage(speed=1.0), start=(0, 0)), seconds=5.0, first=(9, 7)),
        "seconds is 5.0; the first look takes 10 at least",
    ),
    "no way": (
        lambda: run(travel=Travel(way=np.full((L, L), np.inf), start=(0, 0))),
        "no way to any location",
    ),
}


@pytest.mark.parametrize(("slip", "message"), MISTAKES.values(), ids=MISTAKES)
def test_what_makes_no_sense_is_refused_in_a_line_that_names_it(slip: Callable[[], object], message: str) -> None:
    with pytest.raises(InfogazeError, match=message):
        slip()
