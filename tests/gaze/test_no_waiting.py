"""Within a look nothing asks the device for a number: on a GPU the host would wait there for all that it has asked for before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from infogaze import METHODS, Agent, Confident, Stage, Travel
from infogaze.gaze.episode import Episode
from infogaze.gaze.looking import take_look
from infogaze.gaze.sensor import EpisodeSensor, ImageSensor
from tests.support.exported import looking
from tests.support.tiny import CONFIG, TOKEN_SIZES, scenes

LOOKERS = [name for name in METHODS if METHODS[name].sees == "looks"]
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "equal.default", "is_same_size")


class Waits(TorchDispatchMode):
    """Notes the operations whose outcome the host needs."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.noted: list[str] = []

    def __torch_dispatch__(
        self,
        operation: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        by_mask = "index.Tensor" in str(operation) and any(
            isinstance(index, torch.Tensor) and index.dtype == torch.bool for index in args[1]
        )
        if by_mask or any(name in str(operation) for name in WAITING):
            self.noted.append(str(operation))
        return operation(*args, **(kwargs or {}))


def waits(agent: Agent, sensor_of: Callable[..., ImageSensor] = EpisodeSensor, **given: Any) -> list[str]:
    """Of the looks after the first, until the episode is done."""
    sensor, episode = sensor_of(scenes(3), CONFIG.glimpse_size), agent.episode(3, **given)
    take_look(episode, sensor.look)
    with Waits() as mode:
        while not episode.done:
            take_look(episode, sensor.look)
    assert len(episode.history) == episode.budget
    return mode.noted


@pytest.mark.parametrize("method", LOOKERS)
def test_no_look_waits_for_the_device(method: str) -> None:
    assert not waits(looking(method))


def test_nor_does_one_with_tokens_and_a_mirrored_belief() -> None:
    agent = looking("infogaze", TOKEN_SIZES)
    agent.flip_tta, agent.temperatures = True, (1.5, 1.2)
    assert not waits(agent)


def test_what_must_be_known_is_asked() -> None:
    agent, looks = looking("infogaze"), 3
    assert looks <= len(waits(agent, stop=Confident(1.0))) < 2 * looks, "a rule may end them, and every place be seen"
    assert len(waits(agent, travel=Travel(way=Stage(speed=4.0), exposure=1.0))) >= looks - 1
    assert len(waits(agent, ImageSensor)) == looks, "a sensor for anybody refuses what lies outside"


def test_an_episode_with_few_places_left_asks_whether_there_are_any() -> None:
    agent = looking("infogaze")
    places = agent.model.grid.num_locations
    noted = waits(agent, budget=places)
    assert 0 < len(noted) <= places // 2 + 1


def test_an_episode_that_asks_nobody_still_knows_when_it_is_over() -> None:
    agent = looking("infogaze")
    sensor = EpisodeSensor(scenes(3), CONFIG.glimpse_size)
    episode: Episode = agent.run(sensor, budget=10_000, batch=3)
    assert len(episode.history) == agent.model.grid.num_locations
    assert set(episode.ended_by) == {"no location left"}
