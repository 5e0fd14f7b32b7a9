from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import infogaze
from infogaze import Agent, Confident, Episode, ImageSensor, InfogazeError
from tests.support.tiny import CONFIG, TOKENS, scenes, tiny_agent

TEMPERATURES = (2.0, 0.5, 3.0)


def tempered_agent(temperatures: tuple[float, ...] | None = TEMPERATURES, *, flip_tta: bool = False) -> Agent:
    agent = tiny_agent()
    agent.temperatures, agent.flip_tta = temperatures, flip_tta
    return agent


def looked(agent: Agent, **options: object) -> Episode:
    return agent.run(ImageSensor(scenes(3), CONFIG.glimpse_size), batch=3, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("flip_tta", [False, True])
def test_each_number_of_looks_has_its_temperature_and_the_last_is_for_more(flip_tta: bool) -> None:
    plain, warm = looked(tempered_agent(None, flip_tta=flip_tta)), looked(tempered_agent(flip_tta=flip_tta))
    for number, (before, after) in enumerate(zip(plain.history, warm.history, strict=True)):
        power = 1.0 / TEMPERATURES[min(number, 2)]
        expected = before.probabilities**power
        torch.testing.assert_close(after.probabilities, expected / expected.sum(1, keepdim=True))
        assert torch.equal(after.location, before.location), "gains are not changed"
    assert len(plain.history) > len(TEMPERATURES)


def test_a_scene_that_stopped_keeps_what_it_was_told() -> None:
    agent = tempered_agent((0.2, 5.0))
    first = looked(agent, budget=1).probabilities
    threshold = float(first.amax(1).median())
    episode = looked(agent, budget=3, stop=Confident(threshold))
    stopped = episode.looks_taken == 1
    assert stopped.any()
    assert not stopped.all()
    torch.testing.assert_close(episode.probabilities[stopped], first[stopped])


def test_groups_of_classes_are_as_likely_as_their_tempered_classes_together() -> None:
    agent = tempered_agent()
    asked = agent.ask({"first": ["class 0"], "others": None})
    where = agent.model.grid.locations()[:3]
    ones, grouped = agent.episode(3), asked.episode(3)
    for episode in (ones, grouped):
        episode.observe(ImageSensor(scenes(3), CONFIG.glimpse_size).look(where), at=where)
    expected = torch.stack([ones.probabilities[:, 0], ones.probabilities[:, 1:].sum(1)], 1)
    torch.testing.assert_close(grouped.probabilities, expected)


def test_another_head_has_probabilities_of_its_own() -> None:
    head = nn.Linear(CONFIG.belief_size, 2)
    assert tempered_agent().ask(head, ["no", "yes"]).temperatures is None


@pytest.mark.parametrize("wrong", [(), (1.0, 0.0), (math.nan,), (-1.0,), (math.inf,)])
def test_what_is_no_temperature_is_refused(wrong: tuple[float, ...]) -> None:
    agent = tiny_agent(replace(TOKENS))
    with pytest.raises(InfogazeError, match="temperatures are"):
        infogaze.Agent(agent.model, agent.classes, policy=agent.policy, temperatures=wrong)
