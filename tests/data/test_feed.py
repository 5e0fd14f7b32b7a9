from __future__ import annotations

import itertools
import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from infogaze.data.feed import Feed, Scenes, epoch_order
from infogaze.data.sets import NO_LABEL, Split
from infogaze.errors import InfogazeError

EVERY: tuple[Scenes, ...] = ("labelled", "all", "half labelled")
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def split(count: int) -> Split:
    """Each image is filled with its number, which is its label too."""
    labels = torch.arange(count)
    return Split(labels.to(torch.uint8)[:, None, None, None].repeat(1, 3, 2, 2), labels)


def feed(count: int, resident: bool, device: str = "cpu") -> Feed:
    made = Feed(split(count), device, budget=10**9 if resident else 0)
    assert made.resident == resident
    return made


def labels_of(batches: object) -> list[list[int]]:
    """The labels, once each image was found to be that of its label."""
    found = []
    for images, labels in batches:  # type: ignore[attr-defined]
        assert torch.equal(images[:, 0, 0, 0].long(), labels)
        found.append(labels.tolist())
    return found


sizes = st.integers(1, 60).flatmap(lambda count: st.tuples(st.just(count), st.integers(1, count)))
seeds = st.integers(-(2**63), 2**63)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("resident", [True, False])
@given(sizes, st.integers(0, 1000), seeds, st.data())
def test_a_resumed_epoch_goes_on_where_it_stopped(
    device: str, resident: bool, size: tuple[int, int], epoch: int, seed: int, data: st.DataObject
) -> None:
    count, batch = size
    made = feed(count, resident, device)
    whole = labels_of(made.batches(epoch, batch, seed=seed))
    assert len(whole) == made.steps(batch) == count // batch
    assert len(set(itertools.chain(*whole))) == len(whole) * batch
    start = data.draw(st.integers(0, len(whole)))
    assert labels_of(made.batches(epoch, batch, seed=seed, start=start)) == whole[start:]


@pytest.mark.parametrize("resident", [True, False])
@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 40), st.integers(0, 9), st.data())
def test_the_parts_of_all_ranks_are_the_batches_of_a_single_process(
    resident: bool, world: int, part: int, more: int, epoch: int, data: st.DataObject
) -> None:
    batch = world * part
    made = feed(batch + more, resident)
    start = data.draw(st.integers(0, made.steps(batch)))
    single = labels_of(made.batches(epoch, batch, seed=0, start=start))
    ranks = [
        labels_of(made.batches(epoch, batch, seed=0, rank=rank, world_size=world, start=start)) for rank in range(world)
    ]
    assert [list(itertools.chain(*parts)) for parts in zip(*ranks, strict=True)] == single


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    pairs = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 11), (11, 1)]
    orders = [tuple(epoch_order(50, epoch, seed).tolist()) for epoch, seed in pairs]
    assert len(set(orders)) == len(pairs)
    assert orders[1] == tuple(epoch_order(50, 0, 1).tolist())


