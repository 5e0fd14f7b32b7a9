"""At least float32: what is summed over many elements, or compared, is not left in the half precision that networks may compute in."""

from __future__ import annotations

import torch
from torch import Tensor


def precise(values: Tensor) -> Tensor:
    """The same values in float32, or in float64 where they are."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
