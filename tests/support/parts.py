"""What the tests of single parts share: sizes, random numbers, and modules that look as if they had been trained."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

from infogaze import ModelConfig

TINY = ModelConfig(
    height=12, width=12, channels=1, num_classes=3, glimpse_size=4, stride=2, glimpse_widths=(4,),
    feature_size=5, belief_size=6, latent_size=4, flow_layers=2,
)  # fmt: skip


M = TypeVar("M", bound=nn.Module)


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def used(module: M, seed: int = 0) -> M:
    """The module in float64 and eval mode, with random weights and statistics: fresh ones hide what normalisations do."""
    module.double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(0.5 * torch.randn(buffer.shape, generator=generator))
            if name.endswith("running_var"):
                buffer.copy_(0.2 + torch.rand(buffer.shape, generator=generator))
    return module
