"""Every scene of a split, looked at once by the loop that users drive: the records that all measurements are made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infogaze.data.sets import Split
from infogaze.gaze.agent import Agent
from infogaze.gaze.policies import Policy
from infogaze.gaze.sensor import ImageSensor
from infogaze.methods.oracle import Oracle
from infogaze.rng import scene_seeds

LEAST = -1e4
"""What stands for the logarithm of zero, in nats."""


@dataclass(frozen=True)
class Rollouts:
    """What happened at each look of each scene."""

    labels: Int[Tensor, " N"]
    locations: Int[Tensor, "N T 2"]
    probabilities: Float[Tensor, "N T classes"]
    gains: Float[Tensor, "N T rows cols"]
    """The map that chose each look, in nats; zeros at the first, which is random."""

    @property
    def log_probabilities(self) -> Tensor:
        """Their logarithm, [N, T, classes], in nats, finite where float32 has a probability of zero."""
        return self.probabilities.log().clamp(min=LEAST)

    @property
    def right(self) -> Tensor:
        """Whether the most likely label is the true one, [N, T] bool."""
        return self.probabilities.argmax(-1) == self.labels[:, None]


def roll_out(
    agent: Agent,
    split: Split,
    policy: Policy | Oracle,
    *,
    seed: int | Int[Tensor, " N"] = 0,
    budget: int | None = None,
    batch: int = 200,
    notice: Callable[[int], None] = lambda scenes: None,
) -> Rollouts:
    """Look at every scene of the split. First looks and noise depend on the seed and the scene alone, not on policy or batch.

    `seed` is one number for the split, or one a scene.
    """
    parts = []
    for first in range(0, len(split), batch):
        images, labels = split.images[first : first + batch], split.labels[first : first + batch]
        sensor = ImageSensor(images.to(agent.model.device), agent.model.grid.glimpse)
        seeds = scene_seeds(seed, len(labels), first=first) if isinstance(seed, int) else seed[first : first + batch]
        chosen = policy.seeing(images, labels) if isinstance(policy, Oracle) else policy
        history = agent.run(sensor, budget, batch=len(labels), seed=seeds, policy=chosen).history
        parts.append(
            Rollouts(
                labels.cpu(),
                torch.stack([look.location for look in history], 1).cpu(),
                torch.stack([look.probabilities for look in history], 1).cpu(),
                torch.stack([look.gain for look in history], 1).cpu(),
            )
        )
        notice(len(labels))
    return Rollouts(
        torch.cat([part.labels for part in parts]),
        torch.cat([part.locations for part in parts]),
        torch.cat([part.probabilities for part in parts]),
        torch.cat([part.gains for part in parts]),
    )
