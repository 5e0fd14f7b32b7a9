"""The figures of where each policy looks: the density by look, how spread it is, and how much it depends on what was seen."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor

from infogaze.evaluation.estimates import Estimate, mean_over_runs
from infogaze.evaluation.places import density, dependence, visit_entropy
from infogaze.plots.scenes import framed
from infogaze.plots.style import SHARE_COLOURS, WIDTH, house_style, line_style, titled
from infogaze.report.curves import Curve, Level, Panel, interval_note, look_numbers
from infogaze.report.drawing import Cell, Drawing, Drawn, Rows
from infogaze.report.gather import OURS, Chapter, Group
from infogaze.report.missing import not_trained
from infogaze.report.panels import curve_figure
from infogaze.report.tables import numbers, table
from infogaze.report.words import reported_looks, seed_counts

Maps = dict[str, Float[Tensor, "T rows cols"]]
"""The share of scenes that looked at each place at each look, by the group's name."""


def by_places(chapter: Chapter) -> Drawn:
    """Maps of where each method looks at each look, and two numbers about them by look."""
    groups = chapter.lookers
    if not groups:
        return not_trained(OURS)
    grid = chapter.grid
    maps = {
        group.name: torch.stack([density(run.summary.locations, grid) for run in group.runs]).mean(0)
        for group in groups
    }
    spread, depends = panels = _panels(chapter, groups)
    title = f"{chapter.data}: how spread the looks are, and what they depend on"
    return (
        Drawing(
            figure=_figure(chapter, groups, maps),
            sentence=_maps_sentence(chapter, groups, maps),
            alt_text=f"share of scenes looked at in each place on {chapter.data}, {len(groups)} methods, a row each and a column a look",
            note="Each map is the scene; a place is where a glimpse may be, and the colour is the share of scenes it was looked at. The "
            "first look is random for all.",
            numbers=_rows(groups, maps),
        ),
        Drawing(
            figure=curve_figure(title, panels, foot=interval_note(spread.curves)),
            sentence=_spread_sentence(chapter, spread.curves, depends.curves),
            alt_text=f"entropy of the places visited, and mutual information between place and label, by look on {chapter.data}",
            note="Left: low where all scenes are looked at alike, as by a policy that fell into a corner. Right: the mutual information "
            "between the place and the true label. The policy never sees the label, so this is what its looks so far revealed; it is "
            "zero, up to chance, for a policy that ignores what it saw.",
            numbers=numbers(panels),
            table=table(panels),
        ),
    )


def _panels(chapter: Chapter, groups: tuple[Group, ...]) -> tuple[Panel, Panel]:
    """How spread the looks are, and how much they depend on the label."""
    grid, looks = chapter.grid, look_numbers(chapter.num_looks)
    spreads, dependences = [], []
    for group in groups:
        entropies = [visit_entropy(run.summary.locations, grid) for run in group.runs]
        shared = [dependence(run.summary.locations, run.summary.labels, grid) for run in group.runs]
        spreads.append(Curve(group=group, x=looks, estimate=mean_over_runs(entropies)))
        dependences.append(Curve(group=group, x=looks, estimate=mean_over_runs(shared)))
    spread = Panel(
        measure="entropy of the places visited, nats",
        against="look t",
        curves=tuple(spreads),
        levels=(Level("all places alike", math.log(grid.num_locations)),),
    )
    depends = Panel(measure="mutual information of place and label, nats", against="look t", curves=tuple(dependences))
    return spread, depends


def _figure(chapter: Chapter, groups: tuple[Group, ...], maps: Maps) -> Figure:
    cell = (WIDTH - 2.0) / chapter.num_looks
    # One scale for all; the square root keeps rare places visible.
    scale = PowerNorm(0.5, 0.0, 100 * max(float(values.max()) for values in maps.values()))
    with house_style():
        figure = Figure(
            figsize=(WIDTH, cell * chapter.grid.rows / chapter.grid.cols * len(groups) + 1.0),
            layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.045, wspace=0.02, hspace=0.0, compress=True),
        )
        cells = figure.subplots(len(groups), chapter.num_looks, squeeze=False)
        for line, (row, group) in enumerate(zip(cells, groups, strict=True)):
            for look, axes in enumerate(row):
                drawn = axes.imshow(100 * maps[group.name][look].numpy(), cmap=SHARE_COLOURS, norm=scale)
                framed(axes)
                if line == 0:
                    axes.set_title(f"t = {look}", fontsize=9)
            name, colour = group.name.replace(" (", "\n("), line_style(group.method).colour
            row[0].set_ylabel(name, rotation=0, ha="right", va="center", color=colour)
        bar = figure.colorbar(drawn, ax=list(cells.flat), fraction=0.025, pad=0.01, aspect=25)
        bar.set_label("scenes looked at here, %")
        mean = "Mean of " if any(len(group.runs) > 1 for group in groups) else ""
        foot = f"{mean}{seed_counts(groups)}, {chapter.about.scenes} test scenes."
        titled(figure, f"{chapter.data}: where each policy looks", foot)
        return figure


def _maps_sentence(chapter: Chapter, groups: tuple[Group, ...], maps: Maps) -> str:
    group = next((group for group in groups if group.is_ours), groups[0])
    look = min(1, chapter.num_looks - 1)
    values = maps[group.name][look]
    row, col = divmod(int(values.argmax()), chapter.grid.cols)
    half = int((values.flatten().sort(descending=True).values.cumsum(0) < 0.5).sum()) + 1
    return (
        f"At look t={look} {group.name} goes most often to row {row + 1}, column {col + 1} of the "
        f"{chapter.grid.rows}x{chapter.grid.cols} places ({100 * float(values.max()):.0f} % of scenes); {half} of the "
        f"{chapter.grid.num_locations} places take half of its looks."
    )


def _spread_sentence(chapter: Chapter, spreads: tuple[Curve, ...], dependences: tuple[Curve, ...]) -> str:
    sentences = []
    chosen = [index for index, curve in enumerate(spreads) if curve.group.is_ours] or [0]
    looks = reported_looks(chapter.num_looks)
    for index in chosen:
        spread, depends = spreads[index], dependences[index].estimate
        share = 100 * spread.estimate.value / math.log(chapter.grid.num_locations)
        entropies = " and ".join(f"{float(share[look]):.0f} % at t={look}" for look in looks)
        shared = " and ".join(_shared_phrase(depends, look) for look in looks)
        seeds = " (1 seed)" if depends.n == 1 else ""
        sentences.append(
            f"The entropy of the places that {spread.group.name} looks at is {entropies} of the largest there can be; place and label "
            f"share {shared}{seeds}."
        )
    return " ".join(sentences)


def _shared_phrase(estimate: Estimate, look: int) -> str:
    value, low, high = (float(part[look]) for part in (estimate.value, estimate.low, estimate.high))
    doubt = " (not to be told from none by these runs)" if estimate.n > 1 and low <= 0 <= high else ""
    return f"{value:.2f} nats at t={look}{doubt}"


def _rows(groups: tuple[Group, ...], maps: Maps) -> Rows:
    rows: list[tuple[Cell, ...]] = [
        ("method", "preset", "look t", "row", "column", "scenes looked at here, %", "seeds")
    ]
    for group in groups:
        for look, values in enumerate(maps[group.name]):
            for row, line in enumerate(values.tolist()):
                for col, value in enumerate(line):
                    rows.append((*group.kind, look, row, col, 100 * value, len(group.runs)))
    return tuple(rows)
