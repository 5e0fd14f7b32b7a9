"""Pixels as the networks take them."""

from __future__ import annotations

import torch
from jaxtyping import Float, Num
from torch import Tensor


def normalise_pixels(values: Num[Tensor, "*batch"], dtype: torch.dtype | None = None) -> Float[Tensor, "*batch"]:
    """Pixels in [-1, 1], from uint8 or from float in [0, 1]; of their own type, or the default one, unless another is asked for."""
    if values.dtype == torch.uint8:
        return values.to(torch.get_default_dtype() if dtype is None else dtype) / 127.5 - 1.0
    return (values if dtype is None else values.to(dtype)) * 2.0 - 1.0
