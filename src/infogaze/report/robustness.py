"""The figures of robustness: accuracy on scenes that were shifted, scaled, blurred, made noisy or partly covered."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from infogaze.evaluation.accuracy import accuracy_over_runs
from infogaze.evaluation.corruptions import DISTURBANCES
from infogaze.evaluation.records import Disturbed
from infogaze.report.curves import Curve, Panel, behind, chance, looks
from infogaze.report.drawing import Drawing, Drawn
from infogaze.report.gather import BASELINES, OURS, Chapter, Group, Run, once
from infogaze.report.missing import not_measured, unlike, without
from infogaze.report.panels import curve_figure
from infogaze.report.tables import numbers, table
from infogaze.report.words import looks_said


def by_disturbance(chapter: Chapter) -> Drawn:
    """Accuracy at the last look against strength, and by look at the strongest."""
    groups = chapter.with_measured(Disturbed)
    if not groups:
        return not_measured(Disturbed)
    if (differ := unlike(groups, once(_shape), "strengths or scenes")) is not None:
        return differ
    right = once(_right)
    first = groups[0].runs[0].read(Disturbed)
    scenes, last = len(first.labels), looks_said(chapter.looks - 1)
    by_strength, by_look = [], []
    levels = (chance(len(chapter.classes)),)
    for kind, (name, disturbance) in enumerate(DISTURBANCES.items()):
        strengths = tuple(float(f"{value:.3g}") for value in first.strengths[kind].tolist())  # kept in half precision

        def at_the_last_look(run: Run, kind: int = kind) -> Tensor:
            return right(run)[kind, :, :, -1].T  # [n, levels]

        def at_the_strongest(run: Run, kind: int = kind) -> Tensor:
            return right(run)[kind, -1]  # [n, T]

        curves = _curves(groups, strengths, at_the_last_look)
        by_strength.append(Panel("accuracy, %", f"{name}: {disturbance.unit}", curves, levels, 100, name))
        curves = _curves(groups, looks(chapter.looks), at_the_strongest)
        by_look.append(
            Panel("accuracy, %", "look t", curves, levels, 100, f"{name}, {strengths[-1]:g} {disturbance.unit}")
        )
    foot = f"{behind(by_strength[0].curves)} First {scenes} test scenes."
    return (
        Drawing(
            curve_figure(f"{chapter.data}: accuracy after {last} on disturbed scenes", by_strength, foot, columns=3),
            _sentence(chapter, groups, by_strength),
            f"accuracy after {last} on {chapter.data} against the strength of five disturbances of the scene",
            "Nothing was trained on such scenes unless its augmentation has them. Strength 0 is the scene as it is."
            + without(chapter.lookers, groups),
            numbers(by_strength),
            table(by_strength),
        ),
        Drawing(
            curve_figure(f"{chapter.data}: accuracy by look on the most disturbed scenes", by_look, foot, columns=3),
            _sentence_by_look(chapter, by_look),
            f"accuracy by look on {chapter.data} under the strongest of each of five disturbances",
            "The same, look by look, at the strongest level of each disturbance.",
            numbers(by_look),
            table(by_look),
        ),
    )


def _right(run: Run) -> Tensor:
    """Whether each scene is named right, [kinds, levels, n, T]."""
    disturbed = run.read(Disturbed)
    return disturbed.named == disturbed.labels[:, None]


def _shape(run: Run) -> tuple[list[list[float]], int]:
    """Strengths, and how many scenes."""
    disturbed = run.read(Disturbed)
    return disturbed.strengths.tolist(), len(disturbed.labels)


def _curves(groups: tuple[Group, ...], x: tuple[float, ...], right: Callable[[Run], Tensor]) -> tuple[Curve, ...]:
    return tuple(Curve(group, x, accuracy_over_runs([right(run) for run in group.runs])) for group in groups)


def _loss(curve: Curve) -> float:
    """Points lost from none to the strongest."""
    return 100 * float(curve.estimate.value[0] - curve.estimate.value[-1])


def _sentence(chapter: Chapter, groups: tuple[Group, ...], panels: list[Panel]) -> str:
    said = []
    for group in [group for group in groups if group.method == OURS] or list(groups[:1]):
        losses = {panel.title: _loss(next(c for c in panel.curves if c.group == group)) for panel in panels}
        worst, mildest = max(losses, key=losses.__getitem__), min(losses, key=losses.__getitem__)
        said.append(
            f"After {looks_said(chapter.looks - 1)} {group.name} loses most to {worst}, {losses[worst]:.1f} points at its strongest, and "
            f"least to {mildest}, {losses[mildest]:.1f} points."
        )
        rivals = [rival for rival in groups if rival.method in BASELINES and rival.preset == group.preset]
        if rivals:
            ahead = [panel.title for panel in panels if _ahead(panel, group, rivals)]
            said.append(
                f"At the strongest level of each it is above every baseline beyond the intervals under {len(ahead)} of {len(panels)}"
                + (f" ({', '.join(ahead)})." if ahead else ".")
            )
    return " ".join(said)


def _ahead(panel: Panel, ours: Group, rivals: list[Group]) -> bool:
    """Whether our interval at the right end lies above those of all rivals."""
    ends = {curve.group.name: curve.estimate for curve in panel.curves}
    return all(bool(ends[ours.name].low[-1] > ends[rival.name].high[-1]) for rival in rivals)


def _sentence_by_look(chapter: Chapter, panels: list[Panel]) -> str:
    said = []
    curves = panels[0].curves
    for group in [c.group for c in curves if c.group.method == OURS] or [curves[0].group]:
        gains = []
        for panel in panels:
            value = next(curve for curve in panel.curves if curve.group == group).estimate.value
            gains.append(f"{panel.title.split(',')[0]} {100 * float(value[-1] - value[0]):+.1f}")
        said.append(
            f"What {looks_said(chapter.looks - 1)} instead of the first alone give {group.name} at the strongest level, in points: "
            f"{', '.join(gains)}."
        )
    return " ".join(said)
