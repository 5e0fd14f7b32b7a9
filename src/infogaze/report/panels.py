"""Axes with curves in them: lines, intervals, reference lines, and names at their ends without overlaps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.text import Annotation, Text
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import Bbox
from sklearn.isotonic import isotonic_regression
from torch import Tensor

from infogaze.evaluation.estimates import Estimate
from infogaze.plots.style import WIDTH, LineStyle, house_style, line_style, titled
from infogaze.report.curves import Curve, Level, Panel

_LINE = 0.165  # inches between the names at the ends of two curves
_LONG = 18  # letters of a name that goes into one line
_SOFT = "#5c6874"  # of what explains
_NEAR = 0.5  # a reference line is drawn where it widens the axis by no more than this share on its side; else it is named at the edge
_GAP = 3.2  # points from a reference line to its name
_CLEAR = 2.4  # points around that name which stay free: a marker's radius
_Side = Literal["right", "left", "center"]
_ALONG: dict[_Side, float] = {"right": 1.0, "left": 0.0, "center": 0.5}  # where along the line, the best first


def curve_figure(title: str, panels: Sequence[Panel], *, foot: str, columns: int = 2) -> Figure:
    """The panels in rows. Up to two have the names at the ends of their curves; more of them, or too many curves, share one legend.

    Curves that end at different places cannot be compared there: a legend has their values at one place.
    """
    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    width, height = (6.6 if len(panels) == 1 else WIDTH), (4.2 if rows == 1 else 2.55 * rows + 0.8)
    with house_style():
        figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06, wspace=0.04))
        cells = [figure.add_subplot(rows, columns, index + 1) for index in range(len(panels))]
        for axes, panel in zip(cells, panels, strict=True):
            draw(axes, panel)
        room = height - 1.15  # about how high the axes of a single row are
        if len(panels) <= 2 and all(_fit(panel, room) for panel in panels):
            for axes, panel in zip(cells, panels, strict=True):
                label_ends(axes, panel, room)
        elif len(panels) == 1 and panels[0].read_at is not None:
            cells[0].axvline(panels[0].read_at, color=_SOFT, linewidth=0.8, linestyle=":", zorder=1)
            handles, names = _read_off(panels[0], panels[0].read_at)
            figure.legend(
                handles, names, title="at the dotted line", loc="outside right center", alignment="left", frameon=False, handlelength=3
            )  # fmt: skip
        elif len(panels) < rows * columns:
            free = figure.add_subplot(rows, columns, rows * columns)
            free.axis("off")
            free.legend(handles=legend_handles(panels), loc="center left", frameon=False, handlelength=3)
        else:
            figure.legend(handles=legend_handles(panels), loc="outside right center", frameon=False, handlelength=3)
        titled(figure, title, foot)
        if any(panel.levels for panel in panels):
            figure.draw_without_rendering()  # so that it is known where everything is
        for axes, panel in zip(cells, panels, strict=True):
            _name_levels(axes, panel)
        return figure


def draw(axes: Axes, panel: Panel) -> None:
    """The panel's curves, each a line with markers in a band that is its interval, and its reference lines."""
    # Ours last, so that it lies on top.
    for curve in reversed(panel.curves):
        style = line_style(curve.group.method)
        value, low, high = (panel.scale * part.numpy() for part in _parts(curve.estimate))
        axes.fill_between(curve.x, low, high, color=style.colour, alpha=0.16, linewidth=0)
        axes.plot(
            curve.x, value, color=style.colour, marker=style.marker, linestyle=style.dash, linewidth=style.width,
            markersize=0 if len(curve.x) > 20 else 4.5, label=curve.group.name, markerfacecolor=_face(curve, panel),
        )  # fmt: skip
    axes.set(xlabel=panel.against, ylabel=panel.measure)
    axes.set_title(panel.title, fontsize=9, loc="left")
    axes.grid(axis="y")
    ticks = sorted({x for curve in panel.curves for x in curve.x})
    if panel.log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticklabels([f"{tick:g}" for tick in ticks])
    elif all(tick == int(tick) for tick in ticks):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if panel.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_locator(NullLocator())
    _levels(axes, panel)


