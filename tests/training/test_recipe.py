from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from infogaze.training.recipe import RECIPES, recipe


def test_a_recipe_that_imagines_nothing_or_weighs_by_less_than_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="samples is 0; it must be at least 1"):
        replace(recipe("fast"), samples=0)
    for share in (-0.1, 1.5):
        with pytest.raises(ValueError, match=f"warm_up is {share}; it must be from 0 to 1"):
            replace(recipe("fast"), warm_up=share)


def test_the_papers_recipe_explores_with_one_imagined_scene_and_a_whole_elbo() -> None:
    assert (recipe("paper").samples, recipe("paper").warm_up) == (1, 0.0)


PARTS = ("recognise", "imagine", "refine", "whole")


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("times", [0.5, 1.0, 3.0])
def test_a_lengthened_recipe_has_so_many_times_the_epochs_and_all_else_the_same(name: str, times: float) -> None:
    old, new = asdict(recipe(name)), asdict(recipe(name).lengthened(times))
    for part in PARTS:
        assert new[part].pop("epochs") == times * old[part].pop("epochs"), part
    assert new == old


@pytest.mark.parametrize("times", [0.0, -0.5, float("nan"), float("inf"), float("-inf"), 1000.5])
def test_a_length_that_is_none_is_refused(times: float) -> None:
    with pytest.raises(ValueError, match=f"length is {times}; it must be above 0 and at most 1000"):
        recipe("fast").lengthened(times)


def test_a_recipe_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="no recipe is called 'slow'; there are paper, fast"):
        recipe("slow")
