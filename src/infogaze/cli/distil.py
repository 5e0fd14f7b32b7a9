"""`infogaze distil RUN`: a gain that is read from the belief in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from infogaze.tasks.distil import Trial, distil


@dataclass(frozen=True, kw_only=True)
class Distil:
    """Give a model a gain that is read from the belief in one pass, many times as fast as what it imagines.

    A small network learns what the model's own gain says of beliefs along its looks at training scenes, without their labels. It is stored
    with the model, whose exact gain stays the default: `infogaze look --policy distilled` and `infogaze.load(RUN, gain="distilled")` choose
    by it. It knows one question and one grid. Then both are tried on test scenes.
    """

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A folder that `infogaze train` wrote, of a method that imagines."""
    num_scenes: int = 10_000
    """Training scenes to look at, all if there are fewer. This takes most of the time: as long as it takes to classify them."""
    epochs: int = 30
    """How often the network sees what was said of them."""
    num_trials: int = 1000
    """Test scenes to try it on; none with 0."""
    root: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")] = None
    """Where the set's files are now, if not where they were at training."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")] = None
    """A new folder for the model with its gain; the run's own folder if not given."""
    seed: int = 0
    """Which scenes, their first looks, and the network's first weights."""
    batch_size: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Scenes at a time; 1000 on a GPU and 200 on the CPU if not given."""
    device: str = "auto"
    """Where: cpu, cuda, cuda:1; auto takes a GPU if there is one."""

    def run(self) -> None:
        """Distil, store, and say how the gain does."""
        done = distil(
            self.model,
            num_scenes=self.num_scenes,
            epochs=self.epochs,
            num_trials=self.num_trials,
            root=self.root,
            out=self.out,
            seed=self.seed,
            batch_size=self.batch_size,
            device=self.device,
        )
        print(f"stored in {self.model if self.out is None else self.out}")
        if done.trial is not None:
            print(_said(done.trial))


def _said(trial: Trial) -> str:
    lines = [
        f"tried on {trial.exact.n} test scenes",
        "look  regret, nats  at random  exact, %  distilled, %  cost, points",
    ]
    for number in range(len(trial.exact.value)):
        lost = "" if number == 0 else f"{trial.regret[number - 1]:.4f}"
        random = "" if number == 0 else f"{trial.at_random[number - 1]:.4f}"
        exact, distilled = (100 * float(of.value[number]) for of in (trial.exact, trial.distilled))
        cost, low, high = (100 * float(of[number]) + 0.0 for of in (trial.cost.value, trial.cost.low, trial.cost.high))
        lines.append(
            f"{number:4d}  {lost:>12}  {random:>9}  {exact:8.1f}  {distilled:12.1f}  {cost:5.2f} ({low:.2f} to {high:.2f})"
        )
    return "\n".join(lines)


def read(arguments: Sequence[str]) -> Distil:
    """The command with its options."""
    return tyro.cli(Distil, prog="infogaze distil", args=list(arguments))
