"""The exponential moving average (EMA) of a model's weights and running statistics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn


class EMA:
    """The average, which follows the model after each step. A decay of 0 keeps none: the model's own weights stand for it."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._model, self._decay = model, decay
        kept = floats(model) if decay else {}
        self.values = {name: value.detach().clone() for name, value in kept.items()}
        """By the names of the model's state."""
        self.steps = torch.zeros((), device=next(model.parameters()).device)
        """How many it is over."""

    @torch.no_grad()
    def update(self, good: Float[Tensor, ""]) -> None:
        """Take in the weights after a step; not where `good` is 0, since then the step was skipped."""
        if not self.values:
            return
        current, averages = floats(self._model), list(self.values.values())
        change = torch._foreach_sub([current[name] for name in self.values], averages)
        # Over few steps a long average would be mostly of the weights it began with, so it begins short.
        decay = torch.clamp((1.0 + self.steps) / (10.0 + self.steps), max=self._decay)
        torch._foreach_mul_(change, (1.0 - decay) * good)
        torch._foreach_add_(averages, change)
        self.steps += good

    @torch.no_grad()
    def copy_to_model(self) -> None:
        """Give the model the averaged weights."""
        for name, value in floats(self._model).items():
            if name in self.values:
                value.copy_(self.values[name])

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within the block the model has the averaged weights."""
        own = {name: value.clone() for name, value in floats(self._model).items() if name in self.values}
        self.copy_to_model()
        try:
            yield
        finally:
            with torch.no_grad():
                for name, value in floats(self._model).items():
                    if name in own:
                        value.copy_(own[name])


def floats(model: nn.Module) -> dict[str, Tensor]:
    """Weights and running statistics; counts are left out."""
    return {name: value for name, value in model.state_dict().items() if value.is_floating_point()}
