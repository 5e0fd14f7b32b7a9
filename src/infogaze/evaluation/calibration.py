"""Whether stated probabilities come true: the reliability diagram, the expected calibration error and the negative log-likelihood."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Reliability:
    """How often the prediction is correct, by its probability, in bins of equal width from 0 to 1."""

    confidence: Float[Tensor, " bins"]
    """The mean probability of the prediction; NaN in an empty bin."""
    accuracy: Float[Tensor, " bins"]
    """How often it was correct; NaN in an empty bin."""
    share: Float[Tensor, " bins"]
    """Of all scenes, those in the bin."""


def reliability(
    labels: Int[Tensor, " N"],
    predictions: Int[Tensor, " N"],
    log_probabilities: Float[Tensor, "N classes"],
    *,
    bins: int = 15,
) -> Reliability:
    """The reliability diagram of one look. `predictions` are the most likely labels, which rounded probabilities may not tell."""
    sums = _sums(labels, predictions, log_probabilities, bins=bins)
    sums[:, bins - 1] += sums[:, bins]
    confidence, correct, count = sums[:, :bins]
    return Reliability(confidence / count, correct / count, count / len(labels))


def expected_calibration_error(
    labels: Int[Tensor, " N"],
    predictions: Int[Tensor, "N T"],
    log_probabilities: Float[Tensor, "N T classes"],
    *,
    bins: int = 15,
) -> Float[Tensor, " T"]:
    """The distance between confidence and accuracy in each bin, averaged over scenes: torchmetrics' top-label error in the l1 norm.

    As there, scenes of confidence 1 are a bin of their own; in the diagram they are in the last.
    """
    looks = zip(predictions.unbind(1), log_probabilities.unbind(1), strict=True)
    sums = torch.stack([_sums(labels, *look, bins=bins) for look in looks], 1)  # [3, T, bins + 1]
    confidence, correct, _ = sums
    return (confidence - correct).abs().sum(-1) / len(labels)


def surprise(labels: Int[Tensor, " N"], log_probabilities: Float[Tensor, "N T classes"]) -> Float[Tensor, "N T"]:
    """Minus the log probability of the true label after each look, in nats; its mean is the negative log-likelihood."""
    true = labels[:, None, None].expand(-1, log_probabilities.shape[1], 1)
    return -log_probabilities.gather(2, true)[..., 0]


def _sums(labels: Tensor, predictions: Tensor, log_probabilities: Tensor, *, bins: int) -> Tensor:
    """Confidence, correct predictions and scenes summed in each bin, [3, bins + 1]; the last is for a confidence of exactly 1."""
    confidence = log_probabilities.gather(1, predictions[:, None]).squeeze(1).exp()
    edges = torch.linspace(0, 1, bins + 1, dtype=confidence.dtype, device=confidence.device)
    index = torch.bucketize(confidence, edges, right=True) - 1
    values = torch.stack([confidence, predictions == labels, torch.ones_like(confidence)]).double()  # [3, N]
    return values.new_zeros(3, bins + 1).index_add_(1, index, values)
