from __future__ import annotations

import gc

import pytest
import torch

from infogaze import Agent, GainPolicy
from infogaze.gaze import captured as acceleration
from infogaze.gaze.captured import CapturedPolicy
from infogaze.gaze.policies import Choice, Policy
from infogaze.nn.belief import Belief
from infogaze.nn.model import GlimpseClassifier
from infogaze.rng import SceneNoise, scene_seeds
from tests.support.tiny import CONFIG, TOKENS, tiny_agent

captures: list[tuple[float, bool]] = []


class Noted:
    """Stands for a captured graph, which needs a GPU: says of which weights and precision it was made."""

    def __init__(self, policy: Policy, model: GlimpseClassifier, belief: Belief, **given: object) -> None:
        self.made_of = _weight(model), torch.is_autocast_enabled("cpu")
        captures.append(self.made_of)

    def replay(self, belief: Belief, *given: object) -> Choice:
        scenes, said = len(belief.hidden), torch.tensor([float(value) for value in self.made_of])
        return Choice(torch.zeros(scenes, 2, dtype=torch.int64), said.expand(scenes, 2))


def _weight(model: GlimpseClassifier) -> float:
    return float(next(model.parameters()).detach().flatten()[0])


def _decided(policy: CapturedPolicy, agent: Agent, batch: int = 1) -> list[float]:
    candidates = torch.ones(batch, CONFIG.grid.num_locations, dtype=torch.bool)
    noise, belief = SceneNoise(scene_seeds(0, batch), 1), agent.model.backbone.start(batch)
    decision: list[float] = policy(agent.model, belief, candidates=candidates, noise=noise).gain[0].tolist()
    return decision


@pytest.fixture(autouse=True)
def noted(monkeypatch: pytest.MonkeyPatch) -> None:
    captures.clear()
    monkeypatch.setattr(acceleration, "_Captured", Noted)


def test_a_graph_serves_one_batch_size_and_one_precision() -> None:
    policy, agent = CapturedPolicy(GainPolicy(2)), tiny_agent()
    for _ in range(2):
        assert _decided(policy, agent) == [_weight(agent.model), 0.0]
        assert _decided(policy, agent, batch=3) == [_weight(agent.model), 0.0]
        with torch.autocast("cpu", torch.bfloat16):
            assert _decided(policy, agent) == [_weight(agent.model), 1.0]
    assert len(captures) == 3


def test_with_tokens_a_graph_serves_several_looks_and_never_a_memory_of_another_size() -> None:
    policy, agent = CapturedPolicy(GainPolicy(2)), tiny_agent(TOKENS)
    backbone, candidates = agent.model.backbone, torch.ones(2, TOKENS.grid.num_locations, dtype=torch.bool)
    belief, made = backbone.start(2), []
    for look in range(18):
        policy(agent.model, belief, candidates=candidates, noise=SceneNoise(scene_seeds(0, 2), look))
        made.append(len(captures))
        with torch.no_grad():
            belief = backbone.update(belief, torch.zeros(2, TOKENS.feature_size), torch.tensor([0, 2]))
    assert made == [1] * 9 + [2] * 8 + [3]


def test_a_model_is_never_answered_by_the_graph_of_another_that_is_gone() -> None:
    policy = CapturedPolicy(GainPolicy(2))
    for seed in range(20):
        agent = tiny_agent(seed=seed)
        assert _decided(policy, agent)[0] == _weight(agent.model)
        del agent
        gc.collect()
    assert len(captures) == 20
