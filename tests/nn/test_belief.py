from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from torch import Tensor, nn
from torch.nn import functional

from infogaze import Belief, GlimpseBackbone, Origin, build, load, save
from infogaze.models import make_agent
from infogaze.nn.backbone import Backbone
from infogaze.nn.belief import AttentiveBeliefUpdate, BeliefUpdate
from infogaze.nn.classifier import Classifier
from infogaze.nn.features import GlimpseFeatures
from tests.support.parts import TINY, normal, used


def _update(hops: int) -> BeliefUpdate:
    return used(AttentiveBeliefUpdate(feature_size=5, belief_size=6, hops=hops) if hops else BeliefUpdate(5, 6))


def _backbone(hops: int, residual_belief: bool = False) -> GlimpseBackbone:
    features = GlimpseFeatures(TINY.grid, channels=1, widths=(4,), size=5)
    update = (
        AttentiveBeliefUpdate(feature_size=5, belief_size=6, hops=hops, residual=residual_belief)
        if hops
        else BeliefUpdate(5, 6, residual_belief)
    )
    return used(GlimpseBackbone(features, update, Classifier(6, 3)))


every_update = pytest.mark.parametrize("hops", [0, 1, 3])
residual_or_not = pytest.mark.parametrize("residual_belief", [False, True])


