from __future__ import annotations

import torch

from infogaze import GainPolicy, RandomPolicy
from infogaze.data.sets import Split
from infogaze.evaluation.rollouts import roll_out
from tests.tiny import CONFIG, tiny_agent

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


def test_right_says_whether_the_likeliest_label_is_the_true_one() -> None:
    rollouts = roll_out(tiny_agent(), SPLIT, RandomPolicy())
    for scene in range(7):
        for look in range(4):
            best = max(range(3), key=lambda c: float(rollouts.probabilities[scene, look, c]))
            assert bool(rollouts.right[scene, look]) == (best == int(SPLIT.labels[scene]))
