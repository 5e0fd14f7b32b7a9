"""`infogaze quickstart`: a first run on the embedded digits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from infogaze.cli.train import tell_stopped
from infogaze.tasks.quickstart import quickstart
from infogaze.training.loop import Stopped
from infogaze.training.recipe import recipe


@dataclass(frozen=True)
class Quickstart:
    """Train on the embedded handwritten digits, about three minutes on two cores, and see the model look.

    Writes OUT/model, which `infogaze.load` and `infogaze look` open, and OUT/index.html, a page with accuracy by look and a dozen
    rollouts. Nothing is downloaded.
    """

    out: Path
    """Folder to write to; it is made if need be. A first run that was stopped in it goes on where it was."""
    seed: int = 0
    """Fixes the digits, the training and the looks."""

    def run(self) -> None:
        """Train, measure, write."""
        try:
            quickstart(self.out, seed=self.seed, recipe=recipe("quickstart"))
        except Stopped as stop:
            raise SystemExit(tell_stopped(stop)) from None
        print(f"model:  {self.out / 'model'}\npage:   {self.out / 'index.html'}")


def read(arguments: Sequence[str]) -> Quickstart:
    """The command with its options."""
    return tyro.cli(Quickstart, prog="infogaze quickstart", args=list(arguments))
