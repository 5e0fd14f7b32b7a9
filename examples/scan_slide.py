"""Classify a large TIFF by a few small windows of it, and draw what was looked at: python examples/scan_slide.py SLIDE.tif --out scan.png

The scan is stored after every look. Started again after a crash, it goes on where it was.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import infogaze

COLOURS = ("#c2410c", "#3b6ea5", "#009e73", "#8a96a3")
"""Of the likeliest labels."""


def main() -> None:
    """Scan, draw, and say what it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("slide", type=Path)
    parser.add_argument("--model", default="cifar10-plus", help="a bundled name, or a folder that training wrote")
    parser.add_argument("--out", type=Path, default=Path("scan.png"))
    parser.add_argument("--looks", type=int, help="at most; the model's own number if not given")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    agent = infogaze.load(options.model)
    stored = options.out.with_suffix(".safetensors")
    with infogaze.TiffSensor(options.slide, agent.model.grid) as sensor:
        if stored.exists():
            episode = agent.resume(stored)
            print(f"{stored}: goes on after {len(episode.history)} looks")
        else:
            episode = agent.episode(budget=options.looks, seed=options.seed, allowed=sensor.allowed)
        while not episode.done:
            where = episode.next_location()
            try:
                episode.observe(sensor.look(where))
            except infogaze.LookFailed as error:
                print(error)
                episode.skip()  # its place is given up for another
            episode.save(stored)
        read, size = sensor.bytes_read, options.slide.stat().st_size
        draw(agent, episode, sensor).savefig(options.out, dpi=150)
    best = int(episode.probabilities[0].argmax())
    print(
        f"{agent.classes[best]}, {100 * float(episode.probabilities[0, best]):.0f} %, from {len(episode.history)} looks"
    )
    print(f"read {read / 2**20:.1f} MiB of {size / 2**20:.1f}")
    stored.unlink()


def draw(agent: infogaze.Agent, episode: infogaze.Episode, sensor: infogaze.TiffSensor) -> Figure:
    """What was seen, where it lies in the scene, in which order; and how probabilities went."""
    grid = agent.model.grid
    seen = np.full((grid.height, grid.width, 3), 0.93)
    for look in episode.history:
        row, col = look.location[0].tolist()
        window = sensor.look(look.location)[0].permute(1, 2, 0).numpy()
        seen[row : row + grid.glimpse_size, col : col + grid.glimpse_size] = window
    with mpl.rc_context({"font.size": 9}):
        figure = Figure(figsize=(8, 3.4), layout="constrained")
        scene, course = figure.subplots(1, 2, width_ratios=(1, 1.35))
        scene.imshow(seen, interpolation="nearest")
        scene.set(xticks=[], yticks=[], title=f"{sensor.height}x{sensor.width} pixels, {len(episode.history)} looks")
        for number, look in enumerate(episode.history, 1):
            row, col = look.location[0].tolist()
            corner, side = (col - 0.5, row - 0.5), grid.glimpse_size
            scene.add_patch(Rectangle(corner, side, side, fill=False, edgecolor=COLOURS[0], linewidth=1.4))
            label = {"facecolor": COLOURS[0], "edgecolor": "none", "pad": 1.2}
            scene.text(col, row, str(number), color="white", va="top", fontsize=8, bbox=label)
        probabilities = torch.cat([look.probabilities for look in episode.history]).numpy()
        looks = range(1, len(probabilities) + 1)
        for index, colour in zip(probabilities[-1].argsort()[::-1], COLOURS, strict=False):
            course.plot(
                looks, probabilities[:, index], color=colour, marker="o", markersize=3, label=agent.classes[index]
            )
        course.set(xlabel="looks", ylabel="probability", ylim=(-0.03, 1.03), xticks=looks)
        course.spines[["top", "right"]].set_visible(False)
        course.legend(frameon=False)
    return figure


if __name__ == "__main__":
    main()
