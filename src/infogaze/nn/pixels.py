"""Pixels as the networks take them."""

from __future__ import annotations

import torch
from jaxtyping import Float, Num
from torch import Tensor


def to_pixels(values: Num[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Pixels as the networks take them, in [-1, 1], from uint8 or from float in [0, 1]."""
    if values.dtype == torch.uint8:
        return values / 127.5 - 1.0
    return values * 2.0 - 1.0
