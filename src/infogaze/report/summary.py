"""What the figures need of one pass over the test split. The records of all runs of a large set would not fit in memory together."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor

from infogaze.evaluation.accuracy import balanced_accuracy
from infogaze.evaluation.calibration import Reliability, expected_calibration_error, reliability, surprise
from infogaze.evaluation.gain_calibration import happened
from infogaze.evaluation.records import Records
from infogaze.nn.gain import class_entropy


@dataclass(frozen=True)
class Summary:
    """A pass without its probabilities, and all that was computed from them."""

    labels: Int[Tensor, " N"]
    named: Int[Tensor, "N T"]
    locations: Int[Tensor, "N T 2"]
    expected: Float[Tensor, "N T"]
    """The gain that the policy expected of each look, in nats."""
    happened: Float[Tensor, "N T"]
    """The gain that then happened, in nats."""
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
    def right(self) -> Bool[Tensor, "N T"]:
        """Whether the most likely label is the true one."""
        return self.named == self.labels[:, None]


def summary(records: Records) -> Summary:
    """All that figures need of these records."""
    labels, log_probabilities = records.labels, records.log_probabilities
    return Summary(
        labels,
        records.named,
        records.locations,
        records.expected,
        happened(log_probabilities),
        class_entropy(log_probabilities),
        surprise(labels, log_probabilities),
        balanced_accuracy(labels, records.named),
        expected_calibration_error(labels, records.named, log_probabilities),
        reliability(labels, records.named[:, -1], log_probabilities[:, -1]),
    )
