"""Another question to the same belief: which group of classes, or whatever another head reads. Gains follow at once, untrained."""

from __future__ import annotations

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn
from torch.nn import functional

from infogaze.nn.backbone import Backbone
from infogaze.nn.belief import Belief
from infogaze.nn.precision import precise


class Groups(nn.Module):
    """From log p(class | h) to log p(group | h): each class belongs to one group."""

    outside: Float[Tensor, "groups classes"]
    """Zero for the classes of a group, minus infinity for the others."""

    def __init__(self, group_of: list[int]) -> None:
        super().__init__()
        members = functional.one_hot(torch.tensor(group_of)).T.bool()
        self.register_buffer("outside", torch.zeros(members.shape).masked_fill(~members, -torch.inf), persistent=False)

    def forward(self, log_probabilities: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch groups"]:
        """The probability of a group is that of its classes together."""
        return (log_probabilities[..., None, :] + self.outside).logsumexp(-1)


class AskedBackbone(Backbone):
    """A backbone that sees and remembers as another does, and answers another question."""

    def __init__(self, backbone: Backbone, *, groups: Groups | None = None, head: nn.Module | None = None) -> None:
        super().__init__()
        self.backbone, self.groups, self.head = backbone, groups, head

    def features(self, glimpses: Float[Tensor, "*batch C g g"]) -> Float[Tensor, "*batch f"]:
        """As the other."""
        return self.backbone.features(glimpses)

    def start(self, batch: int) -> Belief:
        """As the other."""
        return self.backbone.start(batch)

    def update(self, belief: Belief, content: Float[Tensor, "*batch f"], locations: Num[Tensor, "*places 2"]) -> Belief:
        """As the other."""
        return self.backbone.update(belief, content, locations)

    def receive(self, content: Float[Tensor, "*batch f"], locations: Num[Tensor, "*places 2"]) -> Tensor:
        """As the other."""
        return self.backbone.receive(content, locations)

    def advance(self, belief: Belief, received: Tensor) -> Belief:
        """As the other."""
        return self.backbone.advance(belief, received)

    def foresee(self, belief: Belief, received: Tensor) -> Belief:
        """As the other."""
        return self.backbone.foresee(belief, received)

    def rounded(self, belief: Belief) -> Belief:
        """As the other."""
        return self.backbone.rounded(belief)

    def lookahead_width(self, belief: Belief) -> int:
        """As the other."""
        return self.backbone.lookahead_width(belief)

    def unroll(self, content: Float[Tensor, "T B f"], locations: Num[Tensor, "T B 2"]) -> Belief:
        """As the other."""
        return self.backbone.unroll(content, locations)

    def classify(self, belief: Belief) -> Float[Tensor, "*batch answers"]:
        """The log-probability of each answer."""
        return self.answers(self.classes(belief))

    def classes(self, belief: Belief) -> Float[Tensor, "*batch classes"]:
        """Those of the other; a head has its answers alone."""
        if self.head is not None:
            return functional.log_softmax(precise(self.head(belief.hidden)), -1)
        return self.backbone.classify(belief)

    def answers(self, classes: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch answers"]:
        """The probability of a group is that of its classes together."""
        return classes if self.groups is None else self.groups(classes)

    def compile_parts(self) -> None:
        """Those of the other."""
        self.backbone.compile_parts()
