"""Some scenes in full, for pictures: a few that are the same for every method, then successes and failures picked by rule."""

from __future__ import annotations

import torch
from jaxtyping import Bool
from torch import Tensor

from infogaze.data.sets import Split
from infogaze.evaluation.records import Records, Showcase
from infogaze.evaluation.rollouts import roll_out
from infogaze.gaze.agent import Agent
from infogaze.rng import scene_seeds

COMMON, SUCCESSES, FAILURES = 4, 6, 3


def picked(right: Bool[Tensor, "N T"]) -> list[int]:
    """The first scenes named right at the last look but not at the first, then the first that are wrong at the last."""
    learned = (right[:, -1] & ~right[:, 0]).nonzero().flatten()[:SUCCESSES]
    failed = (~right[:, -1]).nonzero().flatten()[:FAILURES]
    return [*learned.tolist(), *failed.tolist()]


def showcase(agent: Agent, split: Split, records: Records, seed: int) -> Showcase:
    """Look once more at the scenes to be shown, with the same outcome, and keep the maps."""
    chosen = torch.tensor([*range(min(COMMON, len(split))), *picked(records.right)])
    some = Split(split.images[chosen], split.labels[chosen])
    seeds = scene_seeds(seed, len(split))[chosen]
    looked = roll_out(agent, some, agent.policy, seed=seeds, batch=len(chosen))
    return Showcase(
        chosen, torch.tensor(min(COMMON, len(split))), some.images.cpu(), looked.labels, looked.locations, looked.gains,
        looked.probabilities, class_means(split, len(agent.classes)),
    )  # fmt: skip


def class_means(split: Split, classes: int) -> Tensor:
    """The mean image of each class, black where a class has none, [classes, C, H, W] uint8."""
    total = torch.zeros(classes, *split.images.shape[1:], dtype=torch.float64)
    for first in range(0, len(split), 1000):
        labels = split.labels[first : first + 1000].cpu()
        total.index_add_(0, labels, split.images[first : first + 1000].cpu().double())
    count = split.labels.cpu().bincount(minlength=classes).clamp(min=1)
    return (total / count.view(-1, 1, 1, 1)).round().to(torch.uint8)
