"""Figures of accuracy by look: all methods (the paper's figure 2), judged by a common CNN (its figure 3), flows and self-attention.

Flows against a Gaussian posterior is the paper's figure 2f, self-attention and balanced accuracy are its figure 9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from infogaze.evaluation.estimates import Estimate, accuracy_over_runs, mean_over_runs
from infogaze.evaluation.judged import Judged
from infogaze.report.curves import (
    Curve,
    Level,
    Panel,
    chance,
    interval_note,
    look_numbers,
    mean_over_scenes,
    whole_scene,
)
from infogaze.report.drawing import Drawing, Drawn
from infogaze.report.gather import OURS, Chapter, Group, Run, once
from infogaze.report.missing import left_out_note, measured_differently, not_measured, not_trained
from infogaze.report.panels import curve_figure
from infogaze.report.tables import numbers, table
from infogaze.report.words import (
    Correct,
    against_baselines,
    difference,
    join_names,
    lead,
    looks_phrase,
    reported_looks,
    seed_counts,
)


def by_look(chapter: Chapter) -> Drawn:
    """Accuracy and balanced accuracy of all methods after each look."""
    groups = chapter.lookers
    if not groups:
        return not_trained(OURS)
    plain = _accuracy_panel(chapter, groups, _correct)
    looks = look_numbers(chapter.num_looks)
    whole = (whole_scene(_whole_name(group), float(_balanced(group.runs).value[-1])) for group in chapter.whole)
    balanced = Panel(
        measure="balanced accuracy, %",
        against="look t",
        curves=tuple(Curve(group=group, x=looks, estimate=_balanced(group.runs)) for group in groups),
        levels=(*whole, chance(len(chapter.classes))),
        scale=100,
    )
    panels = (plain, balanced)
    return (
        Drawing(
            figure=curve_figure(f"{chapter.data}: accuracy by look", panels, foot=interval_note(plain.curves)),
            sentence=against_baselines(chapter, groups, _correct),
            alt_text=f"accuracy and balanced accuracy by look on {chapter.data}, {len(groups)} methods, one curve each",
            note=f"Balanced accuracy counts every class alike, however many scenes it has. {_whole_note(chapter)}",
            numbers=numbers(panels),
            table=table(panels),
        ),
    )


def by_common_judge(chapter: Chapter) -> Drawn:
    """The policies alone: the same CNN classifies what each of them looked at."""
    groups = chapter.with_measured(Judged)
    if not groups:
        return not_measured(Judged)
    differ = measured_differently(groups, lambda run: run.read(Judged).judge.tolist(), "the CNN that judged")
    if differ is not None:
        return differ
    correct = once(_judged_correct)
    panel = _accuracy_panel(chapter, groups, correct)
    title = f"{chapter.data}: one CNN judges where each policy looked"
    return (
        Drawing(
            figure=curve_figure(title, (panel,), foot=interval_note(panel.curves)),
            sentence=against_baselines(chapter, groups, correct, verb="gives the CNN"),
            alt_text=f"accuracy by look on {chapter.data} of one CNN that sees only what each of {len(groups)} policies looked at",
            note="The CNN was trained on complete images, and all but the looks so far is masked. So the classifiers of the methods play "
            f"no part, and what differs is where they look. {_whole_note(chapter)}{left_out_note(chapter.lookers, groups)}",
            numbers=numbers((panel,)),
            table=table((panel,)),
        ),
    )


def by_flows(chapter: Chapter) -> Drawn:
    """Normalizing flows against a Gaussian posterior."""
    return _ablation(
        chapter,
        (("paper", "gaussian"), ("paper-corrected", "gaussian-corrected")),
        title="flows against a Gaussian posterior",
        note="`gaussian-corrected` is `paper-corrected`, and `gaussian` is `paper`, without flow layers: q(z | h) is then a Gaussian "
        "with a diagonal covariance.",
    )


def by_attention(chapter: Chapter) -> Drawn:
    """With and without self-attention in R."""
    return _ablation(
        chapter,
        (("paper", "attention"),),
        title="with and without self-attention",
        note="`attention` is `paper` with self-attention over the looks so far in the belief's update R.",
    )


def _ablation(chapter: Chapter, compared: Sequence[tuple[str, str]], *, title: str, note: str) -> Drawn:
    """Pairs of methods that differ in one thing."""
    pairs = [
        (one, other)
        for preset in chapter.presets
        for first, second in compared
        if (one := chapter.of(first, preset)) is not None and (other := chapter.of(second, preset)) is not None
    ]
    if not pairs:
        trained = {group.method for group in chapter.groups}
        return not_trained(*(sorted({*compared[0]} - trained) or compared[0][1:]))
    panel = _accuracy_panel(chapter, [group for pair in pairs for group in pair], _correct)
    sentences = [
        f"After {looks_phrase(look)} {difference(one.name, other.name, lead(_correct, one, other), look=look)}."
        for one, other in pairs
        for look in reported_looks(chapter.num_looks)
    ]
    return (
        Drawing(
            figure=curve_figure(f"{chapter.data}: {title}", (panel,), foot=interval_note(panel.curves)),
            sentence=" ".join(sentences),
            alt_text=f"accuracy by look on {chapter.data}, {title}",
            note=f"{note} {_whole_note(chapter)}",
            numbers=numbers((panel,)),
            table=table((panel,)),
        ),
    )


def _accuracy_panel(chapter: Chapter, groups: Sequence[Group], correct: Correct) -> Panel:
    looks = look_numbers(chapter.num_looks)
    curves = tuple(
        Curve(group=group, x=looks, estimate=accuracy_over_runs([correct(run) for run in group.runs]))
        for group in groups
    )
    return Panel(measure="accuracy, %", against="look t", curves=curves, levels=accuracy_levels(chapter), scale=100)


def accuracy_levels(chapter: Chapter, scenes: int | None = None) -> tuple[Level, ...]:
    """The CNN that sees the complete image, on the first scenes or on all, and chance."""
    whole = (
        whole_scene(
            _whole_name(group),
            float(accuracy_over_runs([run.summary.correct[:scenes] for run in group.runs]).value[-1]),
        )
        for group in chapter.whole
    )
    return (*whole, chance(len(chapter.classes)))


def _whole_name(group: Group) -> str:
    return f"{group.name}, sees all"


def _whole_note(chapter: Chapter) -> str:
    """How to read the CNN's line."""
    if not chapter.whole:
        return "No CNN that sees the complete image is among the runs."
    names = join_names([f"{group.name} ({seed_counts([group])})" for group in chapter.whole])
    return f"{names} {'sees' if len(chapter.whole) == 1 else 'see'} the complete image."


def _correct(run: Run) -> Tensor:
    return run.summary.correct


def _judged_correct(run: Run) -> Tensor:
    return run.read(Judged).predictions == run.summary.labels[:, None]


def _balanced(runs: Sequence[Run]) -> Estimate:
    """Balanced accuracy. With one run, scenes are weighted by how rare their class is, so that their mean, with an interval, is it."""
    if len(runs) > 1:
        return mean_over_runs([run.summary.balanced for run in runs])
    labels = runs[0].summary.labels
    kinds, index, count = labels.unique(return_inverse=True, return_counts=True)
    weight = len(labels) / (len(kinds) * count.double())[index]
    estimate = mean_over_scenes([weight[:, None] * runs[0].summary.correct])
    return replace(estimate, low=estimate.low.clamp(min=0), high=estimate.high.clamp(max=1))
