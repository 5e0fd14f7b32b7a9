from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from infogaze.methods.three_phases import imagine, recognise, refine
from infogaze.nn.belief import Belief
from infogaze.nn.model import Model
from infogaze.training.phases import Batch, Draw
from tests.support.methods import LOOKS, OBJECTIVE, batch, in_float64, still
from tests.support.small_model import drawn, model, outspoken, plain_beliefs
from tests.support.tiny import CONFIG


def test_the_loss_of_phase_1_is_that_of_a_plain_loop_in_float64() -> None:
    net = still(model()).double()
    given = batch(3)
    whole = Batch(given.images.double(), given.labels)
    numbers = drawn(0, net, 3)
    losses = []
    belief = net.backbone.start(3)
    for t in range(LOOKS):
        rows = (numbers.anywhere[:, t, 0] * (CONFIG.height - CONFIG.glimpse + 1)).long().tolist()
        cols = (numbers.anywhere[:, t, 1] * (CONFIG.width - CONFIG.glimpse + 1)).long().tolist()
        glimpses = torch.stack(
            [whole.images[i, :, r : r + 4, c : c + 4] for i, (r, c) in enumerate(zip(rows, cols, strict=True))]
        )
        belief = net.backbone.update(belief, net.backbone.features(glimpses), torch.tensor([rows, cols]).t())
        kept = (numbers.dropout[:, t] >= 0.5) / 0.5
        log_p = net.backbone.classify(Belief(belief.hidden * kept, belief.memory))
        losses += [-log_p[i, whole.labels[i]] for i in range(3)]
    torch.testing.assert_close(
        recognise(net, whole, numbers, OBJECTIVE).loss, torch.stack(losses).mean(), rtol=1e-9, atol=1e-9
    )


