"""python recipes/disturb.py NAME DATA KIND STRENGTH...: the accuracy by look of a model on disturbed scenes, at strengths of one's own.

NAME is a bundled model or a model's folder, DATA a set as `--data arrays` reads it, of which the first 1,000 test images are taken, brought
to the size of the model's scenes. KIND is shift, scale, blur, noise or occlusion, which are made as `infogaze evaluate --measure disturbed`
makes them, from the same random numbers.
"""

from __future__ import annotations

from script import called

import infogaze
from infogaze.data.options import Options
from infogaze.data.registry import load_set
from infogaze.data.sets import Split
from infogaze.evaluation.corruptions import DISTURBANCES
from infogaze.evaluation.rollouts import roll_out

_SCENES = 1000
_AT_ONCE = 100


def main(name: str, data: str, kind: str, first: str, *more: str) -> None:
    """Print the share that is named right after each look, a line a strength."""
    if kind not in DISTURBANCES:
        raise ValueError(f"{kind}: not known; it must be one of {', '.join(DISTURBANCES)}")
    agent = infogaze.load(name)
    grid = agent.model.grid
    test = load_set("arrays", data, Options(size=(grid.height, grid.width))).test
    seeds = infogaze.scene_seeds(0, len(test))[:_SCENES]
    images, labels = test.images[:_SCENES], test.labels[:_SCENES]
    for strength in (first, *more):
        disturbed = Split(DISTURBANCES[kind].apply(images, float(strength), seeds), labels)
        right = roll_out(agent, disturbed, agent.policy, batch=_AT_ONCE, seed=seeds).right
        looks = " ".join(f"{100 * share:.1f}" for share in right.double().mean(0).tolist())
        print(f"{name}, {kind} {strength}, {len(right)} scenes: {looks}", flush=True)


if __name__ == "__main__":
    called(main, __doc__)
