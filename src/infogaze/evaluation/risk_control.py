"""Stopping early with a guarantee: thresholds chosen on held-out scenes by Learn-then-Test (Angelopoulos et al., 2021), as Ringel et al.
(2024) and Jazbec et al. (2024) do for decisions that are made early.

A scene is lost where the rule stops at a wrong prediction and the whole budget would have ended at the correct one. The share of lost
scenes is at least what stopping early costs in accuracy. Candidate thresholds are tested from strict to loose with exact binomial tails,
and the first that fails ends the test: the last one before it keeps the share below `gap` with probability `1 - delta`, whatever the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy import stats
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.evaluation.exact_pass import Records
from infogaze.gaze.stopping import CalibratedStop, RuleName
from infogaze.nn.gain import class_entropy

_CANDIDATES = 200
_STRICTEST = 1e-6
"""The least doubt, in probability or in nats, that a candidate stops at."""
_SHARES = tuple(share / 10 for share in range(1, 11))
"""Of the gap: what the candidates by look are made for, from strict to loose."""


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """What a rule reads of complete episodes, and what came of them."""

    sureness: Float[Tensor, "N t"]
    """After each number of looks before the last, the larger the surer: a probability, or minus an entropy or a gain in nats."""
    correct: Bool[Tensor, "N T"]
    """Whether the prediction after each look is the true label."""

    def __getitem__(self, scenes: slice | Tensor) -> Outcomes:
        """Of some of the scenes."""
        return Outcomes(sureness=self.sureness[scenes], correct=self.correct[scenes])

    def looks_used(self, thresholds: Float[Tensor, " t"]) -> Int[Tensor, " N"]:
        """How many looks each scene takes where it stops at the first that is at least as sure as its threshold."""
        enough = self.sureness >= thresholds
        return torch.where(enough.any(1), enough.int().argmax(1), enough.shape[1]) + 1

    def looks_used_at(self, levels: Float[Tensor, " C"]) -> Int[Tensor, "N C"]:
        """The same for each of several levels, where one is the threshold of all looks."""
        surest = self.sureness.cummax(1).values  # [N, t]
        return (surest[:, :, None] < levels).sum(1) + 1

    def correct_after(self, looks_used: Int[Tensor, " N *C"]) -> Bool[Tensor, " N *C"]:
        """Whether the prediction is correct after so many looks."""
        return self.correct.gather(1, (looks_used - 1).view(len(looks_used), -1)).view(looks_used.shape)

    def lost(self, looks_used: Int[Tensor, " N *C"]) -> Bool[Tensor, " N *C"]:
        """Whether it is wrong then, and correct after all looks."""
        last = self.correct[:, -1].view(-1, *[1] * (looks_used.dim() - 1))
        return ~self.correct_after(looks_used) & last


def outcomes(records: Records, rule: RuleName) -> Outcomes:
    """What a rule would have read of the scenes of an exact pass."""
    log_probabilities = records.log_probabilities[:, :-1]
    if rule == "confidence":
        sureness = log_probabilities.amax(2).exp()
    elif rule == "entropy":
        sureness = -class_entropy(log_probabilities)
    else:
        # What is left to gain after a look is what the next one was chosen for.
        sureness = -records.expected[:, 1:]
    return Outcomes(sureness=sureness.double(), correct=records.correct)


def can_be_read(records: Records, rule: RuleName) -> bool:
    """Whether there is something for the rule to read: a gain needs a policy with a map."""
    return rule != "gain" or bool(records.expected.any())


def candidates(rule: RuleName, num_classes: int) -> Float[Tensor, " C"]:
    """Levels of sureness to be tested, from strict to loose; fixed before any scene is seen."""
    if rule == "confidence":
        return 1.0 - torch.from_numpy(np.geomspace(_STRICTEST, 1.0 - 1.0 / num_classes, _CANDIDATES))
    return -torch.from_numpy(np.geomspace(_STRICTEST, math.log(num_classes), _CANDIDATES))


def p_value(
    lost: Int[np.ndarray, "*shape"] | int, scenes: Int[np.ndarray, "*shape"] | int, gap: float
) -> Float[np.ndarray, "*shape"]:
    """How probable so few lost scenes would be, at the most, if the share of lost scenes were above the gap."""
    return np.asarray(stats.binom.cdf(lost, scenes, gap))


def fewest_scenes(gap: float, delta: float) -> int:
    """How many scenes it takes to show anything: as many, with none lost among them."""
    return math.ceil(math.log(delta) / math.log1p(-gap))


def require_enough(scenes: int, *, gap: float, delta: float, by_look: bool) -> None:
    """Refuses fewer scenes than it takes."""
    needed = (2 if by_look else 1) * fewest_scenes(gap, delta)
    if scenes < needed:
        raise InfogazeError(
            f"{scenes} scenes are too few: a gap of {gap:g} with delta {delta:g} needs at least {needed}, and more to stop early often"
        )


def loosest_safe(lost: Int[np.ndarray, " C"], scenes: int, *, gap: float, delta: float) -> int:
    """The number of the loosest level that is safe, given how many scenes are lost at each; -1 where none is."""
    safe = p_value(lost, scenes, gap) <= delta
    return int(np.logical_and.accumulate(safe).sum()) - 1


def thresholds_by_look(found: Outcomes, *, gap: float, delta: float) -> tuple[float | None, ...]:
    """Thresholds of sureness, one for each number of looks, that keep the gap among the scenes stopped after at most t looks, for every t.

    Every second scene makes candidates, for growing shares of the gap; the others test them in this order. A candidate is safe where it
    is so for every t, which needs no correction for their number.
    """
    made, tested = found[::2], found[1::2]
    least = fewest_scenes(gap, delta)
    safe: tuple[float | None, ...] = (None,) * found.sureness.shape[1]
    for share in _SHARES:
        candidate = _made_for(made, share * gap, least=least)
        if not _safe_by_look(tested, candidate, gap=gap, delta=delta):
            break
        safe = candidate
    return safe


def _made_for(found: Outcomes, level: float, *, least: int) -> tuple[float | None, ...]:
    """The loosest thresholds, look after look, with at most this share lost of the scenes stopped so far."""
    thresholds: list[float | None] = []
    running = torch.ones(len(found.correct), dtype=torch.bool)
    stopped = lost = 0
    for look in range(found.sureness.shape[1]):
        sureness, order = found.sureness[running, look].sort(descending=True)
        wrong = (~found.correct[running, look] & found.correct[running, -1])[order]
        count = stopped + torch.arange(1, len(order) + 1)
        # Of equal scenes all stop: only the last of them tells how many are lost.
        last = torch.cat([sureness[1:] < sureness[:-1], torch.ones(min(1, len(order)), dtype=torch.bool)])
        enough = last & (count >= least) & (lost + wrong.cumsum(0) <= level * count)
        if not bool(enough.any()):
            thresholds.append(None)
            continue
        at = int(enough.nonzero()[-1])
        thresholds.append(float(sureness[at]))
        stopped, lost = stopped + at + 1, lost + int(wrong[: at + 1].sum())
        running = running & (found.sureness[:, look] < sureness[at])
    return tuple(thresholds)


def _safe_by_look(found: Outcomes, thresholds: Sequence[float | None], *, gap: float, delta: float) -> bool:
    used = found.looks_used(torch.tensor([math.inf if value is None else value for value in thresholds]))
    lost = found.lost(used)
    first = next((number for number, value in enumerate(thresholds, 1) if value is not None), len(thresholds) + 1)
    for looks in range(first, len(thresholds) + 1):
        early = used <= looks
        if p_value(int(lost[early].sum()), int(early.sum()), gap) > delta:
            return False
    return True


def calibrated(records: Records, rule: RuleName, *, gap: float, delta: float, by_look: bool = False) -> CalibratedStop:
    """The rule that stops as early as is safe, by the records of scenes that chose nothing else; see `CalibratedStop`."""
    scenes, budget, num_classes = records.log_probabilities.shape
    require_enough(scenes, gap=gap, delta=delta, by_look=by_look)
    if not can_be_read(records, rule):
        raise InfogazeError("the rule 'gain' needs a policy with a map of gains; this one chooses its looks without")
    found = outcomes(records, rule)
    if by_look:
        safe = thresholds_by_look(found, gap=gap, delta=delta)
    else:
        levels = candidates(rule, num_classes)
        lost = found.lost(found.looks_used_at(levels)).sum(0).numpy()
        at = loosest_safe(lost, scenes, gap=gap, delta=delta)
        safe = (None if at < 0 else float(levels[at]),) * (budget - 1)
    return CalibratedStop(
        rule=rule,
        thresholds=tuple(None if value is None else _in_own_unit(rule, value) for value in safe),
        budget=budget,
        gap=gap,
        delta=delta,
        by_look=by_look,
        scenes=scenes,
    )


def _in_own_unit(rule: RuleName, sureness: float) -> float:
    return sureness if rule == "confidence" else max(-sureness, 0.0)


def looks_by(stop: CalibratedStop, records: Records) -> Int[Tensor, " N"]:
    """How many looks each scene of an exact pass takes by a calibrated rule."""
    sign = 1.0 if stop.rule == "confidence" else -1.0
    levels = [math.inf if value is None else sign * value for value in stop.thresholds]
    return outcomes(records, stop.rule).looks_used(torch.tensor(levels, dtype=torch.float64))