def _plain_losses(net: Model, whole: Batch, places: Tensor, numbers: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """The Partial VAE's error and divergence and the classification loss from their equations, one look and scene at a time."""
    beliefs, seen = plain_beliefs(net, whole, places)
    variance = net.log_variance.exp()
    errors, divergences, recognition = [], [], []
    for t, belief in enumerate(beliefs):
        kept = (numbers.dropout[:, t] >= 0.5) / 0.5 if numbers.dropout.shape[1] else torch.ones_like(belief.hidden)
        log_p = net.backbone.classify(Belief(belief.hidden * kept, belief.memory))
        for scene in range(len(whole.labels)):
            recognition.append(-log_p[scene, whole.labels[scene]])
            distribution = net.posterior(belief.hidden[scene : scene + 1])
            z, log_q = distribution.rsample_with_log_prob(numbers.latent[scene : scene + 1, t])
            guess = net.decoder(z)[0]
            likelihood = torch.zeros((), dtype=torch.float64)
            for s in range(t + 1):
                error = guess[places[s, scene]] - seen[s][scene]
                likelihood = likelihood + 0.5 * (error.square() / variance + variance.log()).sum()
            prior = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum()
            errors.append(likelihood)
            divergences.append(log_q[0] - prior)
    return torch.stack(errors).mean(), torch.stack(divergences).mean(), torch.stack(recognition).mean()


@pytest.mark.parametrize(
    ("warm_up", "progress", "weight"),
    [(0.0, 0.0, 1.0), (0.0, 1.0, 1.0), (0.5, 0.0, 0.0), (0.5, 0.125, 0.25), (0.5, 0.5, 1.0), (0.5, 1.0, 1.0)],
)
def test_the_loss_of_phase_2_is_that_of_a_plain_loop_in_float64(warm_up: float, progress: float, weight: float) -> None:
    net = still(outspoken(model()))
    net, whole, numbers = in_float64(net, batch(3, progress), drawn(1, net, 3))
    places = numbers.places.argsort(1, descending=True)[:, :LOOKS].t()
    error, divergence, _ = _plain_losses(net, whole, places, numbers)
    assert abs(divergence) > 0.1
    loss = imagine(net, whole, numbers, replace(OBJECTIVE, warm_up=warm_up)).loss
    torch.testing.assert_close(loss, OBJECTIVE.alpha * (error + weight * divergence), rtol=1e-9, atol=1e-9)


def _plain_gain(net: Model, belief: Belief, noise: Tensor) -> list[float]:
    """Equation 7 for one scene, a place and an imagined scene at a time."""
    now = net.backbone.classify(belief)[0]
    gains = [0.0] * net.grid.places
    for sample in noise:
        z, _ = net.posterior(belief.hidden).rsample_with_log_prob(sample[None])
        for place, content in enumerate(net.decoder(z)[0]):
            where = net.grid.locations()[place][None]
            after = net.backbone.classify(net.backbone.update(belief, content[None], where))[0]
            gains[place] += float((after.exp() * (after - now)).sum()) / len(noise)
    return gains


def _plain_correction(net: Model, belief: Belief, gains: list[float]) -> list[float]:
    """The slope times the gain, and a share of the entropy; the gain itself where there is no hindsight."""
    if net.hindsight is None:
        return gains
    now = net.backbone.classify(belief)[0]
    entropy = float(-(now.exp() * now).sum())
    shares = (1 / (1 + torch.exp(-net.hindsight.head(belief.hidden)[0]))).tolist()
    slope = float(net.hindsight.slope)
    return [slope * gain + share * entropy for gain, share in zip(gains, shares, strict=True)]


@torch.no_grad()
def _plain_choices(net: Model, whole: Batch, numbers: Draw) -> Tensor:
    """Each look where the imagined scenes promise most, or, with hindsight and by chance, at the next place in random order."""
    chance = 0.0 if net.hindsight is None else max(1.0 - float(whole.progress), 0.05)
    chosen: list[Tensor] = [numbers.places.argmax(1)]
    for look in range(1, LOOKS):
        beliefs, _ = plain_beliefs(net, whole, torch.stack(chosen))
        best = []
        for scene in range(len(whole.labels)):
            belief = beliefs[-1][scene : scene + 1]
            values = _plain_correction(net, belief, _plain_gain(net, belief, numbers.explore[scene, :, look]))
            if float(numbers.wander[scene, look]) < chance:
                values = numbers.places[scene].tolist()
            left = [place for place in range(net.grid.places) if all(int(old[scene]) != place for old in chosen)]
            best.append(max(left, key=values.__getitem__))
        chosen.append(torch.tensor(best))
    return torch.stack(chosen)


@pytest.mark.parametrize("samples", [1, 3])
def test_the_loss_of_phase_3_is_that_of_a_plain_loop_in_float64(samples: int) -> None:
    # The divergence has its full weight in phase 3 whatever the warm-up of phase 2.
    objective = replace(OBJECTIVE, samples=samples, warm_up=0.9)
    net = still(outspoken(model()))
    net, whole, numbers = in_float64(net, batch(3), drawn(2, net, 3, objective=objective))
    places = _plain_choices(net, whole, numbers)
    error, divergence, recognition = _plain_losses(net, whole, places, numbers)
    expected = objective.alpha * (error + divergence) + objective.beta * recognition
    torch.testing.assert_close(refine(net, whole, numbers, objective).loss, expected, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def _plain_hindsight_error(net: Model, whole: Batch, places: Tensor, numbers: Draw) -> Tensor:
    """The mean square of what was expected of each look but the first, less what it raised the label's log-probability by."""
    beliefs, _ = plain_beliefs(net, whole, places)
    squares = []
    for look in range(1, LOOKS):
        for scene, label in enumerate(whole.labels.tolist()):
            before, after = (beliefs[index][scene : scene + 1] for index in (look - 1, look))
            hoped = _plain_correction(net, before, _plain_gain(net, before, numbers.explore[scene, :, look]))
            came = net.backbone.classify(after)[0, label] - net.backbone.classify(before)[0, label]
            squares.append((hoped[int(places[look, scene])] - came) ** 2)
    return torch.stack(squares).mean()


def test_the_loss_of_phase_3_with_hindsight_is_that_of_a_plain_loop() -> None:
    objective = replace(OBJECTIVE, samples=2)
    net = still(outspoken(model(hindsight=True)))
    net, whole, numbers = in_float64(net, batch(6, 0.5), drawn(2, net, 6, objective=objective))
    wanders = numbers.wander[:, 1:] < 0.5
    assert wanders.any(), "looks of both kinds"
    assert not wanders.all(), "looks of both kinds"
    places = _plain_choices(net, whole, numbers)
    error, divergence, recognition = _plain_losses(net, whole, places, numbers)
    hindsight = _plain_hindsight_error(net, whole, places, numbers)
    assert hindsight > 0.01
    expected = objective.alpha * (error + divergence) + objective.beta * recognition + hindsight
    # Hindsight itself is kept in float32.
    torch.testing.assert_close(refine(net, whole, numbers, objective).loss, expected, rtol=1e-6, atol=1e-6)
