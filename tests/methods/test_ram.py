from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from infogaze import METHODS, GlimpseGrid, ImageSensor
from infogaze.methods import ram, ram_plus
from infogaze.methods.ram import REINFORCE, SPREAD, AimedLooks, Ram, log_density
from infogaze.methods.ram_plus import reward_to_go
from infogaze.nn.belief import Belief
from infogaze.training.phases import Batch
from infogaze.training.rollout import unroll_places
from tests.support.methods import (
    LOOKS,
    agent_of,
    batch_for,
    chosen,
    gradients,
    in_float64,
    made,
    outcome,
    still,
)
from tests.support.tiny import CONFIG

LAST = (CONFIG.height - CONFIG.glimpse_size, CONFIG.width - CONFIG.glimpse_size)


def controlled(method: str = "ram", seed: int = 0) -> Ram:
    model = made(method, seed)
    assert isinstance(model, Ram)
    return model


def aimed(model: Ram, batch: Batch) -> AimedLooks:
    looks = chosen(REINFORCE, model, batch)
    assert isinstance(looks, AimedLooks)
    return looks


Rewards = Callable[[list[Tensor], int], Tensor]


def _corner(sample: list[float]) -> list[int]:
    return [round((min(max(x, -1.0), 1.0) + 1) / 2 * last) for x, last in zip(sample, LAST, strict=True)]


def _plain_loss(model: Ram, batch: Batch, reward_of: Rewards, looked_at: slice) -> Tensor:
    """The loss from its equations, one look and one scene at a time: cross-entropy, policy and baseline."""
    count = len(batch.labels)
    belief, beliefs, samples = model.backbone.start(count), [], []
    for t in range(LOOKS):
        mean = torch.tanh(model.controller(belief.hidden)).detach()
        sample = mean + SPREAD * batch.noise["aim"][:, t] if t else 2 * batch.noise["anywhere"][:, 0] - 1
        corners = [_corner(row) for row in sample.tolist()]
        glimpses = torch.stack([batch.images[i, :, r : r + 4, c : c + 4] for i, (r, c) in enumerate(corners)])
        belief = model.backbone.update(belief, model.backbone.features(glimpses), torch.tensor(corners))
        beliefs.append(belief)
        samples.append(sample)
    correct = [(model.backbone.classify(belief).argmax(-1) == batch.labels).double() for belief in beliefs]
    classification = []
    for t, belief in enumerate(beliefs):
        kept = (batch.noise["dropout"][:, t] >= 0.5) / 0.5
        log_p = model.backbone.classify(Belief(belief.hidden * kept, belief.memory))
        classification.append(torch.stack([-log_p[i, batch.labels[i]] for i in range(count)]).mean())
    policy, error = [], []
    for t in range(1, LOOKS):
        before = beliefs[t - 1].hidden.detach()
        mean, expected = torch.tanh(model.controller(before)), model.baseline(before).squeeze(-1)
        normal = torch.distributions.Normal(mean, torch.full_like(mean, SPREAD))
        surprise = reward_of(correct, t) - expected
        policy.append(-(normal.log_prob(samples[t]).sum(-1) * surprise.detach()).mean())
        error.append(surprise.square().mean())
    return torch.stack(classification)[looked_at].mean() + torch.stack(policy).mean() + torch.stack(error).mean()


@torch.no_grad()
def _undecided(model: Ram, batch: Batch) -> None:
    """No class is the answer to everything: each look may change it."""
    beliefs, _ = unroll_places(
        model, batch, torch.arange(len(batch.labels)).expand(LOOKS, -1) % model.grid.num_locations
    )
    linear = model.backbone.get_submodule("classifier.linear")
    assert isinstance(linear, nn.Linear)
    linear.bias.sub_(linear(beliefs.hidden).mean((0, 1)))


