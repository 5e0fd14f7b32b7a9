from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from infogaze import build
from infogaze.belief import Belief
from infogaze.model import Model
from infogaze.posterior import FlowLayer
from infogaze.training.phases import Batch, Draw, Objective, believe, draw, random_places, visited
from infogaze.training.three_phases import PHASES, imagine, prepare_to_imagine, recognise, refine
from tests.tiny import CONFIG

LOOKS = 4
OBJECTIVE = Objective(LOOKS, alpha=0.25, beta=2.0, dropout=0.5)


def model(seed: int = 0) -> Model:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build(CONFIG)


def batch(count: int = 6) -> Batch:
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(count, CONFIG.channels, CONFIG.height, CONFIG.width, generator=generator) * 2 - 1
    return Batch(images, torch.randint(0, CONFIG.classes, (count,), generator=generator))


def frozen_statistics(net: Model) -> Model:
    """The model with its batch norms held in eval mode, whatever mode the rest is in."""
    for part in net.eval().modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            part.train = lambda mode=True, part=part: part  # type: ignore[method-assign, misc]
    return net


def drawn(phase: int, net: Model, scenes: int = 6, seed: int = 0) -> Draw:
    return draw(PHASES[phase], net, scenes, OBJECTIVE, torch.Generator().manual_seed(seed))


def reached(part: torch.nn.Module) -> list[bool]:
    return [parameter.grad is not None and bool(parameter.grad.abs().sum() > 0) for parameter in part.parameters()]


def test_phase_1_trains_the_backbone_and_nothing_else() -> None:
    net = model()
    recognise(net.train(), batch(), drawn(0, net), OBJECTIVE).loss.backward()
    assert all(reached(net.backbone))
    assert not any(reached(net.posterior) + reached(net.decoder))


def test_phase_2_trains_posterior_and_decoder_and_leaves_the_backbone_as_it_is() -> None:
    net = model()
    before = {name: value.clone() for name, value in net.backbone.state_dict().items()}
    net.train()
    for layer in net.posterior.layers:
        torch.nn.init.normal_(layer.norm.predict.weight)  # type: ignore[union-attr, arg-type]
    imagine(net, batch(), drawn(1, net), OBJECTIVE).loss.backward()
    assert not any(reached(net.backbone))
    assert all(reached(net.decoder))
    assert net.log_variance.grad is not None
    # Weights that the masks leave out are out of reach, whole rows of a small conditioner among them.
    assert sum(reached(net.posterior)) >= len(reached(net.posterior)) - 2
    for name, value in net.backbone.state_dict().items():
        assert torch.equal(value, before[name]), f"{name} changed, batch norm's statistics included"


def test_phase_3_trains_everything() -> None:
    net = model()
    net.posterior.initialise(torch.randn(50, CONFIG.belief_size), torch.randn(50, CONFIG.latent_size))
    refine(net, batch(), drawn(2, net), OBJECTIVE).loss.backward()
    assert all(reached(net.backbone))
    assert all(reached(net.decoder))
    assert net.training


def test_no_gradient_reaches_the_features_that_are_to_be_imagined() -> None:
    # With beta 0 the only way from the loss to F is through the belief. Cut that, and nothing may arrive.
    net = model()
    for layer in (net.posterior.encode[0],):
        layer.weight.data.zero_()  # type: ignore[operator]
    refine(net, batch(), drawn(2, net), Objective(LOOKS, alpha=1.0, beta=0.0, dropout=0.5)).loss.backward()
    for parameter in net.backbone.parameters():
        assert parameter.grad is None or parameter.grad.abs().sum() == 0


def test_phase_3_looks_where_the_gain_of_one_imagined_scene_is_largest() -> None:
    net, seen = model(), []
    real = net.gain

    def spy(belief: object, noise: Tensor, *rest: object) -> Tensor:
        seen.append(noise.shape[0])
        return real(belief, noise, *rest)  # type: ignore[arg-type]

    net.gain = spy  # type: ignore[method-assign, assignment]
    refine(net, batch(), drawn(2, net), OBJECTIVE)
    assert seen == [1] * (LOOKS - 1)


