"""Every method with looks that are kept as tokens: its phases teach what they should, and it looks, saves and loads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import infogaze
from infogaze import METHODS, Belief, ImageSensor, InfogazeError
from infogaze.evaluation.rollouts import roll_out
from infogaze.methods.oracle import true_gain
from infogaze.nn.backbone import TokenBackbone
from infogaze.training.phases import Phase
from infogaze.training.rollout import greedy_looks
from tests.support.methods import LOOKS, agent_of, batch_for, made, outcome, reached, sizes, under
from tests.support.parts import normal, used
from tests.support.small_run import RECIPE, epochs, run, scenes
from tests.support.tiny import TOKEN_SIZES, TOKENS
from tests.support.tiny import scenes as noise_scenes

WITH_TOKENS = sorted(set(METHODS) - {"attention", "cnn"})
"""The CNN keeps pixels, and has no R."""
every_phase = pytest.mark.parametrize(
    ("method", "phase"),
    [pytest.param(name, phase, id=f"{name}-{phase.name}") for name in WITH_TOKENS for phase in METHODS[name].phases],
)


@every_phase
def test_a_step_of_every_phase_reaches_the_whole_backbone_or_none_of_it(method: str, phase: Phase) -> None:
    model = made(method, preset=TOKEN_SIZES)
    assert isinstance(model.backbone, TokenBackbone)
    loss = outcome(phase, model, batch_for(phase, model)).loss
    assert loss.isfinite()
    of_backbone = reached(loss, model) & under(model, "backbone.")
    assert of_backbone == (set() if phase.name == "imagine" else under(model, "backbone."))


@pytest.mark.parametrize("method", WITH_TOKENS)
def test_a_method_trains_looks_saves_and_loads_with_tokens(method: str, tmp_path: Path) -> None:
    short = replace(RECIPE, phase1=epochs(1), phase2=epochs(1), phase3=epochs(1))
    model = run(tmp_path / "run", short, method=method, sizes=TOKEN_SIZES)
    agent = agent_of(method, model, preset=TOKEN_SIZES)
    infogaze.save(agent, tmp_path / "model")
    again = infogaze.load(tmp_path / "model")
    assert again.origin is not None
    assert (again.origin.config, type(again.model.backbone)) == (sizes(method, TOKEN_SIZES), TokenBackbone)
    one, other = (roll_out(looker, scenes(5)) for looker in (agent, again))
    assert one.locations.shape == (5, LOOKS, 2)
    torch.testing.assert_close(one.probabilities, other.probabilities)
    assert torch.equal(one.locations, other.locations)


def test_self_attention_over_states_is_not_for_tokens() -> None:
    with pytest.raises(InfogazeError, match="attention_hops is 4 and token_layers is 2"):
        sizes("attention", TOKEN_SIZES)


@pytest.mark.parametrize("method", ["infogaze", "random", "discriminative"])
def test_all_places_can_be_looked_at(method: str) -> None:
    places = TOKENS.grid.num_locations
    agent = agent_of(method, made(method, preset=TOKEN_SIZES), num_looks=places, num_samples=2, preset=TOKEN_SIZES)
    episode = agent.run(ImageSensor(noise_scenes(3), TOKENS.glimpse_size), batch=3)
    visited = torch.stack([TOKENS.grid.nearest(look.location) for look in episode.history])
    assert torch.equal(visited.sort(0).values, torch.arange(places)[:, None].expand(-1, 3))


@torch.no_grad()
def test_the_oracle_tries_every_place_as_if_it_were_looked_at() -> None:
    model = used(made("oracle", preset=TOKEN_SIZES))
    backbone, places = model.backbone, model.grid.locations()
    belief = backbone.update(backbone.start(2), normal(2, TOKENS.feature_size), torch.tensor([2, 4]))
    content, labels = normal(2, len(places), TOKENS.feature_size, seed=1), torch.tensor([2, 0])
    found = true_gain(model, belief, content=content, labels=labels)
    before = backbone.classify(belief).gather(1, labels[:, None])[:, 0]
    for place in range(len(places)):
        after = backbone.classify(backbone.update(belief, content[:, place], places[place]))
        torch.testing.assert_close(found[:, place], after.gather(1, labels[:, None])[:, 0] - before)


@torch.no_grad()
def test_looks_that_are_chosen_in_training_keep_no_memory_of_all_looks_for_each() -> None:
    phase, model = METHODS["discriminative"].phases[1], made("discriminative", preset=TOKEN_SIZES).eval()
    sizes_seen: list[int] = []

    def value(belief: Belief, look: int) -> torch.Tensor:
        sizes_seen.append(belief.memory.shape[-1])
        return torch.zeros(6, model.grid.num_locations)

    places, beliefs = greedy_looks(value, model, batch_for(phase, model), num_looks=LOOKS, explore=False)
    width = 1 + 2 * TOKENS.token_layers * TOKENS.belief_size
    assert sizes_seen == [look * width for look in range(1, LOOKS)]
    assert beliefs.hidden.shape[:2] == places.shape == (LOOKS, 6)
    assert beliefs.memory.numel() == 0
