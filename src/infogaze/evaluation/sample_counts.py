"""What the number of imagined scenes P buys: looks with few and with many, and the time they take."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from infogaze.data.sets import Split
from infogaze.evaluation.exact_pass import expected_of_looks
from infogaze.evaluation.records import Samples
from infogaze.evaluation.rollouts import roll_out
from infogaze.gaze.agent import Agent
from infogaze.gaze.policies import GainPolicy

COUNTS = (1, 2, 5, 10, 20, 50)


def sample_counts(agent: Agent, split: Split, seed: int, batch: int, notice: Callable[[int], None]) -> Samples:
    """The same scenes and first looks with each P."""
    named, said, expected, seconds = [], [], [], []
    roll_out(agent, Split(split.images[:batch], split.labels[:batch]), GainPolicy(COUNTS[0]), seed=seed, batch=batch)
    for count in COUNTS:
        began = time.perf_counter()
        looked = roll_out(agent, split, GainPolicy(count), seed=seed, batch=batch, notice=notice)
        seconds.append(time.perf_counter() - began)
        named.append(looked.probabilities.argmax(-1))
        said.append(looked.log_probabilities)
        expected.append(expected_of_looks(looked, agent.model.grid))
    return Samples(
        torch.tensor(COUNTS), looked.labels, torch.stack(named), torch.stack(said), torch.stack(expected),
        torch.tensor(seconds),
    )  # fmt: skip
