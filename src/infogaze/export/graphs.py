"""What is exported, as modules from tensors to tensors: see, decide and imagine, with the belief as a list of named tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from infogaze.errors import InfogazeError
from infogaze.export.contract import BeliefPart, NoiseNeed
from infogaze.gaze.agent import Agent
from infogaze.gaze.policies import DistilledPolicy, Policy
from infogaze.nn.backbone import Backbone, TokenBackbone
from infogaze.nn.belief import Belief
from infogaze.nn.dictionary import Dictionary
from infogaze.nn.model import GlimpseClassifier, Model
from infogaze.nn.pixels import normalise_pixels
from infogaze.nn.question import AskedBackbone
from infogaze.nn.temperature import tempered
from infogaze.rng import SceneNoise


@dataclass(frozen=True)
class Layout:
    """How a belief is laid out as tensors that keep their sizes from look to look."""

    parts: tuple[BeliefPart, ...]
    memory: int
    """Numbers beside the hidden state; none have no tensor."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parts, in order."""
        return tuple(part.name for part in self.parts)

    def belief(self, values: Sequence[Tensor], owner: str = "") -> Belief:
        """The belief in tensors that are in the order of `parts`: the first one, or the one of the mirrored scene."""
        of = dict(zip(self.names, values, strict=True))
        hidden = of[f"{owner}hidden"]
        return Belief(hidden, of[f"{owner}memory"] if self.memory else hidden[:, :0])

    def tensors(self, belief: Belief) -> list[Tensor]:
        """The belief as tensors. Tokens that there is no room for are the oldest."""
        if not self.memory:
            return [belief.hidden]
        return [belief.hidden, belief.memory[:, belief.memory.shape[1] - self.memory :]]


@torch.no_grad()
def layout_of(agent: Agent, max_looks: int) -> Layout:
    """The tensors of an agent's belief, with room for so many looks where looks are kept as tokens."""
    start = agent.model.backbone.start(1)
    memory = start.memory[0].tolist()
    if token := _token_memory(agent.model.backbone):
        memory = [0.0] * (max_looks * token)
    own = [_part("hidden", start.hidden[0].tolist()), *([_part("memory", memory)] if memory else [])]
    mirrored = [
        BeliefPart(name=f"{FLIPPED}{part.name}", size=part.size, start=part.start) for part in own if agent.flip_tta
    ]
    return Layout((*own, *mirrored, _part("looks", [0.0])), len(memory))


FLIPPED = "flipped."
"""How the names of the belief about the mirrored scene begin."""


def keeps_tokens(agent: Agent) -> bool:
    """Whether the belief grows with every look."""
    return _token_memory(agent.model.backbone) > 0


def _token_memory(backbone: Backbone) -> int:
    if isinstance(backbone, AskedBackbone):
        return _token_memory(backbone.backbone)
    return backbone.token_belief.token_memory if isinstance(backbone, TokenBackbone) else 0


def _part(name: str, values: list[float]) -> BeliefPart:
    start = values[0] if len(set(values)) == 1 else tuple(values)
    return BeliefPart(name=name, size=len(values), start=start)


class See(nn.Module):
    """From a glimpse, its location and the belief to the next belief, the probabilities, and how unusual the glimpse is."""

    def __init__(self, agent: Agent, layout: Layout) -> None:
        super().__init__()
        self.model, self.layout, self.flip_tta = agent.model, layout, agent.flip_tta
        self.typicality = agent.typicality
        self.register_buffer("temperatures", torch.tensor(agent.temperatures or (1.0,)))

    temperatures: Float[Tensor, " looks"]

    def forward(
        self, glimpse: Float[Tensor, "B C g g"], location: Float[Tensor, "B 2"], belief: list[Tensor]
    ) -> list[Tensor]:
        """What `Episode.observe` does with a glimpse, pixels in [0, 1], for scenes that go on."""
        pixels, looks = normalise_pixels(glimpse), belief[-1] + 1.0
        content = self.model.backbone.features(pixels)
        updated = self.model.backbone.update(self.layout.belief(belief), content, location)
        classes, after = self.model.backbone.classes(updated), self.layout.tensors(updated)
        if self.flip_tta:
            mirrored = self.model.backbone.features(pixels.flip(-1))
            where = self.model.grid.mirrored(location)
            flipped = self.model.backbone.update(self.layout.belief(belief, FLIPPED), mirrored, where)
            classes = torch.logaddexp(classes, self.model.backbone.classes(flipped)) - math.log(2.0)
            after += self.layout.tensors(flipped)
        number = looks[:, 0].clamp(1, len(self.temperatures)).long() - 1
        classes = tempered(classes, self.temperatures[number])
        seen = [*after, looks, self.model.backbone.answers(classes).exp()]
        return seen if self.typicality is None else [*seen, self.typicality.score(content)]


