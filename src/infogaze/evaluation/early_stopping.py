"""What calibrated stop rules keep of their promise: calibrated on one half of the test scenes, tried on the other, over random splits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from infogaze.evaluation.exact_pass import Records
from infogaze.evaluation.measurement import Measurement, OnProgress, Subject
from infogaze.evaluation.risk_control import (
    Outcomes,
    can_be_read,
    candidates,
    loosest_safe,
    outcomes,
    thresholds_by_look,
)
from infogaze.evaluation.store import Record
from infogaze.gaze.stopping import RULES, RuleName
from infogaze.rng import stream_seed

GAP, DELTA = 0.01, 0.05
"""What is promised: at most a hundredth of the scenes lost, with a probability of 95 %."""
SPLITS = 500
_LEVELS = 40
STOP_RULES: tuple[RuleName, ...] = tuple(RULES)
"""The first axis of what is measured."""
FORMS = ("of all scenes", "of the scenes stopped by each look")
"""The second: what the gap is a share of."""


@dataclass(frozen=True, kw_only=True)
class EarlyStopping(Record):
    """What the rules did over random splits; NaN for a rule that the method gives nothing to read."""

    file: ClassVar[str] = "early-stopping"

    curve_looks: Float[Tensor, "rules levels"]
    """Mean number of looks over all test scenes, where one threshold holds after every look; from never stopping to loose ones."""
    curve_correct: Int[Tensor, "rules levels"]
    """How many of the test scenes are classified correctly then."""
    looks: Float[Tensor, "rules forms S"]
    """Mean number of looks on the half that was not calibrated on."""
    accuracy: Float[Tensor, "rules forms S"]
    """Accuracy there, each scene stopped by the rule."""
    full: Float[Tensor, "rules forms S"]
    """Accuracy there after the whole budget."""
    broken: UInt8[Tensor, "rules forms S"]
    """1 where more than the gap of all test scenes is lost, which stand for the population that the promise is about; in the second form
    after any number of looks."""
    broken_on_half: UInt8[Tensor, "rules forms S"]
    """The same of the half that was not calibrated on, whose own chance is in it too."""


Calibrate = Callable[[Int[Tensor, " n"]], Float[Tensor, " t"]]
"""From the scenes to calibrate on to the thresholds of sureness, one for each number of looks before the last."""


def early_stopping(records: Records, *, splits: int = SPLITS, seed: int = 0) -> EarlyStopping:
    """Calibrate every rule in both forms on the first half of each of many shuffles."""
    scenes, _, num_classes = records.log_probabilities.shape
    generator = torch.Generator().manual_seed(stream_seed(seed, "splits"))
    orders = [torch.randperm(scenes, generator=generator) for _ in range(splits)]
    curve_looks, curve_correct, tried = [], [], []
    for name in STOP_RULES:
        if not can_be_read(records, name):
            curve_looks.append(torch.full((_LEVELS + 1,), torch.nan))
            curve_correct.append(torch.zeros(_LEVELS + 1, dtype=torch.int64))
            tried.append(torch.full((len(FORMS), splits, 5), torch.nan))
            continue
        found, levels = outcomes(records, name), candidates(name, num_classes)
        used = found.looks_used_at(_some_of(levels))
        curve_looks.append(used.double().mean(0).float())
        curve_correct.append(found.correct_after(used).sum(0))
        forms = enumerate((_of_all(found, levels), _of_stopped(found)))
        tried.append(
            torch.tensor(
                [[_tried(found, order, form, by_look=by_look == 1) for order in orders] for by_look, form in forms]
            )
        )
    looks, accuracy, full, broken, broken_on_half = torch.stack(tried).unbind(-1)  # [rules, forms, S] each
    return EarlyStopping(
        curve_looks=torch.stack(curve_looks),
        curve_correct=torch.stack(curve_correct),
        looks=looks,
        accuracy=accuracy,
        full=full,
        broken=broken.nan_to_num().to(torch.uint8),
        broken_on_half=broken_on_half.nan_to_num().to(torch.uint8),
    )


def _some_of(levels: Float[Tensor, " C"]) -> Float[Tensor, " levels"]:
    """As many as a curve needs, and before them one at which nothing stops."""
    chosen = torch.linspace(0, len(levels) - 1, _LEVELS).round().long()
    return torch.cat([levels.new_tensor([math.inf]), levels[chosen]])


def _of_all(found: Outcomes, levels: Float[Tensor, " C"]) -> Calibrate:
    lost = found.lost(found.looks_used_at(levels))  # [N, C]
    never = levels.new_tensor(math.inf)

    def calibrate(chosen: Int[Tensor, " n"]) -> Float[Tensor, " t"]:
        counts = lost[chosen].sum(0).numpy()
        at = loosest_safe(counts, len(chosen), gap=GAP, delta=DELTA)
        return (never if at < 0 else levels[at]).expand(found.sureness.shape[1])

    return calibrate


def _of_stopped(found: Outcomes) -> Calibrate:
    def calibrate(chosen: Int[Tensor, " n"]) -> Float[Tensor, " t"]:
        thresholds = thresholds_by_look(found[chosen], gap=GAP, delta=DELTA)
        return torch.tensor([math.inf if value is None else value for value in thresholds], dtype=torch.float64)

    return calibrate


def _tried(found: Outcomes, order: Int[Tensor, " N"], calibrate: Calibrate, *, by_look: bool) -> tuple[float, ...]:
    """One split: looks, accuracy, accuracy of the whole budget, and whether the promise is broken, of all and of the other half."""
    half = len(order) // 2
    used = found.looks_used(calibrate(order[:half]))
    rest = order[half:]
    return (
        float(used[rest].double().mean()),
        float(found.correct_after(used)[rest].double().mean()),
        float(found.correct[rest, -1].double().mean()),
        *(float(risk(found[scenes], used[scenes], by_look=by_look) > GAP) for scenes in (order, rest)),
    )


def risk(found: Outcomes, looks_used: Int[Tensor, " N"], *, by_look: bool) -> float:
    """The share of lost scenes; by look the largest share among those stopped after at most so many looks, whichever number it is."""
    lost = found.lost(looks_used)
    if not by_look:
        return float(lost.double().mean())
    early = looks_used[:, None] <= torch.arange(1, found.correct.shape[1])  # [N, t]
    shares = (lost[:, None] & early).sum(0) / early.sum(0).clamp(min=1)
    return float(shares.max())


def _measure(subject: Subject, on_progress: OnProgress) -> EarlyStopping:
    return early_stopping(subject.records, seed=subject.seed)


MEASUREMENT = Measurement(
    record=EarlyStopping, measure=_measure, lacking="stopping early", applies=lambda method: method.sees == "looks"
)
