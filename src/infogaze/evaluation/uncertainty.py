"""How undecided the classifier is."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def class_entropy(log_probabilities: Float[Tensor, "N T classes"]) -> Float[Tensor, "N T"]:
    """The entropy of the class distribution after each look, in nats."""
    return torch.special.entr(log_probabilities.exp()).sum(-1)
