"""A labelled image set as tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from infogaze.errors import InfogazeError

NO_LABEL = -1
"""Stands where a training image has no label."""


@dataclass(frozen=True)
class Split:
    """Images and their labels."""

    images: UInt8[Tensor, "N C H W"]
    labels: Int[Tensor, " N"]
    """`NO_LABEL` where an image has none, which only training images may."""

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device | str) -> Split:
        """The same split on a device."""
        return Split(self.images.to(device), self.labels.to(device))


def keep_labels(split: Split, count: int, *, seed: int) -> Split:
    """The split with the labels of so many images, as many of each class as can be, drawn by the seed; all others have none."""
    if not 1 <= count <= len(split):
        raise InfogazeError(
            f"num_labels is {count}; it must be from 1 to the {len(split)} images of the training split"
        )
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(seed))
    drawn = split.labels[order]
    # How many of its class were drawn before: the first of each class, then the second of each, and so on.
    turn = torch.zeros_like(drawn)
    for label in drawn.unique():
        turn[drawn == label] = torch.arange(int((drawn == label).sum()))
    kept = order[turn.argsort(stable=True)[:count]]
    labels = torch.full_like(split.labels, NO_LABEL)
    labels[kept] = split.labels[kept]
    return Split(split.images, labels)


@dataclass(frozen=True)
class ImageSet:
    """A training and a test split over the same classes."""

    train: Split
    test: Split
    classes: tuple[str, ...]
