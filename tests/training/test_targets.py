from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from infogaze.data.sets import NO_LABEL
from infogaze.training.targets import label_targets, mixed, mixing_quantiles, partners, softened

LABELS = torch.tensor([0, 2, 1, 1, NO_LABEL, 0, 2])


def distributions(count: int, classes: int = 3) -> Tensor:
    return torch.randn(count, classes, generator=torch.Generator().manual_seed(0)).log_softmax(-1)


@pytest.mark.parametrize("concentration", [0.2, 1.0, 4.0])
def test_shares_are_the_larger_of_a_beta_distribution(concentration: float) -> None:
    table = mixing_quantiles(concentration)
    sample = torch.from_numpy(np.random.default_rng(0).beta(concentration, concentration, 100_000))
    larger = sample.maximum(1 - sample)
    for level in (0.1, 0.5, 0.9):
        assert float(table.double().quantile(level)) == pytest.approx(float(larger.quantile(level)), abs=0.01)
    assert float(table.amin()) >= 0.5
    assert float(table.amax()) <= 1.0


def test_a_scene_is_mixed_with_its_neighbour_and_none_without_a_label_is() -> None:
    partner = partners(LABELS)
    assert partner.tolist() == [1, 0, 3, 2, 4, 5, 6], (
        "the last has no neighbour, and one of the pair before has no label"
    )


def test_pixels_and_labels_are_mixed_by_the_same_shares() -> None:
    images = torch.rand(4, 2, 3, 3, generator=torch.Generator().manual_seed(0))
    share, partner = torch.tensor([0.9, 0.5, 1.0, 0.7]), torch.tensor([1, 0, 3, 2])
    targets = mixed(label_targets(LABELS[:4], 3), share, partner)
    torch.testing.assert_close(targets, torch.tensor([[0.9, 0, 0.1], [0.5, 0, 0.5], [0, 1, 0], [0, 1, 0]]))
    found = mixed(images, share, partner)
    torch.testing.assert_close(found[0], 0.9 * images[0] + 0.1 * images[1])
    torch.testing.assert_close(found[2], images[2])


def test_a_label_is_certain_and_none_is_nothing() -> None:
    targets = label_targets(LABELS, 3)
    assert targets.sum(1).tolist() == [1, 1, 1, 1, 0, 1, 1]
    assert targets.argmax(1)[LABELS != NO_LABEL].tolist() == LABELS[LABELS != NO_LABEL].tolist()


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_the_teacher_has_its_weight_and_the_last_word_where_there_is_no_label(weight: float) -> None:
    targets, said = label_targets(LABELS, 3), distributions(7)
    found = softened(targets, said, weight=weight, temperature=1.0)
    torch.testing.assert_close(found.sum(1), torch.ones(7))
    known = LABELS != NO_LABEL
    torch.testing.assert_close(found[known], (1 - weight) * targets[known] + weight * said[known].exp())
    torch.testing.assert_close(found[~known], said[~known].exp())


def test_a_hot_teacher_says_more_of_what_it_thinks_unlikely() -> None:
    targets, said = label_targets(LABELS, 3), distributions(7)
    hot = softened(targets, said, weight=1.0, temperature=4.0)
    torch.testing.assert_close(hot, (said.exp() ** 0.25) / (said.exp() ** 0.25).sum(1, keepdim=True))
    assert bool((hot.amin(1) > said.exp().amin(1)).all())
