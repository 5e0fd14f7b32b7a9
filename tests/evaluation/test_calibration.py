from __future__ import annotations

import pytest
import torch
from sklearn.metrics import log_loss
from torch import Tensor
from torchmetrics.functional.classification import multiclass_calibration_error

from infogaze.evaluation.calibration import expected_calibration_error, reliability, surprise


def _guesses(sharpness: float) -> tuple[Tensor, Tensor]:
    """Labels [N] and log-probabilities [N, T, classes] that say something about them."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 5, (300,), generator=generator)
    logits = torch.randn(300, 3, 5, generator=generator) + torch.nn.functional.one_hot(labels, 5)[:, None]
    return labels, (sharpness * logits).log_softmax(-1)


def test_each_bin_has_its_confidence_accuracy_and_share() -> None:
    probabilities = torch.tensor([[0.6, 0.4], [0.7, 0.3], [0.1, 0.9], [0.0, 1.0]])
    diagram = reliability(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 0, 1, 1]), probabilities.log(), bins=4)
    assert diagram.confidence.tolist() == pytest.approx([torch.nan, torch.nan, 0.65, 0.95], nan_ok=True)
    assert diagram.accuracy.tolist() == pytest.approx([torch.nan, torch.nan, 0.5, 1.0], nan_ok=True)
    assert diagram.share.tolist() == [0.0, 0.0, 0.5, 0.5]


def test_a_confidence_on_an_edge_belongs_to_the_bin_above() -> None:
    diagram = reliability(torch.tensor([0]), torch.tensor([0]), torch.tensor([[0.5, 0.25, 0.25]]).log(), bins=2)
    assert diagram.share.tolist() == [0.0, 1.0]


def test_the_prediction_is_the_one_given_where_rounded_probabilities_cannot_tell_it() -> None:
    even = torch.full((2, 1, 2), 0.5).log()
    labels, predictions = torch.tensor([1, 0]), torch.tensor([[1], [0]])
    assert reliability(labels, predictions[:, 0], even[:, 0], bins=2).accuracy.tolist()[1] == 1.0
    assert expected_calibration_error(labels, predictions, even).tolist() == pytest.approx([0.5])
    assert expected_calibration_error(labels, 1 - predictions, even).tolist() == pytest.approx([0.5])
    assert reliability(labels, 1 - predictions[:, 0], even[:, 0], bins=2).accuracy.tolist()[1] == 0.0


@pytest.mark.parametrize("bins", [1, 10, 15])
@pytest.mark.parametrize("sharpness", [0.5, 2.0, 30.0])
def test_the_calibration_error_is_that_of_torchmetrics(bins: int, sharpness: float) -> None:
    labels, log_probabilities = _guesses(sharpness)
    theirs = [
        float(multiclass_calibration_error(look.exp(), labels, num_classes=5, n_bins=bins, norm="l1"))
        for look in log_probabilities.unbind(1)
    ]
    ours = expected_calibration_error(labels, log_probabilities.argmax(-1), log_probabilities, bins=bins)
    assert ours.tolist() == pytest.approx(theirs, abs=1e-6)
    assert float(ours.max()) > 0.05  # or the comparison says little
    # The sharpest guesses are certain to the last bit, which is a case of its own.
    assert bool((log_probabilities.exp() == 1).any()) == (sharpness == 30.0)


def test_the_calibration_error_is_the_distance_from_the_diagonal_of_the_diagram() -> None:
    labels, log_probabilities = _guesses(2.0)
    predictions = log_probabilities.argmax(-1)
    diagram = reliability(labels, predictions[:, 0], log_probabilities[:, 0])
    distance = ((diagram.confidence - diagram.accuracy).abs() * diagram.share).nansum()
    assert float(expected_calibration_error(labels, predictions, log_probabilities)[0]) == pytest.approx(
        float(distance)
    )


def test_the_negative_log_likelihood_is_in_nats() -> None:
    even = torch.full((4, 2, 8), 1 / 8).log()
    assert surprise(torch.arange(4), even).double().mean(0).tolist() == pytest.approx([2.0794415] * 2)  # log 8


def test_the_negative_log_likelihood_is_sklearns_log_loss() -> None:
    labels, log_probabilities = _guesses(2.0)
    exact = log_probabilities.double().log_softmax(-1)  # sums of one to more digits than float32 has, or sklearn warns
    theirs = [log_loss(labels, look.exp(), labels=range(5)) for look in exact.unbind(1)]
    assert surprise(labels, exact).double().mean(0).tolist() == pytest.approx(theirs)
