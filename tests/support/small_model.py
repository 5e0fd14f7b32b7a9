"""A small model of the paper's method, the numbers drawn for a step of its phases, and its beliefs from a plain loop."""

from __future__ import annotations

import torch
from torch import Tensor

from infogaze import build
from infogaze.methods.three_phases import PHASES
from infogaze.nn.belief import Belief
from infogaze.nn.model import Model
from infogaze.training.phases import Batch, Draw, Objective, draw
from tests.support.methods import OBJECTIVE
from tests.support.tiny import CONFIG, WITH_HINDSIGHT


def model(seed: int = 0, hindsight: bool = False) -> Model:
    return build(WITH_HINDSIGHT if hindsight else CONFIG, seed)


def outspoken(net: Model) -> Model:
    """The model with weights that are not faint, so that its gains differ from place to place and belief to belief."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(0.0, 0.4, generator=torch.Generator().manual_seed(parameter.numel()))
    return net


def drawn(phase: int, net: Model, scenes: int = 6, seed: int = 0, objective: Objective = OBJECTIVE) -> Draw:
    return draw(PHASES[phase], net, scenes, objective, torch.Generator().manual_seed(seed))


def plain_beliefs(net: Model, whole: Batch, places: Tensor) -> tuple[list[Belief], list[Tensor]]:
    """Look by look and scene by scene, with nothing but the protocol."""
    belief, beliefs, seen = net.backbone.start(len(whole.labels)), [], []
    for look in places:
        where = net.grid.locations()[look]
        glimpses = [image[:, r : r + 4, c : c + 4] for image, (r, c) in zip(whole.images, where.tolist(), strict=True)]
        content = torch.cat([net.backbone.features(glimpse[None]) for glimpse in glimpses])
        belief = net.backbone.update(belief, content, where)
        beliefs.append(belief)
        seen.append(content)
    return beliefs, seen
