from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from infogaze import METHODS
from infogaze.evaluation.comparing import describe_recipe, incomparable, not_one_curve, recipe_digest
from infogaze.grid import GlimpseGrid
from infogaze.training.recipe import RECIPES, PhaseRecipe, Recipe
from infogaze.typed import from_plain, to_plain
from tests.evaluation.test_store import ABOUT

FAST = RECIPES["fast"]
IMAGINING = {name for name, method in METHODS.items() if method.imagines}
BY_VAE = {name for name, method in METHODS.items() if method.imagination == "vae"}
BY_DICTIONARY = {name for name, method in METHODS.items() if method.imagination == "dictionary"}


def as_stored(recipe: Recipe) -> Recipe:
    """As the configuration of a run brings it back."""
    return from_plain(Recipe, json.loads(json.dumps(to_plain(recipe))))


@pytest.mark.parametrize("method", METHODS)
def test_a_run_is_known_by_the_recipe_that_its_configuration_holds(method: str) -> None:
    found = {recipe_digest(method, as_stored(recipe)) for recipe in RECIPES.values()}
    assert found == {recipe_digest(method, recipe) for recipe in RECIPES.values()}
    assert len(found) == len(RECIPES), "no two are alike to it"
    for name, recipe in RECIPES.items():
        about = replace(ABOUT, method=method, recipe=recipe_digest(method, as_stored(recipe)))
        assert describe_recipe(about) == f"{name} {about.recipe}"


@pytest.mark.parametrize(
    ("other", "changes"),
    [
        (replace(FAST, ema_decay=0.5), set(METHODS)),
        (replace(FAST, phase1=PhaseRecipe(epochs=7, batch_size=64)), set(METHODS) - {"cnn"}),
        (replace(FAST, full_image=PhaseRecipe(epochs=7, batch_size=64)), {"cnn"}),
        (replace(FAST, phase2=replace(FAST.phase2, epochs=7)), set(METHODS) - {"cnn"}),
        (replace(FAST, phase2=replace(FAST.phase2, batch_size=7)), IMAGINING),
        (replace(FAST, num_samples=7), BY_VAE),
        (replace(FAST, kl_warmup=0.25), BY_VAE),
        (replace(FAST, num_entries=7), BY_DICTIONARY),
        (replace(FAST, batch_norm_images=7), set(METHODS)),
        (replace(FAST, augmentation=None), set(METHODS)),
    ],
    ids=[
        "ema_decay", "phase1", "full_image", "epochs of phase2", "batch_size of phase2", "num_samples", "kl_warmup",
        "num_entries", "batch_norm_images", "augmentation",
    ],
)  # fmt: skip
def test_another_value_is_another_recipe_to_the_methods_that_read_it(other: Recipe, changes: set[str]) -> None:
    assert {name for name in METHODS if recipe_digest(name, other) != recipe_digest(name, FAST)} == changes
    about = replace(ABOUT, recipe=recipe_digest("infogaze", replace(FAST, ema_decay=0.5)))
    assert describe_recipe(about) == f"custom {about.recipe}"


@pytest.mark.parametrize("method", METHODS)
def test_runs_of_two_lengths_are_not_one_curve(method: str) -> None:
    half, whole = (replace(ABOUT, method=method, recipe=recipe_digest(method, way)) for way in (FAST.scaled(0.5), FAST))
    said = not_one_curve(half, whole)
    assert said.startswith(f"cannot be one curve: {method} ")
    assert f"custom {half.recipe}" in said
    assert f"fast {whole.recipe}" in said
    again = replace(half, recipe=recipe_digest(method, as_stored(FAST.scaled(0.5))))
    assert not_one_curve(half, again) == ""


@pytest.mark.parametrize("name", RECIPES)
def test_once_a_recipes_length_is_the_recipe(name: str) -> None:
    for method in METHODS:
        assert recipe_digest(method, RECIPES[name].scaled(1.0)) == recipe_digest(method, RECIPES[name])


def test_a_configuration_from_before_a_value_was_part_of_recipes_has_its_default() -> None:
    older = to_plain(replace(FAST, kl_warmup=0.0))
    del older["kl_warmup"]
    assert recipe_digest("infogaze", from_plain(Recipe, older)) == recipe_digest(
        "infogaze", replace(FAST, kl_warmup=0.0)
    )


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ({"num_samples": 5}, ("20", "5")),
        ({"flip_tta": True}, ("flip",)),
        ({"val_fraction": 0.25}, ("0.1", "0.25")),
        ({"recipe": "0ther"}, ("c0ffee", "0ther")),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_seeds_that_differ_in_more_than_their_seed_are_not_one_curve(
    there: dict[str, Any], said: tuple[str, ...]
) -> None:
    for one, other in ((ABOUT, replace(ABOUT, **there)), (replace(ABOUT, **there), ABOUT)):
        why = not_one_curve(one, other)
        assert why.startswith("cannot be one curve")
        assert all(word in why for word in (ABOUT.method, *said))
        assert "\n" not in why


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ({"test": "0ther"}, "test set"),
        ({"num_looks": 5}, "looks (4 and 5)"),
        ({"grid": GlimpseGrid(height=16, width=20, glimpse_size=8, stride=2)}, "grid"),
        ({"classes": ("ring", "dot")}, "class names"),
        ({"scenes": 6}, "scenes (5 and 6)"),
        ({"first_looks": 1}, "first looks (0 and 1)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_was_looked_at_must_be_the_same_for_two_runs_to_be_compared(there: dict[str, Any], said: str) -> None:
    why = incomparable(ABOUT, replace(ABOUT, **there))
    assert why.startswith("cannot be compared")
    assert said in why


@pytest.mark.parametrize(
    "there", [{"seed": 4}, {"method": "ram"}, {"device": "H200"}, {"weights": "0ther"}, {"versions": {"torch": "3"}}]
)
def test_what_runs_may_differ_in_parts_none(there: dict[str, Any]) -> None:
    other = replace(ABOUT, **there)
    assert incomparable(ABOUT, other) == incomparable(other, ABOUT) == ""
    assert not_one_curve(ABOUT, other) == ""
