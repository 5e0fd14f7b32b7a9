"""The figure of one rollout (as the paper's figure 4): the scene, gain maps, glimpses so far, what is imagined, class probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import matplotlib as mpl
import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Num, UInt8
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor

from infogaze.grid import GlimpseGrid
from infogaze.plots.scenes import fitted, framed, outline, picture, pixels, seen, shown_looks
from infogaze.plots.style import EDGE, GAIN_COLOURS, INK, OURS, QUIET, UNCERTAINTY_COLOURS, house_style

_BARS = 5  # class probabilities shown
_NAME = 67.0  # points in which a class's name is written, beside the bars and below them
_TAKEN = "#aab2bb"  # of a location looked at before; no gain has this colour
_LEAST = 1e-6  # nats; a scale must have a width


def rollout_figure(
    image: UInt8[Tensor, "C H W"],
    *,
    locations: Num[Tensor, "T 2"],
    gains: Float[Tensor, "T rows cols"],
    probabilities: Float[Tensor, "T classes"],
    grid: GlimpseGrid,
    classes: Sequence[str],
    label: int | None = None,
    imagined: UInt8[Tensor, "T C H W"] | None = None,
    uncertainty: Float[Tensor, "T rows cols"] | None = None,
) -> Figure:
    """One column a look, or of many looks some. The complete scene at the left is for the reader; the model never sees it whole.

    Each gain map has its own scale, up to its largest value among the locations not yet looked at, which is written below it. Those
    looked at before are crossed out: of the others, the brightest is chosen. Where the scene as it was imagined after each look is given,
    it is drawn around what was seen, and below it how uncertain each location was, on one scale for all looks.
    """
    columns = shown_looks(len(locations))
    scene = pixels(image)
    shown = _shown(probabilities, label)
    names = {index: fitted(classes[index], _NAME, 8) for index in {*shown, *probabilities.argmax(-1).tolist()}}
    with house_style():
        layout = ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.03, wspace=0.03, hspace=0.03)
        more = 0 if imagined is None or uncertainty is None else 2
        figure = Figure(figsize=(1.05 * (len(columns) + 1) + 1.6, 4.2 + 1.17 * more), layout=layout)
        axes = figure.subplots(3 + more, len(columns) + 1, height_ratios=[*[1] * (2 + more), 0.95])
        picture(axes[0, 0], scene)
        axes[0, 0].set_title("scene" if label is None else f"scene: {names[label]}", fontsize=9, x=0, ha="left")
        _row_title(axes[1, 0], "glimpses\nso far")
        _row_title(axes[-1, 0], "label\nprobability")
        if imagined is not None and uncertainty is not None:
            _imagined_rows(
                figure, axes[2:4], imagined, uncertainty=uncertainty, scene=scene, locations=locations, grid=grid
            )
        mapped = [look for look in columns if bool((gains[look] != 0).any())]
        for column, look in enumerate(columns, 1):
            where = locations[look]
            upper, lower = axes[0, column], axes[1, column]
            upper.set_title(f"t = {look}", fontsize=9)
            if look in mapped:
                taken = grid.at(locations[:look]).any(0).view(grid.rows, grid.cols)
                _gain_map(upper, gains[look], taken, grid=grid)
                outline(upper, where, grid, colour=INK, width=2.8)
                outline(upper, where, grid, colour="white")
            else:
                picture(upper, np.full_like(scene, 0.95))
                upper.text(0.5, 0.5, "first look:\nrandom" if look == 0 else "no map", ha="center", va="center",
                           transform=upper.transAxes, color=QUIET, fontsize=8)  # fmt: skip
            picture(lower, seen(scene, locations[: look + 1], grid))
            outline(lower, where, grid, colour=OURS)
            _bars(axes[-1, column], probabilities[look], shown=shown, names=names, label=label, with_names=column == 1)
        if mapped:
            _gain_scale(figure, list(axes[0, 1:]))
        return figure


def _shown(probabilities: Float[Tensor, "T classes"], label: int | None) -> list[int]:
    """The labels that were likeliest at some look, with the true one; the last look orders them."""
    most = probabilities.amax(0)
    if label is not None:
        most[label] = torch.inf
    likeliest = most.topk(min(_BARS, len(most))).indices
    shown: list[int] = likeliest[probabilities[-1, likeliest].argsort(descending=True)].tolist()
    return shown


def _row_title(axes: Axes, title: str) -> None:
    axes.axis("off")
    axes.text(0.9, 0.5, title, ha="right", va="center", transform=axes.transAxes)


def _gain_map(
    axes: Axes, gain: Float[Tensor, "rows cols"], taken: Bool[Tensor, "rows cols"], *, grid: GlimpseGrid
) -> None:
    """The map over its scene: each value around the middle of its glimpse, and the locations looked at before crossed out."""
    down, across = (_edges(starts, grid) for starts in grid.axes())
    most = 0.0 if bool(taken.all()) else float(gain[~taken].max())
    axes.pcolormesh(
        across, down, np.ma.masked_array(gain.cpu().numpy(), taken.cpu().numpy()),
        cmap=mpl.colormaps[GAIN_COLOURS].with_extremes(bad=_TAKEN), norm=Normalize(0.0, max(most, _LEAST)), rasterized=True,
    )  # fmt: skip
    crosses = []
    for row, col in taken.nonzero().tolist():
        (top, low), (near, far) = down[row : row + 2], across[col : col + 2]
        crosses += [[(near, top), (far, low)], [(near, low), (far, top)]]
    axes.add_collection(LineCollection(crosses, colors="white", linewidths=0.6, zorder=1.5))
    axes.set(xlim=(-0.5, grid.width - 0.5), ylim=(grid.height - 0.5, -0.5), aspect="equal")
    axes.set_facecolor("#f1f3f5")
    axes.text(0.5, -0.05, f"max {most:.2g} nats", ha="center", va="top", fontsize=7, transform=axes.transAxes)
    framed(axes)


def _imagined_rows(
    figure: Figure,
    axes: np.ndarray,
    imagined: UInt8[Tensor, "T C H W"],
    *,
    uncertainty: Float[Tensor, "T rows cols"],
    scene: np.ndarray,
    locations: Num[Tensor, "T 2"],
    grid: GlimpseGrid,
) -> None:
    """What was expected of the scene after each look, around what was seen; and how uncertain that was."""
    _row_title(axes[0, 0], "imagined\naround them")
    _row_title(axes[1, 0], "uncertainty")
    down, across = (_edges(starts, grid) for starts in grid.axes())
    least, most = float(uncertainty.min()), float(uncertainty.max())
    scale = Normalize(least, max(most, least + _LEAST))
    for column, look in enumerate(shown_looks(len(locations)), 1):
        upper, lower = axes[:, column]
        picture(upper, seen(scene, locations[: look + 1], grid, elsewhere=pixels(imagined[look])))
        lower.pcolormesh(
            across, down, uncertainty[look].cpu().numpy(), cmap=UNCERTAINTY_COLOURS, norm=scale, rasterized=True
        )
        lower.set(xlim=(-0.5, grid.width - 0.5), ylim=(grid.height - 0.5, -0.5), aspect="equal")
        lower.set_facecolor("#f1f3f5")
        mean = float(uncertainty[look].mean())
        lower.text(0.5, -0.05, f"mean {mean:.2g} nats", ha="center", va="top", fontsize=7, transform=lower.transAxes)
        framed(lower)
    bar = figure.colorbar(
        ScalarMappable(scale, UNCERTAINTY_COLOURS), ax=list(axes[1, 1:]), fraction=0.02, pad=0.01, aspect=12
    )
    bar.set_label("entropy, nats", fontsize=7)
    bar.ax.tick_params(labelsize=7)


def _edges(starts: Int[Tensor, " n"], grid: GlimpseGrid) -> list[float]:
    """Where the cells of a map end along one side: half-way between the middles of neighbouring glimpses, and half a stride beyond."""
    middles = (starts + (grid.glimpse_size - 1) / 2).tolist()
    inner = [(one + other) / 2 for one, other in pairwise(middles)]
    return [middles[0] - grid.stride / 2, *inner, middles[-1] + grid.stride / 2]


def _gain_scale(figure: Figure, maps: list[Axes]) -> None:
    """The colour bar of all maps, each of which has its own maximum."""
    bar = figure.colorbar(
        ScalarMappable(Normalize(0.0, 1.0), GAIN_COLOURS),
        ax=maps,
        fraction=0.02,
        pad=0.01,
        aspect=12,
        ticks=[0, 0.5, 1],
    )
    bar.set_label("gain, share of\nthe map's max", fontsize=7)
    bar.ax.tick_params(labelsize=7)
    # Beside the next row, so it needs no room between the two.
    text = "crossed:\nlooked at\nbefore"
    bar.ax.text(0, -0.25, text, va="top", fontsize=7, transform=bar.ax.transAxes, in_layout=False)


def _bars(
    axes: Axes,
    probabilities: Float[Tensor, " classes"],
    *,
    shown: list[int],
    names: dict[int, str],
    label: int | None,
    with_names: bool,
) -> None:
    """The probabilities of some labels, and below them the prediction."""
    best = int(probabilities.argmax())
    values = [float(probabilities[index]) for index in shown]
    colours = [OURS if index == best else EDGE for index in shown]
    axes.barh(range(len(shown)), values, color=colours, height=0.7)
    axes.set(xlim=(0, 1), ylim=(len(shown) - 0.5, -0.5), xticks=[])
    axes.set_yticks(range(len(shown)), [names[index] for index in shown] if with_names else [], fontsize=8)
    for tick, index in zip(axes.get_yticklabels(), shown, strict=False):
        tick.set_fontweight("bold" if index == label else "normal")
    axes.tick_params(length=0)
    axes.spines["bottom"].set_visible(False)
    mark = "" if label is None else (" ✓" if best == label else " ✗")
    axes.set_xlabel(f"{names[best]}\n{100 * float(probabilities[best]):.0f} %{mark}", fontsize=8, color=INK)
