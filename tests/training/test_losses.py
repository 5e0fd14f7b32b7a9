from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from infogaze.methods import ram
from infogaze.nn.posterior import Posterior
from infogaze.training.losses import classification_loss, log_likelihood, partial_vae_loss, reinforce_loss


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

    def loss(self, kl_weight: float | Tensor = 1.0) -> Tensor:
        return partial_vae_loss(
            imagined=self.imagined,
            seen=self.seen,
            places=self.places,
            z=self.z,
            log_q=self.log_q,
            log_variance=self.log_variance,
            kl_weight=kl_weight,
        )


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


def _equations_two_and_four(example: Example, weight: float = 1.0) -> float:
    """The mean over looks and scenes of -log p(f_1:t | z) + weight * (log q(z | h_t) - log p(z)), number by number."""
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
            losses.append(minus_log_likelihood + weight * (example.log_q[t, b].item() - log_prior))
    return sum(losses) / len(losses)


@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 3), st.integers(1, 5))
def test_partial_vae_loss_is_equations_two_and_four(seed: int, looks: int, scenes: int, size: int) -> None:
    example = _example(seed, looks, scenes, size=size)
    assert example.loss().item() == pytest.approx(_equations_two_and_four(example), rel=1e-5, abs=1e-5)


def test_partial_vae_loss_keeps_the_precision_it_is_given() -> None:
    example = _example(0)
    assert example.loss().item() == pytest.approx(_equations_two_and_four(example), rel=1e-10)


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("kind", [float, torch.tensor])
def test_the_divergence_alone_is_weighed(weight: float, kind: Callable[[float], float | Tensor]) -> None:
    example = _example(3)
    expected = _equations_two_and_four(example, weight)
    assert example.loss(kind(weight)).item() == pytest.approx(expected, rel=1e-10)


def test_without_its_divergence_the_loss_does_not_care_how_likely_z_is() -> None:
    example = _example(4)
    moved = replace(example, z=example.z + 1, log_q=example.log_q - 3)
    assert moved.loss(0.0).item() == pytest.approx(example.loss(0.0).item(), rel=1e-12)
    assert abs(moved.loss(0.5).item() - example.loss(0.5).item()) > 0.1


def test_places_not_yet_seen_have_no_part_in_the_loss() -> None:
    example = _example(1)
    imagined = example.imagined.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(replace(example, imagined=imagined).loss(), imagined)
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
    (slope,) = torch.autograd.grad(replace(example, log_variance=best).loss(), best)
    assert abs(slope) < 1e-5


def test_partial_vae_loss_of_a_perfect_guess_is_the_divergence_from_the_prior() -> None:
    torch.manual_seed(0)
    posterior = Posterior(belief_size=6, latent_size=2, context_size=5, layers=0).double()
    count = 50_000
    distribution = posterior(torch.randn(1, 1, 6).double())
    gaussian = torch.distributions.Normal(distribution.mean, distribution.scale)
    divergence = torch.distributions.kl_divergence(gaussian, torch.distributions.Normal(0.0, 1.0)).sum()
    z, log_q = distribution.rsample_with_log_prob(torch.randn(1, count, 2).double())
    imagined = torch.zeros(1, count, 1, 1).double()
    loss = partial_vae_loss(
        imagined=imagined,
        seen=imagined[:, :, 0],
        places=torch.zeros(1, count, dtype=torch.int64),
        z=z,
        log_q=log_q,
        log_variance=torch.zeros(()).double(),
    )
    spread = (log_q - torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(-1)).std()
    assert divergence > 0.05
    assert abs(loss - divergence) < 5 * spread / count**0.5


