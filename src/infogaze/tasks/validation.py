"""The validation split: which scenes of the training split it is, and the accuracy on it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from infogaze.data.sets import Split
from infogaze.errors import InfogazeError
from infogaze.evaluation.exact_pass import exact_pass
from infogaze.evaluation.measurement import Subject
from infogaze.evaluation.rollouts import roll_out
from infogaze.gaze.agent import Agent
from infogaze.gaze.policies import RandomPolicy
from infogaze.methods.registry import METHODS
from infogaze.nn.model import GlimpseClassifier
from infogaze.rng import stream_seed
from infogaze.runs import RunConfig
from infogaze.training.phases import Phase

LARGEST = 1000
"""Scenes that are looked at each time."""
_BATCH_SIZE = 200


def validation_size(images: int, val_fraction: float) -> int:
    """How many of so many images are the validation split; refuses to take all."""
    count = round(val_fraction * images)
    if count == images:
        raise InfogazeError(
            f"val_fraction is {val_fraction}; it must leave an image to train on, so be below "
            f"{1 - 0.5 / images:g} with {images} images"
        )
    return count


def split_validation(split: Split, config: RunConfig) -> tuple[Split, Split]:
    """What is left to train on, and the validation split."""
    count = validation_size(len(split), config.val_fraction)
    if not count:
        return split, Split(split.images[:0], split.labels[:0])
    generator = torch.Generator().manual_seed(stream_seed(config.seed, "validation"))
    order = torch.randperm(len(split), generator=generator)
    chosen, rest = order[:count], order[count:].sort().values
    return Split(split.images[rest], split.labels[rest]), Split(split.images[chosen], split.labels[chosen])


def validator(scenes: Split, config: RunConfig) -> Callable[[GlimpseClassifier, Phase], tuple[float, ...]]:
    """The accuracy on the first of these scenes after each look, chosen as the phase has it: by the method's own policy, or at random."""
    method = METHODS[config.method]
    scenes = Split(scenes.images[:LARGEST], scenes.labels[:LARGEST])

    def validate(model: GlimpseClassifier, phase: Phase) -> tuple[float, ...]:
        policy = (
            method.policy(config.preset.num_contents(method.imagination))
            if phase.validates_by_policy
            else RandomPolicy()
        )
        names = [str(label) for label in range(config.preset.model.num_classes)]
        agent = Agent(model, names, policy=policy, num_looks=config.preset.num_looks)
        if method.sees == "everything":
            subject = Subject(
                agent=agent, method=method, test=scenes, num_scenes=len(scenes), seed=0, batch_size=_BATCH_SIZE
            )
            correct = exact_pass(subject).correct
        else:
            correct = roll_out(agent, scenes, batch_size=_BATCH_SIZE).correct
        return tuple(correct.double().mean(0).tolist())

    return validate
