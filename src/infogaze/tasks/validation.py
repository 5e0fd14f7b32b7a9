"""Scenes kept back from the training split: which they are, when they are looked at, and how many are named right."""

from __future__ import annotations

import torch
from torch import Tensor

from infogaze.data.sets import Split
from infogaze.errors import InfogazeError
from infogaze.evaluation.exact_pass import exact_pass
from infogaze.evaluation.rollouts import roll_out
from infogaze.gaze.agent import Agent
from infogaze.gaze.policies import RandomPolicy
from infogaze.methods.registry import METHODS
from infogaze.nn.model import Recogniser
from infogaze.rng import stream_seed
from infogaze.runs import RunConfig
from infogaze.training.phases import Phase

AT_MOST = 1000
"""Scenes that are looked at each time."""
_TIMES = 10


def keep_back(split: Split, config: RunConfig) -> tuple[Split, Split]:
    """The split without the scenes kept back, and those, as many as are looked at."""
    count = round(config.hold_out * len(split))
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(stream_seed(config.seed, "validation")))
    kept, rest = order[:count], order[count:].sort().values
    if not count:
        return split, Split(split.images[:0], split.labels[:0])
    if not len(rest):
        raise InfogazeError(
            f"hold_out is {config.hold_out}; it must leave an image to train on, so be below {1 - 0.5 / len(split):g} with {len(split)}"
        )
    kept = kept[:AT_MOST]
    return Split(split.images[rest], split.labels[rest]), Split(split.images[kept], split.labels[kept])


def due(step: int, steps: int) -> bool:
    """Whether they are looked at after this step: ten times a phase, the last step among them."""
    return step == steps or step % max(1, steps // _TIMES) == 0


def named_right(model: Recogniser, scenes: Split, config: RunConfig, phase: Phase) -> tuple[float, ...]:
    """The share of the scenes that is named right after each look, chosen as the phase chooses its own."""
    preset = config.preset
    agent = Agent(
        model,
        [str(label) for label in range(preset.model.classes)],
        looks=preset.looks,
        samples=preset.samples,
        method=config.method,
    )
    right: Tensor
    if METHODS[config.method].sees == "everything":
        right = exact_pass(agent, scenes, seed=0, batch=200).right
    else:
        right = roll_out(agent, scenes, agent.policy if phase.chooses else RandomPolicy()).right
    model.train()
    return tuple(right.double().mean(0).tolist())