@given(st.integers(0, 2**31), st.integers(1, 5), st.integers(1, 4), st.integers(2, 6))
def test_classification_loss_is_equation_one(seed: int, looks: int, scenes: int, classes: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(looks, scenes, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, classes, (scenes,), generator=generator)
    log_probabilities = logits.log_softmax(-1)
    plain = -sum(log_probabilities[t, b, int(labels[b])].item() for t in range(looks) for b in range(scenes))
    assert classification_loss(log_probabilities, labels).item() == pytest.approx(plain / (looks * scenes), rel=1e-10)


def test_classification_loss_does_not_care_how_memory_is_laid_out() -> None:
    log_probabilities = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    labels = torch.tensor([0, 1, 2, 3, 0])
    scene_first = log_probabilities.movedim(1, 0).contiguous().movedim(0, 1)
    assert not scene_first.is_contiguous()
    torch.testing.assert_close(classification_loss(scene_first, labels), classification_loss(log_probabilities, labels))


def test_log_likelihood_is_that_of_the_true_label_look_by_look() -> None:
    log_probabilities = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    labels = torch.tensor([0, 3, 2, 3, 1])
    expected = [[float(log_probabilities[t, b, int(labels[b])]) for b in range(5)] for t in range(3)]
    assert log_likelihood(log_probabilities, labels).tolist() == expected


@dataclass(frozen=True)
class TwoArms:
    """A bandit: the first arm pays 1 with one chance, the second with another; the policy takes the first with sigmoid(preference)."""

    first: float
    second: float
    preference: float

    @property
    def chosen(self) -> float:
        """The probability of the first arm."""
        return 1 / (1 + math.exp(-self.preference))

    @property
    def mean(self) -> float:
        """The expected reward."""
        return self.chosen * self.first + (1 - self.chosen) * self.second

    @property
    def gradient(self) -> float:
        """Of the expected reward, in the preference: exact."""
        return self.chosen * (1 - self.chosen) * (self.first - self.second)

    def variance(self, baseline: float) -> float:
        """Of one play's REINFORCE gradient, exact: over both arms, paying or not."""
        score, plays = (1 - self.chosen, -self.chosen), (self.chosen, 1 - self.chosen)
        square = sum(
            play * chance * ((reward - baseline) * slope) ** 2
            for play, slope, pays in zip(plays, score, (self.first, self.second), strict=True)
            for reward, chance in ((1, pays), (0, 1 - pays))
        )
        return square - self.gradient**2

    def play(self, preference: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """log pi of the arm taken, and what it paid, one play for each number."""
        arm, luck = torch.rand(2, *preference.shape, generator=generator, dtype=preference.dtype)
        taken = arm < torch.sigmoid(preference.detach())
        log_density = torch.where(taken, preference, -preference).sigmoid().log()
        return log_density, (luck < torch.where(taken, self.first, self.second)).to(preference.dtype)


ARMS = TwoArms(first=0.9, second=0.6, preference=0.4)
PLAYS = 200_000


def _gradients_of_plays(baseline: float) -> Tensor:
    """Minus the loss's gradient in the preference, of every play by itself."""
    preference = torch.full((1, PLAYS), ARMS.preference, dtype=torch.float64, requires_grad=True)
    log_density, reward = ARMS.play(preference, torch.Generator().manual_seed(0))
    loss = reinforce_loss(log_density, reward, torch.full_like(reward, baseline))
    (gradient,) = torch.autograd.grad(loss, preference)
    return -gradient[0] * PLAYS


@pytest.mark.parametrize("baseline", [0.0, 0.5, ARMS.mean])
def test_reinforces_expected_gradient_is_the_policy_gradient_whatever_the_baseline(baseline: float) -> None:
    found = _gradients_of_plays(baseline)
    error = (ARMS.variance(baseline) / PLAYS) ** 0.5
    assert float(found.mean()) == pytest.approx(ARMS.gradient, abs=4 * error)
    assert 4 * error < ARMS.gradient / 5, "enough plays to tell"


def test_a_baseline_changes_the_gradients_variance() -> None:
    found = {baseline: float(_gradients_of_plays(baseline).var()) for baseline in (0.0, ARMS.mean)}
    for baseline, variance in found.items():
        assert variance == pytest.approx(ARMS.variance(baseline), rel=0.03)
    assert found[ARMS.mean] < found[0.0] / 3


def test_the_baseline_is_taught_by_its_own_error_and_the_policy_has_no_part_in_it() -> None:
    generator = torch.Generator().manual_seed(0)
    log_density, reward = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    expected = torch.randn(3, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(reinforce_loss(log_density, reward, expected), expected)
    torch.testing.assert_close(gradient, 2 * (expected - reward).detach() / 12)


@pytest.mark.parametrize(("first", "second"), [(0.9, 0.4), (0.4, 0.9)])
def test_a_softmax_policy_finds_the_better_arm_and_its_baseline_what_that_pays(first: float, second: float) -> None:
    arms, generator = TwoArms(first=first, second=second, preference=0.0), torch.Generator().manual_seed(0)
    preference, expected = (torch.zeros((), requires_grad=True) for _ in range(2))
    optimiser = torch.optim.Adam([preference, expected], 0.05)
    for _ in range(400):
        log_density, reward = arms.play(preference.expand(1, 32), generator)
        optimiser.zero_grad()
        reinforce_loss(log_density, reward, expected.expand(1, 32)).backward()
        optimiser.step()
    chosen = float(torch.sigmoid(preference.detach()))
    assert (chosen if first > second else 1 - chosen) > 0.9
    assert float(expected.detach()) == pytest.approx(0.9, abs=0.1)


@pytest.mark.parametrize("better", [-1.0, 1.0])
def test_a_gaussian_policy_moves_to_the_side_that_pays(better: float) -> None:
    generator = torch.Generator().manual_seed(0)
    mean, expected = torch.zeros(2, requires_grad=True), torch.zeros((), requires_grad=True)
    optimiser = torch.optim.Adam([mean, expected], 0.02)
    for _ in range(200):
        samples = mean.detach() + ram.SPREAD * torch.randn(1, 64, 2, generator=generator)
        reward = (samples[..., 0] * better > 0).float()
        optimiser.zero_grad()
        log_density = ram.log_density(samples, mean.expand_as(samples))
        reinforce_loss(log_density, reward, expected.expand_as(reward)).backward()
        optimiser.step()
    assert float(mean[0].detach()) * better > ram.SPREAD
    assert abs(float(mean[1].detach())) < float(mean[0].detach()) * better, "the other direction pays nothing"
