"""Greedy discriminative estimation of conditional mutual information, as in DIME (Gadgil et al., 2024) and GDFS (Covert et al., 2023).

Nothing is imagined: a value head reads from the belief, for every place l, how much a look there is expected to lower the loss,
v_l(h_t), which is I(y; f(l) | h_t) where the classifier is the best there is. It is trained by regression on what happened:

    (v_l(h_{t-1}) - (CE(y, p_{t-1}) - CE(y, p_t)))^2   at the place l of look t.

As in DIME, v_l is a share of the entropy of p(y | h), which no look can exceed in expectation, and looks in training are at random
with a probability that falls as training goes on. Same F, R and C as ours; the state does not learn from the value head's error.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from infogaze.gaze.policies import Choice, best
from infogaze.grid import GlimpseGrid
from infogaze.methods.three_phases import RECOGNISE
from infogaze.nn.backbone import Backbone
from infogaze.nn.belief import Belief
from infogaze.nn.correction import share_head
from infogaze.nn.gain import class_entropy
from infogaze.nn.model import ModelConfig, Recogniser, glimpse_backbone
from infogaze.nn.precision import precise
from infogaze.rng import SceneNoise
from infogaze.training.losses import log_likelihood
from infogaze.training.phases import (
    Batch,
    Draw,
    Objective,
    Outcome,
    Phase,
    after_recognising,
    believe,
    classified,
    look_by,
)


class Valuer(Recogniser):
    """A backbone and a head that values places."""

    def __init__(self, grid: GlimpseGrid, backbone: Backbone, belief_size: int) -> None:
        super().__init__(grid, backbone)
        self.head = share_head(belief_size, grid.places)

    def value(self, belief: Belief) -> Float[Tensor, "*batch L"]:
        """What a look at each place is expected to be worth, in nats."""
        with torch.no_grad():
            most = class_entropy(self.backbone.classify(belief))
        return most[..., None] * torch.sigmoid(precise(self.head(belief.hidden.detach())))


def with_value_head(config: ModelConfig) -> Valuer:
    """F, R and C of these sizes, with a value head."""
    return Valuer(config.grid, glimpse_backbone(config), config.belief_size)


class ValuePolicy:
    """The place with the largest value."""

    def __call__(self, model: Valuer, belief: Belief, candidates: Bool[Tensor, "B L"], noise: SceneNoise) -> Choice:
        """Read the head, take the largest."""
        value = model.value(belief)
        return Choice(best(model, value, candidates), value)


@torch.no_grad()
def explore(model: Valuer, batch: Batch, draw: Draw, looks: int) -> Int[Tensor, "T B"]:
    """Places by value, or at random with the probability of this moment of training; the first at random."""
    return look_by(lambda belief, look: model.value(belief), model, batch, draw, looks, wander=True)[0]


def estimate(model: Valuer, batch: Batch, draw: Draw, objective: Objective) -> Outcome:
    """One step: the classification loss at all looks, and the value head's regression on what each look changed."""
    model.eval()
    places = explore(model, batch, draw, objective.looks)
    model.train()
    beliefs, _ = believe(model, batch, places)
    told = classified(model, beliefs, model.grid.locations(places.device)[places], batch, draw, objective)
    with torch.no_grad():
        loss = -log_likelihood(model.backbone.classify(beliefs), batch.labels)  # [T, B]
        happened = loss[:-1] - loss[1:]
    before = Belief(beliefs.hidden[:-1], beliefs.memory[:-1])
    guessed = model.value(before).gather(2, places[1:, :, None]).squeeze(2)  # [T - 1, B]
    # A budget of one look leaves nothing to value.
    error = functional.mse_loss(guessed, happened) if len(happened) else guessed.sum()
    return Outcome(told.loss + error, told.accuracy, told.visited)


PHASES = (
    RECOGNISE,
    Phase(
        "estimate", estimate, lambda model: model.parameters(), frozenset({"places", "wander", "dropout"}),
        length=after_recognising, rate=2,
    ),
)  # fmt: skip
