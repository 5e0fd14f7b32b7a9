from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from infogaze import Agent, GainPolicy, RandomPolicy
from infogaze.data.sets import Split
from infogaze.evaluation.rollouts import roll_out
from infogaze.methods.registry import build_for
from tests.support.tiny import CONFIG, tiny_agent

SPLIT = Split(
    torch.randint(0, 256, (7, 2, CONFIG.height, CONFIG.width), generator=torch.Generator().manual_seed(0)).to(
        torch.uint8
    ),
    torch.arange(7) % 3,
)


def test_every_scene_is_looked_at_once_and_batches_change_nothing() -> None:
    seen: list[int] = []
    one = roll_out(tiny_agent(), SPLIT, GainPolicy(3), batch=7)
    parts = roll_out(tiny_agent(), SPLIT, GainPolicy(3), batch=3, notice=seen.append)
    assert seen == [3, 3, 1]
    assert torch.equal(one.labels, SPLIT.labels)
    assert torch.equal(one.locations, parts.locations)
    torch.testing.assert_close(one.probabilities, parts.probabilities)


def test_first_looks_are_the_same_for_all_policies_and_later_ones_are_not() -> None:
    by_gain, at_random = (roll_out(tiny_agent(), SPLIT, policy) for policy in (GainPolicy(3), RandomPolicy()))
    assert torch.equal(by_gain.locations[:, 0], at_random.locations[:, 0])
    assert torch.equal(by_gain.probabilities[:, 0], at_random.probabilities[:, 0])
    assert not torch.equal(by_gain.locations[:, 1], at_random.locations[:, 1])


@pytest.mark.parametrize("method", ["random", "ram"])
def test_on_few_places_all_methods_take_as_many_looks_in_any_batch(method: str) -> None:
    config = replace(CONFIG, height=4, width=6)
    assert config.grid.places == 2
    agent = Agent(build_for(method, config), "abc", looks=7, config=config, method=method)
    split = Split(SPLIT.images[:, :, :4, :6], SPLIT.labels)
    one, parts = (roll_out(agent, split, agent.policy, batch=batch) for batch in (7, 1))
    assert one.locations.shape == parts.locations.shape == (7, 2, 2)
    torch.testing.assert_close(one.probabilities, parts.probabilities)


def test_right_says_whether_the_likeliest_label_is_the_true_one() -> None:
    rollouts = roll_out(tiny_agent(), SPLIT, RandomPolicy())
    for scene in range(7):
        for look in range(4):
            best = max(range(3), key=lambda c: float(rollouts.probabilities[scene, look, c]))
            assert bool(rollouts.right[scene, look]) == (best == int(SPLIT.labels[scene]))
