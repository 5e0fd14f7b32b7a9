"""How long and how hard each phase trains, as values: the paper's way, our fast one, one for own data, and small ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from infogaze.data.augmentation import Augmentation
from infogaze.errors import InfogazeError

_LONGEST = 1000.0
"""Times a recipe's length."""
_PHASES = ("phase1", "phase2", "phase3", "full_image")


@dataclass(frozen=True, kw_only=True)
class PhaseRecipe:
    """One phase's part of a recipe. Its length is counted in epochs or in steps."""

    epochs: float | None = None
    """Passes over the training split; parts of one count."""
    steps: int | None = None
    """Optimisation steps, however many images there are."""
    batch_size: int
    """Scenes a step, all processes together."""
    learning_rate: float | None = None
    """The largest; the preset's own if not given."""

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise InfogazeError(f"epochs is {self.epochs} and steps is {self.steps}; one of the two must be given")
        if not (self.epochs is None or 0.0 < self.epochs < 1e9):
            raise InfogazeError(f"epochs is {self.epochs}; it must be above 0 and below 1e9")
        if not (self.steps is None or 1 <= self.steps < 10**9):
            raise InfogazeError(f"steps is {self.steps}; it must be from 1 to 1e9")
        if not 1 <= self.batch_size <= 1 << 20:
            raise InfogazeError(f"batch_size is {self.batch_size}; it must be from 1 to {1 << 20}")
        if self.learning_rate is not None and not self.learning_rate > 0.0:
            raise InfogazeError(f"learning_rate is {self.learning_rate}; it must be above 0")

    def num_steps(self, images: int) -> int:
        """The steps of the phase over a training split of this many images."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return max(1, round(self.epochs * images / min(self.batch_size, images)))

    def scaled(self, times: float) -> PhaseRecipe:
        """The same, so many times as long."""
        if self.steps is not None:
            return replace(self, steps=max(1, round(self.steps * times)))
        assert self.epochs is not None
        return replace(self, epochs=self.epochs * times)

    def followed_by(self, other: PhaseRecipe) -> PhaseRecipe:
        """The other, as long as both together; both count in epochs or both in steps."""
        if self.steps is not None and other.steps is not None:
            return replace(other, steps=self.steps + other.steps)
        if self.epochs is not None and other.epochs is not None:
            return replace(other, epochs=self.epochs + other.epochs)
        raise InfogazeError("phase2 and phase3 must both count epochs, or both steps")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How long each of the three phases is, and all else that training needs to know; a baseline with fewer phases takes its part."""

    phase1: PhaseRecipe
    """F, R and C."""
    phase2: PhaseRecipe
    """S and D."""
    phase3: PhaseRecipe
    """Everything."""
    full_image: PhaseRecipe
    """The one phase of the CNN that sees complete images."""
    schedule: Literal["one-cycle", "plateau"] = "one-cycle"
    """Of the learning rate. one-cycle: linear warm-up over a fifth of the steps, then half a cosine to zero. plateau: halved when an
    epoch's loss has not fallen for ten."""
    betas: tuple[float, float] = (0.9, 0.99)
    """Of AdamW."""
    weight_decay: float = 0.01
    """Of AdamW; with 0 it is Adam."""
    grad_clip: float = 0.0
    """The gradient's norm is clipped to this; 0 clips nothing. Norms of 200 are usual in phase 3."""
    num_samples: int = 1
    """Imagined scenes behind each choice of a look in phase 3: with one, as in the paper, looks explore most."""
    num_entries: int = 16
    """Entries of a dictionary behind each choice of a look in phase 3."""
    kl_warmup: float = 0.0
    """KL warm-up: the share of phase 2 over which the weight of the KL term rises to 1."""
    ema_decay: float = 0.0
    """Decay of the EMA of the weights, which a phase ends with, less at first; 0 ends with the last weights."""
    batch_norm_images: int = 0
    """Batch-norm statistics are refitted on about so many training images, not augmented, at the end of each phase; 0 keeps those gathered
    in training."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the networks' products on a GPU; on the CPU, and in losses and densities everywhere, it is float32."""
    keep_best: bool = True
    """Whether a phase ends with the weights that were best on the validation split, where there is one, or with those of its end."""
    mixup: float = 0.0
    """Two scenes are mixed where looks are at random, by shares from Beta(mixup, mixup); 0 mixes none."""
    teacher_weight: float = 0.5
    """Where there is a teacher: how much of what a scene is taught is the teacher's word; the rest is the label."""
    teacher_temperature: float = 1.0
    """What the teacher's log-probabilities are divided by; above 1 it says more of the classes that it thinks unlikely."""
    more_looks: int = 0
    """Looks beyond the budget that one scene in sixteen is taught with, at random places; 0 teaches within the budget alone."""
    augmentation: Augmentation | None = Augmentation()
    """What may happen to a training image; flipped only where the preset allows it."""

    def __post_init__(self) -> None:
        for name in ("num_samples", "num_entries"):
            if getattr(self, name) < 1:
                raise InfogazeError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name, most in (("kl_warmup", 1.0), ("ema_decay", 1.0), ("teacher_weight", 1.0)):
            if not 0.0 <= getattr(self, name) <= most:
                raise InfogazeError(f"{name} is {getattr(self, name)}; it must be from 0 to {most:g}")
        if not self.teacher_temperature > 0.0:
            raise InfogazeError(f"teacher_temperature is {self.teacher_temperature}; it must be above 0")
        for name in ("weight_decay", "grad_clip", "batch_norm_images", "mixup", "more_looks"):
            if not getattr(self, name) >= 0.0:
                raise InfogazeError(f"{name} is {getattr(self, name)}; it must be at least 0")
        self.phase2.followed_by(self.phase3)

    def scaled(self, times: float) -> Recipe:
        """The same with every phase so many times as long; once is the recipe itself."""
        if not 0.0 < times <= _LONGEST:
            raise InfogazeError(f"length is {times}; it must be above 0 and at most {_LONGEST:g}")
        if times == 1.0:
            return self
        return replace(self, **{name: getattr(self, name).scaled(times) for name in _PHASES})


