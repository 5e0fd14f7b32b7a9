"""The figure of looks used against accuracy, each scene stopped by a rule, and what the calibrated rules keep of their promise."""

from __future__ import annotations

import torch
from matplotlib.axes import Axes
from torch import Tensor

from infogaze.evaluation.early_stopping import DELTA, FORMS, GAP, STOP_RULES, EarlyStopping
from infogaze.evaluation.estimates import accuracy_of_mean, mean_over_runs, share_of
from infogaze.plots.style import line_style
from infogaze.report.curves import Curve, Panel, interval_note
from infogaze.report.drawing import Cell, Drawing, Drawn, Rows
from infogaze.report.gather import Chapter, Group, once
from infogaze.report.missing import left_out_note, not_measured
from infogaze.report.panels import curve_figure
from infogaze.report.tables import numbers
from infogaze.report.words import OURS_MISSING

_TITLES = {
    "confidence": "stops when confident",
    "entropy": "stops at low entropy",
    "gain": "stops when little is left to gain",
}
_read = once(lambda run: run.read(EarlyStopping))


def by_early_stopping(chapter: Chapter) -> Drawn:
    """One panel a rule: accuracy against the mean number of looks as its threshold goes from strict to loose."""
    groups = chapter.with_measured(EarlyStopping)
    if not groups:
        return not_measured(EarlyStopping)
    panels = tuple(
        Panel(
            measure="accuracy, %",
            against="looks, mean over scenes",
            curves=curves,
            scale=100,
            title=_TITLES[rule],
        )
        for number, rule in enumerate(STOP_RULES)
        if (curves := tuple(_curve(group, number) for group in groups if _has(group, number)))
    )
    title = f"{chapter.data}: stopping early"
    figure = curve_figure(title, panels, foot=interval_note(panels[0].curves))
    for axes, panel in zip(figure.axes, panels, strict=False):
        _mark(axes, panel)
    splits = _read(groups[0].runs[0]).looks.shape[-1]
    return (
        Drawing(
            figure=figure,
            sentence=_sentence(groups),
            alt_text=f"accuracy against the mean number of looks on {chapter.data}, {len(groups)} methods, one panel a stop rule",
            note="Lines: a rule's threshold from strict to loose, the same after every look. Dotted: a fixed number of looks for all. "
            f"Stars: the calibrated rule, mean over {splits} random halves of the test scenes, tried on the other half. A scene is lost "
            "where the rule stops at a wrong prediction and all looks would have ended at the correct one. Promised: at most "
            f"{100 * GAP:g} % of the scenes are lost, with probability {100 * (1 - DELTA):g} %; or of the scenes stopped by each look. "
            "A violation is a half whose rule loses more of all test scenes, which stand for the population; the last column counts on "
            f"the other half alone, whose own chance comes on top of the promise.{left_out_note(chapter.lookers, groups)}",
            numbers=(*numbers(panels), *_rows(groups)),
            table=_table(groups),
        ),
    )


def _has(group: Group, rule: int) -> bool:
    return all(not bool(_read(run).curve_looks[rule].isnan().any()) for run in group.runs)


def _curve(group: Group, rule: int) -> Curve:
    found = [_read(run) for run in group.runs]
    scenes = [len(run.summary.labels) for run in group.runs]
    looks = torch.stack([one.curve_looks[rule] for one in found]).mean(0)
    counts = [one.curve_correct[rule] for one in found]
    if len(found) == 1:
        estimate = share_of(counts[0], scenes[0])
    else:
        estimate = mean_over_runs([count / n for count, n in zip(counts, scenes, strict=True)])
    return Curve(group=group, x=tuple(looks.tolist()), estimate=estimate)


def _by_look(group: Group) -> Tensor:
    """Accuracy after each fixed number of looks."""
    return torch.stack([run.summary.correct.double().mean(0) for run in group.runs]).mean(0)


