"""F, R and C behind one small protocol: a user's own networks can carry the same posterior, decoder and gain."""

from __future__ import annotations

from abc import abstractmethod

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from infogaze.nn.belief import Belief, BeliefUpdate
from infogaze.nn.classifier import Classifier
from infogaze.nn.features import GlimpseFeatures
from infogaze.nn.precision import precise
from infogaze.nn.token_belief import TokenBelief
from infogaze.nn.token_features import TokenFeatures


class Backbone(nn.Module):
    """What sees, remembers and names. All leading dimensions broadcast: one belief may be updated with many imagined looks."""

    @abstractmethod
    def features(self, glimpses: Float[Tensor, "*batch C g g"]) -> Float[Tensor, "*batch f"]:
        """The content of glimpses, pixels in [-1, 1], without their location: what the decoder learns to imagine."""

    @abstractmethod
    def start(self, batch: int) -> Belief:
        """The belief before the first look."""

    @abstractmethod
    def update(self, belief: Belief, content: Float[Tensor, "*batch f"], locations: Num[Tensor, "*places 2"]) -> Belief:
        """The belief after a look with this content at these locations, given in pixels."""

    def receive(self, content: Float[Tensor, "*batch f"], locations: Num[Tensor, "*places 2"]) -> Tensor:
        """The part of an update that needs no belief, so that it can be done once for many; here content and location, as numbers of
        one type: `update` then is given locations in floating point."""
        content = precise(content)  # half precision has no room for a pixel of a large scene
        return torch.cat([content, locations.to(content.dtype).expand(*content.shape[:-1], 2)], -1)

    def advance(self, belief: Belief, received: Tensor) -> Belief:
        """The rest of the update."""
        return self.update(belief, received[..., :-2], received[..., -2:])

    def foresee(self, belief: Belief, received: Tensor) -> Belief:
        """The belief after a look that is only imagined, to be classified and not to be updated again: what R would keep of the look need
        not be made."""
        return self.advance(belief, received)

    def rounded(self, belief: Belief) -> Belief:
        """The same belief with a memory of one of a few sizes, so that what is compiled or captured for one serves for many looks."""
        return belief

    def lookahead_width(self, belief: Belief) -> int:
        """How many numbers an imagined look is at its widest: what lookaheads are cut into pieces by."""
        return belief.hidden.shape[-1]

    @abstractmethod
    def classify(self, belief: Belief) -> Float[Tensor, "*batch answers"]:
        """log p(y | h): of the classes, or of the answers to another question."""

    def classes(self, belief: Belief) -> Float[Tensor, "*batch classes"]:
        """log p of the classes that it was trained for, which `answers` follow from."""
        return self.classify(belief)

    def answers(self, classes: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch answers"]:
        """From log p of the classes to what `classify` gives."""
        return classes

    def compile_parts(self) -> None:
        """Compile what gains from it; a user's own networks need not."""

    def unroll(self, content: Float[Tensor, "T B f"], locations: Num[Tensor, "T B 2"]) -> Belief:
        """The beliefs after each of T looks, with a leading dimension T."""
        belief = self.start(content.shape[1])
        beliefs = []
        for seen, where in zip(content, locations, strict=True):
            belief = self.update(belief, seen, where)
            beliefs.append(belief)
        return Belief.stack(beliefs)


class GlimpseBackbone(Backbone):
    """The paper's own F, R and C."""

    def __init__(self, features: GlimpseFeatures, update: BeliefUpdate, classifier: Classifier) -> None:
        super().__init__()
        self.feature_network = features
        self.belief_update = update
        self.classifier = classifier

    def features(self, glimpses: Float[Tensor, "*batch C g g"]) -> Float[Tensor, "*batch f"]:
        """F_g."""
        return self.feature_network.content(glimpses)

    def start(self, batch: int) -> Belief:
        """h before the first look."""
        return self.belief_update.start(batch)

    def update(self, belief: Belief, content: Float[Tensor, "*batch f"], locations: Num[Tensor, "*places 2"]) -> Belief:
        """R(h, F_g(g) + F_l(l))."""
        return self.advance(belief, self.receive(content, locations))

    def receive(
        self, content: Float[Tensor, "*batch f"], locations: Num[Tensor, "*places 2"]
    ) -> Float[Tensor, "*batch h"]:
        """F_f of both."""
        return self.belief_update.receive(content + self.feature_network.place(locations))

    def advance(self, belief: Belief, received: Float[Tensor, "*batch h"]) -> Belief:
        """R, of what is received."""
        return self.belief_update.advance(belief, received)

    def classify(self, belief: Belief) -> Float[Tensor, "*batch classes"]:
        """C(h)."""
        return self.classifier(belief.hidden)

    def compile_parts(self) -> None:
        """F_g, and both halves of R."""
        self.feature_network.glimpse_network.compile(dynamic=False)
        update = self.belief_update
        update.receive = torch.compile(update.receive, dynamic=False)  # type: ignore[method-assign]
        update.advance = torch.compile(update.advance, dynamic=False)  # type: ignore[method-assign]

    def unroll(self, content: Float[Tensor, "T B f"], locations: Num[Tensor, "T B 2"]) -> Belief:
        """As `update` look by look, with the part that needs no state done for all looks at once."""
        received = self.receive(content, locations)  # [T, B, h]
        belief = self.start(content.shape[1])
        beliefs = []
        for look in received:
            belief = self.advance(belief, look)
            beliefs.append(belief)
        return Belief.stack(beliefs)


class TokenBackbone(Backbone):
    """Ours: the belief keeps its looks as tokens, and R is a transformer over them."""

    def __init__(self, features: TokenFeatures, belief: TokenBelief, classifier: Classifier) -> None:
        super().__init__()
        self.feature_network = features
        self.token_belief = belief
        self.classifier = classifier

    def features(self, glimpses: Float[Tensor, "*batch C g g"]) -> Float[Tensor, "*batch f"]:
        """The content of a token."""
        return self.feature_network.content(glimpses)

    def start(self, batch: int) -> Belief:
        """No token."""
        return self.token_belief.start(batch)

    def update(self, belief: Belief, content: Float[Tensor, "*batch f"], locations: Num[Tensor, "*places 2"]) -> Belief:
        """One token more."""
        return self.advance(belief, self.receive(content, locations))

    def receive(
        self, content: Float[Tensor, "*batch f"], locations: Num[Tensor, "*places 2"]
    ) -> Float[Tensor, "*both d"]:
        """The token."""
        return self.feature_network.token(content, locations)

    def advance(self, belief: Belief, received: Float[Tensor, "*batch d"]) -> Belief:
        """Attend to the looks so far, and keep this one."""
        return self.token_belief.advance(belief, received)

    def foresee(self, belief: Belief, received: Float[Tensor, "*batch d"]) -> Belief:
        """Attend to the looks so far."""
        return self.token_belief.foresee(belief, received)

    def rounded(self, belief: Belief) -> Belief:
        """Filled up with tokens that are not there."""
        return self.token_belief.rounded(belief)

    def lookahead_width(self, belief: Belief) -> int:
        """That of an MLP of R."""
        return self.token_belief.lookahead_width

    def classify(self, belief: Belief) -> Float[Tensor, "*batch classes"]:
        """C(h)."""
        return self.classifier(belief.hidden)

    def compile_parts(self) -> None:
        """The CNN, what makes tokens of contents, and R."""
        features = self.feature_network
        features.glimpse_network.compile(dynamic=False)
        features.token = torch.compile(features.token, dynamic=False)  # type: ignore[method-assign]
        self.token_belief.compile_parts()

    def unroll(self, content: Float[Tensor, "T B f"], locations: Num[Tensor, "T B 2"]) -> Belief:
        """As `update` look by look, in one causal pass."""
        return self.token_belief.unroll(self.receive(content, locations))
