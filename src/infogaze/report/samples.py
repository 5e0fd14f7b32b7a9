"""The figure of what P buys: accuracy and time against the number of imagined scenes."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from infogaze.evaluation.accuracy import accuracy_over_runs, lead_over_runs, mean_over_runs
from infogaze.evaluation.records import Samples
from infogaze.report.curves import Curve, Panel, behind
from infogaze.report.drawing import Drawing, Drawn
from infogaze.report.gather import OURS, Chapter, Group, Run, once
from infogaze.report.missing import not_measured, unlike, without
from infogaze.report.panels import curve_figure
from infogaze.report.tables import numbers, table
from infogaze.report.words import looks_said, seeds_said, told_looks


def by_samples(chapter: Chapter) -> Drawn:
    """Accuracy after the second and the last look, and time a scene, against P."""
    groups = chapter.with_measured(Samples)
    if not groups:
        return not_measured(Samples)
    if (differ := unlike(groups, once(_tried), "the numbers P tried, or the scenes")) is not None:
        return differ
    right, seconds = once(_right), once(_seconds)
    tried, scenes = _tried(groups[0].runs[0])
    accuracy = tuple(
        Panel(
            "accuracy, %",
            "imagined scenes P",
            tuple(
                Curve(group, tried, accuracy_over_runs([right(run)[:, :, look].T for run in group.runs]))
                for group in groups
            ),
            scale=100,
            title=f"after {looks_said(look)}",
            log_x=True,
        )
        for look in told_looks(chapter.looks)
    )
    time = Panel(
        "time a scene, ms",
        "imagined scenes P",
        tuple(Curve(group, tried, mean_over_runs([seconds(run) / scenes for run in group.runs])) for group in groups),
        scale=1000,
        title="time",
        log_x=True,
        log_y=True,
    )
    panels = (*accuracy, time)
    devices = sorted({run.about.device for group in groups for run in group.runs})
    foot = (
        f"{behind(accuracy[0].curves)} First {scenes} test scenes. Time on {', '.join(devices)}, all scenes in batches."
    )
    return (
        Drawing(
            curve_figure(f"{chapter.data}: what the number of imagined scenes buys", panels, foot, columns=3),
            " ".join(
                _sentence(chapter, group, tried, right, seconds)
                for group in [group for group in groups if group.method == OURS] or groups[:1]
            ),
            f"accuracy after the second and the last look, and time a scene, against the number of imagined scenes on {chapter.data}",
            "P is how many complete scenes are imagined behind each gain map; the weights are the same throughout."
            + without([group for group in chapter.lookers if group.runs[0].about.samples > 0], groups),
            numbers(panels),
            table(panels),
        ),
    )


def _right(run: Run) -> Tensor:
    """Whether each scene is named right, for each P and after each look, [S, n, T]."""
    samples = run.read(Samples)
    return samples.named == samples.labels[:, None]


def _tried(run: Run) -> tuple[tuple[float, ...], int]:
    """The numbers P, and how many scenes."""
    samples = run.read(Samples)
    return tuple(float(p) for p in samples.samples), len(samples.labels)


def _seconds(run: Run) -> Tensor:
    return run.read(Samples).seconds


def _sentence(
    chapter: Chapter,
    group: Group,
    tried: tuple[float, ...],
    right: Callable[[Run], Tensor],
    seconds: Callable[[Run], Tensor],
) -> str:
    rights = [right(run) for run in group.runs]
    ahead = lead_over_runs([values[-1] for values in rights], [values[0] for values in rights])
    took = mean_over_runs([seconds(run) for run in group.runs]).value
    parts = []
    for look in told_looks(chapter.looks):
        value, low, high = (100 * float(part[look]) for part in (ahead.value, ahead.low, ahead.high))
        sure = "" if low > 0 or high < 0 else ", which cannot be told from none"
        parts.append(f"{value:+.1f} points after {looks_said(look)} (95 % interval {low:.1f} to {high:.1f}{sure})")
    return (
        f"{group.name} with {tried[-1]:g} imagined scenes instead of {tried[0]:g}: {' and '.join(parts)}, {seeds_said(ahead)}, "
        f"for {float(took[-1] / took[0]):.1f} times the time."
    )
