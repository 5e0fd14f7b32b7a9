"""Greedy discriminative estimation of conditional mutual information, as in DIME (Gadgil et al., 2024) and GDFS (Covert et al., 2023).

Nothing is imagined: a value head reads from the belief, for every location l, how much a look there is expected to lower the loss,
v_l(h_t), which is I(y; f(l) | h_t) where the classifier is the best there is. It is trained by regression on the outcomes:

    (v_l(h_{t-1}) - (CE(y, p_{t-1}) - CE(y, p_t)))^2   at the location l of look t.

As in DIME, v_l is a share of the entropy of p(y | h), which no look can exceed in expectation, and looks in training are epsilon-greedy
with an epsilon that falls as training goes on. Same F, R and C as ours; the state does not learn from the value head's error.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from infogaze.gaze.policies import Choice, best
from infogaze.grid import GlimpseGrid
from infogaze.methods.method import Method
from infogaze.methods.three_phases import CLASSIFY
from infogaze.nn.backbone import Backbone
from infogaze.nn.belief import Belief
from infogaze.nn.config import ModelConfig
from infogaze.nn.correction import location_head
from infogaze.nn.gain import class_entropy
from infogaze.nn.model import GlimpseClassifier, build_backbone
from infogaze.nn.precision import precise
from infogaze.rng import SceneNoise
from infogaze.training.phases import Batch, NoiseSpec, Objective, Outcome, Phase, after_phase_1, uniform
from infogaze.training.rollout import (
    classification_outcome,
    greedy_looks,
    hidden_size,
    taught_likelihood,
    unroll_places,
)


class Valuer(GlimpseClassifier):
    """A backbone and a head that values locations."""

    def __init__(self, grid: GlimpseGrid, backbone: Backbone, belief_size: int) -> None:
        super().__init__(grid, backbone)
        self.head = location_head(belief_size, grid.num_locations)

    def value(self, belief: Belief) -> Float[Tensor, "*batch L"]:
        """What a look at each location is expected to be worth, in nats."""
        with torch.no_grad():
            most = class_entropy(self.backbone.classify(belief))
        return most[..., None] * torch.sigmoid(precise(self.head(belief.hidden.detach())))


def with_value_head(config: ModelConfig) -> Valuer:
    """F, R and C of these sizes, with a value head."""
    return Valuer(config.grid, build_backbone(config), config.belief_size)


class ValuePolicy:
    """The location with the largest value."""

    def __call__(self, model: Valuer, belief: Belief, *, candidates: Bool[Tensor, "B L"], noise: SceneNoise) -> Choice:
        """Read the head, take the largest."""
        value = model.value(belief)
        return Choice(best(model, value, candidates), value)


def _noise(model: Valuer, objective: Objective) -> Mapping[str, NoiseSpec]:
    looks = objective.num_looks
    return {
        "places": uniform(model.grid.num_locations),
        "epsilon": uniform(looks),
        "dropout": uniform(looks, hidden_size(model)),
    }


def choose_by_value(model: Valuer, batch: Batch, objective: Objective) -> Int[Tensor, "T B"]:
    """Places by value, epsilon-greedy; the first at random."""
    return greedy_looks(
        lambda belief, look: model.value(belief), model, batch, num_looks=objective.num_looks, explore=True
    )[0]


def estimate(model: Valuer, batch: Batch, *, objective: Objective, looks: Int[Tensor, "T B"]) -> Outcome:
    """One step: the classification loss at all looks, and the value head's regression on what each look changed."""
    beliefs, _ = unroll_places(model, batch, looks)
    locations = model.grid.locations(looks.device)[looks]
    classified = classification_outcome(model, beliefs, locations=locations, batch=batch, objective=objective)
    with torch.no_grad():
        loss = -taught_likelihood(model.backbone.classify(beliefs), batch)  # [T, B]
        outcome = loss[:-1] - loss[1:]
    before = Belief(beliefs.hidden[:-1], beliefs.memory[:-1])
    expected = model.value(before).gather(2, looks[1:, :, None]).squeeze(2)  # [T - 1, B]
    # A budget of one look leaves nothing to value.
    error = functional.mse_loss(expected, outcome) if len(outcome) else expected.sum()
    return Outcome(classified.loss + error, classified.accuracy, classified.visits)


ESTIMATE = Phase(
    name="estimate",
    trained=lambda model: model.parameters(),
    noise=_noise,
    choose=choose_by_value,
    loss=estimate,
    budget=after_phase_1,
    rate=2,
)

METHODS = {
    "discriminative": Method(
        summary="imagines nothing: a value head predicts what each look is worth",
        phases=(CLASSIFY, ESTIMATE),
        build=with_value_head,
        policy=lambda num_samples: ValuePolicy(),
    )
}
