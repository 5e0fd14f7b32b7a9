"""Scenes as pictures in a figure: whole, or only what was looked at so far."""

from __future__ import annotations

import numpy as np
from jaxtyping import Num, UInt8
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from infogaze.grid import GlimpseGrid
from infogaze.plots.style import EDGE, text_width

_UNSEEN = 0.82  # the grey of what was not looked at
_COLUMNS = 8  # looks side by side that can still be read


def shown_looks(count: int) -> list[int]:
    """The looks that a row of pictures shows: all, or of too many some at even distances, with the first and the last."""
    return sorted({int(look) for look in np.linspace(0, count - 1, min(count, _COLUMNS)).round()})


def short(name: str, letters: int = 13) -> str:
    """A class's name cut to so many letters."""
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def fitted(name: str, room: float, size: float) -> str:
    """As much of a class's name as fits into `room` points, in letters of this size."""
    letters = len(name)
    while letters > 1 and text_width(short(name, letters), size) > room:
        letters -= 1
    return short(name, letters)


def pixels(image: UInt8[Tensor, "C H W"]) -> np.ndarray:
    """The image as matplotlib takes it, [H, W, 3] in [0, 1]; a channel count it has no colours for is shown by its mean."""
    values = image.movedim(0, -1).cpu().numpy() / 255.0
    if values.shape[-1] != 3:
        values = np.repeat(values.mean(-1, keepdims=True), 3, -1)
    return values


def seen(
    scene: np.ndarray, locations: Num[Tensor, "t 2"], grid: GlimpseGrid, *, elsewhere: np.ndarray | float = _UNSEEN
) -> np.ndarray:
    """The scene with all that these looks did not show in one grey, or as another picture has it."""
    shown = np.broadcast_to(elsewhere, scene.shape).copy()
    for where in locations.tolist():
        row, col = (round(value) for value in where)
        window = (slice(row, row + grid.glimpse_size), slice(col, col + grid.glimpse_size))
        shown[window] = scene[window]
    return shown


def picture(axes: Axes, values: np.ndarray) -> None:
    """Show pixels, with a thin frame and no ticks."""
    axes.imshow(values, interpolation="nearest", vmin=0, vmax=1)
    framed(axes)


def framed(axes: Axes) -> None:
    """A thin frame and no ticks."""
    axes.set(xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set(visible=True, color=EDGE, linewidth=0.6)


def outline(axes: Axes, where: Num[Tensor, " 2"], grid: GlimpseGrid, *, colour: str, width: float = 1.4) -> None:
    """The frame of a glimpse, whole also where it lies on the scene's edge."""
    row, col = (float(value) for value in where)
    side = grid.glimpse_size
    frame = Rectangle((col - 0.5, row - 0.5), side, side, fill=False, edgecolor=colour, linewidth=width, zorder=3)
    frame.set_clip_on(False)
    axes.add_patch(frame)
