"""Looks that fail, and looks that end elsewhere than they were asked for."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from infogaze import (
    Agent,
    Choice,
    GainPolicy,
    ImageSensor,
    InfogazeError,
    LookFailed,
    RandomPolicy,
    RasterPolicy,
    Retrying,
    Seen,
    Stage,
    Travel,
    scene_seeds,
)
from infogaze.gaze.policies import Policy
from infogaze.gaze.stopping import Progress
from infogaze.grid import extract
from infogaze.nn.belief import Belief
from infogaze.nn.model import GlimpseClassifier
from infogaze.rng import SceneNoise
from tests.support.tiny import CONFIG, TOKENS, scenes, tiny_agent

AGENT = tiny_agent()
vector_or_tokens = pytest.mark.parametrize("agent", [AGENT, tiny_agent(TOKENS)], ids=["vector", "tokens"])
PLACES = CONFIG.grid.num_locations
SIDE = CONFIG.glimpse_size


def test_a_skipped_place_is_no_candidate_and_nothing_else_changes() -> None:
    sensor, episode = ImageSensor(scenes(1), SIDE), AGENT.episode()
    episode.observe(sensor.look(episode.next_location()))
    before, gain, hidden = episode.probabilities, episode.next_gain, episode.belief.hidden
    asked = episode.next_location()
    episode.skip()
    other = episode.next_location()
    assert not torch.equal(other, asked)
    assert torch.equal(episode.next_gain, gain), "the same map, without its best place"
    best = gain.flatten(1).masked_fill(~episode.candidates.flatten(1), -torch.inf).argmax(1)
    assert torch.equal(CONFIG.grid.locations()[best], other)
    assert int(episode.candidates.sum()) == PLACES - 2
    assert torch.equal(episode.probabilities, before)
    assert torch.equal(episode.belief.hidden, hidden)
    assert episode.looks_taken.tolist() == [1]
    assert len(episode.history) == 1
    episode.observe(sensor.look(other))
    assert torch.equal(episode.history[-1].location, other)
    assert torch.equal(episode.history[-1].gain, gain)


def test_skipping_is_said_of_what_was_asked_for() -> None:
    episode = AGENT.episode(batch=2)
    with pytest.raises(RuntimeError, match="next_location"):
        episode.skip()
    episode.next_location()
    episode.skip()
    with pytest.raises(RuntimeError, match="next_location"):
        episode.skip()
    episode.next_location()
    for wrong in ([True], [True] * 3):
        with pytest.raises(InfogazeError, match=r"bool of shape \(2,\)"):
            episode.skip(wrong)


@pytest.mark.parametrize("policy", [None, GainPolicy(3), RandomPolicy(), RasterPolicy()])
def test_an_episode_whose_every_look_fails_ends_after_all_places(policy: Policy | None) -> None:
    asked: list[tuple[int, int]] = []

    def broken(where: Tensor) -> Tensor:
        asked.append(tuple(where[0].tolist()))
        raise LookFailed("the shutter is closed")

    episode = AGENT.run(broken, policy=policy)
    assert len(asked) == len(set(asked)) == PLACES
    assert episode.ended_by == ("no location left",)
    assert episode.looks_taken.tolist() == [0]
    assert episode.history == []
    assert episode.probabilities.tolist() == [[pytest.approx(1 / 3)] * 3]
    with pytest.raises(RuntimeError, match="done"):
        episode.skip()


def test_a_policy_that_asks_between_the_places_is_sent_to_others_after_a_failure() -> None:
    class Stubborn:
        def __call__(
            self, model: GlimpseClassifier, belief: Belief, *, candidates: Tensor, noise: SceneNoise
        ) -> Choice:
            return Choice(torch.tensor([[3, 1]]), torch.zeros(1, PLACES))

    asked = []

    def broken(where: Tensor) -> Tensor:
        asked.append(tuple(where[0].tolist()))
        raise LookFailed

    episode = AGENT.run(broken, policy=Stubborn())
    assert asked[0] == (3, 1)
    assert len(asked) == len(set(asked)) == PLACES, "the nearest place was given up with the first"
    assert episode.ended_by == ("no location left",)


def test_a_look_that_fails_takes_its_time_and_the_time_may_end_with_it() -> None:
    asked = []

    def broken(where: Tensor) -> Tensor:
        asked.append(where)
        raise LookFailed

    episode = AGENT.run(broken, travel=Travel(way=Stage(speed=2.0), exposure=1.0), seconds=9.0)
    assert episode.ended_by == ("seconds",)
    assert episode.seconds_spent is not None
    assert 1.0 < float(episode.seconds_spent) <= 9.0
    assert 1 < len(asked) < 9
    assert episode.looks_taken.tolist() == [0]


def test_a_first_look_that_fails_is_followed_by_one_elsewhere() -> None:
    for first in ((4, 4), (3, 1)):
        episode = AGENT.episode(first=first)
        assert episode.next_location().tolist() == [list(first)]
        episode.skip()
        assert episode.next_location().tolist() != [list(first)]
        assert not episode.candidates[0, 2, 2] or first != (4, 4)


@vector_or_tokens
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 1000), share=st.floats(0.1, 0.9))
def test_failed_looks_change_nothing_for_the_scenes_beside_them(agent: Agent, seed: int, share: float) -> None:
    images, seeds, budget = scenes(3, seed), scene_seeds(seed, 3), 5
    broken = torch.rand(3, PLACES, generator=torch.Generator().manual_seed(seed)) < share

    def fails(where: Tensor, scene: int) -> bool:
        return bool((broken[scene] & CONFIG.grid.at(where)[0]).any())

    def together(where: Tensor) -> Seen:
        failed = torch.tensor([fails(where[scene : scene + 1], scene) for scene in range(3)])
        glimpse = extract(images, where, SIDE) / 255
        glimpse[failed] = torch.nan
        return Seen(glimpse, failed=failed)

    # By a policy whose choices hang on no rounding, which differs from batch to batch.
    whole = agent.run(together, budget, batch=3, seed=seeds, policy=RandomPolicy())
    for scene in range(3):

        def alone(where: Tensor, scene: int = scene) -> Tensor:
            if fails(where, scene):
                raise LookFailed
            return extract(images[scene : scene + 1], where, SIDE) / 255

        single = agent.run(alone, budget, seed=seeds[scene : scene + 1], policy=RandomPolicy())
        assert int(whole.looks_taken[scene]) == int(single.looks_taken[0]) == len(single.history)
        assert whole.ended_by[scene] == single.ended_by[0]
        for look, same in zip(whole.history, single.history, strict=False):
            assert look.location[scene].tolist() == same.location[0].tolist()
            torch.testing.assert_close(look.probabilities[scene], same.probabilities[0], atol=1e-4, rtol=1e-3)
        assert torch.equal(whole.candidates[scene], single.candidates[0])


def test_a_batch_may_lose_scenes_to_failures_and_go_on() -> None:
    images = scenes(3)

    def second_is_broken(where: Tensor) -> Seen:
        return Seen(extract(images, where, SIDE), failed=[False, True, False])

    episode = AGENT.run(second_is_broken, batch=3)
    plain = AGENT.run(ImageSensor(images, SIDE), batch=3)
    assert episode.ended_by == ("budget", "no location left", "budget")
    assert episode.looks_taken.tolist() == [4, 0, 4]
    for scene in (0, 2):
        assert torch.equal(episode.probabilities[scene], plain.probabilities[scene])
    assert episode.probabilities[1].tolist() == [pytest.approx(1 / 3)] * 3


def test_a_batch_that_fails_as_a_whole_is_looked_at_elsewhere_as_a_whole() -> None:
    images, calls = scenes(2), []

    def every_other(where: Tensor) -> Tensor:
        calls.append(where)
        if len(calls) % 2:
            raise LookFailed
        return extract(images, where, SIDE)

    episode = AGENT.run(every_other, batch=2)
    assert len(calls) == 2 * AGENT.num_looks
    assert episode.looks_taken.tolist() == [4, 4]
    assert (episode.candidates.sum((1, 2)) == PLACES - 8).all()
    assert all((look.gain.flatten(1).amax(1) > 0).all() for look in episode.history[1:]), "maps chose them"


def test_what_a_sensor_says_of_failures_is_checked() -> None:
    images = scenes(2)
    with pytest.raises(InfogazeError, match=r"bool of shape \(2,\)"):
        AGENT.run(lambda where: Seen(extract(images, where, SIDE), failed=[True]), batch=2)
    kinds = iter([torch.uint8, torch.float32])
    with pytest.raises(InfogazeError, match="one kind"):
        AGENT.run(lambda where: Seen(extract(images, where, SIDE).to(next(kinds)) * 0, failed=[True, False]), batch=2)


def test_a_place_is_taken_as_reported() -> None:
    image, sensor = scenes(1), ImageSensor(scenes(1), SIDE)

    def drifting(where: Tensor) -> Seen:
        at = (where + torch.tensor([0.3, -0.2])).clamp(min=0.0, max=6.9)
        return Seen(extract(image, at, SIDE), at)

    episode, by_hand = AGENT.run(drifting), AGENT.episode()
    for look in episode.history:
        asked = by_hand.next_location()
        at = (asked + torch.tensor([0.3, -0.2])).clamp(min=0.0, max=6.9)
        by_hand.observe(sensor.look(at), reached=at)
        torch.testing.assert_close(look.location, at)
        assert torch.equal(look.probabilities, by_hand.history[-1].probabilities)
    assert all(look.gain.any() for look in episode.history[1:]), "chosen by the map, though not exactly reached"


@pytest.mark.parametrize("policy", [GainPolicy(3), RasterPolicy()])
@pytest.mark.parametrize("off", [0.7, 1.5, 40.0])
def test_a_stage_that_never_gets_there_is_not_sent_to_a_place_twice(policy: Policy, off: float) -> None:
    image, asked = scenes(1), []

    def poor(where: Tensor) -> Seen:
        asked.append(tuple(where[0].tolist()))
        at = (where + off).clamp(max=7.0)
        return Seen(extract(image, at, SIDE), where + off)

    episode = AGENT.run(poor, budget=100, policy=policy)
    assert len(set(asked)) == len(asked) > 3
    assert episode.ended_by == ("no location left",)
    assert episode.looks_taken.tolist() == [len(asked)]


def test_reached_may_be_given_by_numpy_and_outside_the_scene_and_is_for_what_was_asked() -> None:
    glimpse = scenes(1)[:, :, :4, :4]
    episode = AGENT.episode(first=(0, 0))
    episode.observe(glimpse, reached=np.array([-0.4, 0.25]))
    assert episode.history[0].location.tolist() == [[0.0, 0.25]]
    assert not episode.candidates[0, 0, 0]
    with pytest.raises(RuntimeError, match="next_location"):
        episode.observe(glimpse, reached=(0, 0))
    asked = episode.next_location()
    with pytest.raises(RuntimeError, match="no at="):
        episode.observe(glimpse, at=asked, reached=asked)
    with pytest.raises(InfogazeError, match="nan"):
        episode.observe(glimpse, reached=(float("nan"), 0.0))
    with pytest.raises(InfogazeError, match="row, column"):
        episode.observe(glimpse, reached=(1, 2, 3))


class Flaky:
    """A sensor over an image that fails some times before it answers."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.calls = 0
        self._failures, self._error, self._image = failures, error, scenes(1)

    def look(self, where: Tensor) -> Tensor:
        self.calls += 1
        if self.calls <= self._failures:
            raise self._error
        return extract(self._image, where, SIDE)


