"""A RunEngine scans a scene where a model asks to look: two simulated motors, and a detector over a handwritten digit.

python examples/bluesky_scan.py scan.png
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from bluesky import RunEngine
from drawing import draw
from ophyd import Component, Device, DeviceStatus, Signal
from ophyd.sim import SynAxis
from PIL import Image
from sklearn.datasets import load_digits

import infogaze
from infogaze.adapters.bluesky import scan

SIDE = 8  # of a glimpse in pixels
SCALE = infogaze.Scale(glimpse_size=SIDE, um_per_pixel=25.0, x=-400.0, y=-400.0)


def sample() -> np.ndarray:
    """What lies under the beam: a handwritten digit of 28 pixels, in the middle of 32."""
    ink = (load_digits().images[13] / 16 * 255).astype(np.uint8)
    return np.pad(np.asarray(Image.fromarray(ink).resize((28, 28), Image.Resampling.BICUBIC)), 2)


class Camera(Device):
    """A detector that sees the window of the sample at the middle of which the motors stand; they count in millimetres."""

    image = Component(Signal, value=np.zeros((SIDE, SIDE), np.uint8), kind="normal")

    def __init__(self, name: str, *, motors: tuple[SynAxis, SynAxis]) -> None:
        super().__init__(name=name)
        self._motors, self._sample = motors, sample()

    def trigger(self) -> DeviceStatus:
        """Take a picture."""
        position = [1000 * motor.position for motor in self._motors]
        row, col = SCALE.from_stage(position).round().long().tolist()
        self.image.put(self._sample[row : row + SIDE, col : col + SIDE])
        status = DeviceStatus(self)
        status.set_finished()
        return status


def main(out: Path) -> None:
    """Scan, print the label, and draw what was seen."""
    stage_x, stage_y = SynAxis(name="stage_x"), SynAxis(name="stage_y")
    camera = Camera("camera", motors=(stage_x, stage_y))
    frames: list[np.ndarray] = []

    def keep(name: str, document: dict[str, dict[str, np.ndarray]]) -> None:
        if name == "event" and "camera_image" in document["data"]:
            frames.append(document["data"]["camera_image"])

    run = RunEngine()
    run.subscribe(keep)
    agent = infogaze.load("digits")
    episode = agent.episode(seed=0, stop=infogaze.Confident(0.99))
    run(scan(episode, SCALE, axes=(stage_x, stage_y), detector=camera, image="camera_image", unit="mm"))

    probability, label = episode.probabilities[0].max(0)
    print(f"label {agent.classes[label]}, probability {probability:.2f}, after {len(episode.history)} looks")
    draw(out, frames, agent=agent, episode=episode, scale=SCALE)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "bluesky_scan.png"))
