from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from infogaze.objectives import classification_loss, partial_vae_loss
from infogaze.posterior import Posterior


@dataclass(frozen=True)
class Example:
    """What the Partial VAE's loss is made from, with the complete feature maps, which the loss itself is never given."""

    complete: Tensor  # f, [B, L, f]
    imagined: Tensor  # f~ at each look, [T, B, L, f]
    places: Tensor  # [T, B]
    z: Tensor  # [T, B, d]
    log_q: Tensor  # [T, B]
    log_variance: Tensor

    @property
    def seen(self) -> Tensor:
        """[T, B, f]: the features at the places looked at."""
        scenes = range(self.complete.shape[0])
        return torch.stack([torch.stack([self.complete[b, row[b]] for b in scenes]) for row in self.places])

    def loss(self) -> Tensor:
        return partial_vae_loss(self.imagined, self.seen, self.places, self.z, self.log_q, self.log_variance)


def _example(seed: int, looks: int = 4, scenes: int = 3, places: int = 6, size: int = 5, latent: int = 2) -> Example:
    """In float64; no place is looked at twice, as in the paper."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    order = torch.rand(scenes, places, generator=generator).argsort(1)[:, :looks].T
    return Example(
        complete=normal(scenes, places, size),
        imagined=normal(looks, scenes, places, size),
        places=order,
        z=normal(looks, scenes, latent),
        log_q=normal(looks, scenes),
        log_variance=normal(),
    )


def _equations_two_and_four(example: Example) -> float:
    """The mean over looks and scenes of -log p(f_1:t | z) + log q(z | h_t) - log p(z), number by number."""
    looks, scenes, places, size = example.imagined.shape
    variance = math.exp(example.log_variance.item())
    losses = []
    for t in range(looks):
        for b in range(scenes):
            mask = [any(example.places[earlier, b] == place for earlier in range(t + 1)) for place in range(places)]
            minus_log_likelihood = 0.0
            for place in range(places):
                for i in range(size):
                    if mask[place]:
                        error = example.imagined[t, b, place, i].item() - example.complete[b, place, i].item()
                        minus_log_likelihood += 0.5 * (error**2 / variance + math.log(variance))
            log_prior = sum(-0.5 * value**2 - 0.5 * math.log(2 * math.pi) for value in example.z[t, b].tolist())
            losses.append(minus_log_likelihood + example.log_q[t, b].item() - log_prior)
    return sum(losses) / len(losses)


@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 3), st.integers(1, 5))
def test_partial_vae_loss_is_equations_two_and_four(seed: int, looks: int, scenes: int, size: int) -> None:
    example = _example(seed, looks, scenes, size=size)
    assert example.loss().item() == pytest.approx(_equations_two_and_four(example), rel=1e-5, abs=1e-5)


def test_partial_vae_loss_keeps_the_precision_it_is_given() -> None:
    example = _example(0)
    assert example.loss().item() == pytest.approx(_equations_two_and_four(example), rel=1e-12)


def test_places_not_yet_seen_have_no_part_in_the_loss() -> None:
    example = _example(1)
    imagined = example.imagined.clone().requires_grad_()
    loss = partial_vae_loss(imagined, example.seen, example.places, example.z, example.log_q, example.log_variance)
    (gradient,) = torch.autograd.grad(loss, imagined)
    for t in range(4):
        for b in range(3):
            looked_at = set(example.places[: t + 1, b].tolist())
            assert {place for place in range(6) if gradient[t, b, place].any()} == looked_at


def test_the_best_variance_is_the_mean_squared_error_of_what_was_observed() -> None:
    # Where the derivative of equation 4 by log sigma^2 is zero.
    example = _example(2)
    errors = [
        (example.imagined[t, b, example.places[earlier, b]] - example.complete[b, example.places[earlier, b]]).square()
        for t in range(4)
        for b in range(3)
        for earlier in range(t + 1)
    ]
    best = torch.stack(errors).mean().log().requires_grad_()
    loss = partial_vae_loss(example.imagined, example.seen, example.places, example.z, example.log_q, best)
    (slope,) = torch.autograd.grad(loss, best)
    assert abs(slope) < 1e-5


def test_partial_vae_loss_of_a_perfect_guess_is_the_divergence_from_the_prior() -> None:
    torch.manual_seed(0)
    posterior = Posterior(6, 2, 5, layers=0).double()
    count = 50_000
    distribution = posterior(torch.randn(1, 1, 6).double())
    gaussian = torch.distributions.Normal(distribution.mean, distribution.scale)
    divergence = torch.distributions.kl_divergence(gaussian, torch.distributions.Normal(0.0, 1.0)).sum()
    z, log_q = distribution.rsample_with_log_prob(torch.randn(1, count, 2).double())
    imagined = torch.zeros(1, count, 1, 1).double()
    loss = partial_vae_loss(
        imagined, imagined[:, :, 0], torch.zeros(1, count, dtype=torch.int64), z, log_q, torch.zeros(()).double()
    )
    spread = (log_q - torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(-1)).std()
    assert divergence > 0.05
    assert abs(loss - divergence) < 5 * spread / count**0.5


@given(st.integers(0, 2**31), st.integers(1, 5), st.integers(1, 4), st.integers(2, 6), st.floats(0.0, 0.9))
def test_classification_loss_is_equation_one(
    seed: int, looks: int, scenes: int, classes: int, smoothing: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(looks, scenes, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, classes, (scenes,), generator=generator)
    log_probabilities = logits.log_softmax(-1)
    losses = []
    for t in range(looks):
        for b in range(scenes):
            target = [smoothing / classes] * classes
            target[int(labels[b])] += 1 - smoothing
            losses.append(-sum(p * q for p, q in zip(target, log_probabilities[t, b].tolist(), strict=True)))
    expected = sum(losses) / len(losses)
    assert classification_loss(log_probabilities, labels, smoothing).item() == pytest.approx(expected, rel=1e-10)
    plain = -sum(log_probabilities[t, b, int(labels[b])].item() for t in range(looks) for b in range(scenes))
    assert classification_loss(log_probabilities, labels).item() == pytest.approx(plain / (looks * scenes), rel=1e-10)


def test_classification_loss_does_not_care_how_memory_is_laid_out() -> None:
    log_probabilities = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    labels = torch.tensor([0, 1, 2, 3, 0])
    scene_first = log_probabilities.movedim(1, 0).contiguous().movedim(0, 1)
    assert not scene_first.is_contiguous()
    torch.testing.assert_close(classification_loss(scene_first, labels), classification_loss(log_probabilities, labels))