@pytest.mark.parametrize("error", [LookFailed("no light"), TimeoutError("slow"), ConnectionError("gone")])
def test_a_look_that_fails_is_tried_again_and_then_its_place_is_given_up(error: Exception) -> None:
    plain = AGENT.run(ImageSensor(scenes(1), SIDE))
    tried = Flaky(2, error)
    episode = AGENT.run(Retrying(tried))
    assert tried.calls == 2 + AGENT.num_looks
    assert torch.equal(episode.probabilities, plain.probabilities)
    given_up = Flaky(3, error)
    episode = AGENT.run(Retrying(given_up))
    assert given_up.calls == 3 + AGENT.num_looks
    assert not torch.equal(episode.history[0].location, plain.history[0].location)
    assert int(episode.candidates.sum()) == PLACES - AGENT.num_looks - 1


def test_the_scenes_of_a_batch_that_failed_are_tried_again() -> None:
    images, calls = scenes(3), []

    def unsteady(where: Tensor) -> Seen:
        """The second scene fails twice of three times, the third always; the first is seen where it says."""
        calls.append(where)
        failed = torch.tensor([False, len(calls) % 3 != 0, True])
        glimpse = extract(images, where, SIDE)
        glimpse[failed] = 7
        glimpse[0] += len(calls) % 3 != 1
        return Seen(glimpse, where + 0.0, failed)

    seen = Retrying(unsteady).look(torch.tensor([[0, 0], [2, 2], [4, 4]]))
    assert isinstance(seen, Seen)
    assert torch.as_tensor(seen.failed).tolist() == [False, False, True]
    expected = extract(images, torch.tensor([[0, 0], [2, 2], [4, 4]]), SIDE)
    assert torch.equal(torch.as_tensor(seen.glimpse)[:2], expected[:2]), (
        "each from the attempt in which it did not fail"
    )
    assert len(calls) == 3
    seen = Retrying(unsteady, attempts=2).look(torch.tensor([[0, 0], [2, 2], [4, 4]]))
    assert isinstance(seen, Seen)
    assert torch.as_tensor(seen.failed).tolist() == [False, True, True]
    episode = AGENT.run(Retrying(unsteady), batch=3)
    assert episode.ended_by == ("budget", "budget", "no location left")


