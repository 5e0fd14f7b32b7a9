from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from infogaze import Belief, Choice, GlimpseClassifier, Origin, Policy, RandomPolicy, SceneNoise, scene_seeds
from infogaze.data.sets import Split
from infogaze.evaluation.rollouts import roll_out
from infogaze.gaze.captured import CapturedPolicy
from infogaze.methods.registry import build_for
from infogaze.models import make_agent
from tests.support.looks import looked_alike
from tests.support.tiny import CONFIG, tiny_agent

SPLIT = Split(
    torch.randint(0, 256, (7, 2, CONFIG.height, CONFIG.width), generator=torch.Generator().manual_seed(0)).to(
        torch.uint8
    ),
    torch.arange(7) % 3,
)
AGENT = tiny_agent(num_samples=3)


def test_every_scene_is_looked_at_once_and_batches_change_nothing() -> None:
    seen: list[int] = []
    one = roll_out(AGENT, SPLIT, batch_size=7)
    parts = roll_out(AGENT, SPLIT, batch_size=3, on_progress=seen.append)
    assert seen == [3, 3, 1]
    assert torch.equal(one.labels, SPLIT.labels)
    alike = looked_alike(one.locations, parts.locations)
    torch.testing.assert_close(one.probabilities[alike], parts.probabilities[alike])


def test_a_seed_a_scene_is_what_one_seed_for_the_split_stands_for() -> None:
    one, each = roll_out(AGENT, SPLIT, seed=3), roll_out(AGENT, SPLIT, seed=scene_seeds(3, 7), batch_size=2)
    looked_alike(one.locations, each.locations)
    assert not torch.equal(one.locations, roll_out(AGENT, SPLIT, seed=4).locations)


def test_a_budget_goes_before_the_agents_own() -> None:
    assert roll_out(AGENT, SPLIT).locations.shape == (7, 4, 2)
    longer = roll_out(AGENT, SPLIT, budget=6)
    assert longer.locations.shape == (7, 6, 2)
    looked_alike(longer.locations[:, :4], roll_out(AGENT, SPLIT).locations)


def test_first_looks_are_the_same_for_all_policies_and_later_ones_are_not() -> None:
    by_gain, at_random = (roll_out(agent, SPLIT) for agent in (AGENT, AGENT.with_policy(RandomPolicy())))
    assert torch.equal(by_gain.locations[:, 0], at_random.locations[:, 0])
    torch.testing.assert_close(by_gain.probabilities[:, 0], at_random.probabilities[:, 0])
    assert not torch.equal(by_gain.locations[:, 1], at_random.locations[:, 1])


@pytest.mark.parametrize("method", ["random", "ram"])
def test_on_few_places_all_methods_take_as_many_looks_in_any_batch(method: str) -> None:
    config = replace(CONFIG, height=4, width=6)
    assert config.grid.num_locations == 2
    origin = Origin(method=method, config=config, num_samples=5)
    agent = make_agent(build_for(method, config), ("a", "b", "c"), origin=origin, num_looks=7)
    split = Split(SPLIT.images[:, :, :4, :6], SPLIT.labels)
    one, parts = (roll_out(agent, split, batch_size=batch_size) for batch_size in (7, 1))
    assert one.locations.shape == parts.locations.shape == (7, 2, 2)
    alike = looked_alike(one.locations, parts.locations)
    torch.testing.assert_close(one.probabilities[alike], parts.probabilities[alike])


def test_correct_says_whether_the_likeliest_label_is_the_true_one() -> None:
    rollouts = roll_out(AGENT.with_policy(RandomPolicy()), SPLIT)
    for scene in range(7):
        for look in range(4):
            best = max(range(3), key=lambda c: float(rollouts.probabilities[scene, look, c]))
            assert bool(rollouts.correct[scene, look]) == (best == int(SPLIT.labels[scene]))


def test_a_captured_policy_gets_batches_of_one_size_and_every_scene_is_kept_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []

    class Here:
        """Stands for a captured graph, which needs a GPU."""

        def __init__(self, policy: Policy, model: GlimpseClassifier, *given: object, **more: object) -> None:
            self.policy, self.model = policy, model

        def replay(self, belief: Belief, candidates: Tensor, noise: SceneNoise) -> Choice:
            sizes.append(len(candidates))
            return self.policy(self.model, belief, candidates=candidates, noise=noise)

    monkeypatch.setattr("infogaze.gaze.captured._Captured", Here)
    captured, seen = AGENT.with_policy(CapturedPolicy(AGENT.policy)), list[int]()
    for seed in (2, scene_seeds(2, 7)):
        one = roll_out(AGENT, SPLIT, seed=seed, batch_size=3)
        other = roll_out(captured, SPLIT, seed=seed, batch_size=3, imagine=True, on_progress=seen.append)
        assert set(sizes) == {3}
        assert torch.equal(other.labels, SPLIT.labels)
        looked_alike(one.locations, other.locations)
        assert other.imagined is None or len(other.imagined) == 7
    assert seen == [3, 3, 1, 3, 3, 1]
    sizes.clear()
    roll_out(captured, SPLIT, batch_size=200)
    assert set(sizes) == {7}, "fewer scenes than a batch are one batch"
