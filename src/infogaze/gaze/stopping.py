"""When enough has been seen: rules that end a scene's episode before its budget."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.nn.gain import entropy

Gain = Literal["exact", "distilled"]
"""How looks are chosen: as the model's method does, or by what was distilled from that."""
RuleName = Literal["confidence", "entropy", "gain"]
"""What a rule that can be calibrated reads: the largest probability, the entropy of the class distribution, the largest gain left."""


@runtime_checkable
class Progress(Protocol):
    """What a rule may ask of an episode."""

    @property
    def probabilities(self) -> Float[Tensor, "B classes"]:
        """The class probabilities now."""
        ...

    @property
    def looks_taken(self) -> Int[Tensor, " B"]:
        """How many looks each scene has taken in."""
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
class LowEntropy:
    """Stop when the class distribution has at most this entropy."""

    nats: float = 0.1

    def __post_init__(self) -> None:
        _require_nats(self.nats)

    def __call__(self, episode: Progress) -> Bool[Tensor, " B"]:
        """Compare the entropy of the probabilities."""
        return entropy(episode.probabilities) <= self.nats


@dataclass(frozen=True)
class LittleToGain:
    """Stop when no place is expected to tell more than this about the label."""

    nats: float = 0.01

    def __post_init__(self) -> None:
        _require_nats(self.nats)

    def __call__(self, episode: Progress) -> Bool[Tensor, " B"]:
        """Compare the largest gain among the candidates."""
        if not episode.has_map:
            raise InfogazeError("LittleToGain needs a policy with a map of gains; this one chooses its looks without")
        left = episode.next_gain.masked_fill(~episode.candidates, -torch.inf)
        return left.flatten(1).amax(1) < self.nats


RULES: dict[RuleName, Callable[[float], StopRule]] = {
    "confidence": Confident,
    "entropy": LowEntropy,
    "gain": LittleToGain,
}
"""The rules that can be calibrated, made from their threshold."""


@dataclass(frozen=True, kw_only=True)
class CalibratedStop:
    """A rule whose thresholds were chosen on held-out scenes, so that stopping early costs little with high probability.

    Over calibration sets, with probability `1 - delta`: of all scenes like those, at most the share `gap` is classified wrongly where this
    rule stops, and would be classified correctly after the whole budget. With `by_look` the same is true of the scenes that have stopped
    after at most t looks, for every t.
    """

    rule: RuleName
    thresholds: tuple[float | None, ...]
    """The rule's own after each number of looks before the budget; None: nothing stops there."""
    budget: int
    """The looks that accuracy is compared with: for no other budget does the promise hold."""
    gap: float
    delta: float
    by_look: bool
    scenes: int
    """How many it was calibrated on."""
    gain: Gain = "exact"
    """What chose the looks that it was calibrated on: for no others does the promise hold."""

    def __post_init__(self) -> None:
        if len(self.thresholds) != self.budget - 1:
            raise InfogazeError(
                f"thresholds has {len(self.thresholds)} numbers; a budget of {self.budget} looks has {self.budget - 1} before its last"
            )
        for name, share in (("gap", self.gap), ("delta", self.delta)):
            if not 0.0 < share < 1.0:
                raise InfogazeError(f"{name} is {share}; it must be above 0 and below 1")
        if self.scenes < 1:
            raise InfogazeError(f"scenes is {self.scenes}; it must be at least 1")
        for threshold in self.thresholds:
            if threshold is not None:
                RULES[self.rule](threshold)  # which refuses what is no threshold of its own

    def __call__(self, episode: Progress) -> Bool[Tensor, " B"]:
        """Ask the rule with the threshold of this number of looks: scenes that go on have all taken the same."""
        looks = int(episode.looks_taken.amax())
        threshold = self.thresholds[looks - 1] if 0 < looks < self.budget else None
        if threshold is None:
            return torch.zeros_like(episode.looks_taken, dtype=torch.bool)
        return RULES[self.rule](threshold)(episode)

    def __str__(self) -> str:
        stated = ["never" if value is None else f"{value:.4g}" for value in self.thresholds]
        alike = len(set(stated)) <= 1
        at = stated[0] if alike and stated else " ".join(stated)
        return f"{self.rule} {at}{'' if alike else ' by look'}"


def _require_nats(nats: float) -> None:
    if not 0.0 <= nats < math.inf:
        raise InfogazeError(f"nats is {nats}; it must be at least 0")
