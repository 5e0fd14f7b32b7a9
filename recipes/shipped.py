"""python recipes/shipped.py NAME DATA [flip-tta]: the accuracy by look of a bundled model over a complete test split, on this CPU.

DATA is a set as `--data arrays` reads it: an .npz with train_x, train_y, test_x and test_y; images of another size than the model's scenes
are brought to it, as `--read.size` does. First looks and imagined scenes are those of `infogaze evaluate`. Every core works on scenes of
its own, which is faster than all on the same. With `flip-tta`, horizontal-flip test-time augmentation is on whatever the model has.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed

import torch
from script import called
from torch import Tensor

import infogaze
from infogaze.data.options import ReadOptions
from infogaze.data.registry import load_set
from infogaze.data.sets import Split
from infogaze.evaluation.rollouts import roll_out

_BATCH_SIZE = 100


def test_split(name: str, data: str) -> Split:
    """The test images, of the size of the model's scenes."""
    grid = infogaze.load(name).model.grid
    return load_set("arrays", data, ReadOptions(size=(grid.height, grid.width))).test


def correct(name: str, data: str, first: int, *, flip_tta: bool) -> Tensor:
    """How many of some scenes are classified correctly after each look."""
    torch.set_num_threads(1)
    agent, test = infogaze.load(name), test_split(name, data)
    agent.flip_tta = agent.flip_tta or flip_tta
    some = slice(first, first + _BATCH_SIZE)
    seeds = infogaze.scene_seeds(0, len(test))[some]
    return roll_out(agent, Split(test.images[some], test.labels[some]), seed=seeds).correct.sum(0)


def main(name: str, data: str, flip: str = "") -> None:
    """Look at every test scene once and print the accuracy after each look."""
    if flip not in {"", "flip-tta"}:
        raise ValueError(f"{flip}: not known; the third word may be flip-tta")
    scenes, total, done = len(test_split(name, data)), torch.zeros(()), 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        parts = [
            pool.submit(correct, name, data, first, flip_tta=bool(flip)) for first in range(0, scenes, _BATCH_SIZE)
        ]
        for part in as_completed(parts):
            total, done = total + part.result(), min(done + _BATCH_SIZE, scenes)
            print(f"\r{done} of {scenes} scenes", end="", file=sys.stderr, flush=True)
    print(f"\n{name}, {scenes} scenes:", *(f"{100 * int(count) / scenes:.2f}" for count in total))


if __name__ == "__main__":
    called(main, __doc__)
