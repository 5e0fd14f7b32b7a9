"""C: the belief to the class probabilities, one linear layer (equation 1, table 1); its dropout belongs to training, see `phases.py`."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from infogaze.nn.precision import precise


class Classifier(nn.Module):
    """p(y | h), as log-probabilities."""

    def __init__(self, belief_size: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(belief_size, classes)

    def forward(self, hidden: Float[Tensor, "*batch h"]) -> Float[Tensor, "*batch classes"]:
        """log p(y | h)."""
        if hidden.device.type != "cpu" or torch.compiler.is_compiling():
            return functional.log_softmax(precise(self.linear(hidden)), dim=-1)
        # The CPU takes many beliefs several times as fast where the few classes come first.
        linear, rows = self.linear, hidden.reshape(-1, hidden.shape[-1])
        logits = torch.addmm(linear.bias[:, None], linear.weight, rows.mT)
        return functional.log_softmax(precise(logits), dim=0).mT.view(*hidden.shape[:-1], len(logits))
