"""`infogaze calibrate MODEL`: choose when a model may stop early, with a promise of what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from infogaze.evaluation.estimates import Estimate
from infogaze.gaze.stopping import Gain, RuleName
from infogaze.tasks.calibrate import Trial, calibrate


@dataclass(frozen=True, kw_only=True)
class Calibrate:
    """Choose when a model may stop looking early, with a promise of what that costs.

    It gets the rule that stops earliest and loses at most a share `gap` of all scenes, with probability 1 - delta. A scene is lost where
    the rule stops at a wrong prediction and all looks would have ended at the correct one; accuracy falls by no more. The rule is
    stored with the model, and its episodes stop by it. The promise holds for scenes like those it was calibrated on, whatever the model
    (Learn then Test, with exact binomial tails). Too few scenes are refused, with the number that is needed.
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A folder that `infogaze train` or `infogaze.save` wrote; or, with --images and --out, a bundled model's name."""
    gap: float = 0.01
    """The largest share of scenes that may be lost."""
    delta: float = 0.05
    """The probability, over the scenes drawn to calibrate on, that more are lost."""
    rule: RuleName = "confidence"
    """What is compared with a threshold: the largest probability, the entropy of the class distribution, or the largest gain left."""
    by_look: bool = False
    """Promise the same of the scenes that have stopped after at most t looks, for every t, with a threshold for each number of looks. It
    takes more scenes, and stops later."""
    gain: Gain = "exact"
    """What chooses the looks, the model's own gain or that of `infogaze distil`: the rule is for these looks, and for no others."""
    images: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")] = None
    """Labelled pictures, one sub-folder a class, that were used for nothing else; the test split of the run if not given."""
    share: float = 0.5
    """Of these scenes, the share to calibrate on; the rule is tried on the others."""
    root: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")] = None
    """Where the set's files are now, if not where they were at training."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")] = None
    """A new folder for the model with its rule; the model's own folder if not given."""
    seed: int = 0
    """Which scenes calibrate."""
    device: str = "auto"
    """Where: cpu, cuda, cuda:1; auto takes a GPU if there is one."""

    def run(self) -> None:
        """Calibrate, store, and say how the rule does."""
        done = calibrate(
            self.model,
            gap=self.gap,
            delta=self.delta,
            rule=self.rule,
            by_look=self.by_look,
            gain=self.gain,
            images=self.images,
            share=self.share,
            root=self.root,
            out=self.out,
            seed=self.seed,
            device=self.device,
        )
        stop = done.stop
        print(f"{stop}, calibrated on {stop.scenes} scenes, stored in {self.model if self.out is None else self.out}")
        if all(threshold is None for threshold in stop.thresholds):
            print(
                "it never stops early: no threshold keeps the promise on these scenes; more scenes, or a larger gap, may"
            )
        if done.trial is not None:
            print(_said(done.trial, stop.budget))


def _said(trial: Trial, budget: int) -> str:
    n, looks = trial.accuracy.n, trial.looks
    return "\n".join(
        [
            f"tried on {n} others: {looks:.2f} looks of {budget} on average",
            f"  accuracy {_percent(trial.accuracy)}, after all looks {_percent(trial.full)}",
            f"  early stopping costs {_points(trial.cost)} points",
            f"  a fixed number of looks with the same mean: accuracy {100 * trial.fixed:.1f} %",
        ]
    )


def _percent(share: Estimate) -> str:
    value, low, high = (100 * float(part[0]) for part in (share.value, share.low, share.high))
    return f"{value:.1f} % ({low:.1f} to {high:.1f})"


def _points(difference: Estimate) -> str:
    value, low, high = (100 * float(part[0]) + 0.0 for part in (difference.value, difference.low, difference.high))
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


def read(arguments: Sequence[str]) -> Calibrate:
    """The command with its options."""
    return tyro.cli(Calibrate, prog="infogaze calibrate", args=list(arguments))
