"""Figures of accuracy by look: all methods (the paper's figure 2), one common judge (its figure 3), and ours with a part exchanged."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from infogaze.evaluation.accuracy import Estimate, accuracy_over_runs, mean_over_runs
from infogaze.evaluation.records import Judged
from infogaze.report.curves import Curve, Level, Panel, behind, chance, looks, mean_over_scenes, whole_scene
from infogaze.report.drawing import Drawing, Drawn
from infogaze.report.gather import OURS, Chapter, Group, Run, once
from infogaze.report.missing import not_measured, not_trained, unlike, without
from infogaze.report.panels import curve_figure
from infogaze.report.tables import numbers, table
from infogaze.report.words import (
    Right,
    against_baselines,
    difference,
    lead,
    looks_said,
    seed_counts,
    together,
    told_looks,
)


def by_look(chapter: Chapter) -> Drawn:
    """Accuracy and balanced accuracy of all methods after each look."""
    groups = chapter.lookers
    if not groups:
        return not_trained(OURS)
    plain = _accuracy(chapter, groups, _right)
    balanced = Panel(
        "balanced accuracy, %",
        "look t",
        tuple(Curve(group, looks(chapter.looks), _balanced(group.runs)) for group in groups),
        (
            *(whole_scene(_whole_name(group), float(_balanced(group.runs).value[-1])) for group in chapter.whole),
            chance(len(chapter.classes)),
        ),
        100,
    )
    panels = (plain, balanced)
    foot = behind(plain.curves)
    return (
        Drawing(
            curve_figure(f"{chapter.data}: accuracy by look", panels, foot),
            against_baselines(chapter, groups, _right),
            f"accuracy and balanced accuracy by look on {chapter.data}, one curve for each of {len(groups)} methods",
            "Balanced accuracy counts every class alike, however many scenes it has. " + _about_lines(chapter),
            numbers(panels),
            table(panels),
        ),
    )


def by_common_judge(chapter: Chapter) -> Drawn:
    """The policies alone: the same CNN names the label from what each of them looked at."""
    groups = chapter.with_measured(Judged)
    if not groups:
        return not_measured(Judged)
    if (differ := unlike(groups, lambda run: run.read(Judged).judge.tolist(), "the CNN that judged")) is not None:
        return differ
    right = once(_judged_right)
    panel = _accuracy(chapter, groups, right)
    return (
        Drawing(
            curve_figure(f"{chapter.data}: one CNN judges where each policy looked", (panel,), behind(panel.curves)),
            against_baselines(chapter, groups, right, "lets the CNN name"),
            f"accuracy by look on {chapter.data} of one CNN that sees only what each of {len(groups)} policies looked at",
            "The CNN was trained on complete images and sees all but the looks so far masked. So the classifiers of the methods play no "
            "part, and what differs is where they look. " + _about_lines(chapter) + without(chapter.lookers, groups),
            numbers((panel,)),
            table((panel,)),
        ),
    )


def by_flows(chapter: Chapter) -> Drawn:
    """Normalizing flows against a Gaussian posterior."""
    return _with_and_without(
        chapter,
        ((OURS, "gaussian"), ("no-hindsight", "gaussian-no-hindsight")),
        "flows against a Gaussian posterior",
        "A gaussian model is the same without flow layers: q(z given h) is a Gaussian with a diagonal covariance.",
    )


def by_attention(chapter: Chapter) -> Drawn:
    """With and without self-attention in R."""
    return _with_and_without(
        chapter,
        ((OURS, "attention"),),
        "with and without self-attention",
        "attention is the same model with self-attention over the looks so far in the belief's update R.",
    )


def _with_and_without(chapter: Chapter, compared: Sequence[tuple[str, str]], title: str, note: str) -> Drawn:
    pairs = [
        (one, other)
        for preset in chapter.presets
        for first, second in compared
        if (one := chapter.of(first, preset)) is not None and (other := chapter.of(second, preset)) is not None
    ]
    if not pairs:
        found = {group.method for group in chapter.groups}
        return not_trained(*(sorted({*compared[0]} - found) or compared[0][1:]))
    panel = _accuracy(chapter, [group for pair in pairs for group in pair], _right)
    said = [
        f"After {looks_said(look)} {difference(one.name, other.name, lead(_right, one, other), look)}."
        for one, other in pairs
        for look in told_looks(chapter.looks)
    ]
    return (
        Drawing(
            curve_figure(f"{chapter.data}: {title}", (panel,), behind(panel.curves)),
            " ".join(said),
            f"accuracy by look on {chapter.data}, {title}",
            f"{note} {_about_lines(chapter)}",
            numbers((panel,)),
            table((panel,)),
        ),
    )


def _accuracy(chapter: Chapter, groups: Sequence[Group], right: Right) -> Panel:
    curves = (
        Curve(group, looks(chapter.looks), accuracy_over_runs([right(r) for r in group.runs])) for group in groups
    )
    return Panel("accuracy, %", "look t", tuple(curves), accuracy_levels(chapter), 100)


def accuracy_levels(chapter: Chapter, scenes: int | None = None) -> tuple[Level, ...]:
    """The CNN that sees all, on the first scenes or on all, and chance."""
    whole = (
        whole_scene(
            _whole_name(group),
            float(accuracy_over_runs([run.summary.right[:scenes] for run in group.runs]).value[-1]),
        )
        for group in chapter.whole
    )
    return (*whole, chance(len(chapter.classes)))


def _whole_name(group: Group) -> str:
    return f"{group.name}, sees all"


def _about_lines(chapter: Chapter) -> str:
    """How to read the CNN's line."""
    if not chapter.whole:
        return "No CNN that sees the complete image is among the runs."
    names = together([f"{group.name} ({seed_counts([group])})" for group in chapter.whole])
    return f"{names} {'sees' if len(chapter.whole) == 1 else 'see'} the complete image."


def _right(run: Run) -> Tensor:
    return run.summary.right


def _judged_right(run: Run) -> Tensor:
    return run.read(Judged).named == run.summary.labels[:, None]


def _balanced(runs: Sequence[Run]) -> Estimate:
    """With one run, a scene is weighed by how rare its class is: the mean is then the balanced accuracy, and it has an interval."""
    if len(runs) > 1:
        return mean_over_runs([run.summary.balanced for run in runs])
    labels = runs[0].summary.labels
    kinds, index, count = labels.unique(return_inverse=True, return_counts=True)
    weight = len(labels) / (len(kinds) * count.double())[index]
    estimate = mean_over_scenes([weight[:, None] * runs[0].summary.right])
    return Estimate(estimate.value, estimate.low.clamp(min=0), estimate.high.clamp(max=1), estimate.n, estimate.unit)
