"""A model small enough for a property test, with weights that are random but not faint."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from infogaze import Agent, ModelConfig, Origin, build
from infogaze.models import make_agent

CONFIG = ModelConfig(
    height=13, width=11, channels=2, num_classes=3, glimpse_size=4, stride=2, glimpse_widths=(4,),
    feature_size=5, belief_size=8, latent_size=4, flow_layers=2,
)  # fmt: skip
WITH_CORRECTION = replace(CONFIG, gain_correction=True)
PRESET_SIZES = replace(CONFIG, dictionary_entries=6)
"""As those of a preset: a method changes what it has otherwise."""
TOKENS = replace(CONFIG, glimpse_widths=(4, 6), token_layers=2, token_heads=2)
"""With a belief that keeps its looks as tokens."""
TOKEN_SIZES = replace(TOKENS, dictionary_entries=6)


def tiny_agent(config: ModelConfig = CONFIG, seed: int = 0, *, num_looks: int = 4, num_samples: int = 5) -> Agent:
    """An agent of the paper's imagination, whose choices differ from scene to scene."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build(config)
        for parameter in model.parameters():
            parameter.data.normal_(0.0, 0.5)
    names = tuple(f"class {index}" for index in range(config.num_classes))
    method = "paper-corrected" if config.gain_correction else "paper"
    origin = Origin(method=method, config=config, num_samples=num_samples)
    return make_agent(model, names, origin=origin, num_looks=num_looks)


def scenes(count: int, seed: int = 0) -> Tensor:
    """Scenes of its size, of noise."""
    generator = torch.Generator().manual_seed(seed)
    size = (count, CONFIG.channels, CONFIG.height, CONFIG.width)
    return torch.randint(0, 256, size, generator=generator).to(torch.uint8)
