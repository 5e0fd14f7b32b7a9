"""A small model of the paper's method, with or without a gain correction, and its beliefs from a plain loop."""

from __future__ import annotations

import torch
from torch import Tensor

from infogaze import build
from infogaze.nn.belief import Belief
from infogaze.nn.model import Model
from infogaze.nn.partial_vae import PartialVAE
from infogaze.training.phases import Batch
from tests.support.tiny import CONFIG, WITH_CORRECTION


def model(seed: int = 0, *, corrected: bool = False) -> Model:
    return build(WITH_CORRECTION if corrected else CONFIG, seed)


def vae_of(net: Model) -> PartialVAE:
    """What it imagines with."""
    assert isinstance(net.imagination, PartialVAE)
    return net.imagination


def outspoken(net: Model) -> Model:
    """The model with weights that are not faint, so that its gains differ from place to place and belief to belief."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(0.0, 0.4, generator=torch.Generator().manual_seed(parameter.numel()))
    return net


def plain_beliefs(net: Model, batch: Batch, places: Tensor) -> tuple[list[Belief], list[Tensor]]:
    """Look by look and scene by scene, with nothing but the protocol."""
    belief, beliefs, seen = net.backbone.start(len(batch.labels)), [], []
    for look in places:
        where = net.grid.locations()[look]
        glimpses = [image[:, r : r + 4, c : c + 4] for image, (r, c) in zip(batch.images, where.tolist(), strict=True)]
        content = torch.cat([net.backbone.features(glimpse[None]) for glimpse in glimpses])
        belief = net.backbone.update(belief, content, where)
        beliefs.append(belief)
        seen.append(content)
    return beliefs, seen
