from __future__ import annotations

import pytest
import torch
from torch import Tensor

from infogaze.data.digits import digits


def test_digits_are_the_same_by_seed_and_differ_between_seeds() -> None:
    one, again, other = digits(3), digits(3), digits(4)
    assert torch.equal(one.train.images, again.train.images)
    assert torch.equal(one.test.images, again.test.images)
    assert not torch.equal(one.test.images, other.test.images)


def test_digits_have_the_stated_sizes() -> None:
    data = digits(copies=2)
    assert data.train.images.shape == (2 * 1197, 1, 32, 32)
    assert data.test.images.shape == (600, 1, 32, 32)
    assert data.train.images.dtype == torch.uint8
    assert set(data.train.labels.tolist()) == set(data.test.labels.tolist()) == set(range(10))


def drawings(images: Tensor) -> set[bytes]:
    """Each image cut down to its ink: what is left when the shift is undone, where there is no noise."""
    cut = set()
    for image in images[:, 0]:
        rows, cols = (image > 0).any(1).nonzero(), (image > 0).any(0).nonzero()
        cut.add(image[rows[0] : rows[-1] + 1, cols[0] : cols[-1] + 1].numpy().tobytes())
    return cut


def test_train_and_test_are_made_from_different_drawings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infogaze.data.digits._NOISE", 0.0)
    data = digits(copies=2)
    train, test = drawings(data.train.images), drawings(data.test.images)
    assert len(train) == 1197, "both renderings of a drawing are recognised as one"
    assert len(test) == 600
    assert not train & test


def test_digits_fill_most_of_the_canvas_and_are_shifted() -> None:
    images = digits(copies=1).test.images[:, 0].float()
    ink = images > 100
    heights = ink.any(2).sum(1).float()
    assert heights.median() > 22
    assert ink.any(2).float().argmax(1).unique().numel() > 2
