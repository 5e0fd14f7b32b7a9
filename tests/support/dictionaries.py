"""Small models that imagine by dictionary, beliefs of theirs, and their gain worked out look by look."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from infogaze import Belief, Model, ModelConfig, build
from infogaze.nn.dictionary import Dictionary
from infogaze.nn.gain import CRITERIA, Criterion, mutual_information
from tests.support.parts import normal, used
from tests.support.tiny import CONFIG, TOKEN_SIZES

ENTRIES, LIKELY, SCENES = 6, 4, 3
PLAIN = replace(CONFIG, dictionary_entries=ENTRIES)
ATTENTIVE = replace(PLAIN, attention_hops=2, residual_belief=True)
WIDE = replace(PLAIN, height=6, width=17, stride=5)
TOKENS = replace(TOKEN_SIZES, dictionary_entries=ENTRIES)
CONFIGS = {"plain": PLAIN, "attention": ATTENTIVE, "tokens": TOKENS, "wide": WIDE}
NO_NOISE = torch.zeros(SCENES, 0)
every_criterion = pytest.mark.parametrize("criterion", CRITERIA.values(), ids=CRITERIA.keys())
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


def model_of(config: ModelConfig = PLAIN, seed: int = 0) -> Model:
    """In float64, as if it had been trained, with weights that are not faint."""
    model = used(build(config, seed), seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model


def dictionary_of(model: Model) -> Dictionary:
    assert isinstance(model.imagination, Dictionary)
    return model.imagination


@torch.no_grad()
def belief_of(model: Model, looks: int = 2, scenes: int = SCENES) -> Belief:
    """What is held after looks at random places with random contents."""
    belief = model.backbone.start(scenes)
    generator = torch.Generator().manual_seed(looks)
    for look in range(looks):
        places = torch.randint(0, model.grid.num_locations, (scenes,), generator=generator)
        content = normal(scenes, dictionary_of(model).entries.shape[1], seed=look)
        belief = model.backbone.update(belief, content, model.grid.locations()[places])
    return belief


def in_groups(probabilities: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Of entries side by side, as many a group as it takes to have no more than so many: their probability, and the likeliest."""
    size = math.ceil(ENTRIES / min(groups, ENTRIES))
    firsts = range(0, ENTRIES, size)
    weights = torch.stack([probabilities[..., first : first + size].sum(-1) for first in firsts], -1)
    index = torch.stack([first + probabilities[..., first : first + size].argmax(-1) for first in firsts], -1)
    return weights, index


@torch.no_grad()
def one_by_one(model: Model, belief: Belief, criterion: Criterion, *, likely: int = LIKELY) -> Tensor:
    """The gain from single looks: each scene, place and entry is a look of its own, taken in as a real one is."""
    dictionary, where = dictionary_of(model), model.grid.locations()
    weights, index = in_groups(dictionary.log_probabilities(belief.hidden, where).exp(), likely)
    scene, place, _ = torch.meshgrid(*[torch.arange(size) for size in index.shape], indexing="ij")
    before = Belief(belief.hidden[scene.flatten()], belief.memory[scene.flatten()])
    features = dictionary.entries[index]
    after = model.backbone.update(before, features.flatten(0, 2), where[place.flatten()])
    lookahead = model.backbone.classify(after).unflatten(0, index.shape)
    return criterion(lookahead, weights, model.backbone.classify(belief), features=features)


@torch.no_grad()
def gain_of(model: Model, belief: Belief, criterion: Criterion = mutual_information) -> Tensor:
    return model.imagined_gain(belief, LIKELY, noise=NO_NOISE, criterion=criterion)
