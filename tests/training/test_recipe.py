from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from infogaze import InfogazeError
from infogaze.training.recipe import RECIPES, PhaseRecipe, recipe


def test_a_recipe_that_imagines_nothing_or_weighs_by_less_than_nothing_is_refused() -> None:
    with pytest.raises(InfogazeError, match="num_samples is 0.*at least 1"):
        replace(recipe("fast"), num_samples=0)
    for share in (-0.1, 1.5):
        with pytest.raises(InfogazeError, match=f"kl_warmup is {share}.*from 0 to 1"):
            replace(recipe("fast"), kl_warmup=share)


def test_counts_below_none_are_refused() -> None:
    with pytest.raises(InfogazeError, match="num_entries is 0.*at least 1"):
        replace(recipe("fast"), num_entries=0)
    with pytest.raises(InfogazeError, match="batch_norm_images is -1.*at least 0"):
        replace(recipe("fast"), batch_norm_images=-1)


def test_the_papers_recipe_clips_no_gradient_and_keeps_the_statistics_of_training() -> None:
    # The paper states neither; the others clip what is far beyond usual, and nothing else.
    assert (recipe("paper").grad_clip, recipe("paper").batch_norm_images) == (0.0, 0)
    assert {found.grad_clip for name, found in RECIPES.items() if name != "paper"} == {1000.0}


def test_the_papers_recipe_explores_with_one_imagined_scene_and_a_whole_elbo() -> None:
    assert (recipe("paper").num_samples, recipe("paper").kl_warmup) == (1, 0.0)


PARTS = ("phase1", "phase2", "phase3", "full_image")


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("times", [0.5, 1.0, 3.0])
def test_a_scaled_recipe_has_so_many_times_the_epochs_or_steps_and_all_else_the_same(name: str, times: float) -> None:
    old, new = asdict(recipe(name)), asdict(recipe(name).scaled(times))
    for part in PARTS:
        for unit in ("epochs", "steps"):
            before, after = old[part].pop(unit), new[part].pop(unit)
            assert after is None if before is None else after == pytest.approx(times * before), (part, unit)
    assert new == old


@pytest.mark.parametrize("times", [0.0, -0.5, float("nan"), float("inf"), float("-inf"), 1000.5])
def test_a_length_that_is_none_is_refused(times: float) -> None:
    with pytest.raises(InfogazeError, match=f"length is {times}.*above 0 and at most 1000"):
        recipe("fast").scaled(times)


def test_a_recipe_that_is_not_there_is_named() -> None:
    with pytest.raises(InfogazeError, match="'slow'.*paper, fast"):
        recipe("slow")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "epochs is None and steps is None"),
        ({"epochs": 1, "steps": 1}, "epochs is 1 and steps is 1"),
        ({"epochs": 0.0}, "epochs is 0.0"),
        ({"epochs": float("nan")}, "epochs is nan"),
        ({"steps": 0}, "steps is 0"),
        ({"epochs": 1, "batch_size": 0}, "batch_size is 0"),
        ({"epochs": 1, "learning_rate": 0.0}, "learning_rate is 0.0"),
    ],
)
def test_a_phase_of_no_length_or_of_two_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InfogazeError, match=words):
        PhaseRecipe(**{"batch_size": 16, **given})


@pytest.mark.parametrize(
    ("budget", "images", "steps"),
    [
        (PhaseRecipe(epochs=3, batch_size=16), 96, 18),
        (PhaseRecipe(epochs=0.25, batch_size=64), 1000, 4),
        (PhaseRecipe(epochs=2, batch_size=64), 10, 2),  # a batch is no larger than the split
        (PhaseRecipe(epochs=0.001, batch_size=64), 64, 1),
        (PhaseRecipe(steps=500, batch_size=64), 10, 500),
    ],
)
def test_a_phase_has_the_steps_that_its_length_comes_to(budget: PhaseRecipe, images: int, steps: int) -> None:
    assert budget.num_steps(images) == steps


def test_one_phase_after_another_is_as_long_as_both_and_they_must_count_alike() -> None:
    first, second = PhaseRecipe(epochs=2, batch_size=16), PhaseRecipe(epochs=3, batch_size=32, learning_rate=0.1)
    assert first.followed_by(second) == replace(second, epochs=5)
    counted = PhaseRecipe(steps=10, batch_size=16)
    assert counted.followed_by(counted) == replace(counted, steps=20)
    with pytest.raises(InfogazeError, match="phase2 and phase3"):
        replace(recipe("fast"), phase2=counted)
