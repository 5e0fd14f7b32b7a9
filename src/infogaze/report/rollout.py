"""The figure of one rollout (as the paper's figure 4): the scene, the gain maps, the glimpses so far, the class probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Num, UInt8
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor

from infogaze.report.pictures import framed, outline, picture, pixels, seen, short
from infogaze.report.style import EDGE, GAIN_COLOURS, INK, OURS, QUIET, house_style
from infogaze.sensing import GlimpseGrid

_BARS = 5  # class probabilities shown


def rollout_figure(
    image: UInt8[Tensor, "C H W"],
    locations: Num[Tensor, "T 2"],
    gains: Float[Tensor, "T rows cols"],
    probabilities: Float[Tensor, "T classes"],
    grid: GlimpseGrid,
    classes: Sequence[str],
    label: int | None = None,
) -> Figure:
    """One column a look. The complete scene stands at the left for the reader alone; the model never sees it whole."""
    looks = len(locations)
    scene = pixels(image)
    with house_style():
        layout = ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02, wspace=0.03, hspace=0.03)
        figure = Figure(figsize=(1.15 * (looks + 1) + 0.5, 3.9), layout=layout)
        axes = figure.subplots(3, looks + 1, height_ratios=[1, 1, 0.95])
        for spare in (axes[1, 0], axes[2, 0]):
            spare.axis("off")
        picture(axes[0, 0], scene)
        axes[0, 0].set_title("scene" if label is None else f"scene: {short(classes[label], 10)}", fontsize=9)
        axes[1, 0].text(0.9, 0.5, "glimpses\nso far", ha="right", va="center", transform=axes[1, 0].transAxes)
        axes[2, 0].text(0.9, 0.5, "label\nprobability", ha="right", va="center", transform=axes[2, 0].transAxes)
        # One scale for all looks, so that a map that goes dark means little left to learn; the square root keeps faint maps readable.
        scale = PowerNorm(0.5, 0.0, max(float(gains.max()), 1e-6))
        # The labels that were likeliest at some look come into the picture; the last look orders them.
        likeliest = probabilities.amax(0).topk(min(_BARS, len(classes))).indices
        shown = likeliest[probabilities[-1, likeliest].argsort(descending=True)].tolist()
        drawn = None
        for look in range(looks):
            where = locations[look]
            top, left = axes[0, look + 1], axes[1, look + 1]
            top.set_title(f"t = {look}", fontsize=9)
            if bool((gains[look] != 0).any()):
                drawn = _gain_map(top, gains[look], grid, scale)
                outline(top, where, grid, "white")
            else:
                picture(top, np.full_like(scene, 0.95))
                top.text(0.5, 0.5, "first look:\nrandom" if look == 0 else "no map", ha="center", va="center",
                         transform=top.transAxes, color=QUIET, fontsize=8)  # fmt: skip
            picture(left, seen(scene, locations[: look + 1], grid))
            outline(left, where, grid, OURS)
            _bars(axes[2, look + 1], probabilities[look], shown, classes, label, named=look == 0)
        if drawn is not None:
            bar = figure.colorbar(drawn, ax=list(axes[0, 1:]), fraction=0.02, pad=0.01, aspect=12)
            bar.set_label("gain, nats", fontsize=8)
            bar.ax.tick_params(labelsize=7)
        return figure


def _gain_map(axes: Axes, gain: Tensor, grid: GlimpseGrid, scale: Normalize) -> AxesImage:
    """The map over the scene it speaks of: each place's value around the middle of its glimpse."""
    middle = (grid.glimpse - grid.stride) / 2
    extent = (
        middle - 0.5, middle + grid.cols * grid.stride - 0.5, middle + grid.rows * grid.stride - 0.5, middle - 0.5,
    )  # fmt: skip
    drawn = axes.imshow(gain.cpu().numpy(), cmap=GAIN_COLOURS, norm=scale, extent=extent, interpolation="bicubic")
    axes.set(xlim=(-0.5, grid.width - 0.5), ylim=(grid.height - 0.5, -0.5))
    axes.set_facecolor("#f1f3f5")
    framed(axes)
    return drawn


def _bars(
    axes: Axes, probabilities: Tensor, shown: list[int], classes: Sequence[str], label: int | None, named: bool
) -> None:
    best = int(probabilities.argmax())
    values = [float(probabilities[index]) for index in shown]
    colours = [OURS if index == best else EDGE for index in shown]
    axes.barh(range(len(shown)), values, color=colours, height=0.7)
    axes.set(xlim=(0, 1), ylim=(len(shown) - 0.5, -0.5), xticks=[])
    axes.set_yticks(range(len(shown)), [short(classes[index]) for index in shown] if named else [], fontsize=8)
    for tick, index in zip(axes.get_yticklabels(), shown, strict=False):
        tick.set_fontweight("bold" if index == label else "normal")
    axes.tick_params(length=0)
    axes.spines["bottom"].set_visible(False)
    said = f"{short(classes[best], 10)}: {100 * float(probabilities[best]):.0f} %"
    mark = "" if label is None else (" ✓" if best == label else " ✗")
    axes.set_xlabel(said + mark, fontsize=8, color=INK)
