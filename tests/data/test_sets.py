from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infogaze.data.sets import NO_LABEL, Split, keep_labels
from infogaze.errors import InfogazeError


def split(labels: list[int]) -> Split:
    return Split(torch.zeros(len(labels), 1, 2, 2, dtype=torch.uint8), torch.tensor(labels))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.data())
def test_so_many_labels_are_kept_as_many_of_each_class_as_can_be(labels: list[int], data: st.DataObject) -> None:
    count, seed = data.draw(st.integers(1, len(labels))), data.draw(st.integers(0, 99))
    kept = keep_labels(split(labels), count, seed=seed).labels
    known = kept != NO_LABEL
    assert int(known.sum()) == count
    assert torch.equal(kept[known], torch.tensor(labels)[known]), "those that are left are their own"
    have = {label: int((kept == label).sum()) for label in set(labels)}
    for label, found in have.items():
        if found < labels.count(label):
            assert found >= max(have.values()) - 1, "no class has two more than one that has more to give"


def test_which_labels_are_kept_follows_from_the_seed_alone() -> None:
    whole = split([index % 5 for index in range(200)])
    first, again, other = (keep_labels(whole, 40, seed=seed).labels for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(whole.labels, torch.arange(200) % 5), "the split itself keeps all"
    more = keep_labels(whole, 80, seed=1).labels
    assert bool((more[first != NO_LABEL] != NO_LABEL).all()), "more labels are those and others"


@pytest.mark.parametrize("count", [0, -1, 6])
def test_no_labels_and_more_than_there_are_are_refused(count: int) -> None:
    with pytest.raises(InfogazeError, match=f"num_labels is {count}; .* 5 images"):
        keep_labels(split([0, 1, 2, 0, 1]), count, seed=0)
