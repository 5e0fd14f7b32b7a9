"""Looks by a gain that is read from the belief in one pass."""

from __future__ import annotations

import pytest
import torch

import infogaze
from infogaze import Agent, DistilledPolicy, ImageSensor, InfogazeError
from infogaze.gaze.stored import StateError
from infogaze.nn.distilled import DistilledGain
from infogaze.nn.gain import class_entropy
from infogaze.rng import SceneNoise, scene_seeds
from tests.support.methods import agent_of, made
from tests.support.parts import normal
from tests.support.tiny import CONFIG, scenes

PLACES = CONFIG.grid.num_locations


def gain_for(agent: Agent, seed: int = 0) -> DistilledGain:
    """One that has learned nothing, and says something else of every place and belief."""
    assert agent.origin is not None
    gain = DistilledGain(agent.origin.config.belief_size, agent.model.grid.num_locations)
    for number, value in enumerate(gain.parameters()):
        value.data.copy_(normal(*value.shape, seed=10 * seed + number))
    return gain


def distilled(method: str = "infogaze", seed: int = 0) -> Agent:
    agent = agent_of(method, made(method))
    agent.distilled = gain_for(agent, seed)
    return agent


def looked(agent: Agent, **given: object) -> infogaze.Episode:
    return agent.run(ImageSensor(scenes(6), CONFIG.glimpse_size), batch=6, seed=2, **given)  # type: ignore[arg-type]


def test_a_map_is_a_share_of_the_entropy_there_is_to_lose() -> None:
    agent = distilled()
    assert agent.distilled is not None
    hidden, entropy = normal(7, CONFIG.belief_size).float(), torch.linspace(0.0, 1.0, 7)
    maps = agent.distilled(hidden, entropy)
    assert maps.shape == (7, PLACES)
    assert not maps[0].any(), "who is certain has nothing to gain"
    assert (maps[1:] > 0.0).all()
    torch.testing.assert_close(agent.distilled(hidden, 2.0 * entropy), 2.0 * maps)
    assert maps[1:].std(1).mean() > 1e-3, "of places"
    assert maps[1:].std(0).mean() > 1e-3, "of beliefs"


def test_its_looks_are_at_the_largest_of_its_map_that_may_be_chosen() -> None:
    agent = distilled().with_distilled_gain()
    assert isinstance(agent.policy, DistilledPolicy)
    episode = looked(agent)
    seen = torch.zeros(6, PLACES, dtype=torch.bool)
    for number, look in enumerate(episode.history):
        if number:
            assert look.gain.flatten(1).masked_fill(seen, -1.0).argmax(1).equal(CONFIG.grid.nearest(look.location))
        seen |= CONFIG.grid.at(look.location)
    assert seen.sum(1).eq(len(episode.history)).all(), "no place twice"
    masked = looked(agent, allowed=torch.arange(PLACES).view(CONFIG.grid.rows, CONFIG.grid.cols) < 5)
    assert max(int(CONFIG.grid.nearest(look.location).max()) for look in masked.history) < 5


def test_nothing_is_imagined_and_nothing_is_random(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = distilled("paper").with_distilled_gain()
    monkeypatch.setattr(agent.model.get_submodule("imagination"), "imagine", None)
    belief = looked(agent).belief
    assert isinstance(agent.policy, DistilledPolicy)
    candidates = torch.ones(6, PLACES, dtype=torch.bool)
    first, other = (
        agent.policy(agent.model, belief, candidates=candidates, noise=SceneNoise(scene_seeds(seed, 6), seed))
        for seed in (0, 9)
    )
    assert torch.equal(first.gain, other.gain)
    entropy = class_entropy(agent.model.backbone.classify(belief))
    torch.testing.assert_close(first.gain, agent.policy.distilled(belief.hidden, entropy))


def test_the_exact_gain_is_the_default_and_stays_what_it_was() -> None:
    agent, without = distilled(), agent_of("infogaze", made("infogaze"))
    for one, other in zip(looked(agent).history, looked(without).history, strict=True):
        assert torch.equal(one.gain, other.gain)
    chosen = [
        torch.stack([look.location for look in looked(one).history]) for one in (agent, agent.with_distilled_gain())
    ]
    assert not torch.equal(*chosen)


def test_a_model_without_one_says_how_to_get_one() -> None:
    with pytest.raises(InfogazeError, match="infogaze distil"):
        agent_of("infogaze", made("infogaze")).with_distilled_gain()


def test_it_serves_no_other_question_and_no_other_grid() -> None:
    agent = distilled()
    assert agent.on_grid(stride=1).distilled is None
    assert agent.ask({"first": ["class 0"], "other": None}).distilled is None
    fast = agent.with_distilled_gain()
    with pytest.raises(InfogazeError, match="one question and one grid"):
        fast.on_grid(stride=1)
    with pytest.raises(InfogazeError, match="one question and one grid"):
        fast.ask({"first": ["class 0"], "other": None})


def test_an_episode_by_it_goes_on_where_it_was_and_only_by_the_same_gain() -> None:
    agent = distilled().with_distilled_gain()
    sensor, episode = ImageSensor(scenes(6), CONFIG.glimpse_size), agent.episode(6, seed=2)
    for _ in range(2):
        episode.observe(sensor.look(episode.next_location()))
    state = episode.state()
    resumed = agent.resume(state)
    while not resumed.done:
        resumed.observe(sensor.look(resumed.next_location()))
    for one, other in zip(resumed.history, looked(agent).history, strict=True):
        assert torch.equal(one.location, other.location)
        assert torch.equal(one.gain, other.gain)
    for another in (distilled(), distilled(seed=1).with_distilled_gain()):
        with pytest.raises(StateError, match="DistilledPolicy"):
            another.resume(state)
