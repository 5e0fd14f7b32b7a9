"""Which class is taken for which."""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor


def confusion(labels: Int[Tensor, " N"], named: Int[Tensor, " N"], classes: int) -> Int[Tensor, "classes classes"]:
    """How many scenes of each true class (row) were named each class (column)."""
    for values in (labels, named):
        if bool(((values < 0) | (values >= classes)).any()):
            raise ValueError(f"classes {int(values.min())} to {int(values.max())}; 0 to {classes - 1} are allowed")
    return (labels * classes + named).bincount(minlength=classes**2).view(classes, classes)