@pytest.mark.parametrize(
    ("method", "reward_of", "looked_at"),
    [
        ("ram", lambda correct, t: correct[-1], slice(-1, None)),
        ("ram-plus", lambda correct, t: torch.stack(correct[t:]).mean(0), slice(None)),
    ],
    ids=["ram", "ram-plus"],
)
def test_loss_and_gradients_are_those_of_the_equations_in_float64(
    method: str, reward_of: Rewards, looked_at: slice
) -> None:
    phase, model = METHODS[method].phases[1], still(controlled(method))
    model, batch = in_float64(model, batch_for(phase, model, 60))
    _undecided(model, batch)
    assert len(aimed(model, batch).correct.unique(dim=0)) > 2, "looks have rewards of their own"
    expected = _plain_loss(model, batch, reward_of, looked_at)
    loss = outcome(phase, model, batch).loss
    # The density's constant is left out of the loss: its gradient is the same.
    for (name, found), known in zip(gradients(loss, model).items(), gradients(expected, model).values(), strict=True):
        torch.testing.assert_close(found, known, rtol=1e-4, atol=1e-6, msg=name)


class Corrupted:
    """`classify` with other answers for all but the last look, while acting, while learning, or both."""

    def __init__(self, model: Ram, *, acting: bool, learning: bool) -> None:
        self._real, self._acting, self._learning = model.backbone.classify, acting, learning
        self._acted = 0

    def __call__(self, belief: Belief) -> Tensor:
        answer = self._real(belief)
        if answer.dim() == 2:
            self._acted += 1
            return answer.roll(1, -1) if self._acting and self._acted < LOOKS else answer
        if self._learning:
            answer = torch.cat([answer[:-1].roll(1, -1), answer[-1:]])
        return answer


def _loss(method: str, *, acting: bool = False, learning: bool = False) -> float:
    phase, model = METHODS[method].phases[1], still(controlled(method))
    model.backbone.classify = Corrupted(model, acting=acting, learning=learning)  # type: ignore[method-assign]
    return float(outcome(phase, model, batch_for(phase, model)).loss.detach())


@pytest.mark.parametrize("when", ["acting", "learning"])
def test_in_ram_what_is_said_before_the_last_look_is_neither_taught_nor_rewarded(when: str) -> None:
    assert _loss("ram", **{when: True}) == pytest.approx(_loss("ram"), rel=1e-6)


@pytest.mark.parametrize("when", ["acting", "learning"])
def test_in_ram_plus_what_is_said_at_every_look_counts(when: str) -> None:
    assert abs(_loss("ram-plus", **{when: True}) - _loss("ram-plus")) > 1e-3


def test_the_reward_of_a_look_is_the_share_of_correct_predictions_reward_to_go() -> None:
    correct = torch.tensor([[True, False], [False, False], [True, True], [False, True]])
    expected = torch.tensor([[2 / 4, 2 / 4], [1 / 3, 2 / 3], [1 / 2, 2 / 2], [0.0, 1.0]])
    torch.testing.assert_close(reward_to_go(correct), expected)


@given(looks=st.integers(1, 9), scenes=st.integers(1, 5), seed=st.integers(0, 2**31))
def test_the_reward_to_go_is_that_of_a_loop(looks: int, scenes: int, seed: int) -> None:
    correct = torch.rand(looks, scenes, generator=torch.Generator().manual_seed(seed)) < 0.5
    for t in range(looks):
        for scene in range(scenes):
            later = [bool(correct[k, scene]) for k in range(t, looks)]
            assert float(reward_to_go(correct)[t, scene]) == pytest.approx(sum(later) / len(later))


def test_what_came_before_a_look_has_no_part_in_its_reward() -> None:
    correct = torch.tensor([[True], [False], [True]])
    other = torch.cat([~correct[:1], correct[1:]])
    assert torch.equal(reward_to_go(correct)[1:], reward_to_go(other)[1:])
    assert not torch.equal(reward_to_go(correct)[0], reward_to_go(other)[0])


