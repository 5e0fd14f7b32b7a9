"""How long and how hard each phase trains, as values: the paper's way, our fast one, and small ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from infogaze.data.augmentation import Augmentation
from infogaze.errors import InfogazeError

_LONGEST = 1000.0
"""Times a recipe's epochs."""


@dataclass(frozen=True)
class PhaseRecipe:
    """One phase's share of the work."""

    epochs: float
    """Passes over the training split; parts of one count."""
    batch: int
    """Scenes a step, all processes together."""
    learning_rate: float | None = None
    """The largest; the preset's own if not given."""


@dataclass(frozen=True)
class Recipe:
    """How long each of the three phases is; a baseline with one or two phases takes its share of the same."""

    recognise: PhaseRecipe
    """Phase 1: F, R and C."""
    imagine: PhaseRecipe
    """Phase 2: S and D."""
    refine: PhaseRecipe
    """Phase 3: everything."""
    whole: PhaseRecipe
    """The one phase of the CNN that sees complete images."""
    schedule: Literal["cycle", "plateau"] = "cycle"
    """cycle: rise over the first fifth, then half a cosine to zero. plateau: halved when an epoch's loss has not fallen for ten."""
    betas: tuple[float, float] = (0.9, 0.99)
    """Of AdamW."""
    weight_decay: float = 0.01
    """Of AdamW; with 0 it is Adam."""
    clip: float = 1.0
    """The gradient's norm is cut down to this."""
    samples: int = 1
    """Imagined scenes behind each choice of a look in phase 3: with one, as in the paper, looks explore most."""
    warm_up: float = 0.0
    """Share of phase 2 over which the divergence of q(z | h) from the prior comes to its full weight."""
    average: float = 0.0
    """Decay of the running average of the weights, which is what a phase hands on, less at first; 0 hands on the last weights."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the networks' products on a GPU; on the CPU, and in losses and densities everywhere, it is float32."""
    augmentation: Augmentation | None = Augmentation()
    """What may happen to a training image; mirrored only where the preset allows it."""

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise InfogazeError(f"samples is {self.samples}; it must be at least 1")
        if not 0.0 <= self.warm_up <= 1.0:
            raise InfogazeError(f"warm_up is {self.warm_up}; it must be from 0 to 1")

    def lengthened(self, times: float) -> Recipe:
        """The same with this many times the epochs in every phase; once is the recipe itself, to the digest."""
        if not 0.0 < times <= _LONGEST:
            raise InfogazeError(f"length is {times}; it must be above 0 and at most {_LONGEST:g}")
        if times == 1.0:
            return self
        parts = {name: getattr(self, name) for name in ("recognise", "imagine", "refine", "whole")}
        return replace(self, **{name: replace(part, epochs=part.epochs * times) for name, part in parts.items()})


RECIPES: dict[str, Recipe] = {
    "paper": Recipe(
        PhaseRecipe(1000, 64), PhaseRecipe(100, 64), PhaseRecipe(100, 64), PhaseRecipe(200, 64),
        schedule="plateau", betas=(0.9, 0.999), weight_decay=0.0,
    ),
    "fast": Recipe(
        PhaseRecipe(1200, 1024, 4e-3), PhaseRecipe(40, 256, 2e-3), PhaseRecipe(120, 1024, 1e-3), PhaseRecipe(80, 512, 3e-3),
        weight_decay=0.1, samples=4, warm_up=0.5, average=0.999, precision="bfloat16",
        augmentation=Augmentation(brightness=0.2, contrast=0.2, saturation=0.2),
    ),
    "quickstart": Recipe(
        PhaseRecipe(20, 64, 3e-3), PhaseRecipe(4, 64, 3e-3), PhaseRecipe(2, 64, 1e-3), PhaseRecipe(4, 64, 3e-3), augmentation=None,
    ),
    "smoke": Recipe(
        PhaseRecipe(4, 64, 4e-3), PhaseRecipe(1, 64, 4e-3), PhaseRecipe(0.25, 64, 1e-3), PhaseRecipe(1, 64, 3e-3), augmentation=None,
    ),
}  # fmt: skip
"""`quickstart` and `smoke` are for the embedded digits on two CPU cores: three minutes, and under one."""


def recipe(name: str) -> Recipe:
    """The recipe of this name."""
    if name not in RECIPES:
        raise InfogazeError(f"no recipe is called {name!r}; there are {', '.join(RECIPES)}")
    return RECIPES[name]
