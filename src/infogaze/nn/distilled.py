"""A gain map that is read from the belief in one pass, once a small network has learned what a slower gain says of beliefs like it."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from infogaze.nn.precision import precise

_FIRST_SHARE = -3.0
"""Before the softplus."""


class DistilledGain(nn.Module):
    """For each location a share of the entropy there is to lose. Nothing is imagined, and nothing is random."""

    def __init__(self, belief_size: int, num_locations: int) -> None:
        super().__init__()
        self.head = nn.Sequential(
            nn.Linear(belief_size, belief_size),
            nn.GELU(),
            nn.LayerNorm(belief_size),
            nn.Linear(belief_size, belief_size),
            nn.GELU(),
            nn.LayerNorm(belief_size),
            nn.Linear(belief_size, num_locations),
        )

    def forward(self, hidden: Float[Tensor, "*batch h"], entropy: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch L"]:
        """The whole map, in nats; `entropy` is that of p(y | h)."""
        return entropy[..., None] * functional.softplus(precise(self.head(hidden)) + _FIRST_SHARE)
