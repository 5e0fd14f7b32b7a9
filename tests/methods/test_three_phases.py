from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from infogaze.methods.three_phases import PHASES, explore, imagine, prepare_to_imagine, recognise, refine
from infogaze.nn.belief import Belief
from infogaze.nn.posterior import FlowLayer
from infogaze.training.phases import ALWAYS_WANDERS, Batch, Objective, believe, random_places
from tests.support.methods import LOOKS, OBJECTIVE, batch, still
from tests.support.small_model import drawn, model, outspoken, plain_beliefs
from tests.support.tiny import CONFIG

with_and_without_hindsight = pytest.mark.parametrize("hindsight", [False, True], ids=["plain", "hindsight"])


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


@with_and_without_hindsight
def test_phase_3_trains_everything(hindsight: bool) -> None:
    net = model(hindsight=hindsight)
    net.posterior.initialise(torch.randn(50, CONFIG.belief_size), torch.randn(50, CONFIG.latent_size))
    refine(net, batch(), drawn(2, net), OBJECTIVE).loss.backward()
    assert all(reached(net.backbone))
    assert all(reached(net.decoder))
    assert net.hindsight is None or any(reached(net.hindsight))
    assert net.training


def test_no_gradient_reaches_the_features_that_are_to_be_imagined() -> None:
    # With beta 0 the only way from the loss to F is through the belief. Cut that, and nothing may arrive.
    net = model()
    for layer in (net.posterior.encode[0],):
        layer.weight.data.zero_()  # type: ignore[operator]
    refine(net, batch(), drawn(2, net), Objective(LOOKS, alpha=1.0, beta=0.0, dropout=0.5)).loss.backward()
    for parameter in net.backbone.parameters():
        assert parameter.grad is None or parameter.grad.abs().sum() == 0


@pytest.mark.parametrize("samples", [1, 3])
def test_phase_3_looks_by_the_gain_of_as_many_imagined_scenes_as_it_is_told(samples: int) -> None:
    net, seen = model(), []
    real = net.imagined_gain

    def spy(belief: object, noise: Tensor, *rest: object) -> Tensor:
        seen.append(tuple(noise.shape))
        return real(belief, noise, *rest)  # type: ignore[arg-type]

    net.imagined_gain = spy  # type: ignore[method-assign, assignment]
    objective = replace(OBJECTIVE, samples=samples)
    refine(net, batch(), drawn(2, net, objective=objective), objective)
    assert seen == [(samples, 6, CONFIG.latent_size)] * (LOOKS - 1)


@torch.no_grad()
def test_several_imagined_scenes_choose_by_the_mean_of_their_gains() -> None:
    net, whole = outspoken(model()).eval(), batch(20)
    numbers = drawn(2, net, 20, objective=replace(OBJECTIVE, samples=3))
    places = explore(net, whole, numbers, LOOKS).places
    beliefs, _ = believe(net, whole, places)
    alone = []
    for look in range(1, LOOKS):
        belief = Belief(beliefs.hidden[look - 1], beliefs.memory[look - 1])
        of_each = [net.gain(belief, numbers.explore[None, :, sample, look]) for sample in range(3)]
        mean = torch.stack(of_each).mean(0).scatter(1, places[:look].t(), -1.0)
        assert torch.equal(places[look], mean.argmax(1))
        alone.append(of_each[0].scatter(1, places[:look].t(), -1.0).argmax(1))
    assert not torch.equal(torch.stack(alone), places[1:]), "one scene alone would have chosen otherwise"


@pytest.mark.parametrize(("progress", "chance"), [(0.0, 1.0), (0.5, 0.5), (0.97, 0.05), (1.0, 0.05)])
@torch.no_grad()
def test_with_hindsight_looks_are_where_the_corrected_gain_is_largest_but_for_those_at_random(
    progress: float, chance: float
) -> None:
    net, whole = outspoken(model(hindsight=True)).eval(), batch(40, progress)
    numbers = drawn(2, net, 40)
    places = explore(net, whole, numbers, LOOKS).places
    beliefs, _ = believe(net, whole, places)
    by_chance, by_imagination = random_places(numbers, LOOKS), 0
    assert torch.equal(places[0], by_chance[0])
    for look in range(1, LOOKS):
        belief, noise = Belief(beliefs.hidden[look - 1], beliefs.memory[look - 1]), numbers.explore[None, :, 0, look]
        corrected = net.gain(belief, noise).scatter(1, places[:look].t(), -torch.inf)
        first_left = numbers.places.scatter(1, places[:look].t(), -torch.inf).argmax(1)
        wanders = numbers.wander[:, look] < chance
        assert torch.equal(places[look], torch.where(wanders, first_left, corrected.argmax(1)))
        imagined = net.imagined_gain(belief, noise).scatter(1, places[:look].t(), -torch.inf)
        by_imagination += int((imagined.argmax(1) != places[look])[~wanders].sum())
    assert torch.equal(places, by_chance) == (progress == 0.0), "all at random at the beginning, and then at no time"
    assert by_imagination > 0 or progress == 0.0, "the correction changes where to look"


@torch.no_grad()
def test_at_the_end_a_look_wanders_one_time_in_twenty() -> None:
    net, whole = outspoken(model(hindsight=True)).eval(), batch(20, progress=1.0)
    numbers = drawn(2, net, 20)
    steady = replace(numbers, wander=torch.full_like(numbers.wander, ALWAYS_WANDERS))
    astray = replace(numbers, wander=torch.full_like(numbers.wander, ALWAYS_WANDERS - 1e-6))
    assert ALWAYS_WANDERS == 0.05
    assert torch.equal(explore(net, whole, astray, LOOKS).places, random_places(numbers, LOOKS))
    assert not torch.equal(explore(net, whole, steady, LOOKS).places, random_places(numbers, LOOKS))


