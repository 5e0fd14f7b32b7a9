"""python recipes/second_look.py DATA ROW COLUMN RUN...: what the second look of evaluated runs is worth beside one place for all scenes.

The first looks are those recorded by `infogaze evaluate`. The second is at the run's own places, then at ROW and COLUMN, the top-left pixel
of a glimpse, in every scene; both are named by the run's networks. DATA is the set as `--data arrays` reads it, its test split that of the
runs.
"""

from __future__ import annotations

from pathlib import Path

import torch
from script import called
from torch import Tensor

import infogaze
from infogaze.data.options import Options
from infogaze.data.registry import load_set
from infogaze.data.sets import Split
from infogaze.evaluation import records
from infogaze.evaluation.records import Records

_AT_ONCE = 500  # scenes


def right(agent: infogaze.Agent, test: Split, looks: Tensor) -> float:
    """The share, in %, that is named right after looks at these places, [N, T, 2]."""
    count = 0
    for images, labels, places in zip(
        *(part.split(_AT_ONCE) for part in (test.images, test.labels, looks)), strict=True
    ):
        sensor, episode = infogaze.ImageSensor(images, agent.model.grid.glimpse), agent.episode(len(images))
        for where in places.unbind(1):
            episode.observe(sensor.look(where), at=where)
        count += int((episode.probabilities.argmax(1) == labels).sum())
    return 100 * count / len(test)


def main(data: str, row: str, column: str, first: str, *more: str) -> None:
    """Print both shares, and how often the run looks at that place, a line a run."""
    one = torch.tensor([int(row), int(column)])
    for run in (first, *more):
        agent, recorded = infogaze.load(run), records.read(Path(run) / "evaluation", Records)
        grid = agent.model.grid
        test = load_set("arrays", data, Options(size=(grid.height, grid.width))).test
        if not torch.equal(test.labels, recorded.labels):
            raise ValueError(f"{run}: was evaluated on other test images than those of {data}")
        own = recorded.locations[:, :2]
        there = torch.stack([own[:, 0], one.expand(len(own), 2).to(own.dtype)], 1)
        often = 100 * (own[:, 1] == one).all(1).double().mean()
        print(
            f"{run}, {len(test)} scenes: own {right(agent, test, own):.2f}, at {row} {column} {right(agent, test, there):.2f}, "
            f"looks there itself in {often:.1f} %",
            flush=True,
        )


if __name__ == "__main__":
    called(main, __doc__)
