from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from infogaze import (
    Agent,
    CalibratedStop,
    Confident,
    Episode,
    ImageSensor,
    InfogazeError,
    LittleToGain,
    LowEntropy,
    RandomPolicy,
    RasterPolicy,
)
from infogaze.gaze.policies import Policy
from tests.support.tiny import CONFIG, scenes, tiny_agent

AGENT, FLIPPING = tiny_agent(seed=4), tiny_agent(seed=4)
FLIPPING.flip_tta = True


@pytest.mark.parametrize("agent", [AGENT, FLIPPING], ids=["one belief", "flip_tta"])
def test_a_confident_scene_stops_and_the_others_go_on(agent: Agent) -> None:
    images = scenes(40)
    free = agent.run(ImageSensor(images, CONFIG.glimpse_size), batch=40)
    threshold = float(free.history[1].probabilities.amax(1).quantile(0.8))
    stopped = agent.run(ImageSensor(images, CONFIG.glimpse_size), batch=40, stop=Confident(threshold))
    sure = torch.stack([look.probabilities.amax(1) >= threshold for look in free.history])  # [T, B]
    assert sure[:-1].any(), "the case is in the data"
    assert not sure[:-1].any(0).all()
    for scene in range(40):
        when = next((look for look in range(len(free.history)) if sure[look, scene]), len(free.history) - 1)
        torch.testing.assert_close(stopped.probabilities[scene], free.history[when].probabilities[scene])
    assert torch.equal(stopped.stopped, sure[:-1].any(0))


def test_an_episode_ends_when_every_scene_is_confident() -> None:
    episode = AGENT.run(ImageSensor(scenes(2), CONFIG.glimpse_size), batch=2, stop=Confident(0.1))
    assert len(episode.history) == 1
    assert episode.done


def test_a_scene_stops_when_little_is_left_to_gain() -> None:
    images = scenes(1)
    free, sensor = AGENT.episode(budget=6), ImageSensor(images, CONFIG.glimpse_size)
    left = []  # the largest gain there is after each look
    while not free.done:
        free.observe(sensor.look(free.next_location()))
        left.append(float(free.next_gain[free.candidates].max()))
    threshold = (min(left[:-1]) + max(left[:-1])) / 2
    expected = next(number for number, gain in enumerate(left, 1) if gain < threshold)
    episode = AGENT.run(ImageSensor(images, CONFIG.glimpse_size), budget=6, stop=LittleToGain(threshold))
    assert len(episode.history) == expected
    assert float(episode.next_gain[episode.candidates].max()) < threshold


@pytest.mark.parametrize("policy", [RandomPolicy(), RasterPolicy()])
def test_a_policy_without_a_map_cannot_be_stopped_by_what_it_expects(policy: Policy) -> None:
    sensor = ImageSensor(scenes(1), CONFIG.glimpse_size)
    with pytest.raises(InfogazeError, match="map of gains"):
        AGENT.run(sensor, stop=LittleToGain(0.01), policy=policy)
    assert AGENT.run(sensor, stop=LittleToGain(100.0)).looks_taken.tolist() == [1]


def test_each_scene_counts_its_looks_and_says_whether_it_goes_on() -> None:
    images = scenes(6)
    free = AGENT.run(ImageSensor(images, CONFIG.glimpse_size), batch=6, seed=list(range(6)))
    assert free.looks_taken.tolist() == [4] * 6
    reached = torch.stack([look.probabilities.amax(1) for look in free.history])  # [T, B]
    enough = float(reached[1].sort().values[2:4].mean())  # between two scenes
    episode = AGENT.run(ImageSensor(images, CONFIG.glimpse_size), batch=6, seed=list(range(6)), stop=Confident(enough))
    expected = [next((t + 1 for t in range(4) if reached[t, b] >= enough), 4) for b in range(6)]
    assert episode.looks_taken.tolist() == expected
    assert len(set(expected)) > 1
    assert episode.running.tolist() == [not stopped for stopped in episode.stopped.tolist()]


def test_bad_rules_are_refused() -> None:
    with pytest.raises(InfogazeError, match="probability is 1.5"):
        Confident(1.5)
    with pytest.raises(InfogazeError, match="nats is -1"):
        LittleToGain(-1)