def test_a_mistake_in_a_sensor_ends_the_episode() -> None:
    with pytest.raises(ZeroDivisionError):
        AGENT.run(Retrying(Flaky(1, ZeroDivisionError())))
    with pytest.raises(TimeoutError):
        AGENT.run(Flaky(1, TimeoutError()))
    assert AGENT.run(Retrying(Flaky(1, ZeroDivisionError()), errors=(ArithmeticError,))).ended_by == ("budget",)


def test_a_sensor_that_hangs_is_left_alone_and_asked_by_no_two_at_once() -> None:
    image, free, inside, most = scenes(1), threading.Event(), [0], [0]

    def slow_once(where: Tensor) -> Tensor:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        if len(places) == 0:
            places.append(where)
            free.wait(60)
        inside[0] -= 1
        return extract(image, where, SIDE)

    places: list[Tensor] = []
    retrying = Retrying(slow_once, attempts=2, timeout=0.05)
    episode = AGENT.episode()
    with pytest.raises(LookFailed, match="2 attempts.*busy"):
        retrying.look(episode.next_location())
    free.set()
    for _ in range(1200):  # until the first call has returned
        try:
            glimpse = retrying.look(episode.next_location())
            break
        except LookFailed:
            time.sleep(0.05)
    assert isinstance(glimpse, Tensor)
    assert torch.equal(glimpse, extract(image, places[0], SIDE))
    assert most == [1]


