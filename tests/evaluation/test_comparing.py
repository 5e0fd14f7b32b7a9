from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from infogaze import METHODS
from infogaze.evaluation.comparing import not_one_curve, recipe_digest, recipe_said, trained_by
from infogaze.training.recipe import RECIPES, PhaseRecipe, Recipe
from tests.evaluation.test_records import ABOUT

FAST = RECIPES["fast"]


def config(recipe: Recipe) -> dict[str, Any]:
    """As a run folder has it."""
    return dict(json.loads(json.dumps({"recipe": asdict(recipe)})))


@pytest.mark.parametrize("method", METHODS)
def test_a_run_is_known_by_the_recipe_that_its_configuration_holds(method: str) -> None:
    found = {trained_by(method, config(recipe)) for recipe in RECIPES.values()}
    assert found == {recipe_digest(method, recipe) for recipe in RECIPES.values()}
    assert len(found) == len(RECIPES), "no two are alike to it"
    for name, recipe in RECIPES.items():
        about = replace(ABOUT, method=method, recipe=trained_by(method, config(recipe)))
        assert recipe_said(about) == f"{name} {about.recipe}"


@pytest.mark.parametrize(
    ("other", "changes"),
    [
        (replace(FAST, average=0.5), set(METHODS)),
        (replace(FAST, recognise=PhaseRecipe(7, 64)), set(METHODS) - {"cnn"}),
        (replace(FAST, whole=PhaseRecipe(7, 64)), {"cnn"}),
        (replace(FAST, imagine=replace(FAST.imagine, epochs=7)), set(METHODS) - {"cnn"}),
        (replace(FAST, imagine=replace(FAST.imagine, batch=7)), {name for name in METHODS if METHODS[name].imagines}),
        (replace(FAST, samples=7), {name for name in METHODS if METHODS[name].imagines}),
        (replace(FAST, augmentation=None), set(METHODS)),
    ],
    ids=["average", "recognise", "whole", "epochs of imagine", "batch of imagine", "samples", "augmentation"],
)
def test_another_value_is_another_recipe_to_the_methods_that_read_it(other: Recipe, changes: set[str]) -> None:
    assert {name for name in METHODS if recipe_digest(name, other) != recipe_digest(name, FAST)} == changes
    about = replace(ABOUT, recipe=recipe_digest("infogaze", replace(FAST, average=0.5)))
    assert recipe_said(about) == f"own {about.recipe}"


@pytest.mark.parametrize("method", METHODS)
def test_runs_of_two_lengths_are_not_one_curve(method: str) -> None:
    half, whole = (replace(ABOUT, method=method, recipe=trained_by(method, config(way))) for way in (
        FAST.lengthened(0.5), FAST
    ))  # fmt: skip
    said = f"cannot be one curve: {method} was trained by the recipe own {half.recipe} in one and fast {whole.recipe} in the other"
    assert not_one_curve(half, whole) == said
    again = replace(half, recipe=trained_by(method, config(FAST.lengthened(0.5))))
    assert not_one_curve(half, again) == ""


@pytest.mark.parametrize("name", RECIPES)
def test_once_a_recipes_length_is_the_recipe(name: str) -> None:
    # Runs from before there were lengths are seeds of the same curve.
    once = config(RECIPES[name].lengthened(1.0))
    for method in METHODS:
        assert trained_by(method, once) == recipe_digest(method, RECIPES[name])


def test_a_configuration_from_before_a_value_was_part_of_recipes_has_its_default() -> None:
    older = config(replace(FAST, warm_up=0.0))
    del older["recipe"]["warm_up"]
    assert trained_by("infogaze", older) == recipe_digest("infogaze", replace(FAST, warm_up=0.0))


def test_a_value_that_recipes_no_longer_have_is_nothing_where_it_was_zero_and_else_leaves_the_recipe_unknown() -> None:
    older = config(FAST)
    older["recipe"]["smoothing"] = 0.0
    assert trained_by("infogaze", older) == recipe_digest("infogaze", FAST)
    older["recipe"]["smoothing"] = 0.1
    assert trained_by("infogaze", older) is None


@pytest.mark.parametrize("unreadable", [{}, {"recipe": None}, {"recipe": {"epochs": 3}}])
def test_a_configuration_without_a_recipe_that_can_be_read_leaves_it_unknown(unreadable: dict[str, Any]) -> None:
    assert trained_by("infogaze", unreadable) is None
    assert recipe_said(replace(ABOUT, recipe=None)) == "not known"


def test_what_is_not_known_of_one_run_parts_it_from_no_other() -> None:
    for known in ({"recipe": "c0ffee"}, {"hold_out": 0.25}):
        some, unknown = replace(ABOUT, **known), replace(ABOUT, recipe=None, hold_out=None)
        assert not_one_curve(some, unknown) == not_one_curve(unknown, some) == not_one_curve(some, some) == ""
