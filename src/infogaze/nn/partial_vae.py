"""The paper's imagination: a Partial VAE, whose posterior S sees a belief and whose decoder D gives the features of the whole scene."""

from __future__ import annotations

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from infogaze.nn.belief import Belief
from infogaze.nn.decoder import Decoder
from infogaze.nn.imagination import Imagination, Imagined
from infogaze.nn.posterior import Posterior
from infogaze.nn.precision import precise


class PartialVAE(Imagination):
    """P samples of z from q(z | h) and what D makes of each, all equally likely."""

    def __init__(self, posterior: Posterior, decoder: Decoder) -> None:
        super().__init__()
        self.posterior = posterior
        self.decoder = decoder
        self.grid = decoder.grid
        self.log_variance = nn.Parameter(torch.zeros(()))
        """log sigma^2 of the likelihood p(f | z), equation 3."""

    def noise_shape(self, num_samples: int) -> tuple[int, ...]:
        """Those of z."""
        return num_samples, self.posterior.latent_size

    def imagine(
        self,
        belief: Belief,
        num_samples: int,
        *,
        noise: Float[Tensor, "B P d"],
        locations: Num[Tensor, "L 2"] | None = None,
    ) -> Imagined:
        """D(z) with z from q(z | h); between places of the grid, what lies between their features."""
        maps = self.decoder(self.posterior(belief.hidden).rsample(noise.movedim(1, 0)))  # [P, B, places, f]
        if locations is not None:
            maps = self.decoder.grid.interpolation(locations).to(maps.dtype) @ maps  # [P, B, L, f]
        features = maps.movedim(0, 2)  # [B, L, P, f]
        equal = torch.full(
            features.shape[:-1], 1.0 / num_samples, device=features.device, dtype=precise(features).dtype
        )
        return Imagined(equal, features)

    def compile_parts(self) -> None:
        """D and the layers of S."""
        self.decoder.compile(dynamic=False)
        for layer in self.posterior.layers:
            layer.compile(dynamic=False)
            layer.sample = torch.compile(layer.sample, dynamic=False)  # type: ignore[arg-type, assignment]
        self.posterior.encode.compile(dynamic=False)
