"""What a run is given: the plan that its weights follow from, and the callbacks by which it tells and asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from infogaze.data.augmentation import Augmentation
from infogaze.nn.model import GlimpseClassifier
from infogaze.training.meters import Reading
from infogaze.training.phases import Objective, Phase
from infogaze.training.recipe import Recipe
from infogaze.training.targets import Teacher


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that the weights depend on, beside the model and the data."""

    phases: dict[int, Phase]
    """The phases to run by their number in the method, from 1."""
    recipe: Recipe
    learning_rates: tuple[float, float, float]
    """The preset's own, for phases that the recipe gives none."""
    objective: Objective
    augmentation: Augmentation | None
    seed: int
    teacher: Teacher | None = None
    """Says of whole training scenes how likely each class is."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where training stands, for whoever shows or logs it."""

    phase: int
    """From 1."""
    name: str
    step: int
    steps: int
    batch_size: int
    reading: Reading
    """As last read."""
    val_accuracy: tuple[float, ...]
    """On the validation split at each look, as last measured; empty where there is none yet."""
    fresh: bool
    """Whether the meters were read at this step."""


@dataclass(frozen=True, kw_only=True)
class Callbacks:
    """What a run tells and asks. Its outcome depends on `validate` alone, where there is a validation split."""

    on_step: Callable[[Progress], None] = lambda progress: None
    """Hears of the beginning of each phase and of every step."""
    on_warning: Callable[[str], None] = lambda line: None
    """Hears of what is wrong and goes on."""
    should_stop: Callable[[], bool] = lambda: False
    """Asked after every step."""
    validate: Callable[[GlimpseClassifier, Phase], tuple[float, ...]] | None = None
    """Accuracy on the validation split at each look; the weights with the best at the last look are those that a phase ends with."""
    save_every: float = 120.0
    """Seconds between checkpoints."""
