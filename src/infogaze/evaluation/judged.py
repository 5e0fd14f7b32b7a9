"""Looks judged by a common CNN, trained on complete images, to which all but the looks is masked (the paper's figure 3)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from infogaze.evaluation.measurement import Measurement, OnProgress, Subject
from infogaze.evaluation.store import Record
from infogaze.grid import extract
from infogaze.nn.model import GlimpseClassifier
from infogaze.nn.pixels import normalise_pixels


@dataclass(frozen=True)
class Judged(Record):
    """What the CNN predicts from the looks of `Records`."""

    file: ClassVar[str] = "judged"

    predictions: Int[Tensor, "N T"]
    judge: UInt8[Tensor, " digest"]
    """Digest of the CNN's weights: looks judged by another one cannot be compared."""


@torch.no_grad()
def judged(subject: Subject, on_progress: OnProgress) -> Judged:
    """What the judge predicts of each scene after each of its looks."""
    assert subject.judge is not None
    model, split, predictions = subject.judge.model, subject.test, []
    for first in range(0, len(split), subject.batch_size):
        images = split.images[first : first + subject.batch_size].to(model.device)
        where = subject.records.locations[first : first + subject.batch_size].to(model.device)
        glimpses = extract(images, where, model.grid.glimpse_size)
        content = model.backbone.features(normalise_pixels(glimpses))  # [B, T, f]
        belief, looks = model.backbone.start(len(images)), []
        for look in range(where.shape[1]):
            belief = model.backbone.update(belief, content[:, look], where[:, look])
            looks.append(model.backbone.classify(belief).argmax(-1).cpu())
        predictions.append(torch.stack(looks, 1))
        on_progress(len(images))
    return Judged(torch.cat(predictions), _digest(model))


def _digest(model: GlimpseClassifier) -> UInt8[Tensor, " digest"]:
    """SHA-256 of all weights."""
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.cpu().contiguous().numpy().tobytes())
    return torch.tensor(list(digest.digest()), dtype=torch.uint8)


MEASUREMENT = Measurement(
    record=Judged,
    measure=judged,
    lacking="a CNN's judgement of the looks",
    work=lambda subject: len(subject.test),
    source=lambda subject: subject.judge_digest,
    needs_judge=True,
)
