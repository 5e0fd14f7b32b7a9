"""One exact pass over a split: every image once, by the method's own policy, as records."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infogaze.data.sets import Split
from infogaze.evaluation.records import Records
from infogaze.evaluation.rollouts import LEAST, Rollouts, roll_out
from infogaze.gaze.agent import Agent
from infogaze.grid import GlimpseGrid
from infogaze.methods.registry import METHODS
from infogaze.nn.belief import Belief
from infogaze.nn.pixels import to_pixels


def exact_pass(
    agent: Agent, split: Split, seed: int, batch: int, notice: Callable[[int], None] = lambda scenes: None
) -> Records:
    """The records of a split. First looks depend on the seed and the scene alone: they are the same for all methods."""
    if METHODS[agent.method].sees == "everything":
        return _seen_whole(agent, split, batch, notice)
    looked = roll_out(agent, split, agent.policy, seed=seed, batch=batch, notice=notice)
    return Records(
        looked.labels,
        looked.locations,
        looked.probabilities.argmax(-1),
        looked.log_probabilities,
        expected_of_looks(looked, agent.model.grid),
    )


def expected_of_looks(looked: Rollouts, grid: GlimpseGrid) -> Float[Tensor, "N T"]:
    """What the map that chose each look said of it, in nats."""
    return looked.gains.flatten(2).gather(2, grid.nearest(looked.locations)[..., None]).squeeze(2)


def _named_at_once(agent: Agent, pixels: Float[Tensor, "B C H W"]) -> Float[Tensor, "B classes"]:
    """log p(y) of a network that sees all."""
    picture = Belief(pixels.flatten(1), torch.zeros(len(pixels), 0, device=pixels.device))
    return agent.model.backbone.classify(picture)


@torch.no_grad()
def _seen_whole(agent: Agent, split: Split, batch: int, notice: Callable[[int], None]) -> Records:
    labels: list[Int[Tensor, " B"]] = []
    said: list[Float[Tensor, "B 1 classes"]] = []
    for first in range(0, len(split), batch):
        images = split.images[first : first + batch].to(agent.model.device)
        says = _named_at_once(agent, to_pixels(images))
        if agent.twin:
            mirrored = _named_at_once(agent, to_pixels(images).flip(-1))
            says = torch.logaddexp(says, mirrored) - math.log(2.0)
        said.append(says[:, None].cpu())
        labels.append(split.labels[first : first + batch].cpu())
        notice(len(images))
    log_probabilities = torch.cat(said).clamp(min=LEAST)
    nowhere = torch.zeros(len(log_probabilities), 1, 2, dtype=torch.int64)
    named = log_probabilities.argmax(-1)
    return Records(torch.cat(labels), nowhere, named, log_probabilities, torch.zeros(named.shape))