@pytest.mark.parametrize("phase", [0, 1, 2])
def test_a_loss_is_the_mean_of_its_parts_losses(phase: int) -> None:
    # With batch norm's statistics frozen, scenes do not touch each other, and a process may compute its share alone.
    net = frozen_statistics(model())
    whole, numbers = batch(6), drawn(phase, net)
    both = [Batch(whole.images[part], whole.labels[part]) for part in (slice(0, 3), slice(3, 6))]
    loss = PHASES[phase].loss
    parts = [
        loss(net, some, numbers[part], OBJECTIVE).loss
        for some, part in zip(both, (slice(0, 3), slice(3, 6)), strict=True)
    ]
    torch.testing.assert_close(loss(net, whole, numbers, OBJECTIVE).loss, torch.stack(parts).mean())


def test_visited_counts_the_looks_on_each_place_or_next_to_it() -> None:
    generator = torch.Generator().manual_seed(0)
    last = torch.tensor([CONFIG.height - CONFIG.glimpse, CONFIG.width - CONFIG.glimpse])
    locations = (torch.rand(LOOKS, 50, 2, generator=generator) * (last + 1)).long()
    counts = visited(locations, CONFIG.grid)
    expected = torch.zeros(LOOKS, CONFIG.grid.places)
    for look in range(LOOKS):
        for scene in range(50):
            expected[look, CONFIG.grid.nearest(locations[look, scene])] += 1
    assert torch.equal(counts, expected)
    assert counts.sum(1).tolist() == [50.0] * LOOKS
    where = torch.tensor([[[0, 0], [2, 0], [0, 0], [9, 7]]])  # places are 2 apart, the last at row 8 and column 6
    assert visited(where, CONFIG.grid).nonzero().tolist() == [
        [0, 0],
        [0, CONFIG.grid.cols],
        [0, CONFIG.grid.places - 1],
    ]


@pytest.mark.parametrize("phase", [0, 1, 2])
def test_a_phase_tells_where_its_looks_fell(phase: int) -> None:
    net = model()
    told = PHASES[phase].loss(net, batch(), drawn(phase, net), OBJECTIVE).visited
    assert told.shape == (LOOKS, CONFIG.grid.places)
    assert told.sum(1).tolist() == [6.0] * LOOKS


def test_a_phase_draws_no_numbers_it_does_not_need() -> None:
    numbers = drawn(0, model())
    assert numbers.anywhere.shape == (6, LOOKS, 2)
    assert numbers.dropout.shape == (6, LOOKS, CONFIG.belief_size)
    assert numbers.places.numel() == numbers.latent.numel() == numbers.explore.numel() == 0


def test_dropout_hides_the_stated_share_of_the_belief_and_keeps_its_mean() -> None:
    net, seen = model().eval(), []
    net.backbone.classify = lambda belief: seen.append(belief.hidden) or torch.zeros(LOOKS, 200, 3)  # type: ignore[method-assign, func-returns-value]
    numbers = drawn(0, net, 200)
    for rate in (0.0, 0.5):
        recognise(net, batch(200), numbers, Objective(LOOKS, 1.0, 1.0, rate))
    plain, dropped = seen
    assert abs(float((dropped == 0).double().mean()) - 0.5) < 0.03
    torch.testing.assert_close(dropped[dropped != 0], 2 * plain[dropped != 0])


def test_the_posterior_starts_from_the_first_batch() -> None:
    net = model()
    prepare_to_imagine(net, batch(60), drawn(1, net, 60), OBJECTIVE)
    first = net.posterior.layers[0]
    assert isinstance(first, FlowLayer)
    assert first.norm.predict.bias.abs().sum() > 0


