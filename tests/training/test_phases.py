from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from infogaze import build
from infogaze.belief import Belief
from infogaze.model import Model
from infogaze.posterior import FlowLayer
from infogaze.training.phases import ALWAYS_WANDERS, Batch, Draw, Objective, believe, draw, random_places, visited
from infogaze.training.three_phases import PHASES, explore, imagine, prepare_to_imagine, recognise, refine
from tests.tiny import CONFIG, WITH_HINDSIGHT

LOOKS = 4
OBJECTIVE = Objective(LOOKS, alpha=0.25, beta=2.0, dropout=0.5)


def model(seed: int = 0, hindsight: bool = False) -> Model:
    return build(WITH_HINDSIGHT if hindsight else CONFIG, seed)


with_and_without_hindsight = pytest.mark.parametrize("hindsight", [False, True], ids=["plain", "hindsight"])


def outspoken(net: Model) -> Model:
    """The model with weights that are not faint, so that its gains differ from place to place and belief to belief."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(0.0, 0.4, generator=torch.Generator().manual_seed(parameter.numel()))
    return net


def batch(count: int = 6, progress: float = 0.0) -> Batch:
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(count, CONFIG.channels, CONFIG.height, CONFIG.width, generator=generator) * 2 - 1
    labels = torch.randint(0, CONFIG.classes, (count,), generator=generator)
    return Batch(images, labels, torch.tensor(progress))


def frozen_statistics(net: Model) -> Model:
    """The model with its batch norms held in eval mode, whatever mode the rest is in."""
    for part in net.eval().modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            part.train = lambda mode=True, part=part: part  # type: ignore[method-assign, misc]
    return net


def drawn(phase: int, net: Model, scenes: int = 6, seed: int = 0, objective: Objective = OBJECTIVE) -> Draw:
    return draw(PHASES[phase], net, scenes, objective, torch.Generator().manual_seed(seed))


def in_float64(given: Batch, numbers: Draw) -> tuple[Batch, Draw]:
    doubled = Draw(*(getattr(numbers, name).double() for name in numbers.__dataclass_fields__))
    return replace(given, images=given.images.double()), doubled


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
    beliefs, _ = _plain_beliefs(net, whole, looked.places)
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
    net = frozen_statistics(outspoken(model(hindsight=hindsight)))
    whole, numbers = batch(6, 0.5), drawn(phase, net)
    both = [Batch(whole.images[part], whole.labels[part], whole.progress) for part in (slice(0, 3), slice(3, 6))]
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
    assert numbers.places.numel() == numbers.latent.numel() == numbers.explore.numel() == numbers.wander.numel() == 0


def test_phase_3_draws_as_many_imagined_scenes_as_it_is_told() -> None:
    numbers = drawn(2, model(), objective=replace(OBJECTIVE, samples=3))
    assert numbers.explore.shape == (6, 3, LOOKS, CONFIG.latent_size)
    assert numbers.wander.shape == (6, LOOKS)


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


def _plain_losses(net: Model, whole: Batch, places: Tensor, numbers: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """The Partial VAE's error and divergence and the classification loss from their equations, one look and scene at a time."""
    beliefs, seen = _plain_beliefs(net, whole, places)
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
    net = frozen_statistics(outspoken(model())).double()
    whole, numbers = in_float64(batch(3, progress), drawn(1, net, 3))
    places = numbers.places.argsort(1, descending=True)[:, :LOOKS].t()
    error, divergence, _ = _plain_losses(net, whole, places, numbers)
    assert abs(divergence) > 0.1
    loss = imagine(net, whole, numbers, replace(OBJECTIVE, warm_up=warm_up)).loss
    torch.testing.assert_close(loss, OBJECTIVE.alpha * (error + weight * divergence), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("samples", [1, 3])
def test_the_loss_of_phase_3_is_that_of_a_plain_loop_in_float64(samples: int) -> None:
    # The divergence has its full weight in phase 3 whatever the warm-up of phase 2.
    objective = replace(OBJECTIVE, samples=samples, warm_up=0.9)
    net = frozen_statistics(outspoken(model())).double()
    whole, numbers = in_float64(batch(3), drawn(2, net, 3, objective=objective))
    places = _plain_choices(net, whole, numbers)
    error, divergence, recognition = _plain_losses(net, whole, places, numbers)
    expected = objective.alpha * (error + divergence) + objective.beta * recognition
    torch.testing.assert_close(refine(net, whole, numbers, objective).loss, expected, rtol=1e-9, atol=1e-9)


def test_the_loss_of_phase_3_with_hindsight_is_that_of_a_plain_loop() -> None:
    objective = replace(OBJECTIVE, samples=2)
    net = frozen_statistics(outspoken(model(hindsight=True))).double()
    whole, numbers = in_float64(batch(6, 0.5), drawn(2, net, 6, objective=objective))
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
def _plain_hindsight_error(net: Model, whole: Batch, places: Tensor, numbers: Draw) -> Tensor:
    """The mean square of what was expected of each look but the first, less what it raised the label's log-probability by."""
    beliefs, _ = _plain_beliefs(net, whole, places)
    squares = []
    for look in range(1, LOOKS):
        for scene, label in enumerate(whole.labels.tolist()):
            before, after = (beliefs[index][scene : scene + 1] for index in (look - 1, look))
            hoped = _plain_correction(net, before, _plain_gain(net, before, numbers.explore[scene, :, look]))
            came = net.backbone.classify(after)[0, label] - net.backbone.classify(before)[0, label]
            squares.append((hoped[int(places[look, scene])] - came) ** 2)
    return torch.stack(squares).mean()


@torch.no_grad()
def _plain_choices(net: Model, whole: Batch, numbers: Draw) -> Tensor:
    """Each look where the imagined scenes promise most, or, with hindsight and by chance, at the next place in random order."""
    chance = 0.0 if net.hindsight is None else max(1.0 - float(whole.progress), 0.05)
    chosen: list[Tensor] = [numbers.places.argmax(1)]
    for look in range(1, LOOKS):
        beliefs, _ = _plain_beliefs(net, whole, torch.stack(chosen))
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
