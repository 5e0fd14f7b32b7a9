"""Predictions by class: which class is taken for which, and the accuracy that counts every class alike."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from sklearn.metrics import confusion_matrix
from torch import Tensor


def confusion(
    labels: Int[Tensor, " N"], predictions: Int[Tensor, " N"], num_classes: int
) -> Int[Tensor, "classes classes"]:
    """How many scenes of each true class (row) were predicted to be each class (column)."""
    for values in (labels, predictions):
        if bool(((values < 0) | (values >= num_classes)).any()):
            raise ValueError(f"classes {int(values.min())} to {int(values.max())}; 0 to {num_classes - 1} are allowed")
    return torch.from_numpy(
        confusion_matrix(labels.numpy(), predictions.numpy(), labels=list(range(num_classes)))
    ).long()


def balanced_accuracy(labels: Int[Tensor, " N"], predictions: Int[Tensor, "N T"]) -> Float[Tensor, " T"]:
    """The recall of each class, averaged over the classes that occur: common ones count no more than rare ones."""
    num_classes = int(max(labels.max(), predictions.max())) + 1
    tables = torch.stack([confusion(labels, look, num_classes) for look in predictions.unbind(1)]).double()
    count = tables.sum(2)  # [T, classes]
    recall = tables.diagonal(dim1=1, dim2=2) / count.clamp(min=1)
    return recall.sum(1) / (count > 0).sum(1)
