from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from infogaze.methods.three_phases import (
    CLASSIFY,
    FINETUNE,
    IMAGINE,
    PHASES,
    ChosenLooks,
    choose_by_gain,
    prepare_imagination,
)
from infogaze.nn.belief import Belief
from infogaze.nn.model import Model
from infogaze.nn.posterior import FlowLayer
from infogaze.training.phases import Batch, Phase
from infogaze.training.rollout import MIN_EPSILON, random_places, unroll_places
from tests.support.methods import LOOKS, OBJECTIVE, batch_for, chosen, in_float64, outcome, some_of, still
from tests.support.small_model import model, outspoken, plain_beliefs, vae_of
from tests.support.tiny import CONFIG

with_and_without_correction = pytest.mark.parametrize("corrected", [False, True], ids=["plain", "corrected"])
every_phase = pytest.mark.parametrize("phase", PHASES, ids=[phase.name for phase in PHASES])


def reached(part: torch.nn.Module) -> list[bool]:
    return [parameter.grad is not None and bool(parameter.grad.abs().sum() > 0) for parameter in part.parameters()]


def test_phase_1_trains_the_backbone_and_nothing_else() -> None:
    net = model()
    outcome(CLASSIFY, net, batch_for(CLASSIFY, net)).loss.backward()
    assert all(reached(net.backbone))
    assert not any(reached(net.imagination))


def test_phase_2_trains_posterior_and_decoder_and_leaves_the_backbone_as_it_is() -> None:
    net = model()
    vae = vae_of(net)
    before = {name: value.clone() for name, value in net.backbone.state_dict().items()}
    for layer in vae.posterior.layers:
        torch.nn.init.normal_(layer.norm.predict.weight)  # type: ignore[union-attr, arg-type]
    outcome(IMAGINE, net, batch_for(IMAGINE, net)).loss.backward()
    assert not any(reached(net.backbone))
    assert all(reached(vae.decoder))
    assert vae.log_variance.grad is not None
    # Weights that the masks leave out are out of reach, whole rows of a small conditioner among them.
    assert sum(reached(vae.posterior)) >= len(reached(vae.posterior)) - 2
    for name, value in net.backbone.state_dict().items():
        assert torch.equal(value, before[name]), f"{name} changed, batch norm's statistics included"


@with_and_without_correction
def test_phase_3_trains_everything(corrected: bool) -> None:
    net = model(corrected=corrected)
    vae_of(net).posterior.initialise(torch.randn(50, CONFIG.belief_size), torch.randn(50, CONFIG.latent_size))
    outcome(FINETUNE, net, batch_for(FINETUNE, net)).loss.backward()
    assert all(reached(net.backbone))
    assert all(reached(vae_of(net).decoder))
    assert net.correction is None or any(reached(net.correction))


def test_no_gradient_reaches_the_features_that_are_to_be_imagined() -> None:
    # With beta 0 the only way from the loss to F is through the belief. Cut that, and nothing may arrive.
    net = model()
    vae_of(net).posterior.encode.get_submodule("0").get_parameter("weight").data.zero_()
    outcome(FINETUNE, net, batch_for(FINETUNE, net), replace(OBJECTIVE, alpha=1.0, beta=0.0)).loss.backward()
    for parameter in net.backbone.parameters():
        assert parameter.grad is None or parameter.grad.abs().sum() == 0


@pytest.mark.parametrize("num_samples", [1, 3])
def test_phase_3_looks_by_the_gain_of_as_many_imagined_scenes_as_it_is_told(num_samples: int) -> None:
    net, seen = model(), []
    real = net.imagined_gain

    def spy(belief: Belief, count: int, *, noise: Tensor) -> Tensor:
        seen.append((count, *noise.shape))
        return real(belief, count, noise=noise)

    net.imagined_gain = spy  # type: ignore[method-assign, assignment]
    objective = replace(OBJECTIVE, num_samples=num_samples)
    outcome(FINETUNE, net, batch_for(FINETUNE, net, objective=objective), objective)
    assert seen == [(num_samples, 6, num_samples, CONFIG.latent_size)] * (LOOKS - 1)


def _with_looks(net: Model, batch: Batch) -> tuple[Model, Batch, ChosenLooks]:
    """In float64, so that rounding chooses no look: the model, the batch, and the looks chosen for it."""
    net, batch = in_float64(outspoken(net), batch)
    looks = chosen(FINETUNE, net, batch)
    assert isinstance(looks, ChosenLooks)
    return net, batch, looks


