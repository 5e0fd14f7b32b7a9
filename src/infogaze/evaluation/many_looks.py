"""Many more looks than trained for, up to every place of the grid (the paper's appendix: T = 49)."""

from __future__ import annotations

from collections.abc import Callable

from infogaze.data.sets import Split
from infogaze.evaluation.records import ManyLooks
from infogaze.evaluation.rollouts import roll_out
from infogaze.gaze.agent import Agent


def many_looks(agent: Agent, split: Split, seed: int, batch: int, notice: Callable[[int], None]) -> ManyLooks:
    """What the scenes are named after each look at ever more places."""
    budget = agent.model.grid.places
    looked = roll_out(agent, split, agent.policy, seed=seed, budget=budget, batch=batch, notice=notice)
    return ManyLooks(looked.labels, looked.probabilities.argmax(-1))
