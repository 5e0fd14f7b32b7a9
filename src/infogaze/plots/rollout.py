"""The figure of one rollout (as the paper's figure 4): the scene, the gain maps, the glimpses so far, the class probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import matplotlib as mpl
import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Num, UInt8
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, QuadMesh
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor

from infogaze.grid import GlimpseGrid
from infogaze.plots.scenes import fitted, framed, outline, picture, pixels, seen, shown_looks
from infogaze.plots.style import EDGE, GAIN_COLOURS, INK, OURS, QUIET, house_style

_BARS = 5  # class probabilities shown
_NAME = 67.0  # points in which a class's name is written, beside the bars and below them
_TAKEN = "#aab2bb"  # of a place looked at before; no gain has this colour


def rollout_figure(
    image: UInt8[Tensor, "C H W"],
    locations: Num[Tensor, "T 2"],
    gains: Float[Tensor, "T rows cols"],
    probabilities: Float[Tensor, "T classes"],
    grid: GlimpseGrid,
    classes: Sequence[str],
    label: int | None = None,
) -> Figure:
    """One column a look, or some looks where they are many. The complete scene stands at the left for the reader alone; the model never
    sees it whole. On a gain map the places looked at before are crossed out: of the others, the brightest is chosen.
    """
    columns = shown_looks(len(locations))
    scene = pixels(image)
    shown = _shown(probabilities, label)
    names = {index: fitted(classes[index], _NAME, 8) for index in {*shown, *probabilities.argmax(-1).tolist()}}
    taken = {look: grid.at(locations[:look]).any(0).view(grid.rows, grid.cols) for look in columns}
    with house_style():
        layout = ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.03, wspace=0.03, hspace=0.03)
        figure = Figure(figsize=(1.05 * (len(columns) + 1) + 1.6, 4.1), layout=layout)
        axes = figure.subplots(3, len(columns) + 1, height_ratios=[1, 1, 0.95])
        for spare in (axes[1, 0], axes[2, 0]):
            spare.axis("off")
        picture(axes[0, 0], scene)
        axes[0, 0].set_title("scene" if label is None else f"scene: {names[label]}", fontsize=9, x=0, ha="left")
        axes[1, 0].text(0.9, 0.5, "glimpses\nso far", ha="right", va="center", transform=axes[1, 0].transAxes)
        axes[2, 0].text(0.9, 0.5, "label\nprobability", ha="right", va="center", transform=axes[2, 0].transAxes)
        # One scale for all looks, so that a map that goes dark means little left to learn; the square root keeps faint maps readable.
        most = max(float(gains[look].masked_fill(taken[look], 0.0).max()) for look in columns)
        scale = PowerNorm(0.5, 0.0, max(most, 1e-6))
        drawn = None
        for column, look in enumerate(columns, 1):
            where = locations[look]
            top, left = axes[0, column], axes[1, column]
            top.set_title(f"t = {look}", fontsize=9)
            if bool((gains[look] != 0).any()):
                drawn = _gain_map(top, gains[look], taken[look], grid, scale)
                outline(top, where, grid, INK, 2.8)
                outline(top, where, grid, "white")
            else:
                picture(top, np.full_like(scene, 0.95))
                top.text(0.5, 0.5, "first look:\nrandom" if look == 0 else "no map", ha="center", va="center",
                         transform=top.transAxes, color=QUIET, fontsize=8)  # fmt: skip
            picture(left, seen(scene, locations[: look + 1], grid))
            outline(left, where, grid, OURS)
            _bars(axes[2, column], probabilities[look], shown, names, label, named=column == 1)
        if drawn is not None:
            bar = figure.colorbar(drawn, ax=list(axes[0, 1:]), fraction=0.02, pad=0.01, aspect=12)
            bar.set_label("gain, nats", fontsize=8)
            bar.ax.tick_params(labelsize=7)
            # Beside the next row, so it needs no room between the two.
            said = "crossed:\nlooked at\nbefore"
            bar.ax.text(0, -0.12, said, va="top", fontsize=7, transform=bar.ax.transAxes, in_layout=False)
        return figure


def _shown(probabilities: Float[Tensor, "T classes"], label: int | None) -> list[int]:
    """The labels that were likeliest at some look, with the true one; the last look orders them."""
    most = probabilities.amax(0)
    if label is not None:
        most[label] = torch.inf
    likeliest = most.topk(min(_BARS, len(most))).indices
    shown: list[int] = likeliest[probabilities[-1, likeliest].argsort(descending=True)].tolist()
    return shown


def _gain_map(
    axes: Axes, gain: Tensor, taken: Bool[Tensor, "rows cols"], grid: GlimpseGrid, scale: Normalize
) -> QuadMesh:
    """The map over the scene it speaks of: each place's value around the middle of its glimpse, those looked at before crossed out."""
    down, across = (_edges(starts, grid) for starts in grid.axes())
    drawn = axes.pcolormesh(
        across, down, np.ma.masked_array(gain.cpu().numpy(), taken.cpu().numpy()),
        cmap=mpl.colormaps[GAIN_COLOURS].with_extremes(bad=_TAKEN), norm=scale, rasterized=True,
    )  # fmt: skip
    crosses = []
    for row, col in taken.nonzero().tolist():
        (top, low), (near, far) = down[row : row + 2], across[col : col + 2]
        crosses += [[(near, top), (far, low)], [(near, low), (far, top)]]
    axes.add_collection(LineCollection(crosses, colors="white", linewidths=0.6, zorder=0.5))
    axes.set(xlim=(-0.5, grid.width - 0.5), ylim=(grid.height - 0.5, -0.5))
    axes.set_facecolor("#f1f3f5")
    framed(axes)
    return drawn


def _edges(starts: Int[Tensor, " n"], grid: GlimpseGrid) -> list[float]:
    """Where the cells of a map end along one side: half-way between the middles of neighbouring glimpses, and half a stride beyond."""
    middles = (starts + (grid.glimpse - 1) / 2).tolist()
    inner = [(one + other) / 2 for one, other in pairwise(middles)]
    return [middles[0] - grid.stride / 2, *inner, middles[-1] + grid.stride / 2]


def _bars(
    axes: Axes, probabilities: Tensor, shown: list[int], names: dict[int, str], label: int | None, named: bool
) -> None:
    best = int(probabilities.argmax())
    values = [float(probabilities[index]) for index in shown]
    colours = [OURS if index == best else EDGE for index in shown]
    axes.barh(range(len(shown)), values, color=colours, height=0.7)
    axes.set(xlim=(0, 1), ylim=(len(shown) - 0.5, -0.5), xticks=[])
    axes.set_yticks(range(len(shown)), [names[index] for index in shown] if named else [], fontsize=8)
    for tick, index in zip(axes.get_yticklabels(), shown, strict=False):
        tick.set_fontweight("bold" if index == label else "normal")
    axes.tick_params(length=0)
    axes.spines["bottom"].set_visible(False)
    mark = "" if label is None else (" ✓" if best == label else " ✗")
    axes.set_xlabel(f"{names[best]}\n{100 * float(probabilities[best]):.0f} %{mark}", fontsize=8, color=INK)