@torch.no_grad()
def test_several_imagined_scenes_choose_by_the_mean_of_their_gains() -> None:
    net = model()
    net, batch, looks = _with_looks(net, batch_for(FINETUNE, net, 20, objective=replace(OBJECTIVE, num_samples=3)))
    places = looks.places
    beliefs, _ = unroll_places(net, batch, places)
    alone = []
    for look in range(1, LOOKS):
        belief = Belief(beliefs.hidden[look - 1], beliefs.memory[look - 1])
        noise = batch.noise["imagined"][:, look]  # [B, P, d]
        of_each = [net.gain(belief, 1, noise=noise[:, sample : sample + 1]) for sample in range(3)]
        mean = torch.stack(of_each).mean(0).scatter(1, places[:look].t(), -1.0)
        assert torch.equal(places[look], mean.argmax(1))
        alone.append(of_each[0].scatter(1, places[:look].t(), -1.0).argmax(1))
    assert not torch.equal(torch.stack(alone), places[1:]), "one scene alone would have chosen otherwise"


@pytest.mark.parametrize(("progress", "chance"), [(0.0, 1.0), (0.5, 0.5), (0.97, 0.05), (1.0, 0.05)])
@torch.no_grad()
def test_with_a_correction_looks_are_where_the_corrected_gain_is_largest_but_for_those_at_random(
    progress: float, chance: float
) -> None:
    net = model(corrected=True)
    net, batch, looks = _with_looks(net, batch_for(FINETUNE, net, 40, progress=progress))
    places = looks.places
    beliefs, _ = unroll_places(net, batch, places)
    by_chance, by_imagination = random_places(batch, LOOKS), 0
    assert torch.equal(places[0], by_chance[0])
    for look in range(1, LOOKS):
        belief = Belief(beliefs.hidden[look - 1], beliefs.memory[look - 1])
        noise = batch.noise["imagined"][:, look]
        corrected = net.gain(belief, 1, noise=noise).scatter(1, places[:look].t(), -torch.inf)
        first_left = batch.noise["places"].scatter(1, places[:look].t(), -torch.inf).argmax(1)
        explores = batch.noise["epsilon"][:, look] < chance
        assert torch.equal(places[look], torch.where(explores, first_left, corrected.argmax(1)))
        imagined = net.imagined_gain(belief, 1, noise=noise).scatter(1, places[:look].t(), -torch.inf)
        by_imagination += int((imagined.argmax(1) != places[look])[~explores].sum())
    assert torch.equal(places, by_chance) == (progress == 0.0), "all at random at the beginning, and then at no time"
    assert by_imagination > 0 or progress == 0.0, "the correction changes where to look"


@torch.no_grad()
def test_at_the_end_one_look_in_twenty_explores() -> None:
    net = outspoken(model(corrected=True))
    batch = batch_for(FINETUNE, net, 20, progress=1.0)

    def places(epsilon: float) -> Tensor:
        noise = {**batch.noise, "epsilon": torch.full_like(batch.noise["epsilon"], epsilon)}
        looks = chosen(FINETUNE, net, replace(batch, noise=noise))
        assert isinstance(looks, ChosenLooks)
        return looks.places

    assert MIN_EPSILON == 0.05
    assert torch.equal(places(MIN_EPSILON - 1e-4), random_places(batch, LOOKS))
    assert not torch.equal(places(MIN_EPSILON + 1e-4), random_places(batch, LOOKS))


@torch.no_grad()
def test_without_a_correction_no_look_but_the_first_is_at_random_at_any_time() -> None:
    net = outspoken(model())
    batch = batch_for(FINETUNE, net, 20)
    begun, done = (choose_by_gain(net, replace(batch, progress=torch.tensor(x)), OBJECTIVE).places for x in (0.0, 1.0))
    assert torch.equal(begun, done)
    assert not torch.equal(begun, random_places(batch, LOOKS))


@with_and_without_correction
@pytest.mark.parametrize("num_looks", [1, LOOKS, CONFIG.grid.num_locations + 3])
def test_looks_of_phase_3_fall_on_no_place_twice_and_end_when_all_are_seen(corrected: bool, num_looks: int) -> None:
    net, objective = outspoken(model(corrected=corrected)), replace(OBJECTIVE, num_looks=num_looks)
    looks = chosen(FINETUNE, net, batch_for(FINETUNE, net, 4, progress=0.5, objective=objective), objective)
    assert isinstance(looks, ChosenLooks)
    there = min(num_looks, CONFIG.grid.num_locations)
    assert [len(set(scene)) for scene in looks.places.t().tolist()] == [there] * 4
    assert [len(part) for part in (looks.gain, looks.hidden, looks.entropy, looks.outcome)] == [there - 1] * 4


