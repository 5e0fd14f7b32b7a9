"""The oracle: an upper bound for any greedy policy, and not deployable, because it sees the scene and its label.

At each step it tries every location with the real glimpse and takes the one with the largest true gain for the true label y,
log p(y | h, f(l), l) - log p(y | h). F, R and C are those of the Random baseline: trained on the oracle's own looks they would read
the label off where it looks.
"""

from __future__ import annotations

from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.gaze.policies import Choice, best
from infogaze.grid import extract_grid
from infogaze.methods import random_looks
from infogaze.methods.method import Method
from infogaze.nn.belief import Belief
from infogaze.nn.model import GlimpseClassifier, build_glimpse_classifier
from infogaze.nn.pixels import normalise_pixels
from infogaze.rng import SceneNoise


class Oracle:
    """Must be shown the scenes of a batch before it can choose for them."""

    def for_scenes(self, images: UInt8[Tensor, "B C H W"], labels: Int[Tensor, " B"]) -> SeeingOracle:
        """The oracle for these scenes, in this order."""
        return SeeingOracle(images, labels)

    def __call__(
        self, model: GlimpseClassifier, belief: Belief, *, candidates: Bool[Tensor, "B L"], noise: SceneNoise
    ) -> Choice:
        """Refuse: it has not seen the scenes."""
        raise InfogazeError(
            "the oracle is not deployable, it chooses by the scene itself: give policy=Oracle().for_scenes(images, labels)"
        )


class SeeingOracle:
    """The oracle for the scenes of one batch."""

    def __init__(self, images: UInt8[Tensor, "B C H W"], labels: Int[Tensor, " B"]) -> None:
        self._images, self._labels = images, labels
        self._content: Tensor | None = None

    def __call__(
        self, model: GlimpseClassifier, belief: Belief, *, candidates: Bool[Tensor, "B L"], noise: SceneNoise
    ) -> Choice:
        """Try every location, take the best."""
        if self._content is None:
            glimpses = extract_grid(self._images.to(candidates.device), model.grid)
            self._content = model.backbone.features(normalise_pixels(glimpses))  # [B, L, f]
        gain = true_gain(model, belief, content=self._content, labels=self._labels.to(candidates.device))
        return Choice(best(model, gain, candidates), gain)


def true_gain(
    model: GlimpseClassifier, belief: Belief, *, content: Float[Tensor, "B L f"], labels: Int[Tensor, " B"]
) -> Float[Tensor, "B L"]:
    """How much a look at each location would raise the log-probability of the true label, in nats."""
    backbone = model.backbone
    received = backbone.receive(content, model.grid.locations(labels.device))
    after = backbone.classify(backbone.foresee(belief.unsqueeze(1), received))  # [B, L, classes]
    now = backbone.classify(belief)  # [B, classes]
    index = labels[:, None]
    return after.gather(2, index[:, None].expand(-1, after.shape[1], 1)).squeeze(2) - now.gather(1, index)


METHODS = {
    "oracle": Method(
        summary="a bound, not deployable: tries every location of the real scene, and knows its label",
        phases=random_looks.PHASES,
        build=build_glimpse_classifier,
        policy=lambda num_samples: Oracle(),
        sees="scene",
    )
}
