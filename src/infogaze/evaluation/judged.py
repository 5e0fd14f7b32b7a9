"""Looks judged by a common CNN, trained on complete images, to which all but the looks is masked (figure 2 of the paper's comparison)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from infogaze.data.sets import Split
from infogaze.evaluation.records import Judged
from infogaze.gaze.agent import Agent
from infogaze.grid import extract
from infogaze.nn.model import Recogniser
from infogaze.nn.pixels import to_pixels


@torch.no_grad()
def judged(
    judge: Agent, split: Split, locations: Int[Tensor, "N T 2"], batch: int, notice: Callable[[int], None]
) -> Judged:
    """What the judge names each scene after each of these looks."""
    model, named = judge.model, []
    for first in range(0, len(split), batch):
        images = split.images[first : first + batch].to(model.device)
        where = locations[first : first + batch].to(model.device)
        content = model.backbone.features(to_pixels(extract(images, where, model.grid.glimpse)))  # [B, T, f]
        belief, said = model.backbone.start(len(images)), []
        for look in range(where.shape[1]):
            belief = model.backbone.update(belief, content[:, look], where[:, look])
            said.append(model.backbone.classify(belief).argmax(-1).cpu())
        named.append(torch.stack(said, 1))
        notice(len(images))
    return Judged(torch.cat(named), _digest(model))


def _digest(model: Recogniser) -> UInt8[Tensor, " digest"]:
    """SHA-256 of all weights."""
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.cpu().contiguous().numpy().tobytes())
    return torch.tensor(list(digest.digest()), dtype=torch.uint8)
