"""The figure of which class is taken for which at the last look, and the mean image of each class (the paper's figure 10)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor

from infogaze.evaluation.confusion import confusion
from infogaze.evaluation.records import Showcase
from infogaze.plots.scenes import framed, picture, pixels, short
from infogaze.plots.style import SHARE_COLOURS, WIDTH, hand, house_style, titled
from infogaze.report.drawing import Drawing, Drawn, Rows
from infogaze.report.gather import OURS, Chapter, Group
from infogaze.report.missing import not_trained
from infogaze.report.words import looks_said, quoted, seed_counts

_NAMED = 20  # classes whose names still fit along a matrix
_STRIP = 10  # mean images side by side, where they have names; else twice as many
_COLUMNS = 4


def by_confusion(chapter: Chapter) -> Drawn:
    """Confusion matrices of all methods at the last look, over the mean images."""
    groups = chapter.lookers
    if not groups:
        return not_trained(OURS)
    counts = {group.name: _counts(group, len(chapter.classes)) for group in groups}
    ours = next((group for group in groups if group.method == OURS), groups[0])
    means = next((group.runs[0].read(Showcase).class_means for group in chapter.with_measured(Showcase)), None)
    last = looks_said(chapter.looks - 1)
    return (
        Drawing(
            _figure(chapter, groups, counts, means),
            f"After {last} {ours.name} most often {_worst(counts[ours.name], chapter.classes)[0]}; "
            f"{_overused(counts[ours.name], chapter.classes)}.",
            f"confusion matrices of {len(groups)} methods after {last} on {chapter.data}"
            + ("" if means is None else ", and the mean image of each class"),
            "A row is a true class, a column what it was named, the colour the share of the row; all seeds together."
            + (
                ""
                if means is None
                else " Below: the mean test image of each class; where two look alike, colour alone cannot tell them apart."
            ),
            _rows(chapter, groups, counts),
            _table(chapter, groups, counts),
        ),
    )


def _counts(group: Group, classes: int) -> Tensor:
    """Scenes by true and named class, [classes, classes], of all seeds together."""
    parts = [confusion(run.summary.labels, run.summary.named[:, -1], classes) for run in group.runs]
    return torch.stack(parts).sum(0)


def _shares(counts: Tensor) -> Tensor:
    """Each row as shares."""
    return counts / counts.sum(1, keepdim=True).clamp(min=1)


def _worst(counts: Tensor, classes: tuple[str, ...], count: int = 1) -> list[str]:
    """The most frequent confusions, in words."""
    shares = _shares(counts)
    off = shares - torch.diag(shares.diagonal())
    found = off.flatten().topk(min(count, off.numel()))
    return [
        f"takes {quoted(classes[place // len(classes)])} for {quoted(classes[place % len(classes)])} ({100 * value:.1f} % of them)"
        for value, place in zip(found.values.tolist(), found.indices.tolist(), strict=True)
        if value > 0
    ] or ["is right"]


def _overused(counts: Tensor, classes: tuple[str, ...]) -> str:
    """The label that is named too often, in words."""
    ratio = counts.sum(0) / counts.sum(1).clamp(min=1)
    most = int(ratio.argmax())
    return f"it names {quoted(classes[most])} {float(ratio[most]):.2f} times as often as there are"


def _figure(chapter: Chapter, groups: tuple[Group, ...], counts: dict[str, Tensor], means: Tensor | None) -> Figure:
    columns = min(_COLUMNS, len(groups))
    rows = math.ceil(len(groups) / columns)
    names = tuple(short(name) for name in chapter.classes) if len(chapter.classes) <= _NAMED else ()
    strip = _STRIP if names else 2 * _STRIP
    lines = 0 if means is None else math.ceil(len(means) / strip)
    matrices, pictures = (
        (WIDTH - 1.2) / columns * rows + (0.6 if names else 0.2),
        lines * (WIDTH / strip + (0.1 if names else 0.0)) + 0.1,
    )
    with house_style():
        figure = Figure(
            figsize=(WIDTH, matrices + pictures + 0.7), layout=ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.05)
        )
        upper, lower = cast(Sequence[SubFigure], figure.subfigures(2, 1, height_ratios=[matrices, max(pictures, 0.01)]))
        cells = upper.subplots(rows, columns, squeeze=False)
        scale = PowerNorm(0.5, 0.0, 100.0)
        for place, axes in enumerate(cells.flat):
            if place >= len(groups):
                axes.axis("off")
                continue
            group = groups[place]
            drawn = axes.imshow(100 * _shares(counts[group.name]).numpy(), cmap=SHARE_COLOURS, norm=scale)
            framed(axes)
            axes.set_title(group.name, fontsize=9, color=hand(group.method).colour)
            if place % columns == 0:
                axes.set_ylabel("true class")
                axes.set_yticks(range(len(names)), names, fontsize=7)
            if place + columns >= len(groups):
                axes.set_xlabel("named")
                axes.set_xticks(range(len(names)), names, fontsize=7, rotation=90)
            axes.tick_params(length=0)
        bar = upper.colorbar(drawn, ax=list(cells.flat), fraction=0.02, pad=0.01, aspect=30)
        bar.set_label("share of the true class, %")
        if means is not None:
            _strip(lower, means, names, lines, strip)
        titled(
            figure, f"{chapter.data}: what is taken for what after {looks_said(chapter.looks - 1)}",
            f"{seed_counts(groups)} of each method together, {chapter.about.scenes} test scenes.",
        )  # fmt: skip
        return figure


def _strip(part: SubFigure, means: Tensor, names: tuple[str, ...], lines: int, strip: int) -> None:
    """The mean image of each class in lines."""
    for place, axes in enumerate(part.subplots(lines, strip, squeeze=False).flat):
        if place >= len(means):
            axes.axis("off")
            continue
        picture(axes, pixels(means[place]))
        if names:
            axes.set_xlabel(names[place], fontsize=8)


def _rows(chapter: Chapter, groups: tuple[Group, ...], counts: dict[str, Tensor]) -> Rows:
    """Zeros are left out: with many classes they are nearly all."""
    rows: list[tuple[str | int | float, ...]] = [
        ("method", "preset", "true class", "named", "scenes", "share of the true class, %", "seeds")
    ]
    for group in groups:
        found, shares = counts[group.name], _shares(counts[group.name])
        for true, named in found.nonzero().tolist():
            said = (
                chapter.classes[true],
                chapter.classes[named],
                int(found[true, named]),
                100 * float(shares[true, named]),
            )
            rows.append((*group.kind, *said, len(group.runs)))
    return tuple(rows)


def _table(chapter: Chapter, groups: tuple[Group, ...], counts: dict[str, Tensor]) -> Rows:
    rows: list[tuple[str | int | float, ...]] = [("method", "most frequent confusions", "most over-used label")]
    for group in groups:
        found = counts[group.name]
        rows.append((group.name, "; ".join(_worst(found, chapter.classes, 3)), _overused(found, chapter.classes)))
    return tuple(rows)