def _epochs(epochs: float, batch_size: int, learning_rate: float | None = None) -> PhaseRecipe:
    return PhaseRecipe(epochs=epochs, batch_size=batch_size, learning_rate=learning_rate)


def _steps(steps: int, batch_size: int, learning_rate: float) -> PhaseRecipe:
    return PhaseRecipe(steps=steps, batch_size=batch_size, learning_rate=learning_rate)


RECIPES: dict[str, Recipe] = {
    "paper": Recipe(
        phase1=_epochs(1000, 64), phase2=_epochs(100, 64), phase3=_epochs(100, 64), full_image=_epochs(200, 64),
        schedule="plateau", betas=(0.9, 0.999), weight_decay=0.0, grad_clip=0.0,
    ),
    "fast": Recipe(
        phase1=_epochs(1200, 1024, 4e-3), phase2=_epochs(40, 256, 2e-3), phase3=_epochs(120, 1024, 1e-3), full_image=_epochs(80, 512, 3e-3),
        weight_decay=0.1, grad_clip=1000.0, num_samples=4, kl_warmup=0.5, ema_decay=0.999, batch_norm_images=20_000, precision="bfloat16",
        augmentation=Augmentation(brightness=0.2, contrast=0.2, saturation=0.2),
    ),
    "own": Recipe(
        phase1=_steps(2000, 32, 2e-3), phase2=_steps(500, 32, 2e-3), phase3=_steps(500, 32, 1e-3), full_image=_steps(1000, 32, 2e-3),
        weight_decay=0.1, grad_clip=1000.0, num_samples=2, kl_warmup=0.5, ema_decay=0.99, batch_norm_images=5000, precision="bfloat16",
        augmentation=Augmentation(brightness=0.2, contrast=0.2, saturation=0.2),
    ),
    "quickstart": Recipe(
        phase1=_epochs(20, 64, 3e-3), phase2=_epochs(4, 64, 3e-3), phase3=_epochs(2, 64, 1e-3), full_image=_epochs(4, 64, 3e-3),
        grad_clip=1000.0, augmentation=None,
    ),
    "smoke": Recipe(
        phase1=_epochs(4, 64, 4e-3), phase2=_epochs(1, 64, 4e-3), phase3=_epochs(0.25, 64, 1e-3), full_image=_epochs(1, 64, 3e-3),
        grad_clip=1000.0, augmentation=None,
    ),
}  # fmt: skip
"""`own` counts steps, for sets of any size. `quickstart` and `smoke` are for the embedded digits on two CPU cores."""


def recipe(name: str) -> Recipe:
    """The recipe of this name."""
    if name not in RECIPES:
        raise InfogazeError(f"no recipe is called {name!r}; there are {', '.join(RECIPES)}")
    return RECIPES[name]
