"""RAM+: RAM with the loss and the reward at every look (section 4.1, after Li et al., 2017).

The classification loss is equation 1, the mean over all looks. The reward of look t is the reward-to-go: the share of correct predictions
from then on, so that a look is credited with what comes after it and not with what came before:

    r_t = 1 / (T - t) sum_{k >= t} [argmax p_k = y].
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infogaze.methods.method import Method
from infogaze.methods.ram import REINFORCE, AimedLooks, AimedPolicy, Ram, log_density, with_controller
from infogaze.methods.three_phases import CLASSIFY
from infogaze.nn.belief import Belief
from infogaze.training.losses import reinforce_loss
from infogaze.training.phases import Batch, Objective, Outcome
from infogaze.training.rollout import classification_outcome, glimpse_content


def reward_to_go(correct: Bool[Tensor, "T B"]) -> Float[Tensor, "T B"]:
    """The mean of this look's row and all later ones."""
    later = correct.float().flip(0).cumsum(0).flip(0)
    return later / torch.arange(len(correct), 0, -1, device=correct.device)[:, None]


def reinforce_every_look(model: Ram, batch: Batch, *, objective: Objective, looks: AimedLooks) -> Outcome:
    """One step of RAM+."""
    beliefs = model.backbone.unroll(glimpse_content(model, batch, looks.locations), looks.locations)
    classified = classification_outcome(model, beliefs, locations=looks.locations, batch=batch, objective=objective)
    before = Belief(beliefs.hidden[:-1], beliefs.memory[:-1])
    reward = reward_to_go(looks.correct)[1:]
    policy = reinforce_loss(log_density(looks.samples[1:], model.aim(before)), reward, model.expect(before))
    return Outcome(classified.loss + policy, classified.accuracy, classified.visits)


METHODS = {
    "ram-plus": Method(
        summary="a controller trained by REINFORCE, loss and reward at every look",
        phases=(CLASSIFY, replace(REINFORCE, loss=reinforce_every_look)),
        build=with_controller,
        policy=lambda num_samples: AimedPolicy(),
    )
}
