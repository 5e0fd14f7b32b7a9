from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from infogaze.evaluation.early_stopping import FORMS, GAP, STOP_RULES, EarlyStopping, early_stopping, risk
from infogaze.evaluation.exact_pass import Records
from infogaze.evaluation.risk_control import Outcomes
from tests.evaluation.test_risk_control import population, records_of

SPLITS = 10


@pytest.fixture(scope="module")
def records() -> Records:
    return records_of(population(4000, looks=5))


@pytest.fixture(scope="module")
def found(records: Records) -> EarlyStopping:
    return early_stopping(records, splits=SPLITS)


def test_a_rule_with_nothing_to_read_has_no_numbers(records: Records, found: EarlyStopping) -> None:
    gain = STOP_RULES.index("gain")
    assert bool(found.looks[gain].isnan().all())
    assert bool(found.curve_looks[gain].isnan().all())
    expecting = replace(
        records, expected=torch.rand(records.expected.shape, generator=torch.Generator().manual_seed(0))
    )
    assert not bool(early_stopping(expecting, splits=1).looks[gain].isnan().any())


def test_a_curve_goes_from_all_looks_to_few(records: Records, found: EarlyStopping) -> None:
    for rule in ("confidence", "entropy"):
        looks, correct = found.curve_looks[STOP_RULES.index(rule)], found.curve_correct[STOP_RULES.index(rule)]
        assert float(looks[0]) == records.correct.shape[1]
        assert float(correct[0]) == int(records.correct[:, -1].sum())
        assert bool((looks.diff() <= 0).all())
        assert float(looks[-1]) == 1
        assert float(correct[-1]) == int(records.correct[:, 0].sum())


def test_over_splits_the_rules_stop_early_and_keep_the_gap(found: EarlyStopping) -> None:
    confidence = STOP_RULES.index("confidence")
    for form in range(len(FORMS)):
        assert float(found.looks[confidence, form].mean()) < 5
        assert int(found.broken[confidence, form].sum()) == 0
        assert bool((found.full[confidence, form] - found.accuracy[confidence, form] <= 2.5 * GAP).all())


def test_the_same_seed_gives_the_same_splits(records: Records, found: EarlyStopping) -> None:
    again, other = early_stopping(records, splits=SPLITS), early_stopping(records, splits=SPLITS, seed=1)
    assert torch.equal(again.full.nan_to_num(), found.full.nan_to_num())
    assert not torch.equal(other.full.nan_to_num(), found.full.nan_to_num())


def test_a_risk_by_look_is_that_of_the_worst_look() -> None:
    correct = torch.tensor([[False, True, True], [True, True, True], [False, True, True], [True, False, True]])
    found = Outcomes(sureness=torch.zeros(4, 2, dtype=torch.float64), correct=correct)
    used = torch.tensor([1, 1, 2, 2])
    assert risk(found, used, by_look=False) == 0.5  # the first and the last scene are lost
    assert risk(found, used, by_look=True) == 0.5
    assert risk(found, torch.tensor([1, 3, 3, 3]), by_look=True) == 1.0
    assert risk(found, torch.tensor([1, 3, 3, 3]), by_look=False) == 0.25
    assert risk(found, torch.tensor([3, 3, 3, 3]), by_look=True) == 0.0