@torch.no_grad()
def test_what_came_of_a_look_is_how_far_it_raised_the_log_probability_of_the_label() -> None:
    net = model(corrected=True)
    net, batch, looks = _with_looks(net, batch_for(FINETUNE, net, progress=0.5))
    beliefs, _ = plain_beliefs(net, batch, looks.places)
    for look in range(1, LOOKS):
        before, after = beliefs[look - 1], beliefs[look]
        gain = net.imagined_gain(before, 1, noise=batch.noise["imagined"][:, look])
        for scene, label in enumerate(batch.labels.tolist()):
            now, then = (net.backbone.classify(belief)[scene] for belief in (before, after))
            place = int(looks.places[look, scene])
            found = (looks.gain[look - 1, scene], looks.entropy[look - 1, scene], looks.outcome[look - 1, scene])
            expected = float(gain[scene, place]), float(-(now.exp() * now).sum()), float(then[label] - now[label])
            assert [float(value) for value in found] == pytest.approx(expected, rel=1e-9, abs=1e-9)
        torch.testing.assert_close(looks.hidden[look - 1], before.hidden)
    assert len({bool(outcome > 0) for outcome in looks.outcome.flatten()}) == 2, "a look may also mislead"


def test_with_one_look_there_is_no_outcome_to_correct_by() -> None:
    net, objective = model(corrected=True), replace(OBJECTIVE, num_looks=1)
    assert net.correction is not None
    outcome(FINETUNE, net, batch_for(FINETUNE, net, objective=objective), objective).loss.backward()
    assert all(reached(net.backbone.get_submodule("classifier")))
    assert not any(reached(net.correction))


@with_and_without_correction
@every_phase
def test_a_loss_is_the_mean_of_its_parts_losses(phase: Phase, corrected: bool) -> None:
    # With batch norm's statistics frozen, scenes do not touch each other, and a process may compute its share alone.
    net = still(outspoken(model(corrected=corrected)))
    net, batch = in_float64(net, batch_for(phase, net, progress=0.5))
    parts = [outcome(phase, net, some_of(batch, part)).loss for part in (slice(0, 3), slice(3, 6))]
    torch.testing.assert_close(outcome(phase, net, batch).loss, torch.stack(parts).mean())


@every_phase
def test_a_phase_tells_where_its_looks_fell(phase: Phase) -> None:
    net = model()
    told = outcome(phase, net, batch_for(phase, net)).visits
    assert told.shape == (LOOKS, CONFIG.grid.num_locations)
    assert told.sum(1).tolist() == [6.0] * LOOKS


def test_the_posterior_starts_from_the_first_batch() -> None:
    net = model()
    prepare_imagination(net, iter([batch_for(IMAGINE, net, 60)]), OBJECTIVE)
    first = vae_of(net).posterior.layers[0]
    assert isinstance(first, FlowLayer)
    assert first.norm.predict.bias.abs().sum() > 0


def test_sigma_starts_at_the_spread_of_the_features() -> None:
    # From sigma = 1 the posterior of small features collapses onto the prior before sigma has come down to them.
    net = model()
    net, batch = in_float64(net, batch_for(IMAGINE, net, 60))
    prepare_imagination(net, iter([batch]), OBJECTIVE)
    _, seen = unroll_places(net, batch, random_places(batch, LOOKS))
    known = np.var(seen.detach().flatten(0, 1).numpy(), axis=0, ddof=1).mean()
    assert float(vae_of(net).log_variance.detach().exp()) == pytest.approx(known, rel=1e-6)


@torch.no_grad()
def test_the_decoder_starts_near_the_mean_of_the_features() -> None:
    net = outspoken(model())
    net, batch = in_float64(net, batch_for(IMAGINE, net, 60))
    prepare_imagination(net, iter([batch]), OBJECTIVE)
    beliefs, seen = unroll_places(net, batch, random_places(batch, LOOKS))
    features = seen.flatten(0, 1).numpy()
    z = vae_of(net).posterior(beliefs.hidden).rsample(batch.noise["latent"].movedim(1, 0))
    imagined = vae_of(net).decoder(z).flatten(0, 2).numpy()
    spread = np.sqrt(features.var(0, ddof=1).mean())
    np.testing.assert_allclose(imagined.mean(0), features.mean(0), rtol=0, atol=1e-4 * spread)
    away = np.sqrt(np.square(imagined - features.mean(0)).mean())
    assert away == pytest.approx(0.25 * spread, rel=1e-3), "a quarter as far from it as the features are"


def test_preparing_to_imagine_copes_with_more_looks_than_places() -> None:
    net, objective = model(), replace(OBJECTIVE, num_looks=CONFIG.grid.num_locations + 3)
    prepare_imagination(net, iter([batch_for(IMAGINE, net, 10, objective=objective)]), objective)
    assert all(bool(parameter.isfinite().all()) for parameter in net.parameters())
