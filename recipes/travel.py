"""python recipes/travel.py DATA SCENES MODEL...: accuracy against time with a sensor that travels, of models as they are.

DATA is a set as `--data arrays` reads it, of which the first SCENES test images are looked at. MODEL is a bundled model or a model's
folder. Looks are those of `infogaze evaluate --measure travel`: by gain a second, by gain alone and at random, under the same clock. A
line says the accuracy in % at each of seven times with its 95 % interval (Wilson's), and the mean number of looks; and how far ahead gain
a second is of each other, scene by scene.
"""

from __future__ import annotations

from script import called

import infogaze
from infogaze.data.options import ReadOptions
from infogaze.data.registry import load_set
from infogaze.evaluation.estimates import Estimate, accuracy, lead
from infogaze.evaluation.measurement import Subject
from infogaze.evaluation.travelled import POLICIES, travelled

_EVERY, _BATCH_SIZE = 4, 100


def main(data: str, scenes: str, first: str, *more: str) -> None:
    """Print five lines and a head for each model."""
    for name in (first, *more):
        agent = infogaze.load(name)
        assert agent.origin is not None
        grid = agent.model.grid
        subject = Subject(
            agent=agent,
            method=infogaze.METHODS[agent.origin.method],
            test=load_set("arrays", data, ReadOptions(size=(grid.height, grid.width))).test,
            num_scenes=int(scenes),
            seed=0,
            batch_size=_BATCH_SIZE,
        )
        found = travelled(subject, lambda done: None)
        times = " ".join(f"{time:.1f}" for time in found.seconds[::_EVERY].tolist())
        print(f"{name}, {len(found.labels)} scenes, after {times} s", flush=True)
        correct = found.predictions == found.labels[:, None]
        for policy, right, looks in zip(POLICIES, correct, found.looks, strict=True):
            print(f"{policy}: {_told(accuracy(right), '.1f')} %; {float(looks.double().mean()):.1f} looks", flush=True)
        for policy, right in zip(POLICIES[1:], correct[1:], strict=True):
            print(f"gain a second before {policy}: {_told(lead(correct[0], right), '+.1f')} points", flush=True)


def _told(estimate: Estimate, form: str) -> str:
    """The numbers at some of the times, in %, each with its interval."""
    parts = (100 * part[::_EVERY] for part in (estimate.value, estimate.low, estimate.high))
    return " ".join(
        f"{value:{form}} [{low:{form}}, {high:{form}}]"
        for value, low, high in zip(*(part.tolist() for part in parts), strict=True)
    )


if __name__ == "__main__":
    called(main, __doc__)
