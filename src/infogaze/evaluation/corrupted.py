"""Looks at scenes that were shifted, scaled, blurred, made noisy or partly covered."""

from __future__ import annotations

from collections.abc import Callable

import torch

from infogaze.data.sets import Split
from infogaze.evaluation.corruptions import DISTURBANCES
from infogaze.evaluation.records import Disturbed
from infogaze.evaluation.rollouts import roll_out
from infogaze.gaze.agent import Agent
from infogaze.rng import scene_seeds


def disturbed(agent: Agent, split: Split, seed: int, batch: int, notice: Callable[[int], None]) -> Disturbed:
    """What the scenes are named under each disturbance; the first strength of each is none, and is looked at once."""
    seeds = scene_seeds(seed, len(split))

    def named(images: torch.Tensor) -> torch.Tensor:
        looked = roll_out(agent, Split(images, split.labels), agent.policy, seed=seed, batch=batch, notice=notice)
        return looked.probabilities.argmax(-1)  # [n, T]

    undisturbed = named(split.images)
    kinds = []
    for kind in DISTURBANCES.values():
        levels = [named(kind.apply(split.images, strength, seeds)) for strength in kind.strengths[1:]]
        kinds.append(torch.stack([undisturbed, *levels]))
    strengths = torch.tensor([kind.strengths for kind in DISTURBANCES.values()])
    return Disturbed(split.labels.cpu(), strengths, torch.stack(kinds))


PASSES = 1 + sum(len(kind.strengths) - 1 for kind in DISTURBANCES.values())
"""How many times every scene is looked at."""
