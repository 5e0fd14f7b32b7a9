from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from infogaze.evaluation.uncertainty import class_entropy


def test_entropy_is_log_of_the_classes_where_all_are_as_likely_and_zero_where_one_is_certain() -> None:
    probabilities = torch.tensor([[[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]])
    assert class_entropy(probabilities.log())[0].tolist() == pytest.approx([math.log(4), math.log(2), 0.0])


def test_entropy_is_scipys() -> None:
    log_probabilities = torch.randn(6, 3, 5, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    expected = torch.from_numpy(stats.entropy(log_probabilities.exp().numpy(), axis=-1))
    torch.testing.assert_close(class_entropy(log_probabilities), expected)
