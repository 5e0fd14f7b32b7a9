"""python recipes/second_look.py DATA ROW COLUMN RUN...: what the second look of evaluated runs is worth beside one location for all scenes.

The first looks are those recorded by `infogaze evaluate`. The second is at the run's own locations, then at ROW and COLUMN, the top-left
pixel of a glimpse, in every scene; both are classified by the run's networks. DATA is the set as `--data arrays` reads it, its test split
that of the runs.
"""

from __future__ import annotations

import torch
from recorded import accuracy, evaluated
from script import called


def main(data: str, row: str, column: str, first: str, *more: str) -> None:
    """Print both accuracies, and how often the run looks at that location, a line a run."""
    one = torch.tensor([int(row), int(column)])
    for run in (first, *more):
        agent, test, locations = evaluated(run, data)
        own = locations[:, :2]
        there = torch.stack([own[:, 0], one.to(own.dtype).expand(len(own), 2)], 1)
        by_own, by_one = (float(accuracy(agent, test, looks)[1]) for looks in (own, there))
        often = 100 * (own[:, 1] == one).all(1).double().mean()
        print(
            f"{run}, {len(test)} scenes: own {by_own:.2f}, at {row} {column} {by_one:.2f}, looks there itself in {often:.1f} %",
            flush=True,
        )


if __name__ == "__main__":
    called(main, __doc__)
