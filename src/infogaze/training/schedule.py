"""The learning rate, as a share of the largest: a function of the step, or of how the losses went."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

_PATIENCE = 10


def cycle(step: int, steps: int) -> float:
    """At a step of 0 to steps - 1: a straight rise over the first fifth, then half a cosine to zero."""
    rise = 0.2 * steps
    if step + 1 <= rise:
        return (step + 1) / rise
    return 0.5 * (1.0 + math.cos(math.pi * (step + 1 - rise) / (steps + 1 - rise)))


@dataclass(frozen=True)
class Plateau:
    """Halves when the loss of an epoch has not fallen below its lowest for ten epochs."""

    share: float = 1.0
    lowest: float = math.inf
    waited: int = 0

    def after(self, loss: float) -> Plateau:
        """Where it stands after an epoch with this mean loss."""
        if loss < self.lowest:
            return replace(self, lowest=loss, waited=0)
        if self.waited + 1 < _PATIENCE:
            return replace(self, waited=self.waited + 1)
        return replace(self, share=self.share / 2, waited=0)
