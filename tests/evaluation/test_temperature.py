from __future__ import annotations

import pytest
import torch
from torch import Tensor

from infogaze.evaluation.calibration import expected_calibration_error
from infogaze.evaluation.temperature import fit_temperatures
from infogaze.nn.temperature import tempered


def world(count: int, *, looks: int = 3, classes: int = 4) -> tuple[Tensor, Tensor]:
    """Labels, and log-probabilities [N, T, classes] that are right about them: each label is drawn by the last ones."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(count, 1, classes, generator=generator, dtype=torch.float64).expand(-1, looks, -1) * 2.0
    true = logits.log_softmax(-1)
    return torch.multinomial(true[:, -1].exp(), 1, generator=generator)[:, 0], true


def overrated(true: Tensor, by: list[float]) -> Tensor:
    """The same, sharpened after each look by its own power."""
    return tempered(true, 1.0 / torch.tensor(by, dtype=true.dtype).expand(true.shape[:2]))


def test_the_temperature_that_was_put_in_is_found() -> None:
    labels, true = world(20_000)
    found = fit_temperatures(labels, overrated(true, [0.5, 1.0, 3.0]))
    assert found == pytest.approx((0.5, 1.0, 3.0), rel=0.05)


def test_probabilities_that_are_too_high_come_true_once_tempered() -> None:
    labels, true = world(20_000, looks=1)
    stated = overrated(true, [3.0])
    found = torch.tensor(fit_temperatures(labels, stated)).expand(len(labels), 1)
    before, after = (
        float(expected_calibration_error(labels, values.argmax(-1), values)[0])
        for values in (stated, tempered(stated, found))
    )
    assert before > 0.1
    assert after < 0.02


def test_few_scenes_change_little_and_scenes_that_are_all_right_do_not_lead_to_certainty() -> None:
    labels, true = world(3, looks=1)
    sure = torch.full((5, 1, 2), 0.4).log()
    sure[:, :, 0] = torch.tensor(0.6).log()
    assert 0.6 < fit_temperatures(labels, overrated(true, [1.0]))[0] < 1.6
    assert fit_temperatures(torch.zeros(5, dtype=torch.int64), sure)[0] > 0.3


def test_a_temperature_leaves_the_order_and_one_leaves_everything() -> None:
    _, true = world(50)
    warm = tempered(true, torch.full(true.shape[:2], 2.5))
    assert torch.equal(warm.argsort(-1), true.argsort(-1))
    torch.testing.assert_close(warm.exp().sum(-1), torch.ones(50, 3, dtype=torch.float64))
    torch.testing.assert_close(tempered(true, torch.ones(true.shape[:2])), true)


def test_a_label_that_is_ruled_out_stays_so() -> None:
    ruled_out = torch.tensor([[0.0, -torch.inf]])
    assert torch.equal(tempered(ruled_out, torch.tensor([2.0])), ruled_out)
