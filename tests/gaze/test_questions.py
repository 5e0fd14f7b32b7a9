"""Other questions, other grids and places that are not allowed: the gain follows, and nothing is trained again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import infogaze
from infogaze import Agent, ImageSensor, InfogazeError, Model, ModelConfig
from infogaze.nn.gain import entropy
from infogaze.rng import SceneNoise, scene_seeds
from tests.support.methods import agent_of, made
from tests.support.tiny import CONFIG, PRESET_SIZES, TOKEN_SIZES, scenes

IMAGINING = ("infogaze", "dictionary", "paper", "paper-corrected")


def agent(method: str, preset: ModelConfig = PRESET_SIZES) -> Agent:
    return agent_of(method, made(method, seed=1, preset=preset), num_looks=4, preset=preset)


every_belief = pytest.mark.parametrize("preset", [PRESET_SIZES, TOKEN_SIZES], ids=["vector", "tokens"])


def looked(who: Agent, count: int = 6, **given: Any) -> infogaze.Episode:
    return who.run(ImageSensor(scenes(count), CONFIG.glimpse_size), batch=count, **given)


@every_belief
@pytest.mark.parametrize("method", IMAGINING)
def test_the_probability_of_an_answer_is_that_of_its_classes_together(method: str, preset: ModelConfig) -> None:
    whole = agent(method, preset)
    asked = whole.ask({"one": [whole.classes[1]], "rest": None})
    assert asked.classes == ("one", "rest")
    places = [whole.model.grid.locations()[place].expand(6, 2) for place in (0, 3, 5)]
    glimpses = ImageSensor(scenes(6), CONFIG.glimpse_size)
    one, other = (who.episode(batch=6) for who in (whole, asked))
    for where in places:
        one.observe(glimpses.look(where), at=where)
        other.observe(glimpses.look(where), at=where)
    torch.testing.assert_close(other.probabilities[:, 0], one.probabilities[:, 1])
    torch.testing.assert_close(other.probabilities.sum(1), torch.ones(6))


@every_belief
@pytest.mark.parametrize("method", ["paper", "dictionary"])
def test_a_question_of_single_classes_is_the_old_one(method: str, preset: ModelConfig) -> None:
    whole = agent(method, preset)
    asked = whole.ask({f"it is {name}": [name] for name in whole.classes})
    one, other = looked(whole), looked(asked)
    torch.testing.assert_close(one.probabilities, other.probabilities)
    for mine, its in zip(one.history, other.history, strict=True):
        assert torch.equal(mine.location, its.location)
        torch.testing.assert_close(mine.gain, its.gain)


@every_belief
@torch.no_grad()
def test_the_gain_is_the_information_about_the_answer(preset: ModelConfig) -> None:
    whole = agent("dictionary", preset)
    asked = whole.ask({"one": [whole.classes[1]], "rest": None})
    model, before = asked.model, whole.model
    assert isinstance(model, Model)
    assert isinstance(before, Model)
    episode = looked(whole, budget=2)
    noise = SceneNoise(scene_seeds(0, 6), 0).normal(*model.imagination.noise_shape(5))
    found = model.gain(episode.belief, 5, noise=noise, criterion=infogaze.nn.gain.mutual_information)
    imagined = before.imagination.imagine(episode.belief, 5, noise=noise)
    after = before.lookahead(episode.belief, imagined.features, before.grid.locations()).exp()
    two = torch.stack([after[..., 1], after.sum(-1) - after[..., 1]], -1)  # [B, L, M, 2]
    mean = (imagined.weights[..., None] * two).sum(2)
    torch.testing.assert_close(found, entropy(mean) - (imagined.weights * entropy(two)).sum(2), rtol=1e-3, atol=1e-5)


@every_belief
@torch.no_grad()
def test_imagined_looks_are_made_coherent_before_their_classes_are_put_together(preset: ModelConfig) -> None:
    whole = agent("dictionary", preset)
    asked = whole.ask({"one": [whole.classes[1]], "rest": None})
    model, before = asked.model, whole.model
    assert isinstance(model, Model)
    assert isinstance(before, Model)
    for weights in model.double().backbone.parameters():
        weights.mul_(2.0)
    belief = looked(whole, budget=2).belief
    noise = torch.zeros(6, 0, dtype=torch.float64)
    found = model.gain(belief, 5, noise=noise, criterion=infogaze.nn.gain.coherent_information)
    imagined = before.imagination.imagine(belief, 5, noise=noise)
    after = before.lookahead(belief, imagined.features, before.grid.locations()).exp()
    mean = (imagined.weights[..., None] * after).sum(2, keepdim=True)
    tilted = after * before.backbone.classify(belief).exp()[:, None, None] / mean
    tilted = tilted / tilted.sum(-1, keepdim=True)
    two = torch.stack([tilted[..., 1], tilted.sum(-1) - tilted[..., 1]], -1)  # [B, L, M, 2]
    expected = entropy((imagined.weights[..., None] * two).sum(2)) - (imagined.weights * entropy(two)).sum(2)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    after_groups = torch.stack([after[..., 1], after.sum(-1) - after[..., 1]], -1).log()
    current = model.backbone.classify(belief)
    late = infogaze.nn.gain.coherent_information(after_groups, imagined.weights, current)
    assert float((found - late).abs().max()) > 1e-6, "which is another number"


def test_another_question_is_looked_for_elsewhere() -> None:
    whole = agent("dictionary")
    asked = whole.ask({"one": [whole.classes[1]], "rest": None})
    ten, two = (torch.stack([look.location for look in looked(who, 40).history]) for who in (whole, asked))
    assert torch.equal(ten[0], two[0]), "the first is at random, and the same"
    assert not torch.equal(ten, two)


@every_belief
def test_a_head_of_ones_own_is_asked(preset: ModelConfig) -> None:
    whole = agent("paper", preset)
    head = nn.Linear(CONFIG.belief_size, 2)
    asked = whole.ask(head, ["yes", "no"])
    episode = looked(asked)
    assert asked.classes == ("yes", "no")
    with torch.no_grad():
        torch.testing.assert_close(episode.probabilities, head(episode.belief.hidden).softmax(-1))
    assert episode.gain.isfinite().all()


@pytest.mark.parametrize("method", ["infogaze", "paper-corrected"])
def test_what_was_learned_from_outcomes_is_left_out_and_the_agent_it_was_made_from_is_as_it_was(method: str) -> None:
    whole = agent(method)
    before = looked(whole).probabilities
    asked = whole.ask({"one": [whole.classes[1]], "rest": None})
    assert isinstance(asked.model, Model)
    assert isinstance(whole.model, Model)
    assert asked.model.correction is None
    assert whole.model.correction is not None
    assert torch.equal(looked(whole).probabilities, before)


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ({"all": None}, "two answers"),
        ({"one": ["class 0"], "two": ["class 1"]}, "class 2: in no answer"),
        ({"one": ["class 0", "class 1"], "two": ["class 1", "class 2"]}, "'class 1' is in one and in two"),
        ({"one": ["dog"], "two": None}, "'dog' is no class"),
        ({"one": None, "two": None}, "once"),
        ({"one": ["class 0", "class 1", "class 2"], "two": None}, "two has no class"),
    ],
)
def test_questions_that_cannot_be_asked_are_refused(question: dict[str, list[str] | None], named: str) -> None:
    with pytest.raises(InfogazeError, match=named):
        agent("paper").ask(question)


def test_a_head_needs_the_names_of_its_answers_and_a_model_an_imagination() -> None:
    with pytest.raises(InfogazeError, match="names of at least two"):
        agent("paper").ask(nn.Linear(CONFIG.belief_size, 2))
    with pytest.raises(InfogazeError, match="imagines nothing"):
        agent("random").ask({"a": ["class 0"], "b": None})
    with pytest.raises(InfogazeError, match="imagines nothing"):
        agent("random").on_grid(stride=1)


def test_an_agent_that_was_made_from_another_is_not_saved(tmp_path: Any) -> None:
    for derived in (agent("paper").on_grid(stride=1), agent("paper").ask({"one": ["class 0"], "rest": None})):
        with pytest.raises(InfogazeError, match="save the one it was made from"):
            infogaze.save(derived, tmp_path / "model")


@every_belief
@pytest.mark.parametrize("method", ["paper", "dictionary"])
@torch.no_grad()
def test_on_a_finer_grid_shared_locations_have_the_same_gain(method: str, preset: ModelConfig) -> None:
    coarse = agent(method, preset)
    fine = coarse.on_grid(stride=1)
    assert isinstance(coarse.model, Model)
    assert isinstance(fine.model, Model)
    belief = looked(coarse, budget=2).belief
    noise = SceneNoise(scene_seeds(0, 6), 0).normal(*coarse.model.imagination.noise_shape(5))
    few, many = (who.gain(belief, 5, noise=noise) for who in (coarse.model, fine.model))
    assert many.shape[1] > few.shape[1]
    shared = fine.model.grid.nearest(coarse.model.grid.locations())
    torch.testing.assert_close(many[:, shared], few, rtol=1e-4, atol=1e-6)
    assert len(many[0].unique()) > len(few[0].unique()), "and between them it is not the nearest place's"


def test_on_another_grid_looks_fall_on_it_and_a_coarse_one_is_a_part() -> None:
    fine = looked(agent("dictionary").on_grid(stride=1), budget=6)
    rows = torch.cat([look.location[:, 0] for look in fine.history])
    assert bool((rows % CONFIG.stride != 0).any())
    coarse = agent("dictionary").on_grid(stride=2 * CONFIG.stride)
    assert coarse.model.grid == replace(agent("dictionary").model.grid, stride=2 * CONFIG.stride)
    looked(coarse, budget=2)


def allowed_places(mask: Tensor | np.ndarray, episode: infogaze.Episode) -> list[bool]:
    flat = torch.as_tensor(np.asarray(mask)).expand(6, *mask.shape[-2:]).flatten(1)
    grid = agent("paper").model.grid
    return [
        bool(flat[scene, place])
        for look in episode.history
        for scene, place in enumerate(grid.nearest(look.location).tolist())
    ]


@pytest.mark.parametrize("method", ["paper", "dictionary", "random", "discriminative"])
def test_places_that_are_not_allowed_are_never_looked_at(method: str) -> None:
    grid = agent("paper").model.grid
    one = torch.zeros(grid.rows, grid.cols, dtype=torch.bool)
    one[0, :2] = one[1, 1] = True
    each = torch.rand(6, grid.rows, grid.cols, generator=torch.Generator().manual_seed(0)) < 0.5
    for mask in (one, one.numpy(), each):
        assert all(allowed_places(mask, looked(agent(method), budget=3, allowed=mask)))


def test_an_episode_ends_with_the_allowed_places_and_what_is_seen_elsewhere_may_still_be_told() -> None:
    grid = agent("paper").model.grid
    mask = torch.zeros(grid.rows, grid.cols, dtype=torch.bool)
    mask[0, :2] = True
    assert len(looked(agent("paper"), allowed=mask).history) == 2
    episode = agent("paper").episode(allowed=mask)
    assert torch.equal(episode.candidates[0], mask)
    where = grid.locations()[-1]
    episode.observe(ImageSensor(scenes(1), CONFIG.glimpse_size).look(where.expand(1, 2)), at=where)
    assert torch.equal(episode.candidates[0], mask)


@pytest.mark.parametrize(
    ("mask", "named"),
    [
        (np.ones((2, 2), bool), r"shape \(2, 2\)"),
        (np.ones((3, 3)), "float64"),
        (np.zeros((3, 3), bool), "without a location"),
    ],
)
def test_masks_that_fit_nothing_are_refused(mask: np.ndarray, named: str) -> None:
    grid = agent("paper").model.grid
    shaped = np.resize(mask, (grid.rows, grid.cols)) if mask.shape == (3, 3) else mask
    with pytest.raises(InfogazeError, match=named):
        agent("paper").episode(allowed=shaped)
