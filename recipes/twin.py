"""python recipes/twin.py DATA RUN...: what a twin (docs/model.md) makes of the looks that evaluated runs took at their test images.

A twin changes what a scene is named, not where it is looked at, so the places recorded by `infogaze evaluate` are looked at again and
nothing is imagined. DATA is the set as `--data arrays` reads it, its test split that of the runs.
"""

from __future__ import annotations

from recorded import evaluated, right
from script import called


def main(data: str, first: str, *more: str) -> None:
    """Print the share named right after each look, of one belief and of twins."""
    for run in (first, *more):
        agent, test, locations = evaluated(run, data)
        for agent.twin in (False, True):
            looks = " ".join(f"{share:.2f}" for share in right(agent, test, locations).tolist())
            print(f"{run}, {'twins' if agent.twin else 'one belief'}, {len(test)} scenes: {looks}", flush=True)


if __name__ == "__main__":
    called(main, __doc__)
