"""Samples from q(z | h_t) after each look at one scene: how what may be there narrows (the paper's t-SNE)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infogaze.evaluation.measurement import Measurement, OnProgress, Subject
from infogaze.evaluation.store import Record
from infogaze.gaze.policies import RandomPolicy
from infogaze.gaze.sensor import ImageSensor
from infogaze.nn.model import Model
from infogaze.nn.partial_vae import PartialVAE
from infogaze.rng import SceneNoise, scene_seeds

_SAMPLES = 200


@dataclass(frozen=True)
class Latents(Record):
    """Samples of z for one scene, look by look."""

    file: ClassVar[str] = "latents"

    scene: Int[Tensor, ""]
    """Its number in the test split."""
    locations: Int[Tensor, "T 2"]
    """Of the looks: at random, so that models are compared on the same glimpses."""
    z: Float[Tensor, "T samples d"]


@torch.no_grad()
def latents(subject: Subject, on_progress: OnProgress) -> Latents:
    """Of the first scene of the split."""
    agent, model = subject.agent, subject.agent.model
    if not (isinstance(model, Model) and isinstance(model.imagination, PartialVAE)):
        raise ValueError("a model without a Partial VAE has no q(z | h)")
    posterior = model.imagination.posterior
    sensor = ImageSensor(subject.test.images[:1].to(model.device), model.grid.glimpse_size)
    episode = agent.with_policy(RandomPolicy()).episode(seed=scene_seeds(subject.seed, 1))
    drawn: list[Tensor] = []
    while not episode.done:
        episode.observe(sensor.look(episode.next_location()))
        noise = SceneNoise(scene_seeds(subject.seed + 1, _SAMPLES, device=model.device), len(drawn)).normal(
            posterior.latent_size
        )
        drawn.append(posterior(episode.belief.hidden).rsample(noise).cpu())  # [samples, d]
    locations = torch.cat([look.location for look in episode.history]).cpu()
    return Latents(torch.tensor(0), locations, torch.stack(drawn))


MEASUREMENT = Measurement(
    record=Latents,
    measure=latents,
    lacking="samples of what is imagined",
    applies=lambda method: method.imagination == "vae",
)
