"""python recipes/twin.py DATA RUN...: what a twin (docs/model.md) makes of the looks that evaluated runs took at their test images.

A twin changes what a scene is named, not where it is looked at, so the places recorded by `infogaze evaluate` are looked at again and
nothing is imagined. DATA is the set as `--data arrays` reads it, its test split that of the runs.
"""

from __future__ import annotations

from pathlib import Path

import torch
from script import called
from torch import Tensor

import infogaze
from infogaze.data.options import Options
from infogaze.data.registry import load_set
from infogaze.evaluation import records
from infogaze.evaluation.records import Records

_AT_ONCE = 500  # scenes


def named(agent: infogaze.Agent, images: Tensor, locations: Tensor) -> Tensor:
    """The label named after each look at these places, [N, T]."""
    parts = []
    for scenes, places in zip(images.split(_AT_ONCE), locations.split(_AT_ONCE), strict=True):
        sensor, episode = infogaze.ImageSensor(scenes, agent.model.grid.glimpse), agent.episode(len(scenes))
        for where in places.unbind(1):
            episode.observe(sensor.look(where), at=where)
        parts.append(torch.stack([look.probabilities.argmax(1) for look in episode.history], 1))
    return torch.cat(parts)


def main(data: str, first: str, *more: str) -> None:
    """Print the share named right after each look, of one belief and of twins."""
    for run in (first, *more):
        agent, recorded = infogaze.load(run), records.read(Path(run) / "evaluation", Records)
        grid = agent.model.grid
        test = load_set("arrays", data, Options(size=(grid.height, grid.width))).test
        if not torch.equal(test.labels, recorded.labels):
            raise ValueError(f"{run}: was evaluated on other test images than those of {data}")
        for agent.twin in (False, True):
            right = named(agent, test.images, recorded.locations) == test.labels[:, None]
            looks = " ".join(f"{100 * share:.2f}" for share in right.double().mean(0).tolist())
            print(f"{run}, {'twins' if agent.twin else 'one belief'}, {len(right)} scenes: {looks}", flush=True)


if __name__ == "__main__":
    called(main, __doc__)
