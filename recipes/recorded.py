"""Evaluated runs, and what their networks make of looks at their test images; for the scripts beside this one."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

import infogaze
from infogaze.data.options import Options
from infogaze.data.registry import load_set
from infogaze.data.sets import Split
from infogaze.evaluation import records
from infogaze.evaluation.records import Records

_AT_ONCE = 500  # scenes


def evaluated(run: str, data: str) -> tuple[infogaze.Agent, Split, Tensor]:
    """A run's agent, its test images read from DATA, and the places that `infogaze evaluate` recorded, [N, T, 2]."""
    agent, recorded = infogaze.load(run), records.read(Path(run) / "evaluation", Records)
    grid = agent.model.grid
    test = load_set("arrays", data, Options(size=(grid.height, grid.width))).test
    if not torch.equal(test.labels, recorded.labels):
        raise ValueError(f"{run}: was evaluated on other test images than those of {data}")
    return agent, test, recorded.locations


def right(agent: infogaze.Agent, test: Split, locations: Tensor) -> Tensor:
    """The share, in %, that is named right after each of the looks at these places, [T]; nothing is imagined."""
    parts = []
    for scenes, places in zip(test.images.split(_AT_ONCE), locations.split(_AT_ONCE), strict=True):
        sensor, episode = infogaze.ImageSensor(scenes, agent.model.grid.glimpse), agent.episode(len(scenes))
        for where in places.unbind(1):
            episode.observe(sensor.look(where), at=where)
        parts.append(torch.stack([look.probabilities.argmax(1) for look in episode.history], 1))
    return 100 * (torch.cat(parts) == test.labels[:, None]).double().mean(0)
