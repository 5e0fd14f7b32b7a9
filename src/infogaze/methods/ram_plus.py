"""RAM+: RAM with the loss and the reward at every look (section 4.1, after Li et al., 2017).

The classification loss is equation 1, the mean over all looks. The reward of look t is how often the scene is named right from then on,
so a look is thanked for what came after it and not for what came before:

    r_t = 1 / (T - t) sum_{k >= t} [argmax p_k = y].
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infogaze.methods.ram import ATTEND, Ram, log_density, look_around
from infogaze.methods.three_phases import RECOGNISE
from infogaze.nn.belief import Belief
from infogaze.training.losses import reinforce_loss
from infogaze.training.phases import Batch, Draw, Objective, Outcome, Phase, classified, seen_at


def from_then_on(right: Bool[Tensor, "T B"]) -> Float[Tensor, "T B"]:
    """The mean of this look's row and all later ones."""
    later = right.float().flip(0).cumsum(0).flip(0)
    return later / torch.arange(len(right), 0, -1, device=right.device)[:, None]


def attend_always(model: Ram, batch: Batch, draw: Draw, objective: Objective) -> Outcome:
    """One step of RAM+."""
    model.eval()
    locations, samples, right = look_around(model, batch, draw, objective.looks)
    model.train()
    beliefs = model.backbone.unroll(seen_at(model, batch, locations), locations)
    told = classified(model, beliefs, locations, batch, draw, objective)
    before = Belief(beliefs.hidden[:-1], beliefs.memory[:-1])
    reward = from_then_on(right)[1:]
    thanks = reinforce_loss(log_density(samples[1:], model.aim(before)), reward, model.expect(before))
    return Outcome(told.loss + thanks, told.accuracy, told.visited)


PHASES = (RECOGNISE, Phase("attend", attend_always, ATTEND.trained, ATTEND.draws, ATTEND.length, ATTEND.rate))
