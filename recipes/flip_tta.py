"""python recipes/flip_tta.py DATA RUN...: what horizontal-flip test-time augmentation makes of the looks of evaluated runs.

It changes the predictions, not where is looked at, so the locations recorded by `infogaze evaluate` are looked at again and nothing is
imagined. DATA is the set as `--data arrays` reads it, its test split that of the runs.
"""

from __future__ import annotations

from recorded import accuracy, evaluated
from script import called


def main(data: str, first: str, *more: str) -> None:
    """Print the accuracy after each look, without and with it."""
    for run in (first, *more):
        agent, test, locations = evaluated(run, data)
        for agent.flip_tta in (False, True):
            looks = " ".join(f"{share:.2f}" for share in accuracy(agent, test, locations).tolist())
            print(f"{run}, {'with' if agent.flip_tta else 'without'} flip TTA, {len(test)} scenes: {looks}", flush=True)


if __name__ == "__main__":
    called(main, __doc__)
