"""Many more looks than trained for, up to every location of the grid (the paper's appendix: T = 49)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Int
from torch import Tensor

from infogaze.evaluation.measurement import Measurement, OnProgress, Subject, first_scenes
from infogaze.evaluation.rollouts import roll_out
from infogaze.evaluation.store import Record


@dataclass(frozen=True)
class ManyLooks(Record):
    """Predictions after each look, over the first scenes of the test split."""

    file: ClassVar[str] = "many-looks"

    labels: Int[Tensor, " n"]
    predictions: Int[Tensor, "n L"]


def many_looks(subject: Subject, on_progress: OnProgress) -> ManyLooks:
    """Look at ever more locations."""
    looked = roll_out(
        subject.agent,
        subject.some,
        seed=subject.seed,
        budget=subject.agent.model.grid.num_locations,
        batch_size=subject.batch_size,
        on_progress=on_progress,
    )
    return ManyLooks(looked.labels, looked.predictions)


MEASUREMENT = Measurement(
    record=ManyLooks,
    measure=many_looks,
    lacking="many more looks",
    work=lambda subject: len(subject.some),
    source=first_scenes,
)
