"""Looks that were chosen twice, in batches of different sizes or by different programs."""

from __future__ import annotations

import torch
from torch import Tensor


def looked_alike(one: Tensor, other: Tensor) -> Tensor:
    """Which scenes were looked at in the same locations, [N] from two of [N, T, 2]; all but one in ten must be.

    Of two locations that are all but equally good, another batch, or another processor, may round the other to be the better one.
    """
    alike = (one == other).flatten(1).all(1)
    assert int((~alike).sum()) <= max(1, len(alike) // 10), (one[~alike], other[~alike])
    assert bool((one[:, 0] == other[:, 0]).all()), "the first look is at random, which no rounding changes"
    return alike.to(torch.bool)