def test_sigma_starts_at_the_spread_of_the_features() -> None:
    # From sigma = 1 the posterior of small features collapses onto the prior before sigma has come down to them.
    net, whole, numbers = model(), batch(60), drawn(1, model(), 60)
    prepare_to_imagine(net, whole, numbers, OBJECTIVE)
    _, seen = believe(net, whole, random_places(numbers, LOOKS))
    known = np.var(seen.detach().flatten(0, 1).numpy(), axis=0, ddof=1).mean()
    assert float(net.log_variance.detach().exp()) == pytest.approx(known, rel=1e-4)


def _plain_beliefs(net: Model, whole: Batch, places: Tensor) -> tuple[list[Belief], list[Tensor]]:
    """Look by look and scene by scene, with nothing but the protocol."""
    belief, beliefs, seen = net.backbone.start(len(whole.labels)), [], []
    for look in places:
        where = net.grid.locations()[look]
        glimpses = [image[:, r : r + 4, c : c + 4] for image, (r, c) in zip(whole.images, where.tolist(), strict=True)]
        content = torch.cat([net.backbone.features(glimpse[None]) for glimpse in glimpses])
        belief = net.backbone.update(belief, content, where)
        beliefs.append(belief)
        seen.append(content)
    return beliefs, seen


def _plain_losses(net: Model, whole: Batch, places: Tensor, numbers: Draw) -> tuple[Tensor, Tensor]:
    """The Partial VAE's and the classification loss from their equations, one look and scene at a time."""
    beliefs, seen = _plain_beliefs(net, whole, places)
    variance = net.log_variance.exp()
    vae, recognition = [], []
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
            vae.append(likelihood + log_q[0] - prior)
    return torch.stack(vae).mean(), torch.stack(recognition).mean()


def test_the_losses_of_phases_2_and_3_are_those_of_a_plain_loop_in_float64() -> None:
    net = frozen_statistics(model()).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(0.0, 0.4, generator=torch.Generator().manual_seed(parameter.numel()))
    given = batch(3)
    whole = Batch(given.images.double(), given.labels)
    for index in (1, 2):
        numbers = drawn(index, net, 3)
        numbers = Draw(*(getattr(numbers, name).double() for name in numbers.__dataclass_fields__))
        at_random = numbers.places.argsort(1, descending=True)[:, :LOOKS].t()
        places = at_random if index == 1 else _plain_choices(net, whole, numbers)
        vae, recognition = _plain_losses(net, whole, places, numbers)
        expected = OBJECTIVE.alpha * vae + (OBJECTIVE.beta * recognition if index == 2 else 0.0)
        torch.testing.assert_close(
            PHASES[index].loss(net, whole, numbers, OBJECTIVE).loss, expected, rtol=1e-9, atol=1e-9
        )


@torch.no_grad()
def _plain_choices(net: Model, whole: Batch, numbers: Draw) -> Tensor:
    """Each look where one imagined scene promises most, a place at a time."""
    chosen: list[Tensor] = [numbers.places.argmax(1)]
    for look in range(1, LOOKS):
        beliefs, _ = _plain_beliefs(net, whole, torch.stack(chosen))
        best = []
        for scene in range(len(whole.labels)):
            belief = Belief(beliefs[-1].hidden[scene : scene + 1], beliefs[-1].memory[scene : scene + 1])
            now = net.backbone.classify(belief)[0]
            z, _ = net.posterior(belief.hidden).rsample_with_log_prob(numbers.explore[scene : scene + 1, look])
            values = []
            for place, content in enumerate(net.decoder(z)[0]):
                after = net.backbone.classify(
                    net.backbone.update(belief, content[None], net.grid.locations()[place][None])
                )[0]
                gain = float((after.exp() * (after - now)).sum())
                values.append(-1.0 if any(int(old[scene]) == place for old in chosen) else gain)
            best.append(values.index(max(values)))
        chosen.append(torch.tensor(best))
    return torch.stack(chosen)


def test_the_loss_of_phase_1_is_that_of_a_plain_loop_in_float64() -> None:
    net = frozen_statistics(model()).double()
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
