"""The figure of confusion matrices at the last look, over the mean image of each class (the paper's figure 10)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from jaxtyping import Float, Int, UInt8
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor

from infogaze.evaluation.classes import confusion
from infogaze.evaluation.showcase import Showcase
from infogaze.plots.scenes import framed, picture, pixels, short
from infogaze.plots.style import SHARE_COLOURS, WIDTH, house_style, line_style, titled
from infogaze.report.drawing import Cell, Drawing, Drawn, Rows
from infogaze.report.gather import OURS, Chapter, Group
from infogaze.report.missing import not_trained
from infogaze.report.words import looks_phrase, quoted, seed_counts

_WITH_NAMES = 20  # classes whose names still fit along a matrix
_STRIP = 10  # mean images side by side, where they have names; else twice as many
_COLUMNS = 4

Counts = dict[str, Int[Tensor, "classes classes"]]
"""Scenes by true class (row) and prediction (column), by the group's name."""


def by_confusion(chapter: Chapter) -> Drawn:
    """Confusion matrices of all methods at the last look, over the mean images."""
    groups = chapter.lookers
    if not groups:
        return not_trained(OURS)
    counts = {group.name: _counts(group, len(chapter.classes)) for group in groups}
    ours = next((group for group in groups if group.is_ours), groups[0])
    means = next((group.runs[0].read(Showcase).class_means for group in chapter.with_measured(Showcase)), None)
    last = looks_phrase(chapter.num_looks - 1)
    pictured, read_below = "", ""
    if means is not None:
        pictured = ", and the mean image of each class"
        read_below = (
            " Below: the mean test image of each class; where two look alike, colour alone cannot tell them apart."
        )
    worst = _worst(counts[ours.name], chapter.classes)
    confuses = f"most often {worst[0]}" if worst else "confuses no classes"
    return (
        Drawing(
            figure=_figure(chapter, groups, counts, means=means),
            sentence=f"After {last} {ours.name} {confuses}; {_overused(counts[ours.name], chapter.classes)}.",
            alt_text=f"confusion matrices of {len(groups)} methods after {last} on {chapter.data}{pictured}",
            note="A row is a true class, a column a prediction, the colour the share of the row; all seeds together."
            + read_below,
            numbers=_rows(chapter, groups, counts),
            table=_table(chapter, groups, counts),
        ),
    )


def _counts(group: Group, num_classes: int) -> Int[Tensor, "classes classes"]:
    """Scenes by true class and prediction, of all seeds together."""
    parts = [confusion(run.summary.labels, run.summary.predictions[:, -1], num_classes) for run in group.runs]
    return torch.stack(parts).sum(0)


def _shares(counts: Int[Tensor, "classes classes"]) -> Float[Tensor, "classes classes"]:
    """Each row as shares."""
    return counts / counts.sum(1, keepdim=True).clamp(min=1)


def _worst(counts: Int[Tensor, "classes classes"], classes: tuple[str, ...], count: int = 1) -> list[str]:
    """The most frequent confusions, in words."""
    shares = _shares(counts)
    wrong = shares - torch.diag(shares.diagonal())
    found = wrong.flatten().topk(min(count, wrong.numel()))
    phrases = []
    for value, index in zip(found.values.tolist(), found.indices.tolist(), strict=True):
        true, prediction = divmod(index, len(classes))
        if value > 0:
            share = f"{100 * value:.1f} % of its scenes"
            phrases.append(f"predicts {quoted(classes[prediction])} for {quoted(classes[true])} ({share})")
    return phrases


def _overused(counts: Int[Tensor, "classes classes"], classes: tuple[str, ...]) -> str:
    """The class that is predicted too often, in words."""
    ratio = counts.sum(0) / counts.sum(1).clamp(min=1)
    most = int(ratio.argmax())
    return f"it predicts {quoted(classes[most])} {float(ratio[most]):.2f} times as often as it occurs"


