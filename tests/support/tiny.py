"""A model small enough for a property test, with weights that are random but not faint."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from infogaze import Agent, ModelConfig, build

CONFIG = ModelConfig(
    height=13, width=11, channels=2, classes=3, glimpse=4, stride=2, glimpse_widths=(4,),
    feature_size=5, belief_size=8, latent_size=4, flow_layers=2,
)  # fmt: skip
WITH_HINDSIGHT = replace(CONFIG, hindsight=True)


def tiny_agent(config: ModelConfig = CONFIG, seed: int = 0, looks: int = 4, samples: int = 5) -> Agent:
    """An agent whose choices differ from scene to scene."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build(config)
        for parameter in model.parameters():
            parameter.data.normal_(0.0, 0.5)
    names = [f"class {index}" for index in range(config.classes)]
    return Agent(model, names, looks=looks, samples=samples, config=config)


def scenes(count: int, seed: int = 0) -> Tensor:
    """Scenes of its size, of noise."""
    generator = torch.Generator().manual_seed(seed)
    size = (count, CONFIG.channels, CONFIG.height, CONFIG.width)
    return torch.randint(0, 256, size, generator=generator).to(torch.uint8)
