"""What a phase of training is: what it trains, the random numbers it draws, and the loss of one batch. Every method is a few of them.

A loss is a pure function of the model, the batch and the numbers drawn for it, so that several processes, or a captured step, compute
the same. Time is not a loop over the heavy parts: all looks of a batch pass F at once, and only the state itself goes look by look. Looks
that the model chooses are first chosen without gradient, which no gradient passes through anyway, and then seen again with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor, nn

from infogaze.grid import GlimpseGrid, extract
from infogaze.nn.belief import Belief
from infogaze.nn.model import Recogniser
from infogaze.training.losses import classification_loss
from infogaze.training.recipe import PhaseRecipe, Recipe

ALWAYS_WANDERS = 0.05
"""The share of looks that stays at random to the end of training, where a method learns what looks are worth from its own."""


@dataclass(frozen=True)
class Batch:
    """What a training step sees."""

    images: Float[Tensor, "B C H W"]
    """Pixels in [-1, 1]."""
    labels: Int[Tensor, " B"]
    progress: Float[Tensor, ""] = field(default_factory=lambda: torch.zeros(()))
    """The share of the phase's steps that are done."""


@dataclass(frozen=True)
class Draw:
    """The random numbers of a step, scene by scene. A phase draws those it needs; the others are empty."""

    anywhere: Float[Tensor, "B _ 2"]
    """Uniform: where a look falls, as a share of the allowed rows and columns."""
    places: Float[Tensor, "B _"]
    """Uniform: the grid places in order of these numbers."""
    explore: Float[Tensor, "B _ T d"]
    """Normal: the imagined scenes behind each choice."""
    latent: Float[Tensor, "B _ d"]
    """Normal: the sample of z in the Partial VAE's loss."""
    dropout: Float[Tensor, "B _ h"]
    """Uniform: what the classifier does not see, where below the rate."""
    aim: Float[Tensor, "B _ 2"]
    """Normal: how far a look falls from where a controller aims."""
    wander: Float[Tensor, "B _"]
    """Uniform: whether a look is at random instead of by the policy."""

    def __getitem__(self, scenes: slice) -> Draw:
        """The numbers of some scenes."""
        return Draw(*(getattr(self, field.name)[scenes] for field in fields(self)))


@dataclass(frozen=True)
class Objective:
    """What is the same for every step: the budget and how the parts of the loss are weighed."""

    looks: int
    """T."""
    alpha: float
    """Weight of the Partial VAE's loss."""
    beta: float
    """Weight of the classification loss in phase 3."""
    dropout: float
    """Share of the belief that the classifier does not see."""
    samples: int = 1
    """Imagined scenes behind each choice of a look in phase 3."""
    warm_up: float = 0.0
    """Share of phase 2 over which the divergence from the prior comes to its full weight."""


@dataclass(frozen=True)
class Outcome:
    """A batch's loss, its accuracy at each look, and where the looks fell."""

    loss: Float[Tensor, ""]
    accuracy: Float[Tensor, " T"]
    visited: Float[Tensor, "T L"]
    """How many looks fell on each grid place or next to it; none where nothing is looked at."""


@dataclass(frozen=True)
class Phase:
    """One phase of a method."""

    name: str
    loss: Callable[[Any, Batch, Draw, Objective], Outcome]
    """Of the method's model."""
    trained: Callable[[Any], Iterable[nn.Parameter]]
    draws: frozenset[str]
    """The numbers it needs."""
    length: Callable[[Recipe], PhaseRecipe]
    """Its share of a recipe."""
    rate: Literal[0, 1, 2]
    """Which of the preset's learning rates is its own."""
    chooses: bool = True
    """Whether the method's own policy chooses the looks of scenes held out while it runs, or chance."""
    prepare: Callable[[Any, Batch, Draw, Objective], None] | None = None
    """What happens to the model before the first step."""
    looks: bool = True
    """Whether scenes are looked at; otherwise they are seen whole, once."""


def after_recognising(recipe: Recipe) -> PhaseRecipe:
    """All that a recipe gives to the phases after the first, as one: what a method with two phases has for its second."""
    refine = recipe.refine
    return PhaseRecipe(recipe.imagine.epochs + refine.epochs, refine.batch, refine.learning_rate)


def draw(phase: Phase, model: Recogniser, scenes: int, objective: Objective, generator: torch.Generator) -> Draw:
    """The random numbers of one step of a phase, for this many scenes."""
    looks, posterior = objective.looks, getattr(model, "posterior", None)
    latent, hidden = (0 if posterior is None else posterior.latent_size), model.backbone.start(1).hidden.shape[-1]

    def numbers(name: str, fill: Callable[..., Tensor], *shape: int) -> Tensor:
        shape = shape if name in phase.draws else (0, *shape[1:])
        return fill(scenes, *shape, generator=generator, device=generator.device)

    return Draw(
        anywhere=numbers("anywhere", torch.rand, looks, 2),
        places=numbers("places", torch.rand, model.grid.places),
        explore=numbers("explore", torch.randn, objective.samples, looks, latent),
        latent=numbers("latent", torch.randn, looks, latent),
        dropout=numbers("dropout", torch.rand, looks, hidden),
        aim=numbers("aim", torch.randn, looks, 2),
        wander=numbers("wander", torch.rand, looks),
    )


