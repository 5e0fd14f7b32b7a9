"""The paper's three phases (section 4): recognise, imagine, refine."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from infogaze.belief import Belief
from infogaze.model import Model, Recogniser
from infogaze.objectives import partial_vae_loss
from infogaze.training.phases import (
    Batch,
    Draw,
    Objective,
    Outcome,
    Phase,
    accuracy,
    believe,
    classified,
    look_at,
    random_places,
    seen_at,
    visited,
)


def recognise(model: Recogniser, batch: Batch, draw: Draw, objective: Objective) -> Outcome:
    """Phase 1: F, R and C, with looks at random anywhere."""
    grid = model.grid
    rows = draw.anywhere[..., 0] * (grid.height - grid.glimpse + 1)
    cols = draw.anywhere[..., 1] * (grid.width - grid.glimpse + 1)
    locations = torch.stack([rows, cols], -1).long().movedim(1, 0)  # [T, B, 2]
    beliefs = model.backbone.unroll(seen_at(model, batch, locations), locations)
    return classified(model, beliefs, locations, batch, draw, objective)


def imagine(model: Model, batch: Batch, draw: Draw, objective: Objective) -> Outcome:
    """Phase 2: S and D, with looks at random grid places and the rest frozen, in eval mode."""
    model.backbone.eval()
    with torch.no_grad():
        places = random_places(draw, objective.looks)
        beliefs, seen = believe(model, batch, places)
        right = accuracy(model.backbone.classify(beliefs), batch.labels)
    fallen = visited(model.grid.locations(places.device)[places], model.grid)
    return Outcome(objective.alpha * _vae_loss(model, beliefs, seen, places, draw), right, fallen)


def refine(model: Model, batch: Batch, draw: Draw, objective: Objective) -> Outcome:
    """Phase 3: everything, with looks chosen by the gain of one imagined scene, which is what makes them explore."""
    model.eval()
    with torch.no_grad():
        places = _places_by_gain(model, batch, draw, objective.looks)
    model.train()
    beliefs, seen = believe(model, batch, places)
    locations = model.grid.locations(places.device)[places]
    recognised = classified(model, beliefs, locations, batch, draw, objective)
    # The features to imagine are a target, not a way to make imagining easy: no gradient reaches them.
    imagined = _vae_loss(model, beliefs, seen.detach(), places, draw)
    loss = objective.alpha * imagined + objective.beta * recognised.loss
    return Outcome(loss, recognised.accuracy, recognised.visited)


@torch.no_grad()
def prepare_to_imagine(model: Model, batch: Batch, draw: Draw, objective: Objective) -> None:
    """Before phase 2: set sigma^2 and the flow's ActNorms from a first batch and the numbers drawn for it.

    sigma^2 begins at the variance of the features. From one, an optimiser would take thousands of steps down to it, and until then
    errors weigh so little that imagining anything but the mean does not pay: the posterior falls onto the prior, and stays there.
    """
    model.eval()
    beliefs, seen = believe(model, batch, random_places(draw, objective.looks))
    model.log_variance.copy_(seen.flatten(0, 1).float().var(0).mean().clamp(min=1e-8).log())
    model.posterior.initialise(beliefs.hidden.flatten(0, 1), draw.latent.movedim(1, 0).flatten(0, 1))


def _imagining(model: Model) -> Iterable[nn.Parameter]:
    return [*model.posterior.parameters(), *model.decoder.parameters(), model.log_variance]


RECOGNISE = Phase(
    "recognise", recognise, lambda model: model.backbone.parameters(), frozenset({"anywhere", "dropout"}),
    length=lambda recipe: recipe.recognise, rate=0, chooses=False,
)  # fmt: skip
"""Phase 1, which all methods that look have in common."""

PHASES: tuple[Phase, Phase, Phase] = (
    RECOGNISE,
    Phase(
        "imagine", imagine, _imagining, frozenset({"places", "latent"}),
        length=lambda recipe: recipe.imagine, rate=1, prepare=prepare_to_imagine,
    ),
    Phase(
        "refine", refine, lambda model: model.parameters(), frozenset({"places", "explore", "latent", "dropout"}),
        length=lambda recipe: recipe.refine, rate=2,
    ),
)  # fmt: skip


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
        belief = look_at(model, batch, belief, model.grid.locations(place.device)[place])
        places.append(place)
    return torch.stack(places)


def _vae_loss(
    model: Model, beliefs: Belief, seen: Float[Tensor, "T B f"], places: Int[Tensor, "T B"], draw: Draw
) -> Float[Tensor, ""]:
    noise = draw.latent.movedim(1, 0)[: len(places)]
    z, log_q = model.posterior(beliefs.hidden).rsample_with_log_prob(noise)
    return partial_vae_loss(model.decoder(z), seen, places, z, log_q, model.log_variance)
