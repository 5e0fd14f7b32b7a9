"""Evaluated runs, and the accuracy of their networks along looks at their test images; for the scripts beside this one."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

import infogaze
from infogaze.data.options import ReadOptions
from infogaze.data.registry import load_set
from infogaze.data.sets import Split
from infogaze.evaluation import store
from infogaze.evaluation.exact_pass import Records

_BATCH_SIZE = 500


def evaluated(run: str, data: str) -> tuple[infogaze.Agent, Split, Tensor]:
    """A run's agent, its test images read from DATA, and the locations that `infogaze evaluate` recorded, [N, T, 2]."""
    agent, recorded = infogaze.load(run), store.read(Path(run) / "evaluation", Records)
    grid = agent.model.grid
    test = load_set("arrays", data, ReadOptions(size=(grid.height, grid.width))).test
    if not torch.equal(test.labels, recorded.labels):
        raise ValueError(f"{run}: was evaluated on other test images than those of {data}")
    return agent, test, recorded.locations


def accuracy(agent: infogaze.Agent, test: Split, locations: Tensor) -> Tensor:
    """In %, after each of the looks at these locations, [T]; nothing is imagined."""
    parts = []
    for scenes, looks in zip(test.images.split(_BATCH_SIZE), locations.split(_BATCH_SIZE), strict=True):
        sensor, episode = infogaze.ImageSensor(scenes, agent.model.grid.glimpse_size), agent.episode(len(scenes))
        for where in looks.unbind(1):
            episode.observe(sensor.look(where), at=where)
        parts.append(torch.stack([look.probabilities.argmax(1) for look in episode.history], 1))
    return 100 * (torch.cat(parts) == test.labels[:, None]).double().mean(0)
