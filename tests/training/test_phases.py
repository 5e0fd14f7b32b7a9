from __future__ import annotations

import pytest
import torch
from torch import Tensor

from infogaze import build
from infogaze.model import Model
from infogaze.posterior import FlowLayer
from infogaze.training.phases import (
    PHASES,
    Batch,
    Draw,
    Objective,
    draw,
    imagine,
    initialise_posterior,
    recognise,
    refine,
)
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
    initialise_posterior(net, batch(60), drawn(1, net, 60), OBJECTIVE)
    first = net.posterior.layers[0]
    assert isinstance(first, FlowLayer)
    assert first.norm.predict.bias.abs().sum() > 0
