from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from infogaze.data.augmentation import Augmentation
from infogaze.data.sets import NO_LABEL
from infogaze.grid import extract
from infogaze.nn.pixels import normalise_pixels
from infogaze.training.examples import Examples
from infogaze.training.phases import Batch, uniform
from infogaze.training.recipe import Recipe
from infogaze.training.rollout import glimpses_at
from tests.support.small_run import RECIPE, scenes
from tests.support.tiny import CONFIG

COUNT, CLASSES, GRID = 32, CONFIG.num_classes, CONFIG.grid
SPLIT = scenes(COUNT)
PLAIN = replace(RECIPE, augmentation=None)
FAULTY = Augmentation(flip=False, noise=0.3)
WHOLE = slice(0, COUNT)


def examples(recipe: Recipe = PLAIN, **options: Any) -> Examples:
    given: dict[str, Any] = {
        "augmentation": None, "noise": {"places": uniform(GRID.num_locations)}, "batch_size": COUNT, "grid": GRID,
        "num_classes": CLASSES, "mixes": True, "more_looks": 0, "teacher": None, "generator": torch.Generator().manual_seed(0),
    }  # fmt: skip
    return Examples(recipe=recipe, **{**given, **options})


def made(recipe: Recipe = PLAIN, *, part: slice = WHOLE, labels: Tensor = SPLIT.labels, **options: Any) -> Batch:
    return examples(recipe, **options).batch(SPLIT.images[part], labels[part], part, progress=torch.zeros(()))


def sceptic(images: Tensor) -> Tensor:
    """A teacher that goes by the mean of a scene."""
    mean = images.mean((1, 2, 3))
    return torch.stack([mean, -mean, torch.zeros_like(mean)], 1).log_softmax(-1)


def test_where_nothing_is_asked_for_a_scene_is_taught_as_it_is() -> None:
    batch = made()
    torch.testing.assert_close(batch.images, normalise_pixels(SPLIT.images))
    assert torch.equal(batch.labels, SPLIT.labels)
    assert (batch.targets, batch.displacement, batch.more_places) == (None, None, None)


def test_the_teacher_sees_scenes_without_the_sensors_faults() -> None:
    seen: list[Tensor] = []
    batch = made(augmentation=FAULTY, teacher=lambda images: seen.append(images) or sceptic(images))  # type: ignore[func-returns-value]
    clean = made(augmentation=replace(FAULTY, noise=0.0)).images
    torch.testing.assert_close(seen[0], clean)
    differs = (batch.images - clean).abs().flatten(1).amax(1) > 1e-3
    assert differs.any()
    assert not differs.all(), "half of the scenes have no fault"


def test_a_teacher_and_the_label_are_weighed_by_the_recipe() -> None:
    batch = made(replace(PLAIN, teacher_weight=0.25), teacher=sceptic)
    assert batch.targets is not None
    label = torch.nn.functional.one_hot(SPLIT.labels, CLASSES)
    torch.testing.assert_close(batch.targets, 0.75 * label + 0.25 * sceptic(batch.images).exp())


def test_mixed_scenes_and_what_they_are_taught_hold_the_same_shares() -> None:
    batch = made(replace(PLAIN, mixup=1.0))
    assert batch.targets is not None
    own = torch.nn.functional.one_hot(SPLIT.labels, CLASSES).float()
    other = own[torch.arange(COUNT) ^ 1]
    clean = normalise_pixels(SPLIT.images)
    partner = clean[torch.arange(COUNT) ^ 1]
    apart = (own != other).any(1)
    share = (batch.targets * own).sum(1)
    torch.testing.assert_close(batch.targets.sum(1), torch.ones(COUNT))
    assert bool((share >= 0.5).all())
    expected = share[:, None, None, None] * clean + (1 - share)[:, None, None, None] * partner
    torch.testing.assert_close(batch.images[apart], expected[apart])
    assert apart.any()


def test_a_phase_that_does_not_mix_has_scenes_as_they_are_and_the_teachers_word() -> None:
    batch = made(replace(PLAIN, mixup=1.0), mixes=False, teacher=sceptic)
    torch.testing.assert_close(batch.images, normalise_pixels(SPLIT.images))
    assert batch.targets is not None


def test_a_scene_without_a_label_is_taught_nothing_but_by_a_teacher() -> None:
    labels = SPLIT.labels.clone()
    labels[::3] = NO_LABEL
    alone, taught = made(replace(PLAIN, mixup=1.0), labels=labels), made(teacher=sceptic, labels=labels)
    assert alone.targets is not None
    assert taught.targets is not None
    assert torch.equal(alone.targets.sum(1) > 0, labels != NO_LABEL)
    torch.testing.assert_close(taught.targets.sum(1), torch.ones(COUNT))


def test_the_parts_of_several_processes_make_the_batch_of_one() -> None:
    options: dict[str, Any] = {"augmentation": replace(FAULTY, blur=1.0, exposure=1.0, displacement=2), "more_looks": 3}
    recipe = replace(PLAIN, mixup=0.5)
    one = made(recipe, teacher=sceptic, **options)
    parts = [made(recipe, teacher=sceptic, part=part, **options) for part in (slice(0, 16), slice(16, COUNT))]
    for name in ("images", "labels", "targets", "displacement"):
        torch.testing.assert_close(torch.cat([getattr(part, name) for part in parts]), getattr(one, name))
    torch.testing.assert_close(torch.cat([part.noise["places"] for part in parts]), one.noise["places"])


def test_one_scene_in_sixteen_has_more_places_to_look_at() -> None:
    batch = made(more_looks=3)
    assert batch.more_places is not None
    assert batch.more_places.shape == (COUNT // 16, GRID.num_locations)


def test_a_glimpse_is_taken_where_the_sensor_went_and_never_outside() -> None:
    batch = made(augmentation=replace(FAULTY, noise=0.0, displacement=3))
    assert batch.displacement is not None
    places = torch.arange(GRID.num_locations).expand(COUNT, -1)
    asked = GRID.locations()[places]
    found = glimpses_at(GRID, batch, asked)
    most = torch.tensor([CONFIG.height - CONFIG.glimpse_size, CONFIG.width - CONFIG.glimpse_size])
    went = (asked + batch.displacement).clamp(min=0).minimum(most)
    torch.testing.assert_close(found, extract(batch.images, went, CONFIG.glimpse_size))
    assert not torch.equal(went, asked)


def test_the_same_place_of_a_scene_is_always_missed_by_as_much() -> None:
    batch = made(augmentation=replace(FAULTY, noise=0.0, displacement=3))
    everywhere = glimpses_at(GRID, batch, GRID.locations().expand(COUNT, -1, 2))
    few = torch.tensor([4, 1, 7])
    torch.testing.assert_close(glimpses_at(GRID, batch, GRID.locations()[few].expand(COUNT, -1, 2)), everywhere[:, few])


@pytest.mark.parametrize("name", ["mixup", "teacher_weight", "teacher_temperature", "more_looks"])
def test_a_negative_value_is_refused(name: str) -> None:
    with pytest.raises(Exception, match=f"{name} is -1"):
        replace(RECIPE, **{name: -1})  # type: ignore[arg-type]
