"""The figure of the class distribution's entropy by look (the paper's figure 6)."""

from __future__ import annotations

import math

from infogaze.evaluation.accuracy import Estimate
from infogaze.plots.style import QUIET, Hand
from infogaze.report.curves import Curve, Level, Panel, behind, looks, mean_over_scenes
from infogaze.report.drawing import Drawing, Drawn
from infogaze.report.gather import BASELINES, OURS, Chapter
from infogaze.report.missing import not_trained
from infogaze.report.panels import curve_figure
from infogaze.report.tables import numbers, table
from infogaze.report.words import looks_said


def entropy_by_look(chapter: Chapter) -> Drawn:
    """How undecided each method is after each look."""
    if not chapter.lookers:
        return not_trained(OURS)
    curves = tuple(
        Curve(group, looks(chapter.looks), mean_over_scenes([run.summary.entropy for run in group.runs]))
        for group in chapter.lookers
    )
    even = Level("all labels alike", math.log(len(chapter.classes)), Hand(QUIET, "", dash=":", width=1.2))
    panel = Panel("entropy of the class distribution, nats", "look t", curves, (even,))
    return (
        Drawing(
            curve_figure(f"{chapter.data}: entropy of the class distribution by look", (panel,), behind(curves)),
            _sentence(chapter, curves),
            f"mean entropy of the class distribution by look on {chapter.data}, one curve for each of {len(curves)} methods",
            "Low is decided, which is good only where it is also right: see calibration.",
            numbers((panel,)),
            table((panel,)),
        ),
    )


def _sentence(chapter: Chapter, curves: tuple[Curve, ...]) -> str:
    said = []
    for curve in curves:
        if curve.group.method != OURS:
            continue
        value = curve.estimate.value
        begin = (
            f"The entropy of {curve.group.name} goes from {value[0]:.2f} nats after the first look to "
            f"{_nats(curve.estimate, -1)} after {looks_said(chapter.looks - 1)}"
        )
        rivals = [
            rival for rival in curves if rival.group.method in BASELINES and rival.group.preset == curve.group.preset
        ]
        if not rivals:
            said.append(f"{begin}.")
            continue
        least = min(rivals, key=lambda rival: float(rival.estimate.value[-1]))
        ours, other = curve.estimate, least.estimate
        if bool(ours.high[-1] < other.low[-1]):
            how = "lower than"
        elif bool(ours.low[-1] > other.high[-1]):
            how = "higher than"
        else:
            how = "not to be told apart from"
        said.append(f"{begin}, {how} the lowest baseline, {least.group.name}, at {_nats(other, -1)}.")
    return " ".join(said) or f"{OURS} is not among these runs; the curves are those of the other methods."


def _nats(estimate: Estimate, look: int) -> str:
    value, low, high = (float(part[look]) for part in (estimate.value, estimate.low, estimate.high))
    if (estimate.n, estimate.unit) == (1, "seeds"):
        return f"{value:.2f} nats"
    return f"{value:.2f} nats ({low:.2f} to {high:.2f})"