def _mark(axes: Axes, panel: Panel) -> None:
    rule = next(number for number, name in enumerate(STOP_RULES) if _TITLES[name] == panel.title)
    for curve in panel.curves:
        style, fixed = line_style(curve.group.method), _by_look(curve.group)
        axes.plot(
            range(1, len(fixed) + 1), 100 * fixed, color=style.colour, linestyle=":", linewidth=1.1, marker="o", markersize=2.2,
            label=f"fixed number of looks, {curve.group.name}",
        )  # fmt: skip
        looks, accuracy = (_mean(curve.group, name, rule=rule, form=0) for name in ("looks", "accuracy"))
        axes.plot(
            [looks], [100 * accuracy], marker="*", markersize=11, color=style.colour, markeredgecolor="white", zorder=5,
            label=f"calibrated, {curve.group.name}",
        )  # fmt: skip


def _mean(group: Group, name: str, *, rule: int, form: int) -> float:
    """The mean over splits and runs."""
    return float(torch.stack([getattr(_read(run), name)[rule, form] for run in group.runs]).mean())


def _violations(group: Group, name: str, *, rule: int, form: int) -> float:
    """The share of splits that lose more than the gap; of several runs the largest."""
    return max(float(getattr(_read(run), name)[rule, form].double().mean()) for run in group.runs)


_HEAD = (
    "method",
    "rule",
    "gap is a share",
    "looks",
    "accuracy, %",
    "all looks, %",
    "fixed number of same mean, %",
    "violations, %",
    "violations on the other half, %",
)


def _results(groups: tuple[Group, ...]) -> list[tuple[Group, str, str, tuple[float, ...]]]:
    found: list[tuple[Group, str, str, tuple[float, ...]]] = []
    for group in groups:
        for rule, name in enumerate(STOP_RULES):
            if not _has(group, rule):
                continue
            for form, share in enumerate(FORMS):
                looks = _mean(group, "looks", rule=rule, form=form)
                shares = (
                    _mean(group, "accuracy", rule=rule, form=form),
                    _mean(group, "full", rule=rule, form=form),
                    accuracy_of_mean(_by_look(group), looks),
                    _violations(group, "broken", rule=rule, form=form),
                    _violations(group, "broken_on_half", rule=rule, form=form),
                )
                found.append((group, name, share, (looks, *(100 * value for value in shares))))
    return found


def _table(groups: tuple[Group, ...]) -> Rows:
    rows: list[tuple[Cell, ...]] = [_HEAD]
    for group, rule, share, (looks, *percents) in _results(groups):
        rows.append((group.name, rule, share, f"{looks:.2f}", *(f"{value:.1f}" for value in percents)))
    return tuple(rows)


def _rows(groups: tuple[Group, ...]) -> Rows:
    """The same in the columns of the curves."""
    rows: list[tuple[Cell, ...]] = []
    for group, rule, share, values in _results(groups):
        for what, value in zip(_HEAD[3:], values, strict=True):
            rows.append(
                (f"calibrated {rule}, gap {share}: {what}", *group.kind, "", value, "", "", len(group.runs), "seeds")
            )
    return tuple(rows)


def _sentence(groups: tuple[Group, ...]) -> str:
    sentences = []
    for group in groups:
        if not group.is_ours:
            continue
        found = [(values, rule) for of, rule, share, values in _results((group,)) if share == FORMS[0]]
        (looks, accuracy, full, fixed, violations, _), rule = min(found)
        sentences.append(
            f"Calibrated to lose at most {100 * GAP:g} % of the scenes, {group.name} takes {looks:.1f} looks on average by {rule}, with "
            f"accuracy {accuracy:.1f} % against {full:.1f} % after all looks and {fixed:.1f} % with a fixed number of the same mean; "
            f"{violations:.1f} % of the splits broke the promise, which allows {100 * DELTA:g} %."
        )
    return " ".join(sentences) or OURS_MISSING
