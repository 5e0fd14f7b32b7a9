"""The figure of many more looks than trained for (the paper's figure 7), and where each method peaks."""

from __future__ import annotations

from matplotlib.axes import Axes
from torch import Tensor

from infogaze.evaluation.estimates import accuracy_over_runs
from infogaze.evaluation.many_looks import ManyLooks
from infogaze.plots.style import INK, line_style
from infogaze.report.by_look import accuracy_levels
from infogaze.report.curves import Curve, Panel, interval_note, look_numbers
from infogaze.report.drawing import Drawing, Drawn
from infogaze.report.gather import Chapter, Run
from infogaze.report.missing import left_out_note, measured_differently, not_measured
from infogaze.report.panels import curve_figure
from infogaze.report.tables import numbers, table
from infogaze.report.words import looks_phrase, percent_phrase


def by_many_looks(chapter: Chapter) -> Drawn:
    """Accuracy after each of up to as many looks as the grid has locations."""
    groups = chapter.with_measured(ManyLooks)
    if not groups:
        return not_measured(ManyLooks)
    if (differ := measured_differently(groups, lambda run: _correct(run).shape, "scenes or looks")) is not None:
        return differ
    scenes, count = groups[0].runs[0].read(ManyLooks).predictions.shape
    curves = tuple(
        Curve(group=group, x=look_numbers(count), estimate=accuracy_over_runs([_correct(run) for run in group.runs]))
        for group in groups
    )
    panel = Panel(
        measure="accuracy, %", against="look t", curves=curves, levels=accuracy_levels(chapter, scenes), scale=100
    )
    title = f"{chapter.data}: many more looks than trained for"
    figure = curve_figure(title, (panel,), foot=f"{interval_note(curves)} First {scenes} test scenes.")
    _mark_budget(figure.axes[0], chapter.num_looks - 1)
    _mark_peaks(figure.axes[0], curves)
    reported = [curve for curve in curves if curve.group.is_ours] or curves[:1]
    return (
        Drawing(
            figure=figure,
            sentence=" ".join(_sentence(chapter, curve) for curve in reported),
            alt_text=f"accuracy after up to {count} looks on {chapter.data}, {len(curves)} methods, one curve each, peaks starred",
            note="A star marks where a curve is highest; on a flat curve its place is partly luck. The dotted line is the budget in "
            f"training.{left_out_note(chapter.lookers, groups)}",
            numbers=numbers((panel,)),
            table=table((panel,)),
        ),
    )


def _correct(run: Run) -> Tensor:
    many = run.read(ManyLooks)
    return many.predictions == many.labels[:, None]


def _mark_budget(axes: Axes, last: int) -> None:
    axes.axvline(last, color=INK, linewidth=0.8, linestyle=":")
    axes.annotate(
        f"trained for {looks_phrase(last)}", (last, 0.5), xycoords=("data", "axes fraction"), xytext=(4, 0),
        textcoords="offset points", fontsize=8,
    )  # fmt: skip


def _mark_peaks(axes: Axes, curves: tuple[Curve, ...]) -> None:
    for curve in curves:
        peak = int(curve.estimate.value.argmax())
        style = line_style(curve.group.method)
        axes.plot(
            [peak], [100 * float(curve.estimate.value[peak])], marker="*", markersize=13 if style.width > 2 else 10,
            color=style.colour, markeredgecolor="white", markeredgewidth=0.7, zorder=5, label=f"peak of {curve.group.name}",
        )  # fmt: skip


def _sentence(chapter: Chapter, curve: Curve) -> str:
    value = 100 * curve.estimate.value
    peak, last, trained = int(value.argmax()), len(value) - 1, min(chapter.num_looks, len(value)) - 1
    accuracy = percent_phrase(curve.estimate, peak)
    begin = f"{curve.group.name} is highest after {looks_phrase(peak)}, with accuracy {accuracy}"
    if peak > trained:
        begin += f", {value[peak] - value[trained]:.1f} points above that after the {looks_phrase(trained)} of training"
    elif peak < trained:
        begin += f", before the {looks_phrase(trained)} it was trained for"
    if peak == last:
        return f"{begin}; that is the last look measured."
    return f"{begin}; after all {looks_phrase(last)} it is {value[peak] - value[last]:.1f} points lower."
