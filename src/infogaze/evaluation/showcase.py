"""Some scenes in full, for pictures: a few that are the same for every method, then successes and failures picked by rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from infogaze.data.sets import Split
from infogaze.evaluation.measurement import Measurement, OnProgress, Subject
from infogaze.evaluation.rollouts import Rollouts, roll_out
from infogaze.evaluation.store import Record
from infogaze.rng import scene_seeds

COMMON, SUCCESSES, FAILURES = 4, 6, 3


@dataclass(frozen=True, kw_only=True)
class Showcase(Record):
    """What pictures are drawn from: some scenes in full, and the mean image of each class."""

    file: ClassVar[str] = "showcase"

    scenes: Int[Tensor, " s"]
    """Their number in the test split. First the common ones, which are the same for every method; then those picked from what happened."""
    common: Int[Tensor, ""]
    """How many are common."""
    images: UInt8[Tensor, "s C H W"]
    labels: Int[Tensor, " s"]
    locations: Int[Tensor, "s T 2"]
    gains: Float[Tensor, "s T rows cols"]
    """The map that chose each look, in nats; zeros where there was none."""
    probabilities: Float[Tensor, "s T classes"]
    class_means: UInt8[Tensor, "classes C H W"]
    """The mean test image of each class."""


def picked(correct: Bool[Tensor, "N T"]) -> list[int]:
    """The first scenes that are correct at the last look but not at the first, then the first that are wrong at the last."""
    learned = (correct[:, -1] & ~correct[:, 0]).nonzero().flatten()[:SUCCESSES]
    failed = (~correct[:, -1]).nonzero().flatten()[:FAILURES]
    return [*learned.tolist(), *failed.tolist()]


def showcase(subject: Subject, on_progress: OnProgress) -> Showcase:
    """Look once more at the scenes to be shown, with the same outcome, and keep the maps."""
    split = subject.test
    chosen, looked = shown_again(subject)
    return Showcase(
        scenes=chosen,
        common=torch.tensor(min(COMMON, len(split))),
        images=split.images[chosen].cpu(),
        labels=looked.labels,
        locations=looked.locations,
        gains=looked.gains,
        probabilities=looked.probabilities,
        class_means=class_means(split, len(subject.agent.classes)),
    )


def shown_again(subject: Subject, *, imagine: bool = False) -> tuple[Int[Tensor, " s"], Rollouts]:
    """The scenes to be shown, and another look at each of them, with the outcome that it had in the exact pass."""
    split = subject.test
    chosen = torch.tensor([*range(min(COMMON, len(split))), *picked(subject.records.correct)])
    some = Split(split.images[chosen], split.labels[chosen])
    seeds = scene_seeds(subject.seed, len(split))[chosen]
    return chosen, roll_out(subject.agent, some, seed=seeds, batch_size=len(chosen), imagine=imagine)


def class_means(split: Split, num_classes: int) -> Tensor:
    """The mean image of each class, black where a class has none, [classes, C, H, W] uint8."""
    total = torch.zeros(num_classes, *split.images.shape[1:], dtype=torch.float64)
    for first in range(0, len(split), 1000):
        labels = split.labels[first : first + 1000].cpu()
        total.index_add_(0, labels, split.images[first : first + 1000].cpu().double())
    count = split.labels.cpu().bincount(minlength=num_classes).clamp(min=1)
    return (total / count.view(-1, 1, 1, 1)).round().to(torch.uint8)


MEASUREMENT = Measurement(record=Showcase, measure=showcase, lacking="scenes to show")
