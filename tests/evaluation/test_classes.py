from __future__ import annotations

import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, confusion_matrix

from infogaze.evaluation.classes import balanced_accuracy, confusion


def test_rows_are_true_and_columns_are_predicted() -> None:
    counts = confusion(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 2, 2, 2]), 3)
    assert counts.tolist() == [[1, 0, 1], [0, 0, 1], [0, 0, 1]]


def test_the_confusion_matrix_is_sklearns() -> None:
    generator = torch.Generator().manual_seed(0)
    labels, predictions = torch.randint(0, 6, (2, 500), generator=generator)
    theirs = torch.from_numpy(confusion_matrix(labels, predictions, labels=range(7)))  # the last class does not occur
    assert torch.equal(confusion(labels, predictions, 7), theirs)


def test_a_class_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="classes 0 to 3; 0 to 2 are allowed"):
        confusion(torch.tensor([0, 0]), torch.tensor([0, 3]), 3)


def test_balanced_accuracy_gives_a_rare_class_the_weight_of_a_common_one() -> None:
    labels = torch.tensor([0] * 8 + [3] * 2)  # 8 of 8 against 1 of 2: 3/4, whatever the share of all scenes
    predictions = torch.tensor([0] * 8 + [3, 0])[:, None]
    assert balanced_accuracy(labels, predictions).tolist() == [0.75]


def test_balanced_accuracy_is_sklearns() -> None:
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(0, 5, (60,), generator=generator).square()  # classes with gaps: 0, 1, 4, 9, 16
    predictions = torch.where(torch.rand(60, 4, generator=generator) < 0.6, labels[:, None], labels[0])
    assert balanced_accuracy(labels, predictions).tolist() == pytest.approx(
        [balanced_accuracy_score(labels, look) for look in predictions.unbind(1)]
    )
