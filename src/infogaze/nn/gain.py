"""What a look is worth: expected information gain (equation 7), mutual information, plain and coherent, and what the paper names beside.

Pure functions with one signature, so that one may stand for another: the class distributions after M imagined looks at each of L
locations, how likely each of the M is, the class distribution now, and the imagined features.

Equation 7 is the mutual information of label and look only where imagined looks are coherent: where the mean of p(y | f~, h) is p(y | h).
Otherwise it is larger, by what `incoherence` measures:

    sum_m w_m KL[p_m || p]  =  (H[mean p_m] - mean H[p_m])  +  KL[mean p_m || p].
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from infogaze.nn.precision import precise


@runtime_checkable
class Criterion(Protocol):
    """What a look at each location is worth."""

    def __call__(
        self,
        lookahead: Float[Tensor, "B L M classes"],
        weights: Float[Tensor, "B L M"],
        current: Float[Tensor, "B classes"],
        *,
        features: Any,  # Float[Tensor, "B L M f"], or None for those of `BY_LOOKAHEAD`
    ) -> Float[Tensor, "B L"]:
        """One number a location."""
        ...


def entropy(probabilities: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch"]:
    """Of distributions over n outcomes, in nats; an outcome without probability adds nothing."""
    smallest = torch.finfo(probabilities.dtype).tiny
    return -(probabilities * probabilities.clamp(min=smallest).log()).sum(-1)


def class_entropy(log_probabilities: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch"]:
    """How undecided a class distribution is, in nats."""
    return entropy(precise(log_probabilities).exp())


def expected_information_gain(
    lookahead: Float[Tensor, "B L M classes"],  # log p(y | f~(l), h), one row an imagined look
    weights: Float[Tensor, "B L M"],  # how likely each is; they add up to one
    current: Float[Tensor, "B classes"],  # log p(y | h)
    *,
    features: Float[Tensor, "B L M f"] | None = None,  # not needed here
) -> Float[Tensor, "B L"]:
    """Equation 7: the expectation of KL[p(y | f~(l), h) || p(y | h)], in nats."""
    surprise = lookahead - current[:, None, None]  # [B, L, M, classes]
    # A label that is ruled out adds nothing, ruled out before too or not.
    terms = torch.where(lookahead == -torch.inf, 0.0, lookahead.exp() * surprise)
    return torch.where(weights == 0.0, 0.0, weights * terms.sum(-1)).sum(-1)


def mutual_information(
    lookahead: Float[Tensor, "B L M classes"],
    weights: Float[Tensor, "B L M"],
    current: Float[Tensor, "B classes"],
    *,
    features: Float[Tensor, "B L M f"] | None = None,
) -> Float[Tensor, "B L"]:
    """Of the label and the imagined look: the entropy of the mean prediction less the mean entropy of the predictions, in nats."""
    after = lookahead.exp()
    return entropy((weights[..., None] * after).sum(2)) - (weights * entropy(after)).sum(2)


def coherent_information(
    lookahead: Float[Tensor, "B L M classes"],
    weights: Float[Tensor, "B L M"],
    current: Float[Tensor, "B classes"],
    *,
    features: Float[Tensor, "B L M f"] | None = None,
) -> Float[Tensor, "B L"]:
    """The mutual information of label and imagined look, once imagined looks are made `coherent`, nearly, in nats."""
    return mutual_information(coherent(lookahead, weights, current), weights, current)


def coherent(
    lookahead: Float[Tensor, "B L M classes"], weights: Float[Tensor, "B L M"], current: Float[Tensor, "B classes"]
) -> Float[Tensor, "B L M classes"]:
    """log p(y | f~, h), each multiplied by p(y | h) over the mean of them all, and normalised."""
    expected = (weights[..., None] * lookahead.exp()).sum(2)  # [B, L, classes]
    smallest = torch.finfo(expected.dtype).tiny
    tilt = current[:, None] - expected.clamp(min=smallest).log()
    tilted = lookahead + tilt[:, :, None]
    return tilted - tilted.logsumexp(-1, keepdim=True)  # on the CPU many times as fast as log_softmax over few classes


def incoherence(
    lookahead: Float[Tensor, "B L M classes"],
    weights: Float[Tensor, "B L M"],
    current: Float[Tensor, "B classes"],
    *,
    features: Float[Tensor, "B L M f"] | None = None,
) -> Float[Tensor, "B L"]:
    """KL[mean of p(y | f~, h) || p(y | h)], in nats: the part of equation 7 that is no information."""
    expected = (weights[..., None] * lookahead.exp()).sum(2)  # [B, L, classes]
    smallest = torch.finfo(expected.dtype).tiny
    surprise = expected.clamp(min=smallest).log() - current[:, None]
    return torch.where(expected == 0.0, 0.0, expected * surprise).sum(-1)


def predictive_uncertainty(
    lookahead: Float[Tensor, "B L M classes"],
    weights: Float[Tensor, "B L M"],
    current: Float[Tensor, "B classes"],
    *,
    features: Float[Tensor, "B L M f"] | None = None,
) -> Float[Tensor, "B L"]:
    """The entropy of the class distribution expected after the look, in nats."""
    return entropy((weights[..., None] * lookahead.exp()).sum(2))


def feature_variance(
    lookahead: Float[Tensor, "B L M classes"],
    weights: Float[Tensor, "B L M"],
    current: Float[Tensor, "B classes"],
    *,
    features: Float[Tensor, "B L M f"],
) -> Float[Tensor, "B L"]:
    """How much the imagined features of a location differ: their variance over M, the mean over dimensions."""
    share, imagined = weights[..., None], precise(features)
    mean = (share * imagined).sum(2, keepdim=True)
    return (share * (imagined - mean).square()).sum(2).mean(-1)


CRITERIA: dict[str, Criterion] = {
    "information-gain": expected_information_gain,
    "mutual-information": mutual_information,
    "coherent-information": coherent_information,
    "incoherence": incoherence,
    "predictive-uncertainty": predictive_uncertainty,
    "feature-variance": feature_variance,
}
EXPECTED_GAINS = (expected_information_gain, mutual_information, coherent_information)
"""The criteria that say how much is expected to be learned of the label, in nats."""
BY_LOOKAHEAD = (*EXPECTED_GAINS, incoherence, predictive_uncertainty)
"""The criteria that need no features."""
