"""What may be set against what: when two evaluations can be compared, and when two runs are seeds of the same thing."""

from __future__ import annotations

import hashlib
import json

from infogaze.evaluation.store import About
from infogaze.methods.registry import METHODS
from infogaze.training.recipe import RECIPES, Recipe
from infogaze.typed import from_plain, to_plain

_OF_IMAGINATION = {"vae": {"num_samples", "kl_warmup"}, "dictionary": {"num_entries"}}
"""What only methods that imagine so read."""


def recipe_digest(name: str, recipe: Recipe) -> str:
    """A short digest of what training by this method reads of a recipe: the CNN knows nothing of phase 2, for one."""
    method = METHODS[name]
    recipe = from_plain(Recipe, to_plain(recipe))  # as a run folder brings it back: 20 epochs are 20.0
    unread = {"phase1", "phase2", "phase3", "full_image"}
    unread |= {field for kind, fields in _OF_IMAGINATION.items() if kind != method.imagination for field in fields}
    read = {field: value for field, value in to_plain(recipe).items() if field not in unread}
    read["phases"] = [to_plain(phase.budget(recipe)) for phase in method.phases]
    return hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()[:8]


def describe_recipe(about: About) -> str:
    """What a run was trained by: the recipe's name, or custom where no recipe is like it, and the digest; and with how many labels."""
    known = {recipe_digest(about.method, recipe): name for name, recipe in RECIPES.items() if about.method in METHODS}
    few = "" if about.num_labels is None else f", {about.num_labels:,} labels"
    return f"{known.get(about.recipe, 'custom')} {about.recipe}{few}"


def incomparable(here: About, there: About) -> str:
    """Why two evaluations cannot be set against each other; empty where they can."""
    for what, name in (
        ("test set", "test"),
        ("budget of looks", "num_looks"),
        ("grid", "grid"),
        ("list of class names", "classes"),
        ("number of test scenes", "scenes"),
        ("seed of first looks", "first_looks"),
    ):
        one, other = getattr(here, name), getattr(there, name)
        if one != other:
            values = "" if len(f"{one}{other}") > 60 else f" ({one} and {other})"
            return f"cannot be compared: another {what}{values} of {there.data}"
    return ""


def not_one_curve(here: About, there: About) -> str:
    """Why two seeds of a method are not the same thing twice; empty where they are."""
    why = ""
    if here.num_samples != there.num_samples:
        why = f"imagined {here.num_samples} scenes a look in one and {there.num_samples} in the other"
    elif here.flip_tta != there.flip_tta:
        why = "used horizontal-flip test-time augmentation in one and not in the other"
    elif (here.recipe, here.num_labels) != (there.recipe, there.num_labels):
        why = f"was trained by the recipe {describe_recipe(here)} in one and {describe_recipe(there)} in the other"
    elif (here.teacher is None) != (there.teacher is None):
        why = "had a teacher in one and none in the other"
    elif here.val_fraction != there.val_fraction:
        why = f"had a validation split of {here.val_fraction:g} in one and {there.val_fraction:g} in the other"
    return f"cannot be one curve: {here.method} {why}" if why else ""
