"""One exact pass over the test split: every image once, by the method's own policy. A method that sees all has one look, at all of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infogaze.data.sets import Split
from infogaze.evaluation.measurement import Measurement, OnProgress, Subject
from infogaze.evaluation.rollouts import LEAST, Rollouts, roll_out
from infogaze.evaluation.store import Record
from infogaze.gaze.agent import Agent
from infogaze.grid import GlimpseGrid
from infogaze.nn.belief import Belief
from infogaze.nn.pixels import normalise_pixels


@dataclass(frozen=True, kw_only=True)
class Records(Record):
    """What every scene of the test split came to."""

    file: ClassVar[str] = "records"

    labels: Int[Tensor, " N"]
    """The true ones."""
    locations: Int[Tensor, "N T 2"]
    """Row and column of each look's top-left pixel."""
    predictions: Int[Tensor, "N T"]
    """The most likely label after each look."""
    log_probabilities: Float[Tensor, "N T classes"]
    """After each look, in nats."""
    expected: Float[Tensor, "N T"]
    """The gain that the policy expected of each look, in nats; zero where it had no map (at the first look always)."""

    @property
    def correct(self) -> Tensor:
        """Whether the prediction is the true label, [N, T] bool."""
        return self.predictions == self.labels[:, None]


def exact_pass(subject: Subject, on_progress: OnProgress = lambda scenes: None) -> Records:
    """The records of the test split. First looks depend on the seed and the scene alone: they are the same for all methods."""
    if subject.method.sees == "everything":
        return _seen_whole(subject.agent, subject.test, batch_size=subject.batch_size, on_progress=on_progress)
    looked = roll_out(
        subject.agent, subject.test, seed=subject.seed, batch_size=subject.batch_size, on_progress=on_progress
    )
    return Records(
        labels=looked.labels,
        locations=looked.locations,
        predictions=looked.predictions,
        log_probabilities=looked.log_probabilities,
        expected=expected_of_looks(looked, subject.agent.model.grid),
    )


def expected_of_looks(looked: Rollouts, grid: GlimpseGrid) -> Float[Tensor, "N T"]:
    """What the map that chose each look said of it, in nats."""
    return looked.gains.flatten(2).gather(2, grid.nearest(looked.locations)[..., None]).squeeze(2)


def classified_whole(agent: Agent, pixels: Float[Tensor, "B C H W"]) -> Float[Tensor, "B classes"]:
    """log p(y) of a network that sees all, given pixels in [-1, 1]."""
    picture = Belief(pixels.flatten(1), pixels.new_zeros(len(pixels), 0))
    return agent.model.backbone.classify(picture)


@torch.no_grad()
def _seen_whole(agent: Agent, split: Split, *, batch_size: int, on_progress: OnProgress) -> Records:
    labels: list[Int[Tensor, " B"]] = []
    outputs: list[Float[Tensor, "B 1 classes"]] = []
    for first in range(0, len(split), batch_size):
        images = split.images[first : first + batch_size].to(agent.model.device)
        output = classified_whole(agent, normalise_pixels(images))
        if agent.flip_tta:
            flipped = classified_whole(agent, normalise_pixels(images).flip(-1))
            output = torch.logaddexp(output, flipped) - math.log(2.0)
        outputs.append(output[:, None].cpu())
        labels.append(split.labels[first : first + batch_size].cpu())
        on_progress(len(images))
    log_probabilities = torch.cat(outputs).clamp(min=LEAST)
    predictions = log_probabilities.argmax(-1)
    return Records(
        labels=torch.cat(labels),
        locations=torch.zeros(len(log_probabilities), 1, 2, dtype=torch.int64),
        predictions=predictions,
        log_probabilities=log_probabilities,
        expected=torch.zeros(predictions.shape),
    )


MEASUREMENT = Measurement(
    record=Records,
    measure=exact_pass,
    lacking="the exact pass over the test split",
    applies=lambda method: True,
    work=lambda subject: len(subject.test),
)
