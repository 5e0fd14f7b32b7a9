"""When enough has been seen: rules that end a scene's episode before its budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infogaze.errors import InfogazeError


@runtime_checkable
class Progress(Protocol):
    """What a rule may ask of an episode."""

    @property
    def probabilities(self) -> Float[Tensor, "B classes"]:
        """The class probabilities now."""
        ...

    @property
    def next_gain(self) -> Float[Tensor, "B rows cols"]:
        """What the next look is expected to be worth at each place, in nats."""
        ...

    @property
    def has_map(self) -> bool:
        """Whether the policy expects anything of places; where not, `next_gain` is zeros."""
        ...

    @property
    def candidates(self) -> Bool[Tensor, "B rows cols"]:
        """The places that may still be chosen."""
        ...


@runtime_checkable
class StopRule(Protocol):
    """Says, after each look, which scenes need no more."""

    def __call__(self, episode: Progress) -> Bool[Tensor, " B"]:
        """True for the scenes that may stop."""
        ...


@dataclass(frozen=True)
class Confident:
    """Stop when the most likely label has at least this probability."""

    probability: float = 0.95

    def __post_init__(self) -> None:
        if not 0.0 < self.probability <= 1.0:
            raise InfogazeError(f"probability is {self.probability}; it must be above 0 and at most 1")

    def __call__(self, episode: Progress) -> Bool[Tensor, " B"]:
        """Compare the largest probability."""
        return episode.probabilities.amax(1) >= self.probability


@dataclass(frozen=True)
class LittleToGain:
    """Stop when no place is expected to tell more than this about the label."""

    nats: float = 0.01

    def __post_init__(self) -> None:
        if self.nats < 0.0:
            raise InfogazeError(f"nats is {self.nats}; it must be at least 0")

    def __call__(self, episode: Progress) -> Bool[Tensor, " B"]:
        """Compare the largest gain among the candidates."""
        if not episode.has_map:
            raise InfogazeError("LittleToGain needs a policy with a map of gains; this one chooses its looks without")
        left = episode.next_gain.masked_fill(~episode.candidates, -torch.inf)
        return left.flatten(1).amax(1) < self.nats
