from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from infogaze.methods.three_phases import CLASSIFY, FINETUNE, IMAGINE
from infogaze.nn.belief import Belief
from infogaze.nn.model import Model
from infogaze.training.phases import Batch
from tests.support.methods import LOOKS, OBJECTIVE, batch_for, in_float64, outcome, still
from tests.support.small_model import model, outspoken, plain_beliefs, vae_of
from tests.support.tiny import CONFIG


def test_the_loss_of_phase_1_is_that_of_a_plain_loop_in_float64() -> None:
    net = still(model())
    net, batch = in_float64(net, batch_for(CLASSIFY, net, 3))
    losses = []
    belief = net.backbone.start(3)
    for t in range(LOOKS):
        rows = (batch.noise["anywhere"][:, t, 0] * (CONFIG.height - CONFIG.glimpse_size + 1)).long().tolist()
        cols = (batch.noise["anywhere"][:, t, 1] * (CONFIG.width - CONFIG.glimpse_size + 1)).long().tolist()
        glimpses = torch.stack(
            [batch.images[i, :, r : r + 4, c : c + 4] for i, (r, c) in enumerate(zip(rows, cols, strict=True))]
        )
        belief = net.backbone.update(belief, net.backbone.features(glimpses), torch.tensor([rows, cols]).t())
        kept = (batch.noise["dropout"][:, t] >= 0.5) / 0.5
        log_p = net.backbone.classify(Belief(belief.hidden * kept, belief.memory))
        losses += [-log_p[i, batch.labels[i]] for i in range(3)]
    torch.testing.assert_close(outcome(CLASSIFY, net, batch).loss, torch.stack(losses).mean(), rtol=1e-9, atol=1e-9)


