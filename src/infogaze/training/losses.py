"""What training minimises: classification (equation 1), the Partial VAE's loss (equations 2 and 3), and REINFORCE for controllers."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from infogaze.data.sets import NO_LABEL
from infogaze.nn.posterior import prior_log_prob
from infogaze.nn.precision import precise


def classification_loss(
    log_probabilities: Float[Tensor, "T B classes"], labels: Int[Tensor, " B"]
) -> Float[Tensor, ""]:
    """Equation 1: cross-entropy, the mean over looks and over the scenes that have a label, in nats."""
    classes = log_probabilities.shape[-1]
    return functional.cross_entropy(
        log_probabilities.reshape(-1, classes), labels.repeat(len(log_probabilities)), ignore_index=NO_LABEL
    )


def soft_classification_loss(
    log_probabilities: Float[Tensor, "T B classes"], labels: Float[Tensor, "B classes"]
) -> Float[Tensor, ""]:
    """The same with labels that are distributions, over the scenes that have one; a row of zeros is none."""
    scenes = labels.sum().clamp(min=1.0)
    return -(labels * precise(log_probabilities)).sum() / (len(log_probabilities) * scenes)


def log_likelihood(log_probabilities: Float[Tensor, "T B classes"], labels: Int[Tensor, " B"]) -> Float[Tensor, "T B"]:
    """log p(y) of the true labels, in nats; of the first label where a scene has none, which means nothing."""
    known = labels.clamp(min=0)[None, :, None].expand(len(log_probabilities), -1, 1)
    return precise(log_probabilities).gather(2, known).squeeze(2)


def partial_vae_loss(
    *,
    imagined: Float[Tensor, "T B L f"],  # D(z), z from q(z | h_t)
    seen: Float[Tensor, "T B f"],  # content of the looks
    places: Int[Tensor, "T B"],  # their index on the grid
    z: Float[Tensor, "T B d"],
    log_q: Float[Tensor, "T B"],  # log q(z | h_t)
    log_variance: Float[Tensor, ""],
    kl_weight: float | Float[Tensor, ""] = 1.0,  # of KL[q(z | h_t) || p(z)]; below 1 it is not an ELBO
) -> Float[Tensor, ""]:
    """Equation 2: minus the ELBO of what was observed up to t, the mean over looks and scenes, in nats up to a constant.

    The mask m_t of equation 3 keeps the places looked at up to t. Only those are compared, so features of the rest of the scene are
    never computed.
    """
    looks, batch, size = seen.shape
    index = places.t()[None, :, :, None].expand(looks, batch, looks, size)
    guessed = imagined.gather(2, index)  # [T, B, T', f]: at look t, the imagined content of look t'
    difference = guessed - seen.movedim(0, 1)
    error = precise(difference).square().sum(-1)  # [T, B, T']
    observed = torch.ones(looks, looks, device=seen.device).tril()[:, None]  # [T, 1, T'], t' <= t
    likelihood = 0.5 * (observed * (error * torch.exp(-log_variance) + size * log_variance)).sum(-1)  # [T, B]
    return (likelihood + kl_weight * (log_q - prior_log_prob(z))).mean()


def reinforce_loss(
    log_density: Float[Tensor, "T B"],  # log pi(l_t | h_{t-1}) of the looks that were taken
    reward: Float[Tensor, "T B"],
    expected: Float[Tensor, "T B"],  # the baseline
) -> Float[Tensor, ""]:
    """Its gradient raises the density of looks that did better than expected (Williams, 1992), and teaches the baseline what to expect."""
    surprise = reward - expected
    looks = max(1, surprise.numel())  # a budget of one look leaves nothing to choose
    return (surprise.square() - log_density * surprise.detach()).sum() / looks
