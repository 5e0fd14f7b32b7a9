from __future__ import annotations

import pytest
import torch
from sklearn.metrics import confusion_matrix

from infogaze.evaluation.confusion import confusion


def test_rows_are_true_and_columns_are_named() -> None:
    counts = confusion(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 2, 2, 2]), 3)
    assert counts.tolist() == [[1, 0, 1], [0, 0, 1], [0, 0, 1]]


def test_the_confusion_matrix_is_sklearns() -> None:
    generator = torch.Generator().manual_seed(0)
    labels, named = torch.randint(0, 6, (2, 500), generator=generator)
    theirs = torch.from_numpy(confusion_matrix(labels, named, labels=range(7)))  # the last class does not occur
    assert torch.equal(confusion(labels, named, 7), theirs)


def test_a_class_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="classes 0 to 3; 0 to 2 are allowed"):
        confusion(torch.tensor([0, 0]), torch.tensor([0, 3]), 3)
