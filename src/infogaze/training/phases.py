"""What a phase of training is: what it trains, the random numbers it uses, how it chooses looks, and the loss of one batch.

A method is a few phases, each declared where its loss is written. A loss is a function of the model, the batch with its random numbers, and
the looks chosen for it; it changes nothing but the running statistics of batch norm, so that several processes, or a captured step, compute
the same. In which mode each part is, training or evaluation, is set by the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from infogaze.data.feed import Scenes
from infogaze.training.recipe import PhaseRecipe, Recipe

Noise = Mapping[str, Tensor]
"""The random numbers of a step by name, each [B, ...]: scene by scene."""


@dataclass(frozen=True)
class NoiseSpec:
    """Random numbers that a phase uses."""

    distribution: Literal["uniform", "normal"]
    """On [0, 1), or standard."""
    shape: tuple[int, ...]
    """Of one scene."""


def uniform(*shape: int) -> NoiseSpec:
    """Numbers on [0, 1), so many a scene."""
    return NoiseSpec("uniform", shape)


def normal(*shape: int) -> NoiseSpec:
    """Standard normal numbers, so many a scene."""
    return NoiseSpec("normal", shape)


def draw_noise(specs: Mapping[str, NoiseSpec], scenes: int, generator: torch.Generator) -> dict[str, Tensor]:
    """The numbers of one step for this many scenes, in the order of their declaration."""
    draw = {"uniform": torch.rand, "normal": torch.randn}
    return {
        name: draw[spec.distribution](scenes, *spec.shape, generator=generator, device=generator.device)
        for name, spec in specs.items()
    }


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What a training step sees."""

    images: Float[Tensor, "B C H W"]
    """Pixels in [-1, 1]."""
    labels: Int[Tensor, " B"]
    """-1 where a scene has none; the larger part's where two scenes are mixed."""
    noise: Noise
    """The random numbers that the phase declared."""
    progress: Float[Tensor, ""] = field(default_factory=lambda: torch.zeros(()))
    """The share of the phase's steps that are done."""
    targets: Float[Tensor, "B classes"] | None = None
    """What each scene is taught, where that is more than its label: of mixed scenes, or by a teacher. Zeros where nothing is known."""
    displacement: Int[Tensor, "B L 2"] | None = None
    """How far from each place of the grid, and from what is near it, a glimpse is taken that was asked for there; None for not at all."""
    more_places: Float[Tensor, "some L"] | None = None
    """The order of the grid places that the first scenes are looked at beyond the budget; None where none are."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What is the same for every step: the budget and how the parts of the loss are weighed."""

    num_looks: int
    """T."""
    num_classes: int
    """Of the labels."""
    alpha: float
    """Weight of the Partial VAE's loss."""
    beta: float
    """Weight of the classification loss in phase 3."""
    dropout: float
    """Share of the belief that the classifier does not see."""
    num_samples: int = 1
    """Imagined scenes behind each choice of a look in phase 3."""
    num_entries: int = 16
    """Entries of a dictionary behind each choice of a look in phase 3."""
    kl_warmup: float = 0.0
    """Share of phase 2 over which the weight of the KL term rises to 1."""
    some_unlabelled: bool = False
    """Whether some training scenes have no label."""
    more_looks: int = 0
    """Looks beyond the budget that a few scenes of each batch are taught with."""


@dataclass(frozen=True)
class Outcome:
    """A batch's loss, its accuracy at each look, and where the looks fell."""

    loss: Float[Tensor, ""]
    accuracy: Float[Tensor, " T"]
    visits: Float[Tensor, "T L"]
    """How many looks fell on each grid location or next to it; none where nothing is looked at."""


def _no_parts(model: Any) -> Iterable[nn.Module]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One phase of a method. Its functions take the method's own model."""

    name: str
    trained: Callable[[Any], Iterable[nn.Parameter]]
    """The parameters that it trains."""
    noise: Callable[[Any, Objective], Mapping[str, NoiseSpec]]
    """The random numbers that it uses."""
    loss: Callable[..., Outcome]
    """loss(model, batch, objective=..., looks=...): `looks` is what `choose` gave, or None."""
    choose: Callable[[Any, Batch, Objective], Any] | None = None
    """Looks that the model chooses itself: without gradient, in evaluation mode, before the loss."""
    budget: Callable[[Recipe], PhaseRecipe]
    """Its part of a recipe."""
    rate: Literal[0, 1, 2]
    """Which of the preset's learning rates is its own."""
    frozen: Callable[[Any], Iterable[nn.Module]] = _no_parts
    """Parts that stay in evaluation mode."""
    validates_by_policy: bool = True
    """Whether validation scenes are looked at by the method's own policy while it trains, or at random."""
    prepare: Callable[[Any, Iterator[Batch], Objective], None] | None = None
    """What happens to the model before the first step, given training images in batches, not augmented: one pass over them."""
    conclude: Callable[[Any, Iterator[Batch], Objective], None] | None = None
    """What happens to it after the last step, given the same."""
    scenes: Scenes = "labelled"
    """Which training scenes teach it something, where some have no label."""
    mixes: bool = False
    """Whether scenes may be mixed in it: where looks are at random. What is imagined, or chosen, is of scenes as they are."""
    sees_whole: bool = False
    """Whether scenes are seen whole, once, instead of look by look."""

    def set_modes(self, model: nn.Module) -> None:
        """Training mode, but for the parts that stay in evaluation mode."""
        model.train()
        for part in self.frozen(model):
            part.eval()


def after_phase_1(recipe: Recipe) -> PhaseRecipe:
    """All that a recipe gives to the phases after the first, as one: what a method with two phases has for its second."""
    return recipe.phase2.followed_by(recipe.phase3)
