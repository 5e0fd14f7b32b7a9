"""Names from the registries, as help shows them. Which are allowed is checked where they are looked up."""

from __future__ import annotations

from infogaze.evaluation.registry import MEASUREMENTS
from infogaze.methods.registry import METHODS
from infogaze.presets import PRESETS
from infogaze.training.recipe import RECIPES

PRESET_NAMES, METHOD_NAMES, RECIPE_NAMES, MEASUREMENT_NAMES = (
    "|".join(names) for names in (PRESETS, METHODS, RECIPES, MEASUREMENTS)
)
