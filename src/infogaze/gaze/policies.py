"""Where to look next, behind one signature: by gain, at random, or row by row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int, Num, UInt8
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.grid import GlimpseGrid
from infogaze.nn.belief import Belief
from infogaze.nn.distilled import DistilledGain
from infogaze.nn.gain import CRITERIA, class_entropy
from infogaze.nn.model import GlimpseClassifier, Model
from infogaze.rng import SceneNoise


@dataclass(frozen=True)
class Choice:
    """Where to look, and why."""

    location: Num[Tensor, "B 2"]
    """Row and column of the top-left pixel."""
    gain: Float[Tensor, "B L"]
    """The map that the choice was made by; zeros where a policy has none."""
    has_map: bool = True
    """Whether it was made by one."""


@runtime_checkable
class Policy(Protocol):
    """A rule for the next look, from the belief alone."""

    def __call__(self, model: Any, belief: Belief, *, candidates: Bool[Tensor, "B L"], noise: SceneNoise) -> Choice:
        """Choose one of the candidate locations for each scene."""
        ...


@runtime_checkable
class ScenePolicy(Protocol):
    """A policy that must be shown the scenes of a batch before it can choose for them: a bound, not to be deployed."""

    def for_scenes(self, images: UInt8[Tensor, "B C H W"], labels: Int[Tensor, " B"]) -> Policy:
        """The policy for these scenes, in this order."""
        ...


@dataclass(frozen=True)
class GainPolicy:
    """The paper's: the location with the largest expected information gain (algorithm 1), or the largest of another criterion."""

    num_samples: int = 20
    """How many contents of each location are imagined: P samples, or M entries of a dictionary."""
    criterion: str = "information-gain"
    """What is expected of a look."""

    def __post_init__(self) -> None:
        if self.num_samples < 1:
            raise InfogazeError(f"num_samples is {self.num_samples}; it must be at least 1")
        if self.criterion not in CRITERIA:
            raise InfogazeError(f"no criterion is called {self.criterion!r}; there are {', '.join(CRITERIA)}")

    def __call__(self, model: Model, belief: Belief, *, candidates: Bool[Tensor, "B L"], noise: SceneNoise) -> Choice:
        """Imagine, look ahead, take the largest."""
        numbers = noise.normal(*model.imagination.noise_shape(self.num_samples))
        gain = model.gain(belief, self.num_samples, noise=numbers, criterion=CRITERIA[self.criterion])
        return Choice(best(model, gain, candidates), gain)


@dataclass(frozen=True, eq=False)
class DistilledPolicy:
    """The location with the largest gain as it is read from the belief in one pass: nearly the looks of the gain that it was distilled
    from, at a hundredth of the time."""

    distilled: DistilledGain
    """What reads it; `infogaze distil` makes one, which knows one model, its classes and its grid."""

    def __call__(
        self, model: GlimpseClassifier, belief: Belief, *, candidates: Bool[Tensor, "B L"], noise: SceneNoise
    ) -> Choice:
        """Read, take the largest."""
        gain = self.distilled(belief.hidden, class_entropy(model.backbone.classify(belief)))
        return Choice(best(model, gain, candidates), gain)


@dataclass(frozen=True)
class RandomPolicy:
    """Any location not looked at yet, all equally likely."""

    def __call__(
        self, model: GlimpseClassifier, belief: Belief, *, candidates: Bool[Tensor, "B L"], noise: SceneNoise
    ) -> Choice:
        """Draw a number for each location, take the largest."""
        draw = noise.uniform(model.grid.num_locations)
        return Choice(best(model, draw, candidates), torch.zeros_like(draw), has_map=False)


@dataclass(frozen=True)
class RasterPolicy:
    """Row by row from the top-left corner."""

    def __call__(
        self, model: GlimpseClassifier, belief: Belief, *, candidates: Bool[Tensor, "B L"], noise: SceneNoise
    ) -> Choice:
        """The first location left."""
        order = torch.arange(model.grid.num_locations, 0, -1.0, device=candidates.device).expand(candidates.shape)
        return Choice(best(model, order, candidates), torch.zeros_like(order), has_map=False)


def moved(choice: Choice, grid: GlimpseGrid, *, candidates: Bool[Tensor, "B L"], where: Bool[Tensor, " B"]) -> Choice:
    """The same choice, at the candidate nearest to it for the scenes in `where`."""
    places = grid.locations(candidates.device)
    distance = (places - choice.location[:, None]).double().norm(dim=-1).masked_fill(~candidates, torch.inf)
    return replace(choice, location=torch.where(where[:, None], places[distance.argmin(1)], choice.location))


def best(model: GlimpseClassifier, values: Float[Tensor, "B L"], candidates: Bool[Tensor, "B L"]) -> Int[Tensor, "B 2"]:
    """The location of the candidate with the largest value."""
    return model.grid.locations(values.device)[values.masked_fill(~candidates, -torch.inf).argmax(1)]
