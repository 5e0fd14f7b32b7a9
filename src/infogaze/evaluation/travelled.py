"""Accuracy against time, with a sensor that has to get to where it looks: looks by gain a second, by gain alone, and at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infogaze.evaluation.measurement import Measurement, OnProgress, Subject, first_scenes
from infogaze.evaluation.rollouts import episodes
from infogaze.evaluation.store import Record
from infogaze.gaze.agent import Agent
from infogaze.gaze.policies import RandomPolicy
from infogaze.gaze.travel import Stage, Travel
from infogaze.grid import GlimpseGrid

POLICIES = ("gain a second", "gain alone", "random")
"""How looks after the first are chosen, all by one network and from the same first looks; a method without a map of gains has one way to
choose, which stands as the first two."""
EXPOSURE, SETTLE, CROSSING = 1.0, 0.5, 4.0
"""The clock, in seconds: of a look, of settling after a move, and of the way across the longer side of a scene."""
_TIMES = 25


@dataclass(frozen=True, kw_only=True)
class Travelled(Record):
    """Predictions at some times, over the first scenes of the test split."""

    file: ClassVar[str] = "travel"

    labels: Int[Tensor, " n"]
    seconds: Float[Tensor, " times"]
    """From the end of the first look, which begins where the sensor is, on."""
    predictions: Int[Tensor, "policies n times"]
    """By the looks that had ended at each time."""
    looks: Int[Tensor, "policies n"]
    """How many there were in all the time."""
    clock: Float[Tensor, 3]
    """Seconds of a look, of settling, and of the way across the longer side."""


def stage_for(grid: GlimpseGrid) -> Stage:
    """The stage of the clock, for scenes of this size."""
    return Stage(speed=max(grid.height - grid.glimpse_size, grid.width - grid.glimpse_size) / CROSSING, settle=SETTLE)


def time_of_random_looks(travel: Travel, grid: GlimpseGrid, *, num_looks: int) -> float:
    """What so many looks at random take on average, the first where the sensor is."""
    places = grid.locations()
    seconds = travel.seconds(places, places.expand(len(places), -1, 2), grid=grid)
    others = ~torch.eye(len(places), dtype=torch.bool)
    return travel.exposure + (num_looks - 1) * float(seconds[others].mean())


def travelled(subject: Subject, on_progress: OnProgress) -> Travelled:
    """Look for as long as the budget of looks takes at random on average, by each policy."""
    agent, grid = subject.agent, subject.agent.model.grid
    weighed = Travel(way=stage_for(grid), exposure=EXPOSURE)
    counted = Travel(way=stage_for(grid), exposure=EXPOSURE, weighed=False)
    end = time_of_random_looks(weighed, grid, num_looks=max(2, agent.num_looks))
    times = torch.linspace(EXPOSURE, end, _TIMES, dtype=torch.float64)

    def looked(looker: Agent, travel: Travel) -> tuple[Tensor, Tensor]:
        parts = []
        for labels, episode in episodes(
            looker, subject.some, seed=subject.seed, batch_size=subject.batch_size, travel=travel, seconds=end
        ):
            taken = [look.seconds for look in episode.history if look.seconds is not None]
            ended = torch.stack(taken, 1)[:, :, None] <= times.to(taken[0].device) * (1 + 1e-9)  # [B, T, times]
            answers = torch.stack([look.probabilities.argmax(1) for look in episode.history], 1)  # [B, T]
            parts.append((answers.gather(1, ended.sum(1) - 1).cpu(), episode.looks_taken.cpu()))
            on_progress(len(labels))
        predictions, looks = zip(*parts, strict=True)
        return torch.cat(predictions), torch.cat(looks)

    passes = (looked(agent, weighed), looked(agent, counted), looked(agent.with_policy(RandomPolicy()), counted))
    predictions, looks = (torch.stack(values) for values in zip(*passes, strict=True))
    clock = torch.tensor([EXPOSURE, SETTLE, CROSSING], dtype=torch.float64)
    return Travelled(labels=subject.some.labels.cpu(), seconds=times, predictions=predictions, looks=looks, clock=clock)


MEASUREMENT = Measurement(
    record=Travelled,
    measure=travelled,
    lacking="looks that take time",
    work=lambda subject: len(POLICIES) * len(subject.some),
    source=first_scenes,
)