@torch.no_grad()
def test_without_hindsight_no_look_but_the_first_is_at_random_at_any_time() -> None:
    net = outspoken(model()).eval()
    numbers = drawn(2, net, 20)
    begun, done = (explore(net, batch(20, progress), numbers, LOOKS).places for progress in (0.0, 1.0))
    assert torch.equal(begun, done)
    assert not torch.equal(begun, random_places(numbers, LOOKS))


@with_and_without_hindsight
@pytest.mark.parametrize("looks", [1, LOOKS, CONFIG.grid.places + 3])
@torch.no_grad()
def test_exploring_never_looks_twice_at_a_place_and_ends_when_all_are_seen(hindsight: bool, looks: int) -> None:
    net = outspoken(model(hindsight=hindsight)).eval()
    looked = explore(net, batch(4, 0.5), drawn(2, net, 4, objective=replace(OBJECTIVE, looks=looks)), looks)
    there = min(looks, CONFIG.grid.places)
    assert [len(set(scene)) for scene in looked.places.t().tolist()] == [there] * 4
    assert [len(part) for part in (looked.gain, looked.hidden, looked.entropy, looked.worth)] == [there - 1] * 4


@torch.no_grad()
def test_what_came_of_a_look_is_how_far_it_raised_the_log_probability_of_the_label() -> None:
    net, whole = outspoken(model(hindsight=True)).eval(), batch(6, 0.5)
    numbers = drawn(2, net)
    looked = explore(net, whole, numbers, LOOKS)
    beliefs, _ = plain_beliefs(net, whole, looked.places)
    for look in range(1, LOOKS):
        before, after = beliefs[look - 1], beliefs[look]
        gain = net.imagined_gain(before, numbers.explore[None, :, 0, look])
        for scene, label in enumerate(whole.labels.tolist()):
            now, then = (net.backbone.classify(belief)[scene].double() for belief in (before, after))
            place = int(looked.places[look, scene])
            found = (
                looked.gain[look - 1, scene],
                looked.entropy[look - 1, scene],
                looked.worth[look - 1, scene],
            )
            expected = float(gain[scene, place]), float(-(now.exp() * now).sum()), float(then[label] - now[label])
            assert [float(value) for value in found] == pytest.approx(expected, rel=1e-4, abs=1e-5)
        torch.testing.assert_close(looked.hidden[look - 1], before.hidden)
    assert len({bool(worth > 0) for worth in looked.worth.flatten()}) == 2, "a look may also mislead"


def test_with_one_look_there_is_nothing_to_learn_from_hindsight() -> None:
    net, objective = model(hindsight=True), replace(OBJECTIVE, looks=1)
    assert net.hindsight is not None
    refine(net, batch(), drawn(2, net, objective=objective), objective).loss.backward()
    assert all(reached(net.backbone.get_submodule("classifier")))
    assert not any(reached(net.hindsight))


@with_and_without_hindsight
@pytest.mark.parametrize("phase", [0, 1, 2])
def test_a_loss_is_the_mean_of_its_parts_losses(phase: int, hindsight: bool) -> None:
    # With batch norm's statistics frozen, scenes do not touch each other, and a process may compute its share alone.
    net = still(outspoken(model(hindsight=hindsight)))
    whole, numbers = batch(6, 0.5), drawn(phase, net)
    both = [Batch(whole.images[part], whole.labels[part], whole.progress) for part in (slice(0, 3), slice(3, 6))]
    loss = PHASES[phase].loss
    parts = [
        loss(net, some, numbers[part], OBJECTIVE).loss
        for some, part in zip(both, (slice(0, 3), slice(3, 6)), strict=True)
    ]
    torch.testing.assert_close(loss(net, whole, numbers, OBJECTIVE).loss, torch.stack(parts).mean())


@pytest.mark.parametrize("phase", [0, 1, 2])
def test_a_phase_tells_where_its_looks_fell(phase: int) -> None:
    net = model()
    told = PHASES[phase].loss(net, batch(), drawn(phase, net), OBJECTIVE).visited
    assert told.shape == (LOOKS, CONFIG.grid.places)
    assert told.sum(1).tolist() == [6.0] * LOOKS


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


@torch.no_grad()
def test_the_decoder_starts_near_the_mean_of_the_features() -> None:
    net, whole = outspoken(model()), batch(60)
    numbers = drawn(1, net, 60)
    prepare_to_imagine(net, whole, numbers, OBJECTIVE)
    beliefs, seen = believe(net, whole, random_places(numbers, LOOKS))
    features = seen.flatten(0, 1).double().numpy()
    z = net.posterior(beliefs.hidden).rsample(numbers.latent.movedim(1, 0))
    imagined = net.decoder(z).flatten(0, 2).double().numpy()
    spread = np.sqrt(features.var(0, ddof=1).mean())
    np.testing.assert_allclose(imagined.mean(0), features.mean(0), rtol=0, atol=1e-4 * spread)
    away = np.sqrt(np.square(imagined - features.mean(0)).mean())
    assert away == pytest.approx(0.25 * spread, rel=1e-3), "a quarter as far from it as the features are"


def test_preparing_to_imagine_copes_with_more_looks_than_places() -> None:
    net, objective = model(), replace(OBJECTIVE, looks=CONFIG.grid.places + 3)
    prepare_to_imagine(net, batch(10), drawn(1, net, 10, objective=objective), objective)
    assert all(bool(parameter.isfinite().all()) for parameter in net.parameters())
