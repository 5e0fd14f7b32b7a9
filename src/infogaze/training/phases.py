"""The three phases (section 4): what each trains, what it draws at random, and the loss of one batch.

A loss is a pure function of the model, the batch and the numbers drawn for it, so that several processes, or a compiled step, compute
the same. Time is not a loop over the heavy parts: all looks of a batch pass F, S and D at once, and only the state itself goes look by
look. In phase 3 the looks are first chosen without gradient, which no gradient passes through anyway, and then seen again with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from infogaze.belief import Belief
from infogaze.model import Model
from infogaze.objectives import classification_loss, partial_vae_loss
from infogaze.sensing import extract


@dataclass(frozen=True)
class Batch:
    """What a training step sees."""

    images: Float[Tensor, "B C H W"]
    """Pixels in [-1, 1]."""
    labels: Int[Tensor, " B"]


@dataclass(frozen=True)
class Draw:
    """The random numbers of a step, scene by scene. A phase draws those it needs; the others are empty."""

    anywhere: Float[Tensor, "B _ 2"]
    """Uniform: where a look falls, as a share of the allowed rows and columns."""
    places: Float[Tensor, "B _"]
    """Uniform: the grid places in order of these numbers."""
    explore: Float[Tensor, "B _ d"]
    """Normal: the one imagined scene behind each choice."""
    latent: Float[Tensor, "B _ d"]
    """Normal: the sample of z in the Partial VAE's loss."""
    dropout: Float[Tensor, "B _ h"]
    """Uniform: what the classifier does not see, where below the rate."""

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
    smoothing: float = 0.0
    """Label smoothing of the classification loss."""


@dataclass(frozen=True)
class Outcome:
    """A batch's loss and its accuracy at each look."""

    loss: Float[Tensor, ""]
    accuracy: Float[Tensor, " T"]


def recognise(model: Model, batch: Batch, draw: Draw, objective: Objective) -> Outcome:
    """Phase 1: F, R and C, with looks at random anywhere."""
    grid = model.grid
    rows = draw.anywhere[..., 0] * (grid.height - grid.glimpse + 1)
    cols = draw.anywhere[..., 1] * (grid.width - grid.glimpse + 1)
    locations = torch.stack([rows, cols], -1).long().movedim(1, 0)  # [T, B, 2]
    beliefs = model.backbone.unroll(_seen(model, batch, locations), locations)
    return _classified(model, beliefs, batch, draw, objective)


def imagine(model: Model, batch: Batch, draw: Draw, objective: Objective) -> Outcome:
    """Phase 2: S and D, with looks at random grid places and the rest frozen, in eval mode."""
    model.backbone.eval()
    with torch.no_grad():
        places = _random_places(draw, objective.looks)
        beliefs, seen = _believe(model, batch, places)
        accuracy = _accuracy(model.backbone.classify(beliefs), batch.labels)
    return Outcome(objective.alpha * _vae_loss(model, beliefs, seen, places, draw), accuracy)


def refine(model: Model, batch: Batch, draw: Draw, objective: Objective) -> Outcome:
    """Phase 3: everything, with looks chosen by the gain of one imagined scene, which is what makes them explore."""
    model.eval()
    with torch.no_grad():
        places = _places_by_gain(model, batch, draw, objective.looks)
    model.train()
    beliefs, seen = _believe(model, batch, places)
    recognised = _classified(model, beliefs, batch, draw, objective)
    # The features to imagine are a target, not a way to make imagining easy: no gradient reaches them.
    imagined = _vae_loss(model, beliefs, seen.detach(), places, draw)
    return Outcome(objective.alpha * imagined + objective.beta * recognised.loss, recognised.accuracy)


@dataclass(frozen=True)
class Phase:
    """One of the three."""

    name: str
    loss: Callable[[Model, Batch, Draw, Objective], Outcome]
    trained: Callable[[Model], Iterable[nn.Parameter]]
    draws: frozenset[str]
    """The numbers it needs."""


def _imagining(model: Model) -> Iterable[nn.Parameter]:
    return [*model.posterior.parameters(), *model.decoder.parameters(), model.log_variance]


PHASES: tuple[Phase, Phase, Phase] = (
    Phase("recognise", recognise, lambda model: model.backbone.parameters(), frozenset({"anywhere", "dropout"})),
    Phase("imagine", imagine, _imagining, frozenset({"places", "latent"})),
    Phase("refine", refine, lambda model: model.parameters(), frozenset({"places", "explore", "latent", "dropout"})),
)


