"""The figure of accuracy against time, with a sensor that has to get to where it looks."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from infogaze.evaluation.estimates import accuracy_over_runs, lead_over_runs, mean_over_runs
from infogaze.evaluation.travelled import POLICIES, Travelled
from infogaze.report.curves import Curve, Panel, interval_note
from infogaze.report.drawing import Drawing, Drawn
from infogaze.report.gather import Chapter, Group, Run, once
from infogaze.report.missing import left_out_note, measured_differently, not_measured
from infogaze.report.panels import curve_figure
from infogaze.report.tables import numbers, table
from infogaze.report.words import Correct, percent_phrase, seeds_phrase

_NAMES = ("gain a second", "gain alone", "random looks")
"""Of POLICIES, at the ends of their curves."""


def by_travelled_time(chapter: Chapter) -> Drawn:
    """Accuracy against seconds: one method by each policy, and all methods."""
    groups = chapter.with_measured(Travelled)
    if not groups:
        return not_measured(Travelled)
    clock, correct = once(_clock), once(_correct)
    if (differ := measured_differently(groups, clock, "the clock, or the scenes")) is not None:
        return differ
    times, (exposure, settle, crossing), scenes = clock(groups[0].runs[0])
    shown = next((group for group in groups if group.is_ours), groups[0])

    def curve(group: Group, policy: int) -> Curve:
        return Curve(group=group, x=times, estimate=accuracy_over_runs([correct(run)[policy] for run in group.runs]))

    def panel(title: str, *curves: Curve) -> Panel:
        return Panel(measure="accuracy, %", against="seconds", curves=curves, scale=100, title=title)

    others = (shown.method, f"{shown.method}: {POLICIES[1]}", POLICIES[2])
    by_policy = panel(
        f"{shown.name}, by how it chooses",
        *(
            replace(curve(shown, policy), group=replace(shown, method=method, name=_NAMES[policy]))
            for policy, method in enumerate(others)
        ),
    )
    panels = [by_policy]
    if len(groups) > 1:
        panels.append(panel("all methods", *(curve(group, 0) for group in groups)))
    title = f"{chapter.data}: accuracy against time with a sensor that travels"
    foot = (
        f"{interval_note(panels[-1].curves)} First {scenes} test scenes. The clock: {exposure:g} s a look; {crossing:g} s across the "
        f"longer side of the scene, both axes at once; {settle:g} s to settle after a move."
    )
    return (
        Drawing(
            figure=curve_figure(title, panels, foot=foot),
            sentence=_sentence(shown, correct, times=times),
            alt_text=f"accuracy against seconds on {chapter.data}: looks of {shown.name} by gain a second, by gain alone and at random"
            + (f", and {len(groups)} methods" if len(groups) > 1 else ""),
            note="All looks begin at the same places. At each time the prediction is that of the last look that had ended. A method with "
            "a map of gains divides it by what each look takes, way and exposure; RAM and Random choose as ever. The time is what the "
            f"budget of looks takes on average where they are at random.{left_out_note(chapter.lookers, groups)}",
            numbers=numbers(panels),
            table=table(panels),
        ),
    )


def _correct(run: Run) -> Tensor:
    """Whether each prediction is correct, [policies, n, times]."""
    measured = run.read(Travelled)
    return measured.predictions == measured.labels[:, None]


def _clock(run: Run) -> tuple[tuple[float, ...], tuple[float, ...], int]:
    """The times, what looks and ways take, and how many scenes."""
    measured = run.read(Travelled)
    return tuple(measured.seconds.tolist()), tuple(measured.clock.tolist()), len(measured.labels)


def _sentence(group: Group, correct: Correct, *, times: tuple[float, ...]) -> str:
    """The middle and the end of the time, fixed beforehand."""
    found = [correct(run) for run in group.runs]
    weighed = accuracy_over_runs([values[0] for values in found])
    ahead = lead_over_runs([values[0] for values in found], [values[1] for values in found])
    looks = mean_over_runs([run.read(Travelled).looks.double().mean(1) for run in group.runs]).value
    parts = []
    for index in (len(times) // 2, len(times) - 1):
        value, low, high = (100 * float(part[index]) for part in (ahead.value, ahead.low, ahead.high))
        doubt = "" if low > 0 or high < 0 else ", which cannot be told from none"
        parts.append(
            f"After {times[index]:.1f} s {group.name} by gain a second has accuracy {percent_phrase(weighed, index)}, {value:+.1f} points "
            f"against gain alone (95 % interval {low:.1f} to {high:.1f}{doubt}, {seeds_phrase(ahead)})."
        )
    counts = f"It took {float(looks[0]):.1f} looks in this time, gain alone {float(looks[1]):.1f}, random looks {float(looks[2]):.1f}."
    return " ".join([*parts, counts])
