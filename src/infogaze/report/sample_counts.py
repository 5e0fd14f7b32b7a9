"""The figure of what P buys: accuracy and time against the number of imagined scenes."""

from __future__ import annotations

from torch import Tensor

from infogaze.evaluation.estimates import accuracy_over_runs, lead_over_runs, mean_over_runs
from infogaze.evaluation.sample_counts import SampleCounts
from infogaze.report.curves import Curve, Panel, interval_note
from infogaze.report.drawing import Drawing, Drawn
from infogaze.report.gather import Chapter, Group, Run, once
from infogaze.report.missing import left_out_note, measured_differently, not_measured
from infogaze.report.panels import curve_figure
from infogaze.report.tables import numbers, table
from infogaze.report.words import Correct, looks_phrase, reported_looks, seeds_phrase


def by_sample_counts(chapter: Chapter) -> Drawn:
    """Accuracy after the second and the last look, and time a scene, against P."""
    groups = chapter.with_measured(SampleCounts)
    if not groups:
        return not_measured(SampleCounts)
    if (differ := measured_differently(groups, once(_tried), "the numbers P tried, or the scenes")) is not None:
        return differ
    correct = once(_correct)
    tried, scenes = _tried(groups[0].runs[0])
    accuracy = tuple(
        Panel(
            measure="accuracy, %",
            against="imagined scenes P",
            curves=tuple(
                Curve(
                    group=group,
                    x=tried,
                    estimate=accuracy_over_runs([correct(run)[:, :, look].T for run in group.runs]),
                )
                for group in groups
            ),
            scale=100,
            title=f"after {looks_phrase(look)}",
            log_x=True,
        )
        for look in reported_looks(chapter.num_looks)
    )
    time = Panel(
        measure="time a scene, ms",
        against="imagined scenes P",
        curves=tuple(
            Curve(group=group, x=tried, estimate=mean_over_runs([_seconds(run) / scenes for run in group.runs]))
            for group in groups
        ),
        scale=1000,
        title="time",
        log_x=True,
        log_y=True,
    )
    panels = (*accuracy, time)
    devices = sorted({run.about.device for group in groups for run in group.runs})
    title = f"{chapter.data}: what the number of imagined scenes buys"
    foot = f"{interval_note(accuracy[0].curves)} First {scenes} test scenes. Time on {', '.join(devices)}, all scenes in batches."
    imagining = [group for group in chapter.lookers if group.runs[0].about.num_samples > 0]
    reported = [group for group in groups if group.is_ours] or groups[:1]
    return (
        Drawing(
            figure=curve_figure(title, panels, foot=foot, columns=3),
            sentence=" ".join(_sentence(chapter, group, correct) for group in reported),
            alt_text=f"accuracy after the second and the last look, and time a scene, by number of imagined scenes on {chapter.data}",
            note="P is how many complete scenes are imagined behind each gain map; the weights are the same throughout."
            + left_out_note(imagining, groups),
            numbers=numbers(panels),
            table=table(panels),
        ),
    )


def _correct(run: Run) -> Tensor:
    """Whether each prediction is correct, for each P and after each look, [S, n, T]."""
    sampled = run.read(SampleCounts)
    return sampled.predictions == sampled.labels[:, None]


def _tried(run: Run) -> tuple[tuple[float, ...], int]:
    """The numbers P, and how many scenes."""
    sampled = run.read(SampleCounts)
    return tuple(float(count) for count in sampled.num_samples), len(sampled.labels)


def _seconds(run: Run) -> Tensor:
    return run.read(SampleCounts).seconds


def _sentence(chapter: Chapter, group: Group, correct: Correct) -> str:
    tried, _ = _tried(group.runs[0])
    found = [correct(run) for run in group.runs]
    ahead = lead_over_runs([values[-1] for values in found], [values[0] for values in found])
    seconds = mean_over_runs([_seconds(run) for run in group.runs]).value
    differences = []
    for look in reported_looks(chapter.num_looks):
        value, low, high = (100 * float(part[look]) for part in (ahead.value, ahead.low, ahead.high))
        doubt = "" if low > 0 or high < 0 else ", which cannot be told from none"
        interval = f"95 % interval {low:.1f} to {high:.1f}{doubt}"
        differences.append(f"{value:+.1f} points after {looks_phrase(look)} ({interval})")
    return (
        f"{group.name} with {tried[-1]:g} imagined scenes instead of {tried[0]:g}: {' and '.join(differences)}, {seeds_phrase(ahead)}, "
        f"for {float(seconds[-1] / seconds[0]):.1f} times the time."
    )
