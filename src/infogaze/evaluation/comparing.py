"""What may be set against what: when two evaluations can be compared, and when two runs are seeds of the same thing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from infogaze.data.augmentation import Augmentation
from infogaze.evaluation.records import About
from infogaze.methods.registry import METHODS
from infogaze.training.recipe import RECIPES, PhaseRecipe, Recipe


def recipe_digest(name: str, recipe: Recipe) -> str:
    """A short digest of what training by this method reads of a recipe: the CNN knows nothing of phase 2, for one.

    What is zero or none counts as not there, so that it stays the same when recipes come to have such a value, or have it no longer.
    """
    method = METHODS[name]
    unread = {"recognise", "imagine", "refine", "whole", *(() if method.imagines else ("samples", "warm_up"))}
    read = {field: value for field, value in asdict(recipe).items() if value and field not in unread}
    read["phases"] = [asdict(phase.length(recipe)) for phase in method.phases]
    return hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()[:8]


def trained_by(name: str, config: Mapping[str, Any]) -> str | None:
    """The same of the recipe in a run's configuration, with defaults for what it lacks; None where there is none that can be read."""
    known = {field.name for field in fields(Recipe)}
    try:
        values = {key: value for key, value in _with_tuples(config["recipe"]).items() if value or key in known}
        for part in ("recognise", "imagine", "refine", "whole"):
            values[part] = PhaseRecipe(**values[part])
        if values["augmentation"] is not None:
            values["augmentation"] = Augmentation(**_with_tuples(values["augmentation"]))
        return recipe_digest(name, Recipe(**values))
    except (KeyError, TypeError, ValueError):
        return None


def _with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """As they were before JSON, which has only lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in dict(values).items()}


def recipe_said(about: About) -> str:
    """What a run was trained by, in words: the recipe's name, or own where none of today's is like it, and the digest."""
    if about.recipe is None:
        return "not known"
    today = {recipe_digest(about.method, recipe): name for name, recipe in RECIPES.items() if about.method in METHODS}
    return f"{today.get(about.recipe, 'own')} {about.recipe}"


def incomparable(here: About, there: About) -> str:
    """Why two evaluations cannot be set against each other, in words; empty where they can."""
    for what, name in (
        ("test set", "test"),
        ("budget of looks", "looks"),
        ("grid", "grid"),
        ("list of class names", "classes"),
        ("number of test scenes", "scenes"),
        ("seed of first looks", "first_looks"),
    ):
        one, other = getattr(here, name), getattr(there, name)
        if one != other:
            said = "" if len(f"{one}{other}") > 60 else f" ({one} and {other})"
            return f"cannot be compared: another {what}{said} of {there.data}"
    return ""


def not_one_curve(here: About, there: About) -> str:
    """Why two seeds of a method are not the same thing twice, in words; empty where they are, as far as is known."""
    said = ""
    if here.samples != there.samples:
        said = f"imagined {here.samples} scenes a look in one and {there.samples} in the other"
    elif here.twin != there.twin:
        said = "took in every look mirrored too in one and not in the other"
    elif None not in (here.recipe, there.recipe) and here.recipe != there.recipe:
        said = f"was trained by the recipe {recipe_said(here)} in one and {recipe_said(there)} in the other"
    elif None not in (here.hold_out, there.hold_out) and here.hold_out != there.hold_out:
        said = f"had {here.hold_out:g} of the training split kept back in one and {there.hold_out:g} in the other"
    return f"cannot be one curve: {here.method} {said}" if said else ""
