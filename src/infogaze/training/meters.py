"""Meters: what training tells of its steps, summed on the device and read now and then, because reading waits for it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, distributed

from infogaze.nn.gain import entropy
from infogaze.nn.precision import precise
from infogaze.training.distributed import world_size


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What the meters said."""

    loss: float = 0.0
    """Mean over the steps that were not skipped."""
    accuracy: tuple[float, ...] = ()
    """Likewise, at each look."""
    steps: int = 0
    """How many these are."""
    skipped: int = 0
    """Steps whose loss or gradient was not finite."""
    skipped_in_a_row: int = 0
    """Up to now."""
    visit_entropy: tuple[float, ...] = ()
    """Of the grid locations that the looks fell on, at each look, in nats: 0 where all fell on one; empty where nothing is looked at."""


class Meters:
    """Sums since they were last read, and how many steps in a row were skipped."""

    def __init__(self, *, num_readings: int, num_looks: int, num_locations: int, device: torch.device) -> None:
        shapes = {
            "loss": (),
            "accuracy": (num_readings,),
            "visits": (num_looks, num_locations),
            "steps": (),
            "skipped": (),
            "skipped_in_a_row": (),
        }
        self.values = {name: torch.zeros(shape, device=device) for name, shape in shapes.items()}

    @torch.no_grad()
    def add(
        self,
        *,
        loss: Float[Tensor, ""],
        accuracy: Float[Tensor, " T"],
        visits: Float[Tensor, "T L"],
        skipped: Bool[Tensor, ""],
    ) -> None:
        """Count a step; of one that was skipped, nothing but that it was."""
        sums = self.values
        sums["loss"] += torch.where(skipped, 0.0, precise(loss))
        sums["accuracy"] += torch.where(skipped, 0.0, accuracy)
        sums["visits"] += torch.where(skipped, 0.0, visits)
        sums["steps"] += (~skipped).float()
        sums["skipped"] += skipped
        sums["skipped_in_a_row"].copy_(torch.where(skipped, sums["skipped_in_a_row"] + 1, 0.0))

    def read(self) -> Reading:
        """The means since the last reading and the counts of skipped steps; the sums begin anew. Waits for the device."""
        if world_size() > 1:
            for name in ("loss", "accuracy", "visits"):
                distributed.all_reduce(self.values[name])
                self.values[name] /= world_size()
        sums = {name: value.flatten().tolist() for name, value in self.values.items() if name != "visits"}
        counts = self.values["visits"].double()
        spread = entropy(counts / counts.sum(1, keepdim=True)) if bool(counts.any()) else counts[:0, 0]
        finite = max(sums["steps"][0], 1.0)
        for name in ("loss", "accuracy", "visits", "steps", "skipped"):
            self.values[name].zero_()
        return Reading(
            loss=sums["loss"][0] / finite,
            accuracy=tuple(value / finite for value in sums["accuracy"]),
            steps=round(sums["steps"][0]),
            skipped=round(sums["skipped"][0]),
            skipped_in_a_row=round(sums["skipped_in_a_row"][0]),
            visit_entropy=tuple(spread.tolist()),
        )