def _plain_losses(net: Model, batch: Batch, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The Partial VAE's error and divergence and the classification loss from their equations, one look and scene at a time."""
    beliefs, seen = plain_beliefs(net, batch, places)
    vae = vae_of(net)
    variance = vae.log_variance.exp()
    errors, divergences, classification = [], [], []
    for t, belief in enumerate(beliefs):
        dropped = batch.noise.get("dropout")
        kept = torch.ones_like(belief.hidden) if dropped is None else (dropped[:, t] >= 0.5) / 0.5
        log_p = net.backbone.classify(Belief(belief.hidden * kept, belief.memory))
        for scene in range(len(batch.labels)):
            classification.append(-log_p[scene, batch.labels[scene]])
            distribution = vae.posterior(belief.hidden[scene : scene + 1])
            z, log_q = distribution.rsample_with_log_prob(batch.noise["latent"][scene : scene + 1, t])
            guess = vae.decoder(z)[0]
            likelihood = torch.zeros((), dtype=torch.float64)
            for s in range(t + 1):
                error = guess[places[s, scene]] - seen[s][scene]
                likelihood = likelihood + 0.5 * (error.square() / variance + variance.log()).sum()
            prior = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum()
            errors.append(likelihood)
            divergences.append(log_q[0] - prior)
    return torch.stack(errors).mean(), torch.stack(divergences).mean(), torch.stack(classification).mean()


@pytest.mark.parametrize(
    ("kl_warmup", "progress", "weight"),
    [(0.0, 0.0, 1.0), (0.0, 1.0, 1.0), (0.5, 0.0, 0.0), (0.5, 0.125, 0.25), (0.5, 0.5, 1.0), (0.5, 1.0, 1.0)],
)
def test_the_loss_of_phase_2_is_that_of_a_plain_loop_in_float64(
    kl_warmup: float, progress: float, weight: float
) -> None:
    net = still(outspoken(model()))
    net, batch = in_float64(net, batch_for(IMAGINE, net, 3, progress=progress))
    places = batch.noise["places"].argsort(1, descending=True)[:, :LOOKS].t()
    error, divergence, _ = _plain_losses(net, batch, places)
    assert abs(divergence) > 0.1
    loss = outcome(IMAGINE, net, batch, replace(OBJECTIVE, kl_warmup=kl_warmup)).loss
    torch.testing.assert_close(loss, OBJECTIVE.alpha * (error + weight * divergence), rtol=1e-9, atol=1e-9)


def _plain_gain(net: Model, belief: Belief, noise: Tensor) -> list[float]:
    """Equation 7 for one scene, a place and an imagined scene at a time."""
    vae, now = vae_of(net), net.backbone.classify(belief)[0]
    gains = [0.0] * net.grid.num_locations
    for sample in noise:
        z, _ = vae.posterior(belief.hidden).rsample_with_log_prob(sample[None])
        for place, content in enumerate(vae.decoder(z)[0]):
            where = net.grid.locations()[place][None]
            after = net.backbone.classify(net.backbone.update(belief, content[None], where))[0]
            gains[place] += float((after.exp() * (after - now)).sum()) / len(noise)
    return gains


def _plain_correction(net: Model, belief: Belief, gains: list[float]) -> list[float]:
    """The slope times the gain, and a share of the entropy; the gain itself where there is no correction."""
    if net.correction is None:
        return gains
    now = net.backbone.classify(belief)[0]
    entropy = float(-(now.exp() * now).sum())
    shares = (1 / (1 + torch.exp(-net.correction.head(belief.hidden)[0]))).tolist()
    slope = float(net.correction.slope)
    return [slope * gain + share * entropy for gain, share in zip(gains, shares, strict=True)]


@torch.no_grad()
def _plain_choices(net: Model, batch: Batch) -> Tensor:
    """Each look where the imagined scenes promise most, or, with a correction and by chance, at the next place in random order."""
    chance = 0.0 if net.correction is None else max(1.0 - float(batch.progress), 0.05)
    order, chosen = batch.noise["places"], [batch.noise["places"].argmax(1)]
    for look in range(1, LOOKS):
        beliefs, _ = plain_beliefs(net, batch, torch.stack(chosen))
        best = []
        for scene in range(len(batch.labels)):
            belief = beliefs[-1][scene : scene + 1]
            values = _plain_correction(net, belief, _plain_gain(net, belief, batch.noise["imagined"][scene, look]))
            if float(batch.noise["epsilon"][scene, look]) < chance:
                values = order[scene].tolist()
            left = [place for place in range(net.grid.num_locations) if all(int(old[scene]) != place for old in chosen)]
            best.append(max(left, key=values.__getitem__))
        chosen.append(torch.tensor(best))
    return torch.stack(chosen)


@pytest.mark.parametrize("num_samples", [1, 3])
def test_the_loss_of_phase_3_is_that_of_a_plain_loop_in_float64(num_samples: int) -> None:
    # The divergence has its full weight in phase 3 whatever the warm-up of phase 2.
    objective = replace(OBJECTIVE, num_samples=num_samples, kl_warmup=0.9)
    net = still(outspoken(model()))
    net, batch = in_float64(net, batch_for(FINETUNE, net, 3, objective=objective))
    places = _plain_choices(net, batch)
    error, divergence, classification = _plain_losses(net, batch, places)
    expected = objective.alpha * (error + divergence) + objective.beta * classification
    torch.testing.assert_close(outcome(FINETUNE, net, batch, objective).loss, expected, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def _plain_correction_error(net: Model, batch: Batch, places: Tensor) -> Tensor:
    """The mean square of what was expected of each look but the first, less what it raised the label's log-probability by."""
    beliefs, _ = plain_beliefs(net, batch, places)
    squares = []
    for look in range(1, LOOKS):
        for scene, label in enumerate(batch.labels.tolist()):
            before, after = (beliefs[index][scene : scene + 1] for index in (look - 1, look))
            hoped = _plain_correction(net, before, _plain_gain(net, before, batch.noise["imagined"][scene, look]))
            came = net.backbone.classify(after)[0, label] - net.backbone.classify(before)[0, label]
            squares.append((hoped[int(places[look, scene])] - came) ** 2)
    return torch.stack(squares).mean()


def test_the_loss_of_phase_3_with_a_correction_is_that_of_a_plain_loop() -> None:
    objective = replace(OBJECTIVE, num_samples=2)
    net = still(outspoken(model(corrected=True)))
    net, batch = in_float64(net, batch_for(FINETUNE, net, 6, progress=0.5, objective=objective))
    explores = batch.noise["epsilon"][:, 1:] < 0.5
    assert explores.any(), "looks of both kinds"
    assert not explores.all(), "looks of both kinds"
    places = _plain_choices(net, batch)
    error, divergence, classification = _plain_losses(net, batch, places)
    correction = _plain_correction_error(net, batch, places)
    assert correction > 0.01
    expected = objective.alpha * (error + divergence) + objective.beta * classification + correction
    torch.testing.assert_close(outcome(FINETUNE, net, batch, objective).loss, expected, rtol=1e-9, atol=1e-9)