def test_whether_an_episode_is_done_is_found_out_once_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, asked = tiny_agent(), 0
    running = Episode.running.__get__

    def counted(episode: Episode) -> torch.Tensor:
        nonlocal asked
        asked += 1
        return running(episode)

    monkeypatch.setattr(Episode, "running", property(counted))
    episode = agent.episode(stop=lambda _: torch.tensor([False]))
    for look in range(1, 4):
        assert [episode.done for _ in range(5)] == [False] * 5
        before = asked
        episode.observe(torch.zeros(1, CONFIG.channels, CONFIG.glimpse_size, CONFIG.glimpse_size), at=(0, look))
        assert asked - before <= 2, "once for what is taken in, once for the rule"


def test_a_scene_stops_when_the_entropy_is_low() -> None:
    images = scenes(1)
    free = AGENT.run(ImageSensor(images, CONFIG.glimpse_size), budget=6)
    entropies = [float(look.entropy[0]) for look in free.history]
    threshold = (min(entropies[:-1]) + max(entropies[:-1])) / 2
    expected = next(number for number, nats in enumerate(entropies, 1) if nats <= threshold)
    episode = AGENT.run(ImageSensor(images, CONFIG.glimpse_size), budget=6, stop=LowEntropy(threshold))
    assert len(episode.history) == expected
    assert episode.ended_by == ("rule",)


def test_an_episode_says_why_each_scene_ended() -> None:
    two = torch.zeros(2, AGENT.model.grid.rows, AGENT.model.grid.cols, dtype=torch.bool)
    two[0, 0, :2] = True
    two[1, :, 0] = True
    episode = AGENT.episode(2, budget=3, allowed=two)
    assert list(episode.ended_by) == [None, None]
    sensor = ImageSensor(scenes(2), CONFIG.glimpse_size)
    for _ in range(2):
        episode.observe(sensor.look(episode.next_location()))
    assert list(episode.ended_by) == ["no location left", None]
    episode.observe(sensor.look(episode.next_location()))
    assert list(episode.ended_by) == ["no location left", "budget"]
    sure = AGENT.run(sensor, batch=2, stop=Confident(0.01))
    assert sure.ended_by == ("rule", "rule")


def calibrated(budget: int = 4, *thresholds: float | None) -> CalibratedStop:
    return CalibratedStop(
        rule="confidence", thresholds=thresholds, budget=budget, gap=0.01, delta=0.05, by_look=True, scenes=1000
    )


def test_a_calibrated_rule_has_a_threshold_for_each_number_of_looks() -> None:
    sensor = ImageSensor(scenes(3), CONFIG.glimpse_size)
    never, second = calibrated(4, None, None, None), calibrated(4, None, 0.01, 0.01)
    assert AGENT.run(sensor, batch=3, stop=never).ended_by == ("budget",) * 3
    episode = AGENT.run(sensor, batch=3, stop=second)
    assert episode.looks_taken.tolist() == [2, 2, 2]
    assert episode.ended_by == ("rule",) * 3


def test_an_agent_stops_by_its_own_rule_where_its_promise_holds_and_nowhere_else() -> None:
    sensor = ImageSensor(scenes(1), CONFIG.glimpse_size)
    own = AGENT.with_stop(calibrated(4, 0.01, 0.01, 0.01))
    assert AGENT.stop is None
    assert len(own.run(sensor).history) == 1
    assert len(own.run(sensor, budget=4).history) == 1
    for agent, given in (
        (own, {"budget": 3}),
        (own, {"policy": RasterPolicy()}),
        (own, {"stop": Confident(1.0)}),
        (own.with_policy(RasterPolicy()), {}),
        (own.with_stop(None), {}),
    ):
        assert agent.run(sensor, **given).ended_by == ("budget",)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"budget": 3}, "thresholds has 3 numbers; a budget of 3 looks has 2"),
        ({"gap": 0.0}, "gap is 0.0"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"scenes": 0}, "scenes is 0"),
        ({"thresholds": (0.5, 1.5, None)}, "probability is 1.5"),
    ],
)
def test_a_calibrated_rule_that_can_be_none_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InfogazeError, match=message):
        replace(calibrated(4, 0.5, 0.5, None), **wrong)  # type: ignore[arg-type]