def test_within_its_time_a_sensor_is_as_it_is_without_and_its_errors_are_its_own() -> None:
    plain = AGENT.run(ImageSensor(scenes(1), SIDE))
    patient = AGENT.run(Retrying(ImageSensor(scenes(1), SIDE), timeout=60))
    assert torch.equal(patient.probabilities, plain.probabilities)
    with pytest.raises(ZeroDivisionError):
        Retrying(Flaky(1, ZeroDivisionError()), timeout=60).look(torch.tensor([[0, 0]]))
    with pytest.raises(LookFailed, match="its own clock"):
        Retrying(Flaky(9, TimeoutError("its own clock")), timeout=60).look(torch.tensor([[0, 0]]))


def test_senseless_retries_are_refused() -> None:
    with pytest.raises(InfogazeError, match="attempts is 0"):
        Retrying(Flaky(0, OSError()), attempts=0)
    for timeout in (0.0, float("inf"), float("nan")):
        with pytest.raises(InfogazeError, match="timeout is"):
            Retrying(Flaky(0, OSError()), timeout=timeout)


def test_the_stop_rule_is_asked_after_looks_and_not_after_failures() -> None:
    image, calls, asked = scenes(1), [], []

    def rule(episode: Progress) -> Tensor:
        asked.append(int(episode.looks_taken[0]))
        return episode.looks_taken >= 3

    def every_other(where: Tensor) -> Tensor:
        calls.append(where)
        if len(calls) % 2:
            raise LookFailed
        return extract(image, where, SIDE)

    episode = AGENT.run(every_other, stop=rule)
    assert asked == [1, 2, 3]
    assert episode.ended_by == ("rule",)
