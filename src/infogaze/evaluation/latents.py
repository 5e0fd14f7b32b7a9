"""Samples from q(z | h_t) after each look at one scene: how what may be there narrows (the paper's t-SNE)."""

from __future__ import annotations

import torch
from torch import Tensor

from infogaze.data.sets import Split
from infogaze.errors import InfogazeError
from infogaze.evaluation.records import Latents
from infogaze.gaze.agent import Agent
from infogaze.gaze.sensor import ImageSensor
from infogaze.nn.model import Model
from infogaze.rng import SceneNoise, scene_seeds

_SAMPLES = 200


@torch.no_grad()
def latents(agent: Agent, split: Split, seed: int) -> Latents:
    """Of the first scene of the split."""
    if not isinstance(agent.model, Model):
        raise InfogazeError(f"{agent.method} imagines nothing, so there is no q(z | h)")
    sensor = ImageSensor(split.images[:1].to(agent.model.device), agent.model.grid.glimpse)
    episode = agent.episode(seed=scene_seeds(seed, 1))
    drawn: list[Tensor] = []
    size = agent.model.posterior.latent_size
    while not episode.done:
        episode.observe(sensor.look(episode.next_location()))
        noise = SceneNoise(scene_seeds(seed + 1, _SAMPLES, device=agent.model.device), len(drawn)).normal(size)
        drawn.append(agent.model.posterior(episode.belief.hidden).rsample(noise).cpu())  # [samples, d]
    return Latents(torch.tensor(0), torch.stack(drawn))
