"""S: the belief to q(z | h): a Gaussian, made multi-modal by n_s times ActNorm, Flip and an autoregressive spline (appendix D).

The flow runs from the base noise to z, and each spline is conditioned on the elements of its own input that come before. So a sample and
its exact log-density take one parallel pass; the density of a z from elsewhere takes one pass an element.
With no flow layers it is the plain Gaussian posterior of the paper's ablation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from infogaze.nn import spline
from infogaze.nn.precision import precise

_SMALLEST_SCALE = 1e-3
_SCALE_ONE = math.log(math.expm1(1.0 - _SMALLEST_SCALE))


def _scale(raw: Tensor) -> Tensor:
    """A positive scale that is 1 at zero and grows no faster than its input, so no input makes it overflow."""
    return _SMALLEST_SCALE + functional.softplus(raw + _SCALE_ONE)


class ActNorm(nn.Module):
    """Element-wise scale and shift, both predicted from the context."""

    def __init__(self, size: int, context_size: int) -> None:
        super().__init__()
        self.size = size
        self.predict = nn.Linear(context_size, 2 * size)
        nn.init.zeros_(self.predict.weight)
        nn.init.zeros_(self.predict.bias)

    def _scale_and_shift(self, context: Tensor) -> tuple[Tensor, Tensor]:
        raw, shift = precise(self.predict(context)).split(self.size, -1)
        return _scale(raw), shift

    def forward(
        self, z: Float[Tensor, "*batch d"], context: Float[Tensor, "*rows c"]
    ) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, "*rows d"]]:
        """s * z + b and the log-slope of each element, log s."""
        scale, shift = self._scale_and_shift(context)
        return scale * z + shift, scale.log()

    def inverse(self, z: Float[Tensor, "*batch d"], context: Float[Tensor, "*rows c"]) -> Float[Tensor, "*batch d"]:
        """The input that gives z."""
        scale, shift = self._scale_and_shift(context)
        return (z - shift) / scale

    def initialise(self, z: Float[Tensor, "N d"]) -> None:
        """Set the shift and scale so that this batch comes out with zero mean and unit variance, whatever its context."""
        spread = z.std(0, correction=0).clamp(min=_SMALLEST_SCALE)
        above = (1.0 / spread - _SMALLEST_SCALE).clamp(min=_SMALLEST_SCALE)
        with torch.no_grad():
            self.predict.weight.zero_()
            # The inverse of softplus, written so that it holds for large scales too.
            self.predict.bias[: self.size] = above + torch.log(-torch.expm1(-above)) - _SCALE_ONE
            self.predict.bias[self.size :] = -z.mean(0) * (above + _SMALLEST_SCALE)


class MaskedLinear(nn.Linear):
    """A linear layer whose outputs of degree n see only inputs of degree at most n (or, if strict, below n)."""

    mask: Bool[Tensor, "out in"]

    def __init__(self, inputs: Sequence[int], outputs: Sequence[int], *, strict: bool) -> None:
        super().__init__(len(inputs), len(outputs))
        mask = torch.empty(len(outputs), len(inputs), dtype=torch.bool)
        if not mask.is_meta:  # which has no values, and whose comparisons load torch's compiler, a second of work
            mask = torch.tensor(inputs)[None, :] + int(strict) <= torch.tensor(outputs)[:, None]
        self.register_buffer("mask", mask, persistent=False)
        seen = np.searchsorted(np.sort(inputs), outputs, side="left" if strict else "right")
        self.allowed = int(seen.sum())
        """How many weights there are but for the forbidden ones."""

    def forward(self, input: Float[Tensor, "*batch in"]) -> Float[Tensor, "*batch out"]:
        """The linear map with the forbidden weights left out."""
        return functional.linear(input, torch.where(self.mask, self.weight, 0.0), self.bias)


class AutoregressiveSpline(nn.Module):
    """Each element through a spline of its own, whose knots are predicted from the elements before it and the context.

    Nothing in the conditioner mixes hidden units outside the masks (so no normalisation), which is what keeps the Jacobian triangular.
    """

    def __init__(self, *, size: int, context_size: int, bins: int, bound: float) -> None:
        super().__init__()
        self.size = size
        self.bound = bound
        self.numbers = spline.parameters(bins)
        elements = list(range(1, size + 1))
        hidden = list(range(size))  # a unit of degree n sees elements 1..n; degree 0 sees the context alone
        self.from_elements = MaskedLinear(elements, hidden, strict=False)
        self.from_context = nn.Linear(context_size, size)
        self.between = MaskedLinear(hidden, hidden, strict=False)
        self.to_knots = MaskedLinear(hidden, elements * self.numbers, strict=True)
        with torch.no_grad():
            # Start near the identity.
            self.to_knots.weight.mul_(0.1)
            self.to_knots.bias.zero_()

    def _knots(self, z: Tensor, context: Tensor) -> spline.Knots:
        hidden = functional.leaky_relu(self.from_elements(z.to(context.dtype)) + self.from_context(context))
        hidden = functional.leaky_relu(self.between(hidden))
        raw = self.to_knots(hidden).unflatten(-1, (self.numbers, self.size))  # [*batch, 3K - 1, d]
        return spline.knots(raw, self.bound)

    def forward(
        self, z: Float[Tensor, "*batch d"], context: Float[Tensor, "*rows c"]
    ) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, "*batch d"]]:
        """The transformed elements and the log-slope of each."""
        return spline.forward(z, self._knots(z, context))

    def inverse(self, z: Float[Tensor, "*batch d"], context: Float[Tensor, "*rows c"]) -> Float[Tensor, "*batch d"]:
        """The input that gives z, element by element."""
        x = torch.zeros_like(z)
        for i in range(self.size):
            x[..., i] = spline.inverse(z, self._knots(x, context))[..., i]
        return x


class FlowLayer(nn.Module):
    """ActNorm, Flip, spline."""

    def __init__(self, *, size: int, context_size: int, bins: int, bound: float) -> None:
        super().__init__()
        self.norm = ActNorm(size, context_size)
        self.spline = AutoregressiveSpline(size=size, context_size=context_size, bins=bins, bound=bound)

    def forward(
        self, z: Float[Tensor, "*batch d"], context: Float[Tensor, "*rows c"]
    ) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, "*batch d"]]:
        """The next z, and numbers whose sum is the log-determinant. They are summed once, after the last layer."""
        z, stretched = self.norm(z, context)
        z, bent = self.spline(z.flip(-1), context)
        return z, stretched + bent

    def sample(self, z: Float[Tensor, "*batch d"], context: Float[Tensor, "*rows c"]) -> Float[Tensor, "*batch d"]:
        """The next z alone."""
        return self.forward(z, context)[0]

    def inverse(self, z: Float[Tensor, "*batch d"], context: Float[Tensor, "*rows c"]) -> Float[Tensor, "*batch d"]:
        """The z before this layer."""
        return self.norm.inverse(self.spline.inverse(z, context).flip(-1), context)


@dataclass(frozen=True, kw_only=True)
class FlowDistribution:
    """q(z | h) for a batch of beliefs."""

    mean: Float[Tensor, "*rows d"]
    scale: Float[Tensor, "*rows d"]
    context: Float[Tensor, "*rows c"]
    layers: Sequence[FlowLayer]

    def rsample_with_log_prob(
        self, noise: Float[Tensor, "*samples d"]
    ) -> tuple[Float[Tensor, "*samples d"], Float[Tensor, "*samples"]]:
        """z and log q(z | h) in nats, from standard normal noise whose last dimensions match the batch's."""
        noise = noise.to(self.mean.dtype)
        z = self.mean + self.scale * noise
        log_slope = self.scale.log()
        for layer in self.layers:
            z, more = layer(z, self.context)
            log_slope = log_slope + more
        return z, _standard_normal(noise) - log_slope.sum(-1)

    def rsample(self, noise: Float[Tensor, "*samples d"]) -> Float[Tensor, "*samples d"]:
        """z alone, where its density is not asked for."""
        z = self.mean + self.scale * noise.to(self.mean.dtype)
        for layer in self.layers:
            z = layer.sample(z, self.context)
        return z

    def log_prob(self, z: Float[Tensor, "*samples d"]) -> Float[Tensor, "*samples"]:
        """log q(z | h) of any z in nats. Inverts the flow, which costs d passes; a sample brings its own."""
        for layer in reversed(self.layers):
            z = layer.inverse(z, self.context)
        return self.rsample_with_log_prob((z - self.mean) / self.scale)[1]


