"""`infogaze evaluate RUN...`: measure trained runs on their test split, once and exactly, into compact records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from infogaze.cli.names import MEASUREMENT_NAMES
from infogaze.evaluation.registry import MEASUREMENTS
from infogaze.tasks.evaluate import evaluate


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Measure runs on the test split they belong to, every image once.

    All methods get the same first looks. The records, in RUN/evaluation, hold what every figure of `infogaze report` is made from. What was
    measured before, of the same weights on the same images, is not measured again.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folders that `infogaze train` wrote."""
    measure: Annotated[tuple[str, ...], tyro.conf.arg(metavar=f"{MEASUREMENT_NAMES} [...]")] = tuple(MEASUREMENTS)
    """What: records, which is the exact pass and is always made, and what else figures need."""
    judge: Annotated[Path | None, tyro.conf.arg(metavar="RUN", help_behavior_hint="")] = None
    """A run of the method cnn, which then judges the looks of the others on masked images; without one nothing is judged."""
    num_scenes: int = 1000
    """How many test images many-looks, sample-counts, coherence, corruptions and travel look at, from the first on."""
    root: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")] = None
    """Where the set's files are now, if not where they were at training."""
    seed: int = 0
    """Of the first looks and of what is imagined."""
    batch_size: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Scenes at a time; 1000 on a GPU and 200 on the CPU if not given."""
    device: str = "auto"
    """Where: cpu, cuda, cuda:1; auto takes a GPU if there is one."""
    compile: bool = False
    """Compile the model for the exact pass and use bfloat16 there, on a GPU: it takes a minute at first, and is faster from then on. The
    records say so."""

    def run(self) -> None:
        """Measure one run after the other, and print accuracy by look."""
        evaluate(
            *self.runs,
            measure=self.measure,
            judge=self.judge,
            num_scenes=self.num_scenes,
            root=self.root,
            seed=self.seed,
            batch_size=self.batch_size,
            device=self.device,
            compile=self.compile,
        )


def read(arguments: Sequence[str]) -> Evaluate:
    """The command with its options."""
    return tyro.cli(Evaluate, prog="infogaze evaluate", args=list(arguments))
