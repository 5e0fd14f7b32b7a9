"""The same mathematics compiled: many small operations of a part become a few kernels of a CUDA device."""

from __future__ import annotations

import torch

from infogaze.nn.model import GlimpseClassifier


def compile_parts(model: GlimpseClassifier) -> None:
    """Compile the parts that are many small operations: splines, normalisations, lookahead. Each is compiled once, for every look."""
    if getattr(model, "_compiled", False):
        return
    # Training and looking, with and without gradient, at a few batch sizes: each is a version of its own.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model.compile_parts()
    model._compiled = True  # type: ignore[assignment]
