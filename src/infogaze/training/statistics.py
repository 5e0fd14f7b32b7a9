"""Batch-norm statistics of plain images: those of training are gathered on augmented ones, which resampling has made smoother.

They are gathered anew at the end of a phase, over training images as they are, along the looks that the phase would take now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import torch

from infogaze.nn.model import GlimpseClassifier
from infogaze.training.phases import Batch, Objective, Phase


@torch.no_grad()
def refit_batch_norm(
    model: GlimpseClassifier,
    phase: Phase,
    *,
    objective: Objective,
    batches: Callable[[], Iterator[Batch]],
    images: int,
) -> None:
    """Means and variances over about so many images, of the parts that the phase trained; with none, they stay as they are.

    `batches` gives the same ones each time: the looks are chosen first, by the model as it is, and then seen with statistics that fill up.
    """
    phase.set_modes(model)
    norms = [
        part for part in model.modules() if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.training
    ]
    if not (images and norms):
        model.eval()
        return
    # A few passes do not pay for compiling them.
    with torch.compiler.set_stance("force_eager"):
        model.eval()
        size = len(next(batches()).labels)
        count = max(1, round(images / size))
        looks = [
            None if phase.choose is None else phase.choose(model, batch, objective)
            for batch in islice(batches(), count)
        ]
        phase.set_modes(model)
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a plain mean over the batches
        for batch, chosen in zip(batches(), looks, strict=False):
            phase.loss(model, batch, objective=objective, looks=chosen)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
    model.eval()