def _figure(
    chapter: Chapter, groups: tuple[Group, ...], counts: Counts, *, means: UInt8[Tensor, "classes C H W"] | None
) -> Figure:
    columns = min(_COLUMNS, len(groups))
    rows = math.ceil(len(groups) / columns)
    names = tuple(short(name) for name in chapter.classes) if len(chapter.classes) <= _WITH_NAMES else ()
    strip = _STRIP if names else 2 * _STRIP
    lines = 0 if means is None else math.ceil(len(means) / strip)
    matrices = (WIDTH - 1.2) / columns * rows + (0.6 if names else 0.2)
    pictures = lines * (WIDTH / strip + (0.1 if names else 0.0)) + 0.1
    with house_style():
        figure = Figure(
            figsize=(WIDTH, matrices + pictures + 0.7), layout=ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.05)
        )
        upper, lower = cast(Sequence[SubFigure], figure.subfigures(2, 1, height_ratios=[matrices, max(pictures, 0.01)]))
        cells = upper.subplots(rows, columns, squeeze=False)
        scale = PowerNorm(0.5, 0.0, 100.0)
        for index, axes in enumerate(cells.flat):
            if index >= len(groups):
                axes.axis("off")
                continue
            group = groups[index]
            drawn = axes.imshow(100 * _shares(counts[group.name]).numpy(), cmap=SHARE_COLOURS, norm=scale)
            framed(axes)
            axes.set_title(group.name, fontsize=9, color=line_style(group.method).colour)
            if index % columns == 0:
                axes.set_ylabel("true class")
                axes.set_yticks(range(len(names)), names, fontsize=7)
            if index + columns >= len(groups):
                axes.set_xlabel("prediction")
                axes.set_xticks(range(len(names)), names, fontsize=7, rotation=90)
            axes.tick_params(length=0)
        bar = upper.colorbar(drawn, ax=list(cells.flat), fraction=0.02, pad=0.01, aspect=30)
        bar.set_label("share of the true class, %")
        if means is not None:
            _draw_means(lower, means, names, columns=strip)
        titled(
            figure, f"{chapter.data}: confusion after {looks_phrase(chapter.num_looks - 1)}",
            f"{seed_counts(groups)} of each method together, {chapter.about.scenes} test scenes.",
        )  # fmt: skip
        return figure


def _draw_means(
    part: SubFigure, means: UInt8[Tensor, "classes C H W"], names: tuple[str, ...], *, columns: int
) -> None:
    """The mean image of each class in lines."""
    lines = math.ceil(len(means) / columns)
    for index, axes in enumerate(part.subplots(lines, columns, squeeze=False).flat):
        if index >= len(means):
            axes.axis("off")
            continue
        picture(axes, pixels(means[index]))
        if names:
            axes.set_xlabel(names[index], fontsize=8)


def _rows(chapter: Chapter, groups: tuple[Group, ...], counts: Counts) -> Rows:
    """Zeros are left out: with many classes they are nearly all."""
    rows: list[tuple[Cell, ...]] = [
        ("method", "preset", "true class", "prediction", "scenes", "share of the true class, %", "seeds")
    ]
    for group in groups:
        found, shares = counts[group.name], _shares(counts[group.name])
        for true, prediction in found.nonzero().tolist():
            rows.append(
                (
                    *group.kind, chapter.classes[true], chapter.classes[prediction], int(found[true, prediction]),
                    100 * float(shares[true, prediction]), len(group.runs),
                )
            )  # fmt: skip
    return tuple(rows)


def _table(chapter: Chapter, groups: tuple[Group, ...], counts: Counts) -> Rows:
    rows: list[tuple[Cell, ...]] = [("method", "most frequent confusions", "class predicted too often")]
    for group in groups:
        found = counts[group.name]
        worst = "; ".join(_worst(found, chapter.classes, 3)) or "none"
        rows.append((group.name, worst, _overused(found, chapter.classes)))
    return tuple(rows)
