"""What the number of imagined scenes P buys: looks with few and with many, and the time they take."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infogaze.data.sets import Split
from infogaze.evaluation.exact_pass import expected_of_looks
from infogaze.evaluation.measurement import Measurement, OnProgress, Subject, first_scenes
from infogaze.evaluation.rollouts import roll_out
from infogaze.evaluation.store import Record

COUNTS = (1, 2, 5, 10, 20, 50)


@dataclass(frozen=True, kw_only=True)
class SampleCounts(Record):
    """Looks with each P, over the first scenes of the test split."""

    file: ClassVar[str] = "sample-counts"

    num_samples: Int[Tensor, " S"]
    """The numbers P that were tried."""
    labels: Int[Tensor, " n"]
    predictions: Int[Tensor, "S n T"]
    log_probabilities: Float[Tensor, "S n T classes"]
    expected: Float[Tensor, "S n T"]
    """As in `Records`."""
    seconds: Float[Tensor, " S"]
    """How long the looks at all n scenes took."""


def sample_counts(subject: Subject, on_progress: OnProgress) -> SampleCounts:
    """The same scenes and first looks with each P."""
    agent, some, batch_size = subject.agent, subject.some, subject.batch_size
    predictions, log_probabilities, expected, seconds = [], [], [], []
    warm_up = Split(some.images[:batch_size], some.labels[:batch_size])
    roll_out(agent.with_policy(subject.method.policy(COUNTS[0])), warm_up, seed=subject.seed, batch_size=batch_size)
    for count in COUNTS:
        began = time.perf_counter()
        looked = roll_out(
            agent.with_policy(subject.method.policy(count)),
            some,
            seed=subject.seed,
            batch_size=batch_size,
            on_progress=on_progress,
        )
        seconds.append(time.perf_counter() - began)
        predictions.append(looked.predictions)
        log_probabilities.append(looked.log_probabilities)
        expected.append(expected_of_looks(looked, agent.model.grid))
    return SampleCounts(
        num_samples=torch.tensor(COUNTS),
        labels=looked.labels,
        predictions=torch.stack(predictions),
        log_probabilities=torch.stack(log_probabilities),
        expected=torch.stack(expected),
        seconds=torch.tensor(seconds),
    )


MEASUREMENT = Measurement(
    record=SampleCounts,
    measure=sample_counts,
    lacking="looks with several numbers of imagined scenes",
    applies=lambda method: method.imagines,
    work=lambda subject: len(COUNTS) * len(subject.some),
    source=first_scenes,
)
