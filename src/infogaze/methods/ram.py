"""RAM, the Recurrent Attention Model (Mnih et al., 2014), with our F, R and C: a controller that learns where to look by REINFORCE.

The policy is Gaussian over continuous locations on the scale from -1 to 1, l_t ~ N(tanh(W h_{t-1}), s^2), with s fixed. With the reward
r = 1 where the last prediction is correct, and 0 elsewhere, the loss of a batch is their equations 1 and 3:

    CE(y, p_T)  -  mean_t log pi(l_t | h_{t-1}) (r - b_t)  +  mean_t (r - b_t)^2,      b_t = w . h_{t-1}.

As there, the state learns from the cross-entropy alone, the controller from REINFORCE and the baseline from its error, and no gradient
passes through (r - b_t) into the policy. The first look is at random.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from infogaze.gaze.policies import Choice
from infogaze.grid import GlimpseGrid
from infogaze.methods.method import Method
from infogaze.methods.three_phases import CLASSIFY
from infogaze.nn.backbone import Backbone
from infogaze.nn.belief import Belief
from infogaze.nn.config import ModelConfig
from infogaze.nn.model import GlimpseClassifier, build_backbone
from infogaze.nn.precision import precise
from infogaze.rng import SceneNoise
from infogaze.training.losses import reinforce_loss
from infogaze.training.phases import Batch, NoiseSpec, Objective, Outcome, Phase, after_phase_1, normal, uniform
from infogaze.training.rollout import (
    accuracy,
    classify_with_dropout,
    glimpse_content,
    hidden_size,
    look_at,
    taught_loss,
    visits,
)

SPREAD = 0.3
"""s: three twentieths of the way across the scene."""


class Ram(GlimpseClassifier):
    """A backbone, a controller that aims from the belief, and the baseline of its reward."""

    def __init__(self, grid: GlimpseGrid, backbone: Backbone, belief_size: int) -> None:
        super().__init__(grid, backbone)
        self.controller = nn.Linear(belief_size, 2)
        self.baseline = nn.Linear(belief_size, 1)

    def aim(self, belief: Belief) -> Float[Tensor, "*batch 2"]:
        """The policy's mean: row and column on the scale from -1 to 1. The state does not learn from where it led."""
        return torch.tanh(precise(self.controller(belief.hidden.detach())))

    def expect(self, belief: Belief) -> Float[Tensor, "*batch"]:
        """b_t, the reward that is expected; the state does not learn from its error."""
        return precise(self.baseline(belief.hidden.detach()).squeeze(-1))

    def pixel(self, coordinates: Float[Tensor, "*batch 2"]) -> Int[Tensor, "*batch 2"]:
        """The nearest pixel whose glimpse is inside the scene."""
        grid, share = self.grid, (coordinates.clamp(-1.0, 1.0) + 1.0) / 2.0
        rows, cols = share[..., 0] * (grid.height - grid.glimpse_size), share[..., 1] * (grid.width - grid.glimpse_size)
        return torch.stack([rows, cols], -1).round().long()


def with_controller(config: ModelConfig) -> Ram:
    """F, R and C of these sizes, with a controller."""
    return Ram(config.grid, build_backbone(config), config.belief_size)


class AimedPolicy:
    """Look where the controller aims, as spread as in training."""

    def __call__(self, model: Ram, belief: Belief, *, candidates: Bool[Tensor, "B L"], noise: SceneNoise) -> Choice:
        """A sample of the Gaussian policy. It may fall between grid locations, and on one that was seen before."""
        where = model.pixel(model.aim(belief) + SPREAD * noise.normal(2))
        return Choice(where, torch.zeros(candidates.shape, device=candidates.device), has_map=False)


def reinforce_noise(model: Ram, objective: Objective) -> Mapping[str, NoiseSpec]:
    """Where the first look falls, how far each falls from the aim, and dropout."""
    looks = objective.num_looks
    return {"anywhere": uniform(1, 2), "aim": normal(looks, 2), "dropout": uniform(looks, hidden_size(model))}


@dataclass(frozen=True)
class AimedLooks:
    """Looks by the policy."""

    locations: Int[Tensor, "T B 2"]
    """In pixels."""
    samples: Float[Tensor, "T B 2"]
    """Of the policy, behind the locations."""
    correct: Bool[Tensor, "T B"]
    """Whether the prediction after each is correct."""


def choose_by_aim(model: Ram, batch: Batch, objective: Objective) -> AimedLooks:
    """The first look at random, the others where the controller aims."""
    belief = model.backbone.start(len(batch.labels))
    locations, samples, correct = [], [], []
    for look in range(objective.num_looks):
        anywhere = batch.noise["anywhere"][:, 0] * 2.0 - 1.0
        sample = model.aim(belief) + SPREAD * batch.noise["aim"][:, look] if look else anywhere
        where = model.pixel(sample)
        belief = look_at(model, batch, belief, location=where)
        locations.append(where)
        samples.append(sample)
        correct.append(model.backbone.classify(belief).argmax(-1) == batch.labels)
    return AimedLooks(torch.stack(locations), torch.stack(samples), torch.stack(correct))


def log_density(samples: Float[Tensor, "*batch 2"], mean: Float[Tensor, "*batch 2"]) -> Float[Tensor, "*batch"]:
    """log pi, up to a constant, in nats."""
    return -0.5 * ((samples - mean) / SPREAD).square().sum(-1)


def reinforce(model: Ram, batch: Batch, *, objective: Objective, looks: AimedLooks) -> Outcome:
    """One step of RAM: cross-entropy after the last look, and the same reward for every look on the way there."""
    beliefs = model.backbone.unroll(glimpse_content(model, batch, looks.locations), looks.locations)
    predicted = classify_with_dropout(model, beliefs, batch, objective=objective)
    before = Belief(beliefs.hidden[:-1], beliefs.memory[:-1])
    reward = looks.correct[-1].float().expand(len(looks.samples) - 1, -1)
    loss = taught_loss(predicted[-1:], batch)
    loss = loss + reinforce_loss(log_density(looks.samples[1:], model.aim(before)), reward, model.expect(before))
    return Outcome(loss, accuracy(predicted, batch.labels), visits(looks.locations, model.grid))


REINFORCE = Phase(
    name="reinforce",
    trained=lambda model: model.parameters(),
    noise=reinforce_noise,
    choose=choose_by_aim,
    loss=reinforce,
    budget=after_phase_1,
    rate=2,
)

METHODS = {
    "ram": Method(
        summary="a controller trained by REINFORCE, loss and reward at the last look",
        phases=(CLASSIFY, REINFORCE),
        build=with_controller,
        policy=lambda num_samples: AimedPolicy(),
    )
}