def label_ends(axes: Axes, panel: Panel, inches: float) -> None:
    """Write value and name at the end of each curve, moved apart where curves end close to each other.

    `inches` is about how high the axes are.
    """
    low, high = axes.get_ylim()
    digits = 1 if panel.scale == 100 else 2
    line = _LINE * (high - low) / inches
    curves = sorted(panel.curves, key=lambda curve: float(curve.estimate.value[-1]))
    names = [_broken(curve.group.name) for curve in curves]
    values = [panel.scale * float(curve.estimate.value[-1]) for curve in curves]
    heights = [line * (name.count("\n") + 1) for name in names]
    middles = spread_labels(values, heights, low=low, high=high)
    for curve, name, value, middle in zip(curves, names, values, middles, strict=True):
        style = line_style(curve.group.method)
        shown = round(value, digits) + 0.0  # no minus before a zero
        axes.annotate(
            f"{shown:.{digits}f} {name}", (curve.x[-1], value), xytext=(1.03, middle), textcoords=("axes fraction", "data"),
            color=style.colour, fontsize=8.5, va="center", fontweight="bold" if style.width > 2 else "normal",
            annotation_clip=False, linespacing=0.95,
            arrowprops={"arrowstyle": "-", "color": style.colour, "linewidth": 0.5, "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)},
        )  # fmt: skip


def _broken(name: str) -> str:
    """A long name in two lines."""
    return name.replace(" (", "\n(") if len(name) > _LONG else name


def _fit(panel: Panel, inches: float) -> bool:
    """Whether the names of all curves can stand at their ends, in the order of what they reach."""
    if len({curve.x[-1] for curve in panel.curves}) > 1:
        return False
    return _LINE * sum(_broken(curve.group.name).count("\n") + 1 for curve in panel.curves) <= inches


def spread_labels(wanted: Sequence[float], heights: Sequence[float], *, low: float, high: float) -> list[float]:
    """Middles of labels of these heights, as near as can be to the wanted ones (in rising order), in order and not overlapping."""
    steps = np.array([0.0, *((a + b) / 2 for a, b in pairwise(heights))]).cumsum()
    top = max(high - float(steps[-1]), low)
    return list(isotonic_regression(np.array(wanted) - steps, y_min=low, y_max=top) + steps)


def legend_handles(panels: Sequence[Panel]) -> list[Line2D]:
    """What a legend shows: each curve and each reference line once."""
    found: dict[str, Line2D] = {}
    for panel in panels:
        for curve in panel.curves:
            name, style = curve.group.name, line_style(curve.group.method)
            found[name] = _handle(name, style, _face(curve, panel))
        for level in _near(panel):
            found.setdefault(level.name, _handle(level.name, level.style, level.style.colour))
    return list(found.values())


def _read_off(panel: Panel, x: float) -> tuple[list[Line2D], list[str]]:
    """A legend's lines and words: each curve with its value at this place, the highest first; last those that are not measured there."""
    values = {
        curve.group.name: panel.scale * float(curve.estimate.value[curve.x.index(x)])
        for curve in panel.curves
        if x in curve.x
    }
    ordered = sorted(panel.curves, key=lambda curve: -values.get(curve.group.name, -math.inf))
    handles = [_handle(curve.group.name, line_style(curve.group.method), _face(curve, panel)) for curve in ordered]
    names = [curve.group.name for curve in ordered]
    digits = 1 if panel.scale == 100 else 2
    return handles, [_broken(f"{values[name]:.{digits}f} {name}" if name in values else name) for name in names]


def _handle(name: str, style: LineStyle, face: str) -> Line2D:
    return Line2D(
        [], [], color=style.colour, marker=style.marker, linestyle=style.dash, linewidth=style.width, markersize=4.5,
        markerfacecolor=face, label=name,
    )  # fmt: skip


def _face(curve: Curve, panel: Panel) -> str:
    """The colour inside a curve's markers: its own with the preset of the panel's first curve, white with any other."""
    same = curve.group.preset == panel.curves[0].group.preset
    return line_style(curve.group.method).colour if same else "white"


def _parts(estimate: Estimate) -> tuple[Tensor, Tensor, Tensor]:
    return estimate.value, estimate.low, estimate.high


def _range(panel: Panel) -> tuple[float, float]:
    """From the lowest to the highest of all curves and their intervals, as the axis counts; shares end at 0 and 100 %."""
    parts = [panel.scale * part for curve in panel.curves for part in _parts(curve.estimate)]
    least, most = min(float(part.min()) for part in parts), max(float(part.max()) for part in parts)
    return (max(least, 0.0), min(most, 100.0)) if panel.scale == 100 else (least, most)


def _near(panel: Panel) -> list[Level]:
    """The reference lines that can be drawn. One far from all curves would press these flat."""
    least, most = _range(panel)
    room = _NEAR * (most - least)
    return [level for level in panel.levels if least - room <= panel.scale * level.value <= most + room]


def _levels(axes: Axes, panel: Panel) -> None:
    """The reference lines, and the limits of the axis that follow from them."""
    near = _near(panel)
    if not panel.log_y:
        least, most = _range(panel)
        values = [panel.scale * level.value for level in near]
        least, most = min([least, *values]), max([most, *values])
        room = 0.06 * max(most - least, 1e-3)
        axes.set_ylim(0.0 if 0 <= least < room else least - room, most + 1.4 * room)
    for level in near:
        axes.axhline(
            panel.scale * level.value, color=level.style.colour, linewidth=level.style.width, linestyle=level.style.dash, zorder=1
        )  # fmt: skip


def _name_levels(axes: Axes, panel: Panel) -> None:
    """Name each reference line, and at the axis's end each that lies beyond it."""
    near = _near(panel)
    low, high = axes.get_ylim()
    for level in sorted(panel.levels, key=lambda level: -level.value):
        value = panel.scale * level.value
        name = f"{level.name}: {value:.1f} %" if panel.scale == 100 else f"{level.name}: {value:.2f}"
        if level not in near:
            name += ", below the axis" if value < low else ", above the axis"
        _write_at(axes, name, min(max(value, low), high))


def _write_at(axes: Axes, text: str, height: float) -> None:
    """Write close above or below a horizontal line where nothing else is covered; if it is everywhere, nearby with a stroke to the line."""
    trial = axes.text(0, 0, text, fontsize=8)
    size = trial.get_window_extent()
    trial.remove()
    point = axes.figure.dpi / 72
    room = axes.get_window_extent().padded(-4 * point, -point)
    line = float(axes.transData.transform((axes.get_xlim()[0], height))[1])
    spots = [
        (away, side, Bbox.from_bounds(room.x0 + share * (room.width - size.width), y, size.width, size.height))
        for away in range(math.ceil(room.height / size.height))
        for y in (line + _GAP * point + away * size.height, line - _GAP * point - (away + 1) * size.height)
        for side, share in _ALONG.items()
        if y >= room.y0 and y + size.height <= room.y1
    ]
    lines, bands, texts = _drawn(axes)

    def covered(away: int, box: Bbox) -> tuple[int, int, int]:
        """How many curves and texts would be covered here, how far away it is, how many intervals would be covered."""
        wide = box.padded(_CLEAR * point)
        crossed = [
            path for path in lines if path.intersects_bbox(wide, filled=False) or wide.count_contains(path.vertices)
        ]
        written = [other for other in texts if wide.overlaps(other)]
        return len(crossed) + len(written), away, len([path for path in bands if path.intersects_bbox(wide)])

    away, side, box = min(spots, key=lambda spot: covered(spot[0], spot[2]))
    x, y = axes.transAxes.inverted().transform((box.x0 + _ALONG[side] * box.width, box.y0))
    axes.annotate(
        text, (x, height), xycoords=("axes fraction", "data"), xytext=(x, y), textcoords="axes fraction", ha=side, va="bottom",
        color=_SOFT, fontsize=8, zorder=1.8, bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8},
        arrowprops={"arrowstyle": "-", "color": _SOFT, "linewidth": 0.5, "relpos": (_ALONG[side], 0.5)} if away else None,
    )  # fmt: skip


def _drawn(axes: Axes) -> tuple[list[Path], list[Path], list[Bbox]]:
    """What lies on the axes, in pixels: lines, with those that lead to a name; intervals; texts."""
    lines = [line.get_transform().transform_path(line.get_path()) for line in axes.lines]
    notes = [note for note in axes.texts if isinstance(note, Annotation)]
    lines += [note.arrow_patch.get_path() for note in notes if note.arrow_patch is not None]
    bands = [part.get_transform().transform_path(path) for part in axes.collections for path in part.get_paths()]
    return lines, bands, [Text.get_window_extent(note) for note in axes.texts]
