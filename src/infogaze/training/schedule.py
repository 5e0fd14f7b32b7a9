"""Learning-rate schedules, as factors of the largest rate: a function of the step, or of how the losses went."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

_PATIENCE = 10


def one_cycle(step: int, steps: int) -> float:
    """At a step of 0 to steps - 1: linear warm-up over the first fifth, then half a cosine to zero."""
    warmup = 0.2 * steps
    if step + 1 <= warmup:
        return (step + 1) / warmup
    return 0.5 * (1.0 + math.cos(math.pi * (step + 1 - warmup) / (steps + 1 - warmup)))


@dataclass(frozen=True)
class Plateau:
    """Halves when the loss of an epoch has not fallen below its lowest for ten epochs."""

    factor: float = 1.0
    lowest: float = math.inf
    waited: int = 0

    def after(self, loss: float) -> Plateau:
        """Where it stands after an epoch with this mean loss."""
        if loss < self.lowest:
            return replace(self, lowest=loss, waited=0)
        if self.waited + 1 < _PATIENCE:
            return replace(self, waited=self.waited + 1)
        return replace(self, factor=self.factor / 2, waited=0)