@dataclass(frozen=True)
class GivenNoise(SceneNoise):
    """Random numbers that somebody else drew."""

    numbers: Float[Tensor, "B n"] = field(kw_only=True)

    def uniform(self, *shape: int) -> Float[Tensor, "B ..."]:
        """The numbers."""
        return self.numbers.unflatten(1, shape)

    def normal(self, *shape: int) -> Float[Tensor, "B ..."]:
        """The numbers."""
        return self.numbers.unflatten(1, shape)


@dataclass(frozen=True)
class AskedNoise(SceneNoise):
    """Random numbers that are counted."""

    asked: list[NoiseNeed] = field(kw_only=True, default_factory=list)

    def uniform(self, *shape: int) -> Float[Tensor, "B ..."]:
        """As ever."""
        return self._counted("uniform", super().uniform(*shape))

    def normal(self, *shape: int) -> Float[Tensor, "B ..."]:
        """As ever."""
        return self._counted("normal", super().normal(*shape))

    def _counted(self, kind: Literal["normal", "uniform"], numbers: Tensor) -> Tensor:
        if numbers.numel():
            self.asked.append(NoiseNeed(kind, numbers[0].numel()))
        return numbers


@torch.no_grad()
def needs_of(policy: Policy, model: GlimpseClassifier) -> tuple[NoiseNeed | None, bool]:
    """The random numbers that a policy takes for a decision, and whether it has a map."""
    noise = AskedNoise(torch.zeros(1, dtype=torch.int64), 0)
    allowed = torch.ones(1, model.grid.num_locations, dtype=torch.bool)
    choice = policy(model, model.backbone.start(1), candidates=allowed, noise=noise)
    if len(noise.asked) > 1:
        raise InfogazeError(f"{policy} draws {len(noise.asked)} times for a decision; a graph takes the numbers of one")
    return (noise.asked[0] if noise.asked else None), choice.has_map


class Decide(nn.Module):
    """From the belief to the gain of each place and the location that the policy chooses."""

    def __init__(self, agent: Agent, layout: Layout) -> None:
        super().__init__()
        self.model, self.layout, self.policy = agent.model, layout, agent.policy
        self.distilled = agent.policy.distilled if isinstance(agent.policy, DistilledPolicy) else None

    def forward(
        self, belief: list[Tensor], allowed: Bool[Tensor, "B L"], numbers: Float[Tensor, "B n"] | None = None
    ) -> list[Tensor]:
        """The policy's choice."""
        held = self.layout.belief(belief)
        seeds = held.hidden[:, 0].long()  # not used: the numbers are given
        given = GivenNoise(seeds, 0, numbers=held.hidden[:, :0] if numbers is None else numbers)
        choice = self.policy(self.model, held, candidates=allowed, noise=given)
        return [choice.gain, choice.location.to(held.hidden.dtype)]


class Imagine(nn.Module):
    """From the belief to the expected scene, and how uncertain each place is."""

    def __init__(self, dictionary: Dictionary, model: Model, layout: Layout) -> None:
        super().__init__()
        self.dictionary, self.model, self.layout = dictionary, model, layout

    def forward(self, belief: list[Tensor]) -> list[Tensor]:
        """Pixels in [0, 1], and the entropy of each place in nats."""
        held = self.layout.belief(belief)
        picture = ((self.dictionary.picture(held) + 1.0) / 2.0).clamp(0.0, 1.0)
        return [picture, self.dictionary.uncertainty(held, self.model.grid.locations(held.hidden.device))]
