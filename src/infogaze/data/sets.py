"""A labelled image set as tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int, UInt8
from torch import Tensor


@dataclass(frozen=True)
class Split:
    """Images and their labels."""

    images: UInt8[Tensor, "N C H W"]
    labels: Int[Tensor, " N"]

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device | str) -> Split:
        """The same split on a device."""
        return Split(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True)
class ImageSet:
    """A training and a test split over the same classes."""

    train: Split
    test: Split
    classes: tuple[str, ...]
