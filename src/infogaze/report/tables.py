"""The numbers behind curves: all of them for a CSV, and a table to read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from infogaze.evaluation.estimates import Estimate
from infogaze.report.curves import Panel
from infogaze.report.drawing import Cell, Rows

_CELLS = 14  # columns of a table that can still be read


def numbers(panels: Sequence[Panel]) -> Rows:
    """All that the panels show, a row a point."""
    alike = len({panel.against for panel in panels}) == 1
    head = ("measure", "method", "preset", panels[0].against if alike else "severity", "value", "low", "high", "n")
    rows: list[tuple[Cell, ...]] = [(*head, "interval over")]
    for panel in panels:
        measure = _measure(panel)
        for curve in panel.curves:
            estimate = curve.estimate
            for index, x in enumerate(curve.x):
                value, low, high = (
                    panel.scale * float(part[index]) for part in (estimate.value, estimate.low, estimate.high)
                )
                n = curve.counts[index] if curve.counts else estimate.n
                rows.append((measure, *curve.group.kind, x, value, low, high, n, estimate.unit))
        for level in panel.levels:
            rows.append((measure, level.name, "", "", panel.scale * level.value, "", "", "", ""))
    return tuple(rows)


def table(panels: Sequence[Panel]) -> Rows:
    """The panels' numbers for reading: a row a curve, a column a value of the horizontal axis."""
    several = len(panels) > 1
    # Panels against different things have in common that they go from none to the greatest severity; the values are in the rows' names.
    by_level = len({panel.against for panel in panels}) > 1
    if by_level:
        xs = [float(level) for level in range(len(panels[0].curves[0].x))]
        head: tuple[str, ...] = ("severity", "none", *(f"level {x:g}" for x in xs[1:]), "n")
    else:
        xs = sorted({x for panel in panels for curve in panel.curves for x in curve.x})
        if len(xs) > _CELLS:
            xs = [xs[index] for index in np.linspace(0, len(xs) - 1, _CELLS).round().astype(int)]
        head = (panels[0].against, *(f"{x:g}" for x in xs), "n")
    rows: list[tuple[Cell, ...]] = [head]
    for panel in panels:
        digits = 1 if panel.scale == 100 else 3
        what = f", {_severities(panel) if by_level else _measure(panel)}" if several else ""
        for curve in panel.curves:
            at = {x: index for index, x in enumerate(xs if by_level else curve.x)}
            cells = [_cell(curve.estimate, at[x], panel.scale, digits=digits) if x in at else "" for x in xs]
            count = f"{min(curve.counts)} to {max(curve.counts)}" if curve.counts else f"{curve.estimate.n}"
            unit = curve.estimate.unit if curve.estimate.n > 1 else "seed"
            rows.append((f"{curve.group.name}{what}", *cells, f"{count} {unit}"))
        for level in panel.levels:
            shown = f"{panel.scale * level.value:.{digits}f}"
            rows.append((f"{level.name}{what}", *[shown] * len(xs), ""))
    return tuple(rows)


def _severities(panel: Panel) -> str:
    return f"{panel.against} {', '.join(f'{x:g}' for x in panel.curves[0].x)}"


def _measure(panel: Panel) -> str:
    return f"{panel.title}: {panel.measure}" if panel.title else panel.measure


def _cell(estimate: Estimate, index: int, scale: float, *, digits: int) -> str:
    """One number with its interval, as in `71.5 [70.9, 72.1]`."""
    value, low, high = (scale * float(part[index]) for part in (estimate.value, estimate.low, estimate.high))
    if (estimate.n, estimate.unit) == (1, "seeds"):
        return f"{value:.{digits}f}"
    if scale == 100:
        low, high = max(low, 0.0), min(high, 100.0)  # Student's interval does not know that a share ends there
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