def draw(phase: Phase, model: Model, scenes: int, objective: Objective, generator: torch.Generator) -> Draw:
    """The random numbers of one step of a phase, for this many scenes."""
    looks, latent, hidden = objective.looks, model.posterior.latent_size, model.backbone.start(1).hidden.shape[-1]

    def numbers(name: str, fill: Callable[..., Tensor], *shape: int) -> Tensor:
        shape = shape if name in phase.draws else (0, *shape[1:])
        return fill(scenes, *shape, generator=generator, device=generator.device)

    return Draw(
        anywhere=numbers("anywhere", torch.rand, looks, 2),
        places=numbers("places", torch.rand, model.grid.places),
        explore=numbers("explore", torch.randn, looks, latent),
        latent=numbers("latent", torch.randn, looks, latent),
        dropout=numbers("dropout", torch.rand, looks, hidden),
    )


@torch.no_grad()
def initialise_posterior(model: Model, batch: Batch, draw: Draw, objective: Objective) -> None:
    """Before phase 2: set the flow's ActNorms from a first batch of beliefs and the numbers drawn for it."""
    model.eval()
    beliefs, _ = _believe(model, batch, _random_places(draw, objective.looks))
    model.posterior.initialise(beliefs.hidden.flatten(0, 1), draw.latent.movedim(1, 0).flatten(0, 1))


def _believe(model: Model, batch: Batch, places: Int[Tensor, "T B"]) -> tuple[Belief, Float[Tensor, "T B f"]]:
    """The beliefs after looks at these grid places, and the content that was seen there."""
    locations = model.grid.locations(places.device)[places]
    seen = _seen(model, batch, locations)
    return model.backbone.unroll(seen, locations), seen


def _seen(model: Model, batch: Batch, locations: Int[Tensor, "T B 2"]) -> Float[Tensor, "T B f"]:
    """The content of the glimpses at these locations. They pass scene by scene, as they lie in memory, with no copy between."""
    return model.backbone.features(extract(batch.images, locations.movedim(0, 1), model.grid.glimpse)).movedim(1, 0)


def _random_places(draw: Draw, looks: int) -> Int[Tensor, "T B"]:
    """Different grid places, at random."""
    return draw.places.topk(min(looks, draw.places.shape[1])).indices.t()


def _places_by_gain(model: Model, batch: Batch, draw: Draw, looks: int) -> Int[Tensor, "T B"]:
    belief = model.backbone.start(len(batch.labels))
    candidates = torch.ones_like(draw.places, dtype=torch.bool)
    values = draw.places
    places = []
    for look in range(min(looks, model.grid.places)):
        if look:
            values = model.gain(belief, draw.explore[None, :, look])
        place = values.masked_fill(~candidates, -torch.inf).argmax(1)  # [B]
        candidates = candidates.scatter(1, place[:, None], False)
        where = model.grid.locations(place.device)[place]
        belief = model.backbone.update(belief, _seen(model, batch, where[None])[0], where)
        places.append(place)
    return torch.stack(places)


def _classified(model: Model, beliefs: Belief, batch: Batch, draw: Draw, objective: Objective) -> Outcome:
    kept = (draw.dropout.movedim(1, 0)[: len(beliefs.hidden)] >= objective.dropout).to(beliefs.hidden.dtype)
    hidden = beliefs.hidden * kept / (1.0 - objective.dropout)
    log_probabilities = model.backbone.classify(Belief(hidden, beliefs.memory))
    loss = classification_loss(log_probabilities, batch.labels, objective.smoothing)
    return Outcome(loss, _accuracy(log_probabilities, batch.labels))


def _vae_loss(
    model: Model, beliefs: Belief, seen: Float[Tensor, "T B f"], places: Int[Tensor, "T B"], draw: Draw
) -> Float[Tensor, ""]:
    noise = draw.latent.movedim(1, 0)[: len(places)]
    z, log_q = model.posterior(beliefs.hidden).rsample_with_log_prob(noise)
    return partial_vae_loss(model.decoder(z), seen, places, z, log_q, model.log_variance)


def _accuracy(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    return (log_probabilities.argmax(-1) == labels).float().mean(1).detach()
