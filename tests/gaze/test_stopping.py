from __future__ import annotations

import pytest
import torch

from infogaze import Agent, Confident, Episode, ImageSensor, InfogazeError, LittleToGain, RandomPolicy, RasterPolicy
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
