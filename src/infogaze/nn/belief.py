"""R: how a look changes the belief, R(h, f) = LN(LeakyReLU(F_h(h) + F_f(f))) (section 3.1, table 1), plain and with self-attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Belief:
    """What is held of a scene after some looks. The leading dimensions broadcast."""

    hidden: Float[Tensor, "*batch h"]
    """The hidden state h_t: all that the classifier and the posterior see."""
    memory: Float[Tensor, "*wide m"]
    """What else R carries from look to look; m is 0 for the plain update, and grows with every look where looks are kept as tokens."""

    def unsqueeze(self, dim: int) -> Belief:
        """The same belief with a dimension of one put in, to broadcast over locations or samples."""
        return Belief(self.hidden.unsqueeze(dim), self.memory.unsqueeze(dim))

    def where(self, keep: Tensor, other: Belief) -> Belief:
        """This belief for the scenes in `keep` [B], the other one for the rest."""
        mine, others = _as_long([self.memory, other.memory])
        return Belief(torch.where(keep[:, None], self.hidden, other.hidden), torch.where(keep[:, None], mine, others))

    @staticmethod
    def stack(beliefs: Sequence[Belief]) -> Belief:
        """Beliefs one after the other, as a new first dimension."""
        return Belief(torch.stack([b.hidden for b in beliefs]), torch.stack(_as_long([b.memory for b in beliefs])))

    def __getitem__(self, scenes: slice) -> Belief:
        """The belief of some scenes of a batch."""
        return Belief(self.hidden[scenes], self.memory[scenes])


def _as_long(memories: list[Tensor]) -> list[Tensor]:
    """The memories, all as long as the longest: with zeros in front, which are looks that are not there."""
    longest = max(memories, key=lambda memory: memory.shape[-1])
    return [
        functional.pad(memory, (longest.shape[-1] - memory.shape[-1], 0))
        if memory.shape[-1]  # nothing has no type of its own
        else longest.new_zeros(*memory.shape[:-1], longest.shape[-1])
        for memory in memories
    ]


class BeliefUpdate(nn.Module):
    """The plain update: one linear layer for the state, one for the features, no memory beside the state.

    With `residual` (ours) the last state is added before the normalisation: LN(h + LeakyReLU(F_h(h) + F_f(f))).
    """

    memory_size = 0

    def __init__(self, feature_size: int, belief_size: int, residual: bool = False) -> None:
        super().__init__()
        self.residual = residual
        self.belief_size = belief_size
        self.feature_norm = nn.BatchNorm1d(feature_size)
        self.from_features = nn.Linear(feature_size, belief_size)
        self.from_hidden = nn.Linear(belief_size, belief_size)
        self.norm = nn.LayerNorm(belief_size)

    def start(self, batch: int) -> Belief:
        """The belief before the first look."""
        zero = self.from_hidden.weight.new_zeros
        return Belief(zero(batch, self.belief_size), zero(batch, self.memory_size))

    def receive(self, features: Float[Tensor, "*batch f"]) -> Float[Tensor, "*batch h"]:
        """F_f: the part of the update that needs no state, so that all looks of a training batch pass at once."""
        flat = self.feature_norm(functional.leaky_relu(features).reshape(-1, features.shape[-1]))
        return self.from_features(flat).view(*features.shape[:-1], self.belief_size)

    def advance(self, belief: Belief, received: Float[Tensor, "*batch h"]) -> Belief:
        """The rest of the update. `belief` broadcasts against `received`."""
        return Belief(self.renewed(belief.hidden, self.from_hidden(belief.hidden) + received), belief.memory)

    def renewed(self, hidden: Float[Tensor, "*some h"], news: Float[Tensor, "*batch h"]) -> Float[Tensor, "*batch h"]:
        """The next state: what the update makes of it, with the last one added where R is residual."""
        active = functional.leaky_relu(news)
        return self.norm(hidden + active if self.residual else active)

    def forward(self, belief: Belief, features: Float[Tensor, "*batch f"]) -> Belief:
        """R(h, f)."""
        return self.advance(belief, self.receive(features))


class AttentiveBeliefUpdate(BeliefUpdate):
    """The update with structured self-attention (Lin et al., 2017) over the states after all looks so far; the empty start is none of them.

    Each hop scores a state by w . tanh(W h) and reads the mean of the states weighted by the softmax of their scores. A score
    depends on its own state alone, so the weighted sum is kept up from look to look, and the looks themselves need not be.
    """

    def __init__(self, *, feature_size: int, belief_size: int, hops: int, residual: bool = False) -> None:
        super().__init__(feature_size, belief_size, residual)
        self.hops = hops
        self.memory_size = 1 + hops * (belief_size + 2)
        self.score = nn.Sequential(
            nn.Linear(belief_size, belief_size // 2), nn.Tanh(), nn.Linear(belief_size // 2, hops)
        )
        self.from_memory = nn.Linear(hops * belief_size, belief_size)

    def start(self, batch: int) -> Belief:
        """The belief before the first look; the largest score so far is minus infinity, as far as bfloat16 goes too."""
        begun = super().start(batch)
        begun.memory[:, 1 : 1 + self.hops] = -1e30
        return begun

    def advance(self, belief: Belief, received: Float[Tensor, "*batch h"]) -> Belief:
        """Take the last state into memory if a look made it, read the memory, then update as the plain one does."""
        hops = self.hops
        looked, peak, total, read = belief.memory.split([1, hops, hops, hops * self.belief_size], -1)
        score = self.score(belief.hidden)  # [*batch, hops]
        raised = torch.where(looked > 0, torch.maximum(peak, score), peak)
        fade, weight = torch.exp(peak - raised), looked * torch.exp((score - raised).clamp(max=0.0))
        total = total * fade + weight
        states = read.unflatten(-1, (hops, -1)) * fade[..., None] + weight[..., None] * belief.hidden[..., None, :]
        # Before the first look there is nothing to read; of the weights of one hop the largest is 1.
        attended = (states / total.clamp(min=1e-6)[..., None]).flatten(-2)  # [*batch, hops * h]
        hidden = self.from_hidden(belief.hidden) + self.from_memory(attended) + received
        kept = torch.cat([torch.ones_like(looked), raised, total, states.flatten(-2)], -1)
        return Belief(self.renewed(belief.hidden, hidden), kept)
