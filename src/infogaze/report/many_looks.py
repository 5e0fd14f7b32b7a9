"""The figure of many more looks than trained for (the paper's figure 7), and where each method peaks."""

from __future__ import annotations

from torch import Tensor

from infogaze.evaluation.accuracy import accuracy_over_runs
from infogaze.evaluation.records import ManyLooks
from infogaze.plots.style import INK, hand
from infogaze.report.by_look import accuracy_levels
from infogaze.report.curves import Curve, Panel, behind, looks
from infogaze.report.drawing import Drawing, Drawn
from infogaze.report.gather import OURS, Chapter, Run
from infogaze.report.missing import not_measured, unlike, without
from infogaze.report.panels import curve_figure
from infogaze.report.tables import numbers, table
from infogaze.report.words import looks_said, share


def by_many_looks(chapter: Chapter) -> Drawn:
    """Accuracy after each of up to as many looks as the grid has places."""
    groups = chapter.with_measured(ManyLooks)
    if not groups:
        return not_measured(ManyLooks)
    if (differ := unlike(groups, lambda run: _right(run).shape, "scenes or looks")) is not None:
        return differ
    scenes, count = groups[0].runs[0].read(ManyLooks).named.shape
    curves = tuple(
        Curve(group, looks(count), accuracy_over_runs([_right(run) for run in group.runs])) for group in groups
    )
    panel = Panel("accuracy, %", "look t", curves, accuracy_levels(chapter, scenes), 100)
    figure = curve_figure(
        f"{chapter.data}: many more looks than trained for", (panel,), f"{behind(curves)} First {scenes} test scenes."
    )
    axes = figure.axes[0]
    trained = chapter.looks - 1
    axes.axvline(trained, color=INK, linewidth=0.8, linestyle=":")
    axes.annotate(
        f"trained for {looks_said(trained)}", (trained, 0.5), xycoords=("data", "axes fraction"), xytext=(4, 0),
        textcoords="offset points", fontsize=8,
    )  # fmt: skip
    for curve in curves:
        peak = int(curve.estimate.value.argmax())
        drawn = hand(curve.group.method)
        axes.plot(
            [peak], [100 * float(curve.estimate.value[peak])], marker="*", markersize=13 if drawn.width > 2 else 10,
            color=drawn.colour, markeredgecolor="white", markeredgewidth=0.7, zorder=5, label=f"peak of {curve.group.name}",
        )  # fmt: skip
    return (
        Drawing(
            figure,
            " ".join(_sentence(chapter, curve) for curve in curves if curve.group.method == OURS)
            or " ".join(_sentence(chapter, curve) for curve in curves[:1]),
            f"accuracy after up to {count} looks on {chapter.data}, one curve for each of {len(curves)} methods, peaks starred",
            "A star marks where a curve is highest; on a flat curve its place is partly luck. The dotted line is the budget in training."
            + without(chapter.lookers, groups),
            numbers((panel,)),
            table((panel,)),
        ),
    )


def _right(run: Run) -> Tensor:
    many = run.read(ManyLooks)
    return many.named == many.labels[:, None]


def _sentence(chapter: Chapter, curve: Curve) -> str:
    value = 100 * curve.estimate.value
    peak, last, trained = int(value.argmax()), len(value) - 1, min(chapter.looks, len(value)) - 1
    begin = f"{curve.group.name} is highest after {looks_said(peak)}, with {share(curve.estimate, peak)}"
    if peak > trained:
        begin += f", {value[peak] - value[trained]:.1f} points above its {looks_said(trained)} of training"
    elif peak < trained:
        begin += f", before the {looks_said(trained)} it was trained for"
    if peak == last:
        return f"{begin}; that is the last look measured."
    return f"{begin}; after all {looks_said(last)} it is {value[peak] - value[last]:.1f} points lower."
