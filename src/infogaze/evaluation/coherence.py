"""Of the gain that imagined looks promise, how much is information about the label, and how much is incoherence.

Equation 7 is the mutual information of label and look plus KL[mean of p(y | f~, h) || p(y | h)]. The second part is nothing that a look
could teach: it is what the networks make of imagined features that are not like those they know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infogaze.evaluation.measurement import Measurement, OnProgress, Subject, first_scenes
from infogaze.evaluation.rollouts import roll_out
from infogaze.evaluation.store import Record
from infogaze.gaze.policies import Choice, GainPolicy
from infogaze.nn.belief import Belief
from infogaze.nn.gain import incoherence, mutual_information
from infogaze.nn.model import Model
from infogaze.rng import SceneNoise


@dataclass(frozen=True, kw_only=True)
class Coherence(Record):
    """Both parts of the imagined gain, at the location of each look but the first, in nats; without any correction."""

    file: ClassVar[str] = "coherence"

    mutual_information: Float[Tensor, "n t"]
    incoherence: Float[Tensor, "n t"]


@dataclass
class _Listening:
    """A gain policy, and both parts of the gain of what it chose."""

    policy: GainPolicy
    information: list[Tensor] = field(default_factory=list)
    rest: list[Tensor] = field(default_factory=list)

    def __call__(self, model: Model, belief: Belief, *, candidates: Bool[Tensor, "B L"], noise: SceneNoise) -> Choice:
        """The policy's own choice."""
        choice = self.policy(model, belief, candidates=candidates, noise=noise)
        count, place = self.policy.num_samples, model.grid.nearest(choice.location)[:, None]
        numbers = noise.normal(*model.imagination.noise_shape(count))
        for criterion, heard in ((mutual_information, self.information), (incoherence, self.rest)):
            gain = model.imagined_gain(belief, count, noise=numbers, criterion=criterion)
            heard.append(gain.gather(1, place).squeeze(1).float().cpu())
        return choice


def coherence(subject: Subject, on_progress: OnProgress) -> Coherence:
    """Along the method's own looks at the first scenes."""
    agent, batch_size = subject.agent, subject.batch_size
    assert agent.origin is not None
    policy = subject.method.policy(agent.origin.num_samples)
    if not isinstance(policy, GainPolicy):
        raise ValueError("a policy that imagines nothing has no gain to take apart")
    listening = _Listening(policy)
    looked = roll_out(
        agent.with_policy(listening), subject.some, seed=subject.seed, batch_size=batch_size, on_progress=on_progress
    )
    scenes, chosen = len(looked.labels), looked.locations.shape[1] - 1
    return Coherence(
        mutual_information=_by_scene(listening.information, scenes, chosen),
        incoherence=_by_scene(listening.rest, scenes, chosen),
    )


def _by_scene(heard: list[Tensor], scenes: int, chosen: int) -> Float[Tensor, "n t"]:
    """What was heard batch by batch, and of each batch look by look."""
    if not chosen:
        return torch.zeros(scenes, 0)
    return torch.cat([torch.stack(heard[first : first + chosen], 1) for first in range(0, len(heard), chosen)])


MEASUREMENT = Measurement(
    record=Coherence,
    measure=coherence,
    lacking="the parts of the imagined gain",
    applies=lambda method: method.imagines,
    work=lambda subject: len(subject.some),
    source=first_scenes,
)
