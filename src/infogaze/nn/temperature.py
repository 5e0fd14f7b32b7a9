"""Stated probabilities sharpened or softened by one number, a temperature: above 1 they are nearer to each other, and the order stays."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from infogaze.nn.precision import precise


def tempered(
    log_probabilities: Float[Tensor, "*batch classes"], temperature: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch classes"]:
    """log of p^(1 / temperature), normalised."""
    return (precise(log_probabilities) / temperature[..., None]).log_softmax(-1)
