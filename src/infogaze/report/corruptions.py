"""The figures of robustness: accuracy where something is wrong with the scene, or with the sensor."""

from __future__ import annotations

from torch import Tensor

from infogaze.evaluation.corrupted import Corrupted
from infogaze.evaluation.corruptions import CORRUPTIONS
from infogaze.evaluation.estimates import accuracy_over_runs
from infogaze.report.curves import Curve, Panel, chance, interval_note, look_numbers
from infogaze.report.drawing import Drawing, Drawn
from infogaze.report.gather import BASELINES, Chapter, Group, Run, once
from infogaze.report.missing import left_out_note, measured_differently, not_measured
from infogaze.report.panels import curve_figure
from infogaze.report.tables import numbers, table
from infogaze.report.words import Correct, looks_phrase


def by_corruption(chapter: Chapter) -> Drawn:
    """Accuracy at the last look against severity, and by look at the greatest."""
    groups = chapter.with_measured(Corrupted)
    if not groups:
        return not_measured(Corrupted)
    if (differ := measured_differently(groups, once(_tested), "severities or scenes")) is not None:
        return differ
    scenes, last = len(groups[0].runs[0].read(Corrupted).labels), looks_phrase(chapter.num_looks - 1)
    by_severity, by_look = _panels(chapter, groups)
    foot = f"{interval_note(by_severity[0].curves)} First {scenes} test scenes."
    title = f"{chapter.data}: accuracy after {last} on corrupted scenes"
    title_by_look = f"{chapter.data}: accuracy by look at the greatest severity"
    return (
        Drawing(
            figure=curve_figure(title, by_severity, foot=foot, columns=3),
            sentence=_sentence(chapter, groups, by_severity),
            alt_text=f"accuracy after {last} on {chapter.data} against the severity of {len(by_severity)} corruptions",
            note="Nothing was trained on such scenes unless its augmentation has them. Severity 0 is the scene as it is."
            + left_out_note(chapter.lookers, groups),
            numbers=numbers(by_severity),
            table=table(by_severity),
        ),
        Drawing(
            figure=curve_figure(title_by_look, by_look, foot=foot, columns=3),
            sentence=_sentence_by_look(chapter, by_look),
            alt_text=f"accuracy by look on {chapter.data} at the greatest severity of each of {len(by_look)} corruptions",
            note="The same, look by look, at the greatest severity of each corruption.",
            numbers=numbers(by_look),
            table=table(by_look),
        ),
    )


def _panels(chapter: Chapter, groups: tuple[Group, ...]) -> tuple[list[Panel], list[Panel]]:
    """A panel a corruption against severity, and another by look."""
    correct = once(_correct)
    first = groups[0].runs[0].read(Corrupted)
    levels = (chance(len(chapter.classes)),)
    by_severity, by_look = [], []
    # What was measured before there were as many kinds has the first of them.
    for kind, ((name, corruption), levels_of) in enumerate(zip(CORRUPTIONS.items(), first.severities, strict=False)):
        severities = tuple(float(f"{value:.3g}") for value in levels_of.tolist())  # kept in half precision

        def at_last_look(run: Run, kind: int = kind) -> Tensor:
            return correct(run)[kind, :, :, -1].T  # [n, levels]

        def at_greatest_severity(run: Run, kind: int = kind) -> Tensor:
            return correct(run)[kind, -1]  # [n, T]

        by_severity.append(
            Panel(
                measure="accuracy, %",
                against=f"{name}: {corruption.unit}",
                curves=_curves(groups, severities, at_last_look),
                levels=levels,
                scale=100,
                title=name,
            )
        )
        by_look.append(
            Panel(
                measure="accuracy, %",
                against="look t",
                curves=_curves(groups, look_numbers(chapter.num_looks), at_greatest_severity),
                levels=levels,
                scale=100,
                title=f"{name}, {severities[-1]:g} {corruption.unit}",
            )
        )
    return by_severity, by_look


def _correct(run: Run) -> Tensor:
    """Whether each prediction is correct, [kinds, levels, n, T]."""
    corrupted = run.read(Corrupted)
    return corrupted.predictions == corrupted.labels[:, None]


def _tested(run: Run) -> tuple[list[list[float]], int]:
    """The severities, and how many scenes."""
    corrupted = run.read(Corrupted)
    return corrupted.severities.tolist(), len(corrupted.labels)


def _curves(groups: tuple[Group, ...], x: tuple[float, ...], correct: Correct) -> tuple[Curve, ...]:
    return tuple(
        Curve(group=group, x=x, estimate=accuracy_over_runs([correct(run) for run in group.runs])) for group in groups
    )


def _loss(curve: Curve) -> float:
    """Points lost from the first severity, none, to the greatest."""
    return 100 * float(curve.estimate.value[0] - curve.estimate.value[-1])


def _sentence(chapter: Chapter, groups: tuple[Group, ...], panels: list[Panel]) -> str:
    sentences = []
    for group in [group for group in groups if group.is_ours] or list(groups[:1]):
        losses = {panel.title: _loss(next(c for c in panel.curves if c.group == group)) for panel in panels}
        worst, mildest = max(losses, key=losses.__getitem__), min(losses, key=losses.__getitem__)
        sentences.append(
            f"After {looks_phrase(chapter.num_looks - 1)} {group.name} loses most to {worst}, {losses[worst]:.1f} points at the greatest "
            f"severity, and least to {mildest}, {losses[mildest]:.1f} points."
        )
        baselines = [other for other in groups if other.method in BASELINES and other.preset == group.preset]
        if baselines:
            ahead = [panel.title for panel in panels if _ahead(panel, group, baselines)]
            which = f" ({', '.join(ahead)})" if ahead else ""
            sentences.append(
                f"At the greatest severity its interval lies above those of all baselines under {len(ahead)} of {len(panels)} "
                f"corruptions{which}."
            )
    return " ".join(sentences)


def _ahead(panel: Panel, ours: Group, baselines: list[Group]) -> bool:
    """Whether our interval at the greatest severity lies above those of all baselines."""
    ends = {curve.group.name: curve.estimate for curve in panel.curves}
    return all(bool(ends[ours.name].low[-1] > ends[baseline.name].high[-1]) for baseline in baselines)


def _sentence_by_look(chapter: Chapter, panels: list[Panel]) -> str:
    sentences = []
    curves = panels[0].curves
    for group in [curve.group for curve in curves if curve.group.is_ours] or [curves[0].group]:
        gains = []
        for panel in panels:
            value = next(curve for curve in panel.curves if curve.group == group).estimate.value
            gains.append(f"{panel.title.split(',')[0]} {100 * float(value[-1] - value[0]):+.1f}")
        sentences.append(
            f"From the first look to {looks_phrase(chapter.num_looks - 1)} the accuracy of {group.name} at the greatest severity "
            f"changes by, in points: {', '.join(gains)}."
        )
    return " ".join(sentences)
