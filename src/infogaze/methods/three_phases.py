"""The paper's three phases (section 4): recognise, imagine, refine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from infogaze.nn.belief import Belief
from infogaze.nn.gain import class_entropy
from infogaze.nn.model import Model, Recogniser
from infogaze.nn.precision import precise
from infogaze.training.losses import log_likelihood, partial_vae_loss
from infogaze.training.phases import (
    Batch,
    Draw,
    Objective,
    Outcome,
    Phase,
    accuracy,
    believe,
    classified,
    look_by,
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
    divergence = (batch.progress / objective.warm_up).clamp(max=1.0) if objective.warm_up else 1.0
    return Outcome(objective.alpha * _vae_loss(model, beliefs, seen, places, draw, divergence), right, fallen)


def refine(model: Model, batch: Batch, draw: Draw, objective: Objective) -> Outcome:
    """Phase 3: everything, with looks chosen by the gain of a few imagined scenes, or one, which is what makes them explore."""
    model.eval()
    looked = explore(model, batch, draw, objective.looks)
    model.train()
    beliefs, seen = believe(model, batch, looked.places)
    locations = model.grid.locations(looked.places.device)[looked.places]
    recognised = classified(model, beliefs, locations, batch, draw, objective)
    # The features to imagine are a target, not a way to make imagining easy: no gradient reaches them.
    imagined = _vae_loss(model, beliefs, seen.detach(), looked.places, draw)
    loss = objective.alpha * imagined + objective.beta * recognised.loss
    if model.hindsight is not None and len(looked.gain):
        expected = model.hindsight.at(looked.places[1:], looked.gain, looked.hidden, looked.entropy)
        loss = loss + functional.mse_loss(expected, looked.worth)
    return Outcome(loss, recognised.accuracy, recognised.visited)


@dataclass(frozen=True)
class Looked:
    """Looks that were chosen by gain, and what came of each but the first."""

    places: Int[Tensor, "T B"]
    gain: Float[Tensor, "_ B"]
    """Of the look, as imagined."""
    hidden: Float[Tensor, "_ B h"]
    """Of the belief before the look."""
    entropy: Float[Tensor, "_ B"]
    """Of the label before the look, in nats."""
    worth: Float[Tensor, "_ B"]
    """How much the look lowered the loss, in nats."""


@torch.no_grad()
def explore(model: Model, batch: Batch, draw: Draw, looks: int) -> Looked:
    """Looks where the gain is largest; with hindsight some more are at random, so that it hears of every place before it is believed."""
    maps: list[Tensor] = []

    def value(belief: Belief, look: int) -> Tensor:
        gain = model.imagined_gain(belief, draw.explore[:, :, look].movedim(1, 0))
        maps.append(gain)
        if model.hindsight is None:
            return gain
        return model.hindsight(gain, belief.hidden, class_entropy(model.backbone.classify(belief)))

    places, beliefs = look_by(value, model, batch, draw, looks, wander=model.hindsight is not None)
    told = model.backbone.classify(beliefs)
    likely = log_likelihood(told, batch.labels)
    gains = [gain.gather(1, place[:, None]).squeeze(1) for gain, place in zip(maps, places[1:], strict=True)]
    return Looked(
        places,
        torch.stack(gains) if gains else likely[:0],
        beliefs.hidden[:-1],
        class_entropy(told[:-1]),
        likely[1:] - likely[:-1],
    )


_FIRST_SPREAD = 0.25
"""Of what D imagines before it has learned anything, as a share of the features' own."""


@torch.no_grad()
def prepare_to_imagine(model: Model, batch: Batch, draw: Draw, objective: Objective) -> None:
    """Before phase 2: set the flow's ActNorms, what D imagines at first and sigma^2, from a first batch and the numbers drawn for it.

    D begins near the mean of the features, and not at noise louder than they are, which would first have to be unlearned.

    sigma^2 begins at the variance of the features. From one, an optimiser would take thousands of steps down to it, and until then
    errors weigh so little that imagining anything but the mean does not pay: the posterior falls onto the prior, and stays there.
    """
    model.eval()
    beliefs, seen = believe(model, batch, random_places(draw, objective.looks))
    features, noise = precise(seen.flatten(0, 1)), draw.latent.movedim(1, 0)[: len(seen)].flatten(0, 1)
    variance = features.var(0).mean().clamp(min=1e-8)
    model.log_variance.copy_(variance.log())
    hidden = beliefs.hidden.flatten(0, 1)
    model.posterior.initialise(hidden, noise)
    model.decoder.initialise(model.posterior(hidden).rsample(noise), features.mean(0), _FIRST_SPREAD * variance.sqrt())


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
        "refine", refine, lambda model: model.parameters(), frozenset({"places", "explore", "latent", "dropout", "wander"}),
        length=lambda recipe: recipe.refine, rate=2,
    ),
)  # fmt: skip


def _vae_loss(
    model: Model,
    beliefs: Belief,
    seen: Float[Tensor, "T B f"],
    places: Int[Tensor, "T B"],
    draw: Draw,
    divergence: float | Float[Tensor, ""] = 1.0,
) -> Float[Tensor, ""]:
    noise = draw.latent.movedim(1, 0)[: len(places)]
    z, log_q = model.posterior(beliefs.hidden).rsample_with_log_prob(noise)
    return partial_vae_loss(model.decoder(z), seen, places, z, log_q, model.log_variance, divergence)