def test_the_order_leaves_the_global_random_state_alone() -> None:
    before = torch.get_rng_state()
    epoch_order(50, 0, 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_every_image_comes_equally_often_at_every_place() -> None:
    orders = torch.stack([epoch_order(4, epoch, 0) for epoch in range(4000)])
    counts = torch.nn.functional.one_hot(orders, 4).sum(0)  # [place, image], each binomial(4000, 1/4)
    assert (counts - 1000).abs().max() < 5 * 750**0.5


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("resident", [True, False])
def test_streamed_batches_stay_as_they_were_handed_out(device: str, resident: bool) -> None:
    made = feed(40, resident, device)
    kept: list[tuple[Tensor, Tensor]] = list(made.batches(0, 4, seed=0))
    assert len(labels_of(kept)) == 10
    assert all(images.device.type == labels.device.type == device for images, labels in kept)


def test_a_stream_that_is_left_early_ends_its_thread() -> None:
    before = threading.active_count()
    batches = feed(40, resident=False).batches(0, 4, seed=0)
    next(batches)
    assert threading.active_count() == before + 1
    batches.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("resident", [True, False])
def test_take_gives_the_images_asked_for_in_their_order(device: str, resident: bool) -> None:
    made = feed(20, resident, device)
    assert labels_of([made.take(torch.tensor([3, 19, 3, 0]))]) == [[3, 19, 3, 0]]
    assert labels_of([made.take(torch.tensor([5], device=device))]) == [[5]]


def test_the_budget_decides_to_the_byte_and_the_cpu_needs_none() -> None:
    assert Feed(split(10), budget=120).resident
    assert not Feed(split(10), budget=119).resident
    assert Feed(split(10)).resident


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "the batch size is 0; it must be from 1 to the split's 10 images"),
        ({"batch_size": 11}, "the batch size is 11; it must be from 1 to the split's 10 images"),
        ({"batch_size": 4, "world_size": 3}, "a batch of 4 cannot be shared evenly by 3 processes"),
        ({"batch_size": 4, "world_size": 2, "rank": 2}, "rank is 2; with 2 processes it must be from 0 to 1"),
        ({"batch_size": 4, "start": 3}, "start is 3; an epoch has 2 batches"),
    ],
)
def test_impossible_batches_are_refused_at_once(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        feed(10, resident=True).batches(0, seed=0, **settings)


def partly_labelled(count: int, every: int, resident: bool = True) -> tuple[Feed, set[int]]:
    """Images filled with their number, of which every so-many-th has a label, its number too."""
    whole = split(count)
    labels = torch.where(whole.labels % every == 0, whole.labels, NO_LABEL)
    return Feed(Split(whole.images, labels), budget=10**9 if resident else 0), set(range(0, count, every))


def seen(batches: object) -> list[tuple[list[int], list[int]]]:
    """The number of each image, and its label, batch by batch."""
    return [(images[:, 0, 0, 0].tolist(), labels.tolist()) for images, labels in batches]  # type: ignore[attr-defined]


@pytest.mark.parametrize("resident", [True, False])
def test_of_labelled_scenes_alone_an_epoch_is_all_of_them(resident: bool) -> None:
    whole, known = partly_labelled(40, 3, resident)
    some = whole.of("labelled")
    assert len(some) == len(known) == 14
    batches = seen(some.batches(2, 7, seed=5))
    assert len(batches) == some.steps(7) == 2
    assert {number for numbers, _ in batches for number in numbers} == known
    assert all(numbers == labels for numbers, labels in batches)
    assert len(whole) == 40, "the feed itself has all"


@pytest.mark.parametrize("batch", [8, 9])
@pytest.mark.parametrize("resident", [True, False])
def test_half_of_each_batch_has_a_label_and_an_epoch_is_as_long_as_one_of_all(batch: int, resident: bool) -> None:
    whole, known = partly_labelled(40, 8, resident)
    mixed = whole.of("half labelled")
    batches = seen(mixed.batches(1, batch, seed=5))
    assert len(mixed) == 40
    assert len(batches) == 40 // batch
    counts = dict.fromkeys(known, 0)
    taken = [number for numbers, _ in batches for number in numbers]
    for number in taken[::2]:
        counts[number] += 1
    assert max(counts.values()) - min(counts.values()) <= 1, "each as often as the others"
    assert set(taken[1::2]) - known, "the other half is of all"
    for numbers, labels in batches:
        assert [label for number, label in zip(numbers, labels, strict=True) if number in known] == [
            number for number in numbers if number in known
        ]
        assert all(label == NO_LABEL for number, label in zip(numbers, labels, strict=True) if number not in known)


def test_a_mixed_epoch_resumes_and_is_shared_by_processes() -> None:
    mixed = partly_labelled(40, 8)[0].of("half labelled")
    whole = seen(mixed.batches(3, 8, seed=5))
    assert seen(mixed.batches(3, 8, seed=5, start=2)) == whole[2:]
    parts = [seen(mixed.batches(3, 8, seed=5, rank=rank, world_size=2)) for rank in range(2)]
    for (numbers, _), (one, _), (other, _) in zip(whole, *parts, strict=True):
        assert one + other == numbers
        assert sum(number % 8 == 0 for number in one) >= 2, "every process has its half"
    assert seen(mixed.batches(4, 8, seed=5)) != whole, "another epoch, another order"


def test_where_all_have_a_label_all_phases_are_given_the_same() -> None:
    made = feed(20, True)
    for scenes in EVERY:
        assert labels_of(made.of(scenes).batches(1, 6, seed=3)) == labels_of(made.batches(1, 6, seed=3))


def test_a_split_without_any_label_teaches_no_classifier() -> None:
    none = Feed(Split(split(6).images, torch.full((6,), NO_LABEL)))
    assert len(none.of("all")) == 6
    for scenes in (scenes for scenes in EVERY if scenes != "all"):
        with pytest.raises(InfogazeError, match="no image .* has a label"):
            none.of(scenes)
