"""A finished scan as a picture: what was seen where, in the stage's coordinates, and what was believed after each look."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from infogaze import Agent, Episode, Scale

COLOURS = ("#c2410c", "#3b6ea5", "#009e73", "#8a96a3")


def draw(path: Path, frames: Sequence[np.ndarray], *, agent: Agent, episode: Episode, scale: Scale) -> None:
    """Write the picture of an episode of one scene, of which these are the glimpses."""
    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    scan, belief = figure.subplots(1, 2, width_ratios=[1, 1.25])
    grid, half = agent.model.grid, scale.glimpse_size / 2

    def corner(row: float, col: float) -> tuple[float, float]:
        x, y = scale.to_stage([row - half, col - half]).tolist()
        return x, y

    path_x, path_y = [], []
    for look, frame in zip(episode.history, frames, strict=True):
        row, col = look.location[0].tolist()
        (left, top), (right, bottom) = corner(row, col), corner(row + frame.shape[0], col + frame.shape[1])
        scan.imshow(frame, cmap="gray", vmin=0, vmax=255, extent=(left, right, bottom, top), interpolation="nearest")
        path_x.append((left + right) / 2)
        path_y.append((top + bottom) / 2)
    scan.plot(path_x, path_y, "-o", color=COLOURS[0], linewidth=1.2, markersize=9)
    for number, (x, y) in enumerate(zip(path_x, path_y, strict=True), 1):
        scan.annotate(str(number), (x, y), color="white", fontsize=7, ha="center", va="center")
    (left, top), (right, bottom) = corner(0, 0), corner(grid.height, grid.width)
    scan.set(xlim=(left, right), ylim=(bottom, top), xlabel="x (um)", ylabel="y (um)", aspect="equal")
    scan.set(facecolor="#d1d5da", title="what was seen, in this order")

    probabilities = np.stack([look.probabilities[0].numpy() for look in episode.history])
    looks = range(1, len(probabilities) + 1)
    for label, colour in zip(probabilities[-1].argsort()[::-1][: len(COLOURS)], COLOURS, strict=False):
        belief.plot(looks, probabilities[:, label], "-o", color=colour, markersize=4, label=agent.classes[label])
    belief.set(xlabel="looks", ylabel="probability", ylim=(-0.02, 1.02), xticks=looks, title="what was believed")
    belief.legend(title="label", frameon=False)
    belief.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=100)
