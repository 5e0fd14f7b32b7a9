"""python recipes/shipped.py NAME DATA [twin]: the accuracy by look of a bundled model over a complete test split, on this machine's CPU.

DATA is a set as `--data arrays` reads it: an .npz with train_x, train_y, test_x and test_y; images of another size than the model's scenes
are brought to it, as `--read.size` does. First looks and imagined scenes are those of `infogaze evaluate`. Every core works on scenes of
its own, which is faster than all on the same. With `twin`, every look is taken in mirrored too.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed

import torch
from script import called
from torch import Tensor

import infogaze
from infogaze.data.options import Options
from infogaze.data.registry import load_set
from infogaze.data.sets import Split
from infogaze.evaluation.rollouts import roll_out

_AT_ONCE = 100  # scenes


def test_split(name: str, data: str) -> Split:
    """The test images, of the size of the model's scenes."""
    grid = infogaze.load(name).model.grid
    return load_set("arrays", data, Options(size=(grid.height, grid.width))).test


def right(name: str, data: str, twin: bool, first: int) -> Tensor:
    """How many of some scenes are named right after each look."""
    torch.set_num_threads(1)
    agent, test = infogaze.load(name), test_split(name, data)
    agent.twin = agent.twin or twin
    some = slice(first, first + _AT_ONCE)
    seeds = infogaze.scene_seeds(0, len(test))[some]
    return roll_out(agent, Split(test.images[some], test.labels[some]), agent.policy, seed=seeds).right.sum(0)


def main(name: str, data: str, twin: str = "") -> None:
    """Look at every test scene once and print the share that is named right after each look."""
    if twin not in {"", "twin"}:
        raise ValueError(f"{twin}: not known; the third word may be twin")
    scenes, total, done = len(test_split(name, data)), torch.zeros(()), 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        parts = [pool.submit(right, name, data, bool(twin), first) for first in range(0, scenes, _AT_ONCE)]
        for part in as_completed(parts):
            total, done = total + part.result(), min(done + _AT_ONCE, scenes)
            print(f"\r{done} of {scenes} scenes", end="", file=sys.stderr, flush=True)
    print(f"\n{name}, {scenes} scenes:", *(f"{100 * int(count) / scenes:.2f}" for count in total))


if __name__ == "__main__":
    called(main, __doc__)
