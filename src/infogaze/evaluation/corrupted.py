"""Looks at scenes, or by a sensor, with something wrong (see `infogaze.evaluation.corruptions`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infogaze.data.sets import Split
from infogaze.evaluation.corruptions import CORRUPTIONS, Corruption
from infogaze.evaluation.measurement import Measurement, OnProgress, Subject, first_scenes
from infogaze.evaluation.rollouts import roll_out
from infogaze.evaluation.store import Record
from infogaze.rng import scene_seeds

PASSES = 1 + sum(len(kind.severities) - 1 for kind in CORRUPTIONS.values())
"""How many times every scene is looked at."""


@dataclass(frozen=True)
class Corrupted(Record):
    """Predictions under each corruption, over the first scenes of the test split."""

    file: ClassVar[str] = "corruptions"

    labels: Int[Tensor, " n"]
    severities: Float[Tensor, "kinds levels"]
    """How strong each corruption is, in the unit of its kind (see `infogaze.evaluation.corruptions`); the first level is always none."""
    predictions: Int[Tensor, "kinds levels n T"]


def corrupted(subject: Subject, on_progress: OnProgress) -> Corrupted:
    """Look under each corruption; the first severity of each is none, and is looked at once."""
    some, seeds = subject.some, scene_seeds(subject.seed, len(subject.some))

    def predictions(kind: Corruption, severity: float) -> Tensor:
        looked = roll_out(
            subject.agent,
            Split(kind.apply(some.images, severity, seeds), some.labels),
            seed=subject.seed,
            batch_size=subject.batch_size,
            sensor_of=kind.sensor(severity),
            on_progress=on_progress,
        )
        return looked.predictions  # [n, T]

    clean = predictions(next(iter(CORRUPTIONS.values())), 0.0)
    kinds = []
    for kind in CORRUPTIONS.values():
        levels = [predictions(kind, severity) for severity in kind.severities[1:]]
        kinds.append(torch.stack([clean, *levels]))
    severities = torch.tensor([kind.severities for kind in CORRUPTIONS.values()])
    return Corrupted(some.labels.cpu(), severities, torch.stack(kinds))


MEASUREMENT = Measurement(
    record=Corrupted,
    measure=corrupted,
    lacking="looks at corrupted scenes",
    work=lambda subject: PASSES * len(subject.some),
    source=lambda subject: f"{first_scenes(subject)}, {len(CORRUPTIONS)} corruptions",
)
