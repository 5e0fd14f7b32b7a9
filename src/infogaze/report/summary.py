"""What the figures need of one pass over the test split. The records of all runs of a large set would not fit in memory together."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor

from infogaze.evaluation.calibration import Reliability, expected_calibration_error, reliability, surprise
from infogaze.evaluation.classes import balanced_accuracy
from infogaze.evaluation.exact_pass import Records
from infogaze.evaluation.gain_calibration import realised_gain
from infogaze.nn.gain import class_entropy


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A pass without its probabilities, and all that was computed from them."""

    labels: Int[Tensor, " N"]
    predictions: Int[Tensor, "N T"]
    locations: Int[Tensor, "N T 2"]
    expected: Float[Tensor, "N T"]
    """The gain that the policy expected of each look, in nats."""
    realised: Float[Tensor, "N T"]
    """The realised gain of each look, in nats."""
    entropy: Float[Tensor, "N T"]
    """Of the class distribution, in nats."""
    surprise: Float[Tensor, "N T"]
    """Minus the log-probability of the true label, in nats."""
    balanced: Float[Tensor, " T"]
    """Balanced accuracy."""
    calibration_error: Float[Tensor, " T"]
    """Expected calibration error."""
    reliability: Reliability
    """At the last look."""

    @property
    def correct(self) -> Bool[Tensor, "N T"]:
        """Whether the prediction is the true label."""
        return self.predictions == self.labels[:, None]


def summary(records: Records) -> Summary:
    """All that figures need of these records."""
    labels, predictions, log_probabilities = records.labels, records.predictions, records.log_probabilities
    return Summary(
        labels=labels,
        predictions=predictions,
        locations=records.locations,
        expected=records.expected,
        realised=realised_gain(log_probabilities),
        entropy=class_entropy(log_probabilities),
        surprise=surprise(labels, log_probabilities),
        balanced=balanced_accuracy(labels, predictions),
        calibration_error=expected_calibration_error(labels, predictions, log_probabilities),
        reliability=reliability(labels, predictions[:, -1], log_probabilities[:, -1]),
    )
