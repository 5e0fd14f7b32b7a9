from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from infogaze import ImageSensor
from infogaze.methods.discriminative import ESTIMATE, Valuer
from infogaze.nn.belief import Belief
from infogaze.training.phases import Batch
from infogaze.training.rollout import random_places
from tests.support.methods import LOOKS, OBJECTIVE, agent_of, batch_for, chosen, in_float64, made, outcome, still
from tests.support.tiny import CONFIG


def valuer(seed: int = 0) -> Valuer:
    model = made("discriminative", seed)
    assert isinstance(model, Valuer)
    return model


MODEL = valuer()


@given(seed=st.integers(0, 2**31), scale=st.floats(0.01, 100.0))
def test_no_look_is_valued_below_nothing_or_above_what_is_not_known(seed: int, scale: float) -> None:
    hidden = scale * torch.randn(5, CONFIG.belief_size, generator=torch.Generator().manual_seed(seed))
    belief = Belief(hidden, hidden[:, :0])
    value = MODEL.value(belief)
    entropy = torch.distributions.Categorical(logits=MODEL.backbone.classify(belief)).entropy()
    assert value.shape == (5, CONFIG.grid.num_locations)
    assert bool((value >= 0).all())
    assert bool((value <= entropy[:, None] + 1e-6).all())


def test_places_are_valued_differently_and_by_what_is_believed() -> None:
    hidden = torch.randn(40, CONFIG.belief_size, generator=torch.Generator().manual_seed(0))
    values = MODEL.value(Belief(hidden, hidden[:, :0])).detach()
    assert float(values.std(1).median()) > 1e-3
    assert len(values.argmax(1).unique()) > 1, "the best place is not the same for all beliefs"


def _plain_looks(model: Valuer, batch: Batch, places: Tensor) -> list[Belief]:
    belief, beliefs = model.backbone.start(len(batch.labels)), []
    for look in places:
        where = model.grid.locations()[look]
        glimpses = torch.stack([batch.images[i, :, r : r + 4, c : c + 4] for i, (r, c) in enumerate(where.tolist())])
        belief = model.backbone.update(belief, model.backbone.features(glimpses), where)
        beliefs.append(belief)
    return beliefs


def test_the_head_learns_the_drop_of_the_loss_that_happened_at_the_place_that_was_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Recomputed plainly in float64, look by look and scene by scene, from the equation at the top of the file."""
    model = still(valuer())
    model, batch = in_float64(model, batch_for(ESTIMATE, model, progress=0.6))
    places = chosen(ESTIMATE, model, batch)
    beliefs = _plain_looks(model, batch, places)
    classification, errors, drops = [], [], []
    for t, belief in enumerate(beliefs):
        kept = (batch.noise["dropout"][:, t] >= 0.5) / 0.5
        in_part = model.backbone.classify(Belief(belief.hidden * kept, belief.memory))
        for i, label in enumerate(batch.labels.tolist()):
            classification.append(-in_part[i, label])
            if t == 0:
                continue
            before, after = model.backbone.classify(beliefs[t - 1])[i], model.backbone.classify(belief)[i]
            drops.append(after[label] - before[label])
            entropy = -(before.exp() * before).sum()
            logit = model.head(beliefs[t - 1].hidden)[i, places[t, i]]
            errors.append((entropy / (1 + torch.exp(-logit)) - drops[-1]) ** 2)
    expected = torch.stack(classification).mean() + torch.stack(errors).mean()

    told: list[Tensor] = []
    real = functional.mse_loss

    def spy(guessed: Tensor, happened: Tensor) -> Tensor:
        told.append(happened)
        return real(guessed, happened)

    monkeypatch.setattr(functional, "mse_loss", spy)
    loss = outcome(ESTIMATE, model, batch).loss
    torch.testing.assert_close(told[0].flatten().double(), torch.stack(drops), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-9)
    assert len({bool(drop > 0) for drop in drops}) == 2, "a look may also mislead"


def test_at_the_beginning_every_look_is_at_random() -> None:
    batch = batch_for(ESTIMATE, MODEL, 50, progress=0.0)
    assert torch.equal(chosen(ESTIMATE, MODEL, batch), random_places(batch, LOOKS))


@pytest.mark.parametrize(("progress", "chance"), [(0.25, 0.75), (0.5, 0.5), (0.96, 0.05), (1.0, 0.05)])
def test_the_share_of_looks_at_random_falls_to_a_twentieth(
    progress: float, chance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a head that wants the places in order, looks out of order are those at random."""
    scenes, model = 3000, valuer()
    wanted = torch.arange(CONFIG.grid.num_locations, 0, -1.0).expand(scenes, -1)
    monkeypatch.setattr(model, "value", lambda belief: wanted)
    batch = batch_for(ESTIMATE, model, scenes, progress=progress)
    places, epsilon = chosen(ESTIMATE, model, batch), batch.noise["epsilon"]
    left = torch.ones(scenes, CONFIG.grid.num_locations, dtype=torch.bool)
    at_random = []
    for t, look in enumerate(places):
        first_left = left.float().argmax(1)
        others = left.sum(1) - 1
        at_random.append(float(((look != first_left) * (others + 1) / others).mean()))
        by_value = epsilon[:, t] > chance + 1e-6
        assert t == 0 or torch.equal(look[by_value], first_left[by_value])
        left[torch.arange(scenes), look] = False
    assert at_random[0] == pytest.approx(1.0, abs=0.03), "the first always is"
    error = 4 * (chance * (1 - chance) / scenes) ** 0.5 + 0.01
    assert at_random[1:] == pytest.approx([chance] * (LOOKS - 1), abs=error)


@given(progress=st.floats(0.0, 1.0), num_looks=st.integers(1, CONFIG.grid.num_locations), seed=st.integers(0, 2**31))
def test_exploring_never_looks_twice_at_a_place(progress: float, num_looks: int, seed: int) -> None:
    objective = replace(OBJECTIVE, num_looks=num_looks)
    batch = batch_for(ESTIMATE, MODEL, 4, progress=progress, seed=seed, objective=objective)
    places = chosen(ESTIMATE, MODEL, batch, objective)
    assert places.shape == (num_looks, 4)
    for scene in places.t().tolist():
        assert len(set(scene)) == num_looks


def test_an_episode_looks_where_the_value_is_largest_and_never_twice() -> None:
    agent = agent_of("discriminative", valuer(), num_looks=CONFIG.grid.num_locations)
    images = torch.randint(0, 256, (3, CONFIG.channels, CONFIG.height, CONFIG.width)).to(torch.uint8)
    sensor, episode = ImageSensor(images, CONFIG.glimpse_size), agent.episode(3)
    assert isinstance(agent.model, Valuer)
    while not episode.done:
        where = episode.next_location()
        if episode.history:
            value = agent.model.value(episode.belief).detach()
            torch.testing.assert_close(episode.next_gain.flatten(1), value)
            best = episode.next_gain.masked_fill(~episode.candidates, -1.0).flatten(1).argmax(1)
            assert torch.equal(where, CONFIG.grid.locations()[best])
        episode.observe(sensor.look(where))
    visited = torch.stack([look.location for look in episode.history], 1)
    assert all(len(scene.unique(dim=0)) == CONFIG.grid.num_locations for scene in visited)
