from __future__ import annotations

import pytest
import torch

from infogaze.data.cluttered import cluttered
from infogaze.data.registry import load_set
from infogaze.presets import preset


def test_scenes_are_the_same_by_seed_and_differ_between_seeds() -> None:
    one, again, other = (cluttered(seed, copies=1) for seed in (3, 3, 4))
    assert torch.equal(one.train.images, again.train.images)
    assert torch.equal(one.test.images, again.test.images)
    assert not torch.equal(one.test.images, other.test.images)


def test_the_set_has_the_stated_sizes_and_fits_its_preset() -> None:
    data = load_set("cluttered")
    assert data.train.images.shape == (19_152, 1, 40, 40)
    assert data.test.images.shape == (2400, 1, 40, 40)
    assert set(data.train.labels.tolist()) == set(data.test.labels.tolist()) == set(range(10))
    sizes = preset("cluttered").model
    assert (sizes.channels, sizes.height, sizes.width, sizes.num_classes) == (1, 40, 40, len(data.classes))


def test_a_whole_digit_lies_anywhere_and_distractors_lie_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infogaze.data.cluttered._NOISE", 0.0)
    made = []
    for pieces in (0, 10):
        monkeypatch.setattr("infogaze.data.cluttered._PIECES", pieces)
        made.append(cluttered(copies=1).test.images[:, 0].float())
    alone, among = made
    ink = alone > 60
    tops, lefts = ink.any(2).float().argmax(1), ink.any(1).float().argmax(1)
    assert set(tops.tolist()) >= set(range(2, 27)), "from edge to edge"
    assert set(lefts.tolist()) >= set(range(4, 27))
    heights = ink.any(2).flip(1).float().argmax(1)
    assert float((40 - heights - tops).max()) <= 12, "twelve pixels high at most"
    # Ten pieces of 6x6 beside a digit of 12x12, some of them over each other or under it.
    assert 2.0 < float((among > 60).sum() / ink.sum()) < 5.0


def test_train_and_test_digits_are_different_drawings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infogaze.data.cluttered._NOISE", 0.0)
    monkeypatch.setattr("infogaze.data.cluttered._PIECES", 0)
    data = cluttered(copies=1)

    def drawings(images: torch.Tensor) -> set[bytes]:
        cut = set()
        for image in images[:, 0]:
            rows, cols = (image > 0).any(1).nonzero(), (image > 0).any(0).nonzero()
            cut.add(image[rows[0] : rows[-1] + 1, cols[0] : cols[-1] + 1].numpy().tobytes())
        return cut

    train, test = drawings(data.train.images), drawings(data.test.images)
    assert len(train) == 1197
    assert len(test) == 600, "the four scenes of a drawing hold the same digit"
    assert not train & test