def _received(update: BeliefUpdate, features: Tensor) -> Tensor:
    """Table 1: F_f = linear(BN(LeakyReLU(f)))."""
    norm, linear = update.feature_norm, update.from_features
    assert norm.running_mean is not None
    assert norm.running_var is not None
    seen = (functional.leaky_relu(features) - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    return (seen * norm.weight + norm.bias) @ linear.weight.T + linear.bias


def _settled(update: BeliefUpdate, hidden: Tensor) -> Tensor:
    """LN(LeakyReLU(.))."""
    return functional.layer_norm(functional.leaky_relu(hidden), (6,), update.norm.weight, update.norm.bias)


def test_the_plain_update_is_the_one_of_the_paper() -> None:
    update = _update(0)
    hidden, features = normal(7, 6), normal(7, 5, seed=1)
    state = hidden @ update.from_hidden.weight.T + update.from_hidden.bias
    expected = _settled(update, state + _received(update, features))
    torch.testing.assert_close(update(Belief(hidden, torch.zeros(7, 0)), features).hidden, expected)


@pytest.mark.parametrize("hops", [1, 3])
@pytest.mark.parametrize("loudness", [1.0, 300.0])
def test_running_attention_is_the_softmax_over_all_past_states(hops: int, loudness: float) -> None:
    # Scores of hundreds overflow a softmax that is summed up without its maximum taken out.
    update = _update(hops)
    assert isinstance(update, AttentiveBeliefUpdate)
    into, _, out = update.score
    assert isinstance(into, nn.Linear)
    assert isinstance(out, nn.Linear)
    with torch.no_grad():
        out.weight.mul_(loudness)
    looks = normal(8, 4, 5)
    belief = update.start(4)
    past = [torch.zeros(4, 6).double()]
    for features in looks:
        states = torch.stack(past)  # [1 + t, B, h]
        looked = states[1:]  # the first is the empty start
        scores = torch.tanh(looked @ into.weight.T + into.bias) @ out.weight.T + out.bias  # [t, B, hops]
        read = torch.einsum("tbr,tbh->brh", scores.softmax(0), looked).flatten(1)  # [B, hops * h]
        attended = read @ update.from_memory.weight.T + update.from_memory.bias
        state = states[-1] @ update.from_hidden.weight.T + update.from_hidden.bias
        past.append(_settled(update, state + attended + _received(update, features)))
        belief = update(belief, features)
        torch.testing.assert_close(belief.hidden, past[-1])


def _next_state(
    update: BeliefUpdate, past: list[np.ndarray], features: np.ndarray, residual_belief: bool
) -> np.ndarray:
    """What R makes of the last state, given all of them: LN(LeakyReLU(.)), or LN(h + LeakyReLU(.)) where h is kept."""
    weights = {name: value.numpy() for name, value in update.state_dict().items()}

    def linear(name: str, values: np.ndarray) -> np.ndarray:
        return np.asarray(values @ weights[f"{name}.weight"].T + weights[f"{name}.bias"])

    def active(values: np.ndarray) -> np.ndarray:
        return np.where(values > 0, values, 0.01 * values)

    mean, variance = weights["feature_norm.running_mean"], weights["feature_norm.running_var"]
    seen = (active(features) - mean) / np.sqrt(variance + 1e-5)
    news = linear("from_hidden", past[-1])
    news += linear("from_features", seen * weights["feature_norm.weight"] + weights["feature_norm.bias"])
    if "score.0.weight" in weights:
        states = np.stack(past)[1:]  # [t, B, h]: the first is the empty start, which is no look
        hops = weights["score.2.bias"].shape[0]
        shares = (
            softmax(linear("score.2", np.tanh(linear("score.0", states))), axis=0)
            if len(states)
            else np.zeros((0, len(news), hops))
        )
        news += linear("from_memory", np.einsum("tbr,tbh->brh", shares, states).reshape(len(news), -1))
    made = past[-1] + active(news) if residual_belief else active(news)
    made -= made.mean(-1, keepdims=True)
    made /= np.sqrt((made**2).mean(-1, keepdims=True) + 1e-5)
    return np.asarray(made * weights["norm.weight"] + weights["norm.bias"])


@every_update
@pytest.mark.parametrize("looks", [1, 7])
@residual_or_not
@torch.no_grad()
def test_a_belief_is_made_anew_or_where_it_is_kept_added_to(hops: int, looks: int, residual_belief: bool) -> None:
    sizes = replace(TINY, attention_hops=hops)  # which says nothing of residual_belief
    backbone = build(replace(sizes, residual_belief=True) if residual_belief else sizes).backbone
    assert isinstance(backbone, GlimpseBackbone)
    update = used(backbone.belief_update)
    # Not from nothing: to keep that is to keep nothing.
    belief = Belief(normal(4, 6), update.start(4).memory)
    past = [belief.hidden.numpy()]
    for features in normal(looks, 4, 5, seed=1):
        belief = update(belief, features)
        past.append(_next_state(update, past, features.numpy(), residual_belief))
        np.testing.assert_allclose(belief.hidden.numpy(), past[-1], rtol=0, atol=1e-12)


@every_update
def test_what_is_kept_shows_from_the_second_look_on(hops: int) -> None:
    content, where = normal(3, 2, 5), torch.zeros(3, 2, 2, dtype=torch.int64)
    kept, anew = (_backbone(hops, residual_belief).unroll(content, where).hidden for residual_belief in (True, False))
    assert torch.equal(kept[0], anew[0])
    assert (kept[1:] - anew[1:]).abs().amax((1, 2)).min() > 1e-3


@every_update
@torch.no_grad()
def test_a_saved_model_keeps_its_belief_if_it_did_and_one_from_before_makes_it_anew(hops: int, tmp_path: Path) -> None:
    config = replace(TINY, attention_hops=hops, residual_belief=True)
    origin = Origin(method="paper", config=config, num_samples=20)
    agent = make_agent(build(config), ("a", "b", "c"), origin=origin, num_looks=7)
    save(agent, tmp_path)
    content, where = normal(3, 2, 5).float(), torch.zeros(3, 2, 2, dtype=torch.int64)
    hidden = agent.model.backbone.unroll(content, where).hidden
    again = load(tmp_path)
    assert again.origin == origin
    torch.testing.assert_close(again.model.backbone.unroll(content, where).hidden, hidden)
    description = json.loads((tmp_path / "model.json").read_text())
    sizes = description["model"]
    del sizes["residual_belief"], sizes["gain_correction"]
    sizes["classes"], sizes["glimpse"] = sizes.pop("num_classes"), sizes.pop("glimpse_size")
    before = {"format": 1, "model": sizes, "looks": 7, "samples": 20, "classes": ["a", "b", "c"]}
    (tmp_path / "model.json").write_text(json.dumps({**before, "weights": description["weights"]}))
    older = load(tmp_path)
    assert older.origin == replace(origin, config=replace(config, residual_belief=False))
    assert not torch.allclose(older.model.backbone.unroll(content, where).hidden, hidden, atol=1e-3)


@every_update
@residual_or_not
def test_unroll_is_update_look_by_look(hops: int, residual_belief: bool) -> None:
    backbone = _backbone(hops, residual_belief)
    content = normal(7, 3, 5)
    where = torch.randint(0, 9, (7, 3, 2), generator=torch.Generator().manual_seed(0))
    together, looped = backbone.unroll(content, where), Backbone.unroll(backbone, content, where)
    belief = backbone.start(3)
    for look in range(7):
        belief = backbone.update(belief, content[look], where[look])
        for beliefs in (together, looped):
            torch.testing.assert_close(beliefs.hidden[look], belief.hidden)
            torch.testing.assert_close(beliefs.memory[look], belief.memory)


@every_update
@residual_or_not
def test_one_belief_meets_many_imagined_looks_as_it_would_each_alone(hops: int, residual_belief: bool) -> None:
    backbone = _backbone(hops, residual_belief)
    belief = backbone.start(2)
    for look in range(3):
        belief = backbone.update(belief, normal(2, 5, seed=look), torch.tensor([[look, 0], [0, look]]))
    content, where = normal(4, 2, 25, 5, seed=9), TINY.grid.locations()
    ahead = backbone.update(belief.unsqueeze(1), content, where).hidden  # [P, B, L, h]
    for p, scene, place in product(range(4), range(2), range(25)):
        one = slice(scene, scene + 1)
        alone = backbone.update(belief[one], content[p, one, place], where[place : place + 1]).hidden
        torch.testing.assert_close(ahead[p, one, place], alone)


@every_update
def test_looks_change_the_belief_and_so_does_their_order(hops: int) -> None:
    backbone = _backbone(hops)
    content, where = normal(2, 1, 5), torch.tensor([[[0, 0]], [[8, 4]]])
    forth = backbone.unroll(content, where).hidden
    back = backbone.unroll(content.flip(0), where.flip(0)).hidden
    assert (forth[0] - forth[1]).abs().max() > 1e-3
    assert (forth[1] - back[1]).abs().max() > 1e-3


@every_update
@given(keep=st.lists(st.booleans(), min_size=4, max_size=4))
def test_where_takes_each_scene_from_one_of_the_two(hops: int, keep: list[bool]) -> None:
    width = hops * 8
    one, other = Belief(normal(4, 6), normal(4, width)), Belief(normal(4, 6, seed=1), normal(4, width, seed=1))
    mixed = one.where(torch.tensor(keep), other)
    for scene, mine in enumerate(keep):
        source = one if mine else other
        assert torch.equal(mixed.hidden[scene], source.hidden[scene])
        assert torch.equal(mixed.memory[scene], source.memory[scene])


def test_a_slice_of_a_belief_is_the_belief_of_those_scenes() -> None:
    belief = Belief(normal(5, 6), normal(5, 8))
    assert torch.equal(belief[1:3].hidden, belief.hidden[1:3])
    assert torch.equal(belief[1:3].memory, belief.memory[1:3])