def _standard_normal(z: Tensor) -> Tensor:
    return -0.5 * (z.square() + math.log(2 * math.pi)).sum(-1)


def prior_log_prob(z: Float[Tensor, "*samples d"]) -> Float[Tensor, "*samples"]:
    """log p(z) in nats under the prior, a standard Gaussian."""
    return _standard_normal(z)


class Posterior(nn.Module):
    """S. `posterior(h)` is a distribution over z; `layers` of 0 leaves the Gaussian base."""

    def __init__(
        self,
        *,
        belief_size: int,
        latent_size: int,
        context_size: int,
        layers: int,
        bins: int = 5,
        bound: float = 3.0,
    ) -> None:
        super().__init__()
        self.latent_size = latent_size
        self.context_size = context_size if layers else 0
        self.encode = nn.Sequential(
            nn.Linear(belief_size, belief_size), nn.LeakyReLU(), nn.LayerNorm(belief_size),
            nn.Linear(belief_size, 2 * latent_size + self.context_size),
        )  # fmt: skip
        self.layers = nn.ModuleList(
            FlowLayer(size=latent_size, context_size=context_size, bins=bins, bound=bound) for _ in range(layers)
        )

    def forward(self, hidden: Float[Tensor, "*rows h"]) -> FlowDistribution:
        """q(z | h)."""
        sizes = [self.latent_size, self.latent_size, self.context_size]
        mean, raw, context = self.encode(hidden).split(sizes, -1)
        return FlowDistribution(
            mean=precise(mean),
            scale=_scale(precise(raw)),
            context=context,
            layers=list(self.layers),  # type: ignore[arg-type]
        )

    @torch.no_grad()
    def initialise(self, hidden: Float[Tensor, "N h"], noise: Float[Tensor, "N d"]) -> None:
        """Set every ActNorm from the first batch of training, in order, each with those before it already set."""
        distribution = self(hidden)
        z = distribution.mean + distribution.scale * noise
        for layer in distribution.layers:
            layer.norm.initialise(z)
            z, _ = layer(z, distribution.context)
