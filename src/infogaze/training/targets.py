"""What the scenes of a batch are taught: their labels; mixed, where two scenes are (mixup: Zhang et al., 2018); and softened by a teacher
that sees the scene whole (Hinton et al., 2015)."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from infogaze.data.sets import NO_LABEL

_QUANTILES = 1024


@runtime_checkable
class Teacher(Protocol):
    """What says of whole scenes how likely each class is."""

    def __call__(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B classes"]:
        """log p(y | image), pixels in [-1, 1]."""
        ...


def mixing_quantiles(concentration: float) -> Float[Tensor, " quantiles"]:
    """The larger share of two scenes that are mixed by Beta(concentration, concentration), as a table to draw from."""
    from scipy.stats import beta  # takes long to import, and a program that only looks does without

    levels = (torch.arange(_QUANTILES, dtype=torch.float64) + 0.5) / _QUANTILES
    share = torch.from_numpy(beta(concentration, concentration).ppf(levels.numpy())).float()
    return share.maximum(1.0 - share)


def partners(labels: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
    """With which scene each is mixed: its neighbour in a shuffled batch, or itself where one of the two has no label."""
    own = torch.arange(len(labels), device=labels.device)
    other = (own ^ 1).clamp(max=len(labels) - 1)
    return torch.where((labels != NO_LABEL) & (labels[other] != NO_LABEL), other, own)


def mixed(
    values: Float[Tensor, "B ..."], share: Float[Tensor, " B"], partner: Int[Tensor, " B"]
) -> Float[Tensor, "B ..."]:
    """Each scene's values with a share of its own, and the rest of its partner's."""
    own = share.view(-1, *[1] * (values.dim() - 1))
    return own * values + (1.0 - own) * values[partner]


def label_targets(labels: Int[Tensor, " B"], classes: int) -> Float[Tensor, "B classes"]:
    """The labels as distributions; zeros where a scene has none."""
    return functional.one_hot(labels.clamp(min=0), classes) * (labels != NO_LABEL)[:, None].to(torch.float32)


def softened(
    targets: Float[Tensor, "B classes"],
    taught: Float[Tensor, "B classes"],
    *,
    weight: float,
    temperature: float,
) -> Float[Tensor, "B classes"]:
    """With so much weight what the teacher says, at this temperature; of a scene without a label, that alone."""
    said = (taught / temperature).softmax(-1)
    known = targets.sum(-1, keepdim=True)
    return (1.0 - weight * known) * targets + (1.0 - (1.0 - weight) * known) * said
