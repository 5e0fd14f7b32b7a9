"""Gains corrected by the outcomes of looks.

The features of a location are imagined as D(z), the mean of p(f | z). What D(z) leaves out informs too, more in the middle of a scene than
at its edge, and equation 7 knows nothing of it. In training it is seen how far each look lowered the loss; the gain is fitted to that:

    slope * gain(l) + share_l(h) * H[p(y | h)]

A slope for what is imagined, and for what is not a share of the entropy there is to lose, which a small network reads from the belief.
It begins with slope 1 and equal shares, with which the best location is that of equation 7.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from infogaze.nn.precision import precise

_FIRST_SHARE = -3.0
"""Before the sigmoid."""


class GainCorrection(nn.Module):
    """The correction of a gain map."""

    def __init__(self, belief_size: int, num_locations: int) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.ones(()))
        self.head = location_head(belief_size, num_locations)
        last = self.head.get_submodule("3")
        nn.init.zeros_(last.get_parameter("weight"))
        nn.init.constant_(last.get_parameter("bias"), _FIRST_SHARE)

    def forward(
        self,
        gain: Float[Tensor, "*batch L"],
        hidden: Float[Tensor, "*batch h"],
        entropy: Float[Tensor, "*batch"],
    ) -> Float[Tensor, "*batch L"]:
        """The whole map, in nats."""
        return self.slope * gain + self._not_imagined(hidden, entropy)

    def at(
        self,
        places: Int[Tensor, "*batch"],
        *,
        gain: Float[Tensor, "*batch"],
        hidden: Float[Tensor, "*batch h"],
        entropy: Float[Tensor, "*batch"],
    ) -> Float[Tensor, "*batch"]:
        """One location of each map, given by its index on the grid, in nats."""
        return self.slope * gain + self._not_imagined(hidden, entropy).gather(-1, places[..., None]).squeeze(-1)

    def _not_imagined(self, hidden: Tensor, entropy: Tensor) -> Tensor:
        return entropy[..., None] * torch.sigmoid(precise(self.head(hidden)))


def location_head(belief_size: int, num_locations: int) -> nn.Sequential:
    """A small network from the belief to one number a location; its sigmoid is a share."""
    return nn.Sequential(
        nn.Linear(belief_size, belief_size),
        nn.LeakyReLU(),
        nn.LayerNorm(belief_size),
        nn.Linear(belief_size, num_locations),
    )
