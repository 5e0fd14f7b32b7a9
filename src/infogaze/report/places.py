"""The figures of where each policy looks: the density by look, how spread it is, and how much it depends on what was seen."""

from __future__ import annotations

import math

import torch
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor

from infogaze.evaluation.accuracy import Estimate, mean_over_runs
from infogaze.evaluation.places import density, dependence, visited_entropy
from infogaze.plots.style import EDGE, QUIET, SHARE_COLOURS, WIDTH, Hand, hand, house_style, titled
from infogaze.report.curves import Curve, Level, Panel, behind, looks
from infogaze.report.drawing import Drawing, Drawn, Rows
from infogaze.report.gather import OURS, Chapter, Group
from infogaze.report.missing import not_trained
from infogaze.report.panels import curve_figure
from infogaze.report.tables import numbers, table
from infogaze.report.words import seed_counts, told_looks


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
    at = looks(chapter.looks)
    spread = Panel(
        "entropy of the places visited, nats",
        "look t",
        tuple(
            Curve(group, at, mean_over_runs([visited_entropy(run.summary.locations, grid) for run in group.runs]))
            for group in groups
        ),
        (Level("all places alike", math.log(grid.places), Hand(QUIET, "", dash=":", width=1.2)),),
    )
    depends = Panel(
        "mutual information of place and label, nats",
        "look t",
        tuple(
            Curve(
                group,
                at,
                mean_over_runs([dependence(run.summary.locations, run.summary.labels, grid) for run in group.runs]),
            )
            for group in groups
        ),
    )
    panels = (spread, depends)
    return (
        Drawing(
            _maps(chapter, groups, maps),
            _maps_sentence(chapter, groups, maps),
            f"share of scenes looked at in each place, a row for each of {len(groups)} methods and a column a look, on {chapter.data}",
            "Each map is the scene; a place is where a glimpse may be, and the colour is the share of scenes it was looked at. The first "
            "look is random for all.",
            _rows(chapter, groups, maps),
            (),
        ),
        Drawing(
            curve_figure(
                f"{chapter.data}: how spread the looks are, and what they depend on", panels, behind(spread.curves)
            ),
            _spread_sentence(chapter, spread.curves, depends.curves),
            f"entropy of the places visited, and mutual information between place and label, by look on {chapter.data}",
            "Left: low where all scenes are looked at alike, as by a policy that fell into a corner. Right: the mutual information "
            "between the place and the true label. The policy never sees the label, so this is what its looks so far tell it; zero for "
            "a policy that does not care what it saw, up to chance.",
            numbers(panels),
            table(panels),
        ),
    )


def _maps(chapter: Chapter, groups: tuple[Group, ...], maps: dict[str, Tensor]) -> Figure:
    cell = (WIDTH - 2.0) / chapter.looks
    # One scale for all; the square root keeps rare places visible.
    top = 100 * max(float(values.max()) for values in maps.values())
    scale = PowerNorm(0.5, 0.0, top)
    with house_style():
        figure = Figure(
            figsize=(WIDTH, cell * chapter.grid.rows / chapter.grid.cols * len(groups) + 1.0),
            layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.045, wspace=0.02, hspace=0.0, compress=True),
        )
        cells = figure.subplots(len(groups), chapter.looks, squeeze=False)
        for line, (row, group) in enumerate(zip(cells, groups, strict=True)):
            for look, axes in enumerate(row):
                drawn = axes.imshow(100 * maps[group.name][look].numpy(), cmap=SHARE_COLOURS, norm=scale)
                axes.set(xticks=[], yticks=[])
                for side in axes.spines.values():
                    side.set(visible=True, color=EDGE, linewidth=0.6)
                if line == 0:
                    axes.set_title(f"t = {look}", fontsize=9)
            row[0].set_ylabel(
                group.name.replace(" (", "\n("), rotation=0, ha="right", va="center", color=hand(group.method).colour
            )
        bar = figure.colorbar(drawn, ax=list(cells.flat), fraction=0.025, pad=0.01, aspect=25)
        bar.set_label("scenes looked at here, %")
        mean = "Mean of " if any(len(group.runs) > 1 for group in groups) else ""
        titled(
            figure, f"{chapter.data}: where each policy looks",
            f"{mean}{seed_counts(groups)}, {chapter.about.scenes} test scenes.",
        )  # fmt: skip
        return figure


def _maps_sentence(chapter: Chapter, groups: tuple[Group, ...], maps: dict[str, Tensor]) -> str:
    group = next((group for group in groups if group.method == OURS), groups[0])
    look = min(1, chapter.looks - 1)
    values = maps[group.name][look]
    best = int(values.argmax())
    row, col = divmod(best, chapter.grid.cols)
    half = int((values.flatten().sort(descending=True).values.cumsum(0) < 0.5).sum()) + 1
    return (
        f"At look t={look} {group.name} goes most often to row {row + 1}, column {col + 1} of the "
        f"{chapter.grid.rows}x{chapter.grid.cols} places ({100 * float(values.max()):.0f} % of scenes); {half} of the "
        f"{chapter.grid.places} places take half of its looks."
    )


def _spread_sentence(chapter: Chapter, spread: tuple[Curve, ...], depends: tuple[Curve, ...]) -> str:
    said = []
    chosen = [index for index, curve in enumerate(spread) if curve.group.method == OURS] or [0]
    for index in chosen:
        wide, tied = spread[index], depends[index]
        value = 100 * wide.estimate.value / math.log(chapter.grid.places)
        told = told_looks(chapter.looks)
        spreads = " and ".join(f"{float(value[look]):.0f} % at t={look}" for look in told)
        shared = " and ".join(_shared(tied.estimate, look) for look in told)
        sure = " (1 seed)" if tied.estimate.n == 1 else ""
        said.append(
            f"The entropy of the places that {wide.group.name} looks at is {spreads} of the largest there can be; place and label share "
            f"{shared}{sure}."
        )
    return " ".join(said)


def _shared(estimate: Estimate, look: int) -> str:
    value, low, high = (float(part[look]) for part in (estimate.value, estimate.low, estimate.high))
    sure = " (not to be told from none by these runs)" if estimate.n > 1 and low <= 0 <= high else ""
    return f"{value:.2f} nats at t={look}{sure}"


def _rows(chapter: Chapter, groups: tuple[Group, ...], maps: dict[str, Tensor]) -> Rows:
    head = ("method", "preset", "look t", "row", "column", "scenes looked at here, %", "seeds")
    rows: list[tuple[str | int | float, ...]] = [head]
    for group in groups:
        for look, values in enumerate(maps[group.name]):
            for row, line in enumerate(values.tolist()):
                for col, value in enumerate(line):
                    rows.append((*group.kind, look, row, col, 100 * value, len(group.runs)))
    return tuple(rows)
