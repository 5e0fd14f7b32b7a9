"""The figure of the class distribution's entropy by look (the paper's figure 6)."""

from __future__ import annotations

import math

from infogaze.evaluation.estimates import Estimate
from infogaze.report.curves import Curve, Level, Panel, baselines_of, interval_note, look_numbers, mean_over_scenes
from infogaze.report.drawing import Drawing, Drawn
from infogaze.report.gather import OURS, Chapter
from infogaze.report.missing import not_trained
from infogaze.report.panels import curve_figure
from infogaze.report.tables import numbers, table
from infogaze.report.words import OURS_MISSING, looks_phrase


def entropy_by_look(chapter: Chapter) -> Drawn:
    """How undecided each method is after each look."""
    if not chapter.lookers:
        return not_trained(OURS)
    looks = look_numbers(chapter.num_looks)
    curves = tuple(
        Curve(group=group, x=looks, estimate=mean_over_scenes([run.summary.entropy for run in group.runs]))
        for group in chapter.lookers
    )
    panel = Panel(
        measure="entropy of the class distribution, nats",
        against="look t",
        curves=curves,
        levels=(Level("all labels alike", math.log(len(chapter.classes))),),
    )
    title = f"{chapter.data}: entropy of the class distribution by look"
    return (
        Drawing(
            figure=curve_figure(title, (panel,), foot=interval_note(curves)),
            sentence=_sentence(chapter, curves),
            alt_text=f"mean entropy of the class distribution by look on {chapter.data}, {len(curves)} methods, one curve each",
            note="Low is decided, which is good only where predictions are also correct: see calibration.",
            numbers=numbers((panel,)),
            table=table((panel,)),
        ),
    )


def _sentence(chapter: Chapter, curves: tuple[Curve, ...]) -> str:
    sentences = []
    for curve in curves:
        if not curve.group.is_ours:
            continue
        begin = (
            f"The entropy of {curve.group.name} goes from {curve.estimate.value[0]:.2f} nats after the first look to "
            f"{_nats_phrase(curve.estimate, -1)} after {looks_phrase(chapter.num_looks - 1)}"
        )
        baselines = baselines_of(curve.group, curves)
        if not baselines:
            sentences.append(f"{begin}.")
            continue
        least = min(baselines, key=lambda baseline: float(baseline.estimate.value[-1]))
        ours, other = curve.estimate, least.estimate
        if bool(ours.high[-1] < other.low[-1]):
            compared = "lower than"
        elif bool(ours.low[-1] > other.high[-1]):
            compared = "higher than"
        else:
            compared = "not to be told apart from"
        sentences.append(f"{begin}, {compared} the lowest baseline, {least.group.name}, at {_nats_phrase(other, -1)}.")
    return " ".join(sentences) or OURS_MISSING


def _nats_phrase(estimate: Estimate, look: int) -> str:
    value, low, high = (float(part[look]) for part in (estimate.value, estimate.low, estimate.high))
    if (estimate.n, estimate.unit) == (1, "seeds"):
        return f"{value:.2f} nats"
    return f"{value:.2f} nats ({low:.2f} to {high:.2f})"