def seen_at(model: Recogniser, batch: Batch, locations: Int[Tensor, "T B 2"]) -> Float[Tensor, "T B f"]:
    """The content of the glimpses at these locations. They pass scene by scene, as they lie in memory, with no copy between."""
    return model.backbone.features(extract(batch.images, locations.movedim(0, 1), model.grid.glimpse)).movedim(1, 0)


def believe(model: Recogniser, batch: Batch, places: Int[Tensor, "T B"]) -> tuple[Belief, Float[Tensor, "T B f"]]:
    """The beliefs after looks at these grid places, and the content that was seen there."""
    locations = model.grid.locations(places.device)[places]
    seen = seen_at(model, batch, locations)
    return model.backbone.unroll(seen, locations), seen


def look_at(model: Recogniser, batch: Batch, belief: Belief, where: Int[Tensor, "B 2"]) -> Belief:
    """The belief after one more look."""
    return model.backbone.update(belief, seen_at(model, batch, where[None])[0], where)


def look_by(
    value: Callable[[Belief, int], Float[Tensor, "B L"]],
    model: Recogniser,
    batch: Batch,
    draw: Draw,
    looks: int,
    *,
    wander: bool,
) -> tuple[Int[Tensor, "T B"], Belief]:
    """Looks at the places that `value` puts highest before each look, none twice and the first at random; and the beliefs after them.

    With `wander` others are at random too, fewer and fewer, so that a method that learns what looks are worth hears of every place.
    """
    chance = (1.0 - batch.progress).clamp(min=ALWAYS_WANDERS)
    belief = model.backbone.start(len(batch.labels))
    candidates = torch.ones_like(draw.places, dtype=torch.bool)
    places: list[Tensor] = []
    beliefs: list[Belief] = []
    for look in range(min(looks, model.grid.places)):
        values = value(belief, look) if look else draw.places
        if look and wander:
            values = torch.where(draw.wander[:, look, None] < chance, draw.places, values)
        place = values.masked_fill(~candidates, -torch.inf).argmax(1)  # [B]
        candidates = candidates.scatter(1, place[:, None], False)
        belief = look_at(model, batch, belief, model.grid.locations(place.device)[place])
        places.append(place)
        beliefs.append(belief)
    return torch.stack(places), Belief.stack(beliefs)


def random_places(draw: Draw, looks: int) -> Int[Tensor, "T B"]:
    """Different grid places, at random."""
    return draw.places.topk(min(looks, draw.places.shape[1])).indices.t()


def classified(
    model: Recogniser, beliefs: Belief, locations: Num[Tensor, "T B 2"], batch: Batch, draw: Draw, objective: Objective
) -> Outcome:
    """The classification loss after all looks (equation 1), the classifier seeing part of the belief."""
    return outcome(seen_in_part(model, beliefs, draw, objective), locations, batch, model.grid, objective)


def seen_in_part(model: Recogniser, beliefs: Belief, draw: Draw, objective: Objective) -> Float[Tensor, "T B classes"]:
    """log p(y | h), with dropout on h."""
    kept = (draw.dropout.movedim(1, 0)[: len(beliefs.hidden)] >= objective.dropout).to(beliefs.hidden.dtype)
    hidden = beliefs.hidden * kept / (1.0 - objective.dropout)
    return model.backbone.classify(Belief(hidden, beliefs.memory))


def outcome(
    log_probabilities: Float[Tensor, "T B classes"],
    locations: Num[Tensor, "T B 2"],
    batch: Batch,
    grid: GlimpseGrid,
    objective: Objective,
) -> Outcome:
    """The classification loss of these predictions, and what is told of them."""
    loss = classification_loss(log_probabilities, batch.labels)
    return Outcome(loss, accuracy(log_probabilities, batch.labels), visited(locations, grid))


def accuracy(log_probabilities: Float[Tensor, "T B classes"], labels: Int[Tensor, " B"]) -> Float[Tensor, " T"]:
    """The share named right after each look."""
    return (log_probabilities.argmax(-1) == labels).float().mean(1).detach()


def visited(locations: Num[Tensor, "T B 2"], grid: GlimpseGrid) -> Float[Tensor, "T L"]:
    """How many looks fell on each place, or next to it."""
    places = grid.nearest(locations)
    counts = torch.zeros(len(places), grid.places, device=locations.device)
    return counts.scatter_add(1, places, torch.ones_like(places, dtype=counts.dtype))