@given(seed=st.integers(0, 2**31))
def test_the_density_is_the_normal_one_up_to_a_constant(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    samples, mean = torch.randn(2, 3, 5, 2, generator=generator, dtype=torch.float64)
    difference = torch.distributions.Normal(mean, SPREAD).log_prob(samples).sum(-1) - log_density(samples, mean)
    torch.testing.assert_close(difference, difference[0, 0].expand_as(difference))


@st.composite
def _grids(draw: st.DrawFn) -> GlimpseGrid:
    size = draw(st.integers(3, 9))
    height, width = size + draw(st.integers(0, 30)), size + draw(st.integers(1, 30))
    return GlimpseGrid(height=height, width=width, glimpse_size=size, stride=1)


def _over(grid: GlimpseGrid) -> Ram:
    return Ram(grid, controlled().backbone, CONFIG.belief_size)


@given(grid=_grids(), row=st.floats(-40, 40, width=32), col=st.floats(-40, 40, width=32))
def test_no_sample_leaves_the_scene(grid: GlimpseGrid, row: float, col: float) -> None:
    pixel = _over(grid).pixel(torch.tensor([row, col])).tolist()
    assert 0 <= pixel[0] <= grid.height - grid.glimpse_size
    assert 0 <= pixel[1] <= grid.width - grid.glimpse_size


@given(grid=_grids())
def test_every_pixel_can_be_aimed_at_corners_included(grid: GlimpseGrid) -> None:
    rows = torch.arange(grid.height - grid.glimpse_size + 1)
    cols = torch.arange(grid.width - grid.glimpse_size + 1)
    locations = torch.cartesian_prod(rows, cols)
    # The scale is that of the locations F is told, so the controller aims in the coordinates it reads.
    coordinates = grid.coordinates(locations)
    assert torch.equal(_over(grid).pixel(coordinates), locations)
    corners = torch.cartesian_prod(torch.tensor([-1.0, 1.0]), torch.tensor([-1.0, 1.0]))
    ends = torch.cartesian_prod(rows[[0, -1]], cols[[0, -1]])
    assert torch.equal(_over(grid).pixel(corners), ends)


@given(grid=_grids(), seed=st.integers(0, 2**31))
def test_a_sample_falls_on_the_nearest_pixel(grid: GlimpseGrid, seed: int) -> None:
    coordinates = torch.rand(20, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1
    last = torch.tensor([grid.height - grid.glimpse_size, grid.width - grid.glimpse_size])
    exact = (coordinates + 1) / 2 * last
    assert bool(((_over(grid).pixel(coordinates) - exact).abs() <= 0.5 + 1e-9).all())


def test_in_training_the_first_look_is_anywhere_and_the_others_around_the_aim() -> None:
    model = still(controlled())
    model, batch = in_float64(model, batch_for(REINFORCE, model, 2000))
    looks = aimed(model, batch)
    locations, samples = looks.locations, looks.samples
    torch.testing.assert_close(samples[0], batch.noise["anywhere"][:, 0] * 2 - 1)
    assert bool((samples[0].abs() <= 1).all())
    assert len(locations[0].unique(dim=0)) == (LAST[0] + 1) * (LAST[1] + 1), "every pixel"
    belief = model.backbone.start(2000)
    for t in range(LOOKS):
        if t:
            torch.testing.assert_close(samples[t] - SPREAD * batch.noise["aim"][:, t], model.aim(belief))
        seen = torch.stack([batch.images[i, :, r : r + 4, c : c + 4] for i, (r, c) in enumerate(locations[t].tolist())])
        belief = model.backbone.update(belief, model.backbone.features(seen), locations[t])


@pytest.mark.parametrize("method", ["ram", "ram-plus"])
def test_in_an_episode_looks_fall_around_the_aim_and_not_only_on_the_grid(method: str) -> None:
    agent = agent_of(method, controlled(method))
    generator = torch.Generator().manual_seed(2)
    images = torch.randint(0, 256, (60, CONFIG.channels, CONFIG.height, CONFIG.width), generator=generator)
    sensor = ImageSensor(images.to(torch.uint8), CONFIG.glimpse_size)
    episode = agent.episode(60)
    model = agent.model
    assert isinstance(model, Ram)
    off = []
    while not episode.done:
        aim, where = model.aim(episode.belief).detach(), episode.next_location()
        if episode.history:
            off.append((where - model.pixel(aim)) * 2 / torch.tensor(LAST))
            assert not bool(episode.next_gain.any())
        episode.observe(sensor.look(where))
    away = torch.cat(off)
    assert float(away.abs().max()) < 5 * SPREAD + 2 / min(LAST)
    assert float(away.abs().mean()) > 0.3 * SPREAD, "as spread as in training, less what the scene's edge cuts off"
    looked = torch.cat([look.location for look in episode.history[1:]])
    assert not bool(model.grid.at(looked).any(1).all()), "some are off the grid"


def test_ram_plus_is_ram_but_for_its_loss() -> None:
    (first, one), (same, other) = METHODS["ram"].phases, METHODS["ram-plus"].phases
    assert first is same
    assert one.loss is ram.reinforce
    assert other.loss is ram_plus.reinforce_every_look
    assert replace(one, loss=other.loss) == other
