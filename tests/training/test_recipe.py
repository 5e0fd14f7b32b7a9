from __future__ import annotations

from dataclasses import replace

import pytest

from infogaze.training.recipe import recipe


def test_a_recipe_that_imagines_nothing_or_weighs_by_less_than_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="samples is 0; it must be at least 1"):
        replace(recipe("fast"), samples=0)
    for share in (-0.1, 1.5):
        with pytest.raises(ValueError, match=f"warm_up is {share}; it must be from 0 to 1"):
            replace(recipe("fast"), warm_up=share)


def test_the_papers_recipe_explores_with_one_imagined_scene_and_a_whole_elbo() -> None:
    assert (recipe("paper").samples, recipe("paper").warm_up) == (1, 0.0)


def test_a_recipe_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="no recipe is called 'slow'; there are paper, fast"):
        recipe("slow")
