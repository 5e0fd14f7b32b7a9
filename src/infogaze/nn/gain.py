"""What a look is worth: expected information gain (equation 7) and the criteria the paper names beside it. Pure functions.

All share one signature, so that one may stand for another: the imagined class distributions and features of P samples of z at each
of L places, and the class distribution now.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from infogaze.nn.precision import precise

Criterion = Callable[
    [Float[Tensor, "P B L classes"], Float[Tensor, "B classes"], Float[Tensor, "P B L f"]], Float[Tensor, "B L"]
]


def entropy(probabilities: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch"]:
    """Of distributions over n outcomes, in nats; an outcome without probability adds nothing."""
    smallest = torch.finfo(probabilities.dtype).tiny
    return -(probabilities * probabilities.clamp(min=smallest).log()).sum(-1)


def class_entropy(log_probabilities: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch"]:
    """How undecided a class distribution is, in nats."""
    return entropy(precise(log_probabilities).exp())


def expected_information_gain(
    lookahead: Float[Tensor, "P B L classes"],  # log p(y | f~(l), h), one row a sample of z
    current: Float[Tensor, "B classes"],  # log p(y | h)
    features: Float[Tensor, "P B L f"] | None = None,  # not needed here
) -> Float[Tensor, "B L"]:
    """Equation 7: the mean over P samples of KL[p(y | f~(l), h) || p(y | h)], in nats."""
    surprise = lookahead - current[:, None]  # [P, B, L, classes]
    # A label that is ruled out adds nothing, ruled out before too or not.
    terms = torch.where(lookahead == -torch.inf, 0.0, lookahead.exp() * surprise)
    return terms.sum(-1).mean(0)  # [B, L]


def predictive_uncertainty(
    lookahead: Float[Tensor, "P B L classes"],
    current: Float[Tensor, "B classes"],
    features: Float[Tensor, "P B L f"] | None = None,
) -> Float[Tensor, "B L"]:
    """The entropy of the class distribution expected after the look, the mean over P samples, in nats."""
    return entropy(lookahead.exp().mean(0))  # [B, L]


def feature_variance(
    lookahead: Float[Tensor, "P B L classes"],
    current: Float[Tensor, "B classes"],
    features: Float[Tensor, "P B L f"],
) -> Float[Tensor, "B L"]:
    """How much the imagined features of a place differ between samples: their variance over P, the mean over dimensions."""
    return precise(features).var(0, correction=0).mean(-1)  # [B, L]


CRITERIA: dict[str, Criterion] = {
    "information-gain": expected_information_gain,
    "predictive-uncertainty": predictive_uncertainty,
    "feature-variance": feature_variance,
}
