"""python recipes/corrupt.py NAME DATA KIND SEVERITY...: the accuracy by look of a model on corrupted scenes, at severities of one's own.

NAME is a bundled model or a model's folder, DATA a set as `--data arrays` reads it, of which the first 1,000 test images are taken, brought
to the size of the model's scenes. KIND is shift, scale, blur, noise, occlusion, exposure or displacement, made as `infogaze evaluate
--measure corruptions` makes them, from the same random numbers.
"""

from __future__ import annotations

from script import called

import infogaze
from infogaze.data.options import ReadOptions
from infogaze.data.registry import load_set
from infogaze.data.sets import Split
from infogaze.evaluation.corruptions import CORRUPTIONS
from infogaze.evaluation.rollouts import roll_out

_SCENES = 1000
_BATCH_SIZE = 100


def main(name: str, data: str, kind: str, first: str, *more: str) -> None:
    """Print the accuracy after each look, a line a severity."""
    if kind not in CORRUPTIONS:
        raise ValueError(f"{kind}: not known; it must be one of {', '.join(CORRUPTIONS)}")
    agent = infogaze.load(name)
    grid = agent.model.grid
    test = load_set("arrays", data, ReadOptions(size=(grid.height, grid.width))).test
    seeds = infogaze.scene_seeds(0, len(test))[:_SCENES]
    images, labels = test.images[:_SCENES], test.labels[:_SCENES]
    for severity in (first, *more):
        corruption, much = CORRUPTIONS[kind], float(severity)
        corrupted = Split(corruption.apply(images, much, seeds), labels)
        sensor_of = corruption.sensor(much)
        correct = roll_out(agent, corrupted, seed=seeds, batch_size=_BATCH_SIZE, sensor_of=sensor_of).correct
        looks = " ".join(f"{100 * share:.1f}" for share in correct.double().mean(0).tolist())
        print(f"{name}, {kind} {severity}, {len(correct)} scenes: {looks}", flush=True)


if __name__ == "__main__":
    called(main, __doc__)
