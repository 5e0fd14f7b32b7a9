"""A microscope under pymmcore-plus scans a scene where a model asks to look: a stage, a shutter and a camera made in Python.

python examples/micromanager_scan.py scan.png
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from drawing import draw
from PIL import Image
from pymmcore_plus.experimental.unicore import CameraDevice, ShutterDevice, UniMMCore, XYStageDevice
from sklearn.datasets import load_digits
from useq import MDAEvent

import infogaze
from infogaze.adapters.micromanager import scan

SIDE = 8  # of a glimpse in pixels
SCALE = infogaze.Scale(glimpse_size=SIDE, um_per_pixel=2.5, x=1200.0, y=-640.0, y_grows_up=True)


def sample() -> np.ndarray:
    """What lies under the objective: a handwritten digit of 28 pixels, in the middle of 32."""
    ink = (load_digits().images[5] / 16 * 255).astype(np.uint8)
    return np.pad(np.asarray(Image.fromarray(ink).resize((28, 28), Image.Resampling.BICUBIC)), 2)


class Stage(XYStageDevice):
    """Goes where it is sent, to a twentieth of a micrometre."""

    position = (0.0, 0.0)

    def set_position_um(self, x: float, y: float) -> None:
        """Go there."""
        self.position = (round(20 * x) / 20, round(20 * y) / 20)

    def get_position_um(self) -> tuple[float, float]:
        """Where it stands."""
        return self.position

    def home(self) -> None:
        """Go to the middle."""
        self.position = (0.0, 0.0)

    def stop(self) -> None:
        """Nothing: it has arrived already."""

    def set_origin_x(self) -> None:
        """Nothing: its coordinates stay as they are."""

    def set_origin_y(self) -> None:
        """Nothing: its coordinates stay as they are."""


class Shutter(ShutterDevice):
    """Lets light through."""

    is_open = False

    def get_open(self) -> bool:
        """Whether it does."""
        return self.is_open

    def set_open(self, open: bool) -> None:
        """Open or close it."""
        self.is_open = open


class Camera(CameraDevice):
    """Sees the window of the sample at the middle of which the stage stands."""

    exposure = 10.0

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage, self._sample = stage, sample()

    def get_exposure(self) -> float:
        """In milliseconds."""
        return self.exposure

    def set_exposure(self, exposure: float) -> None:
        """In milliseconds."""
        self.exposure = exposure

    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return (SIDE, SIDE)

    def dtype(self) -> type[np.uint8]:
        """Of a pixel."""
        return np.uint8

    def start_sequence(self, n: int | None, get_buffer: Callable[..., np.ndarray]) -> Iterator[Mapping[str, str]]:
        """Take so many frames."""
        for _ in range(n or 0):
            row, col = SCALE.from_stage(self._stage.position).round().long().tolist()
            get_buffer(self.shape(), self.dtype())[:] = self._sample[row : row + SIDE, col : col + SIDE]
            yield {}


def main(out: Path) -> None:
    """Scan, print the label, and draw what was seen."""
    stage = Stage()
    mmc = UniMMCore()
    for name, device in (("stage", stage), ("shutter", Shutter()), ("camera", Camera(stage))):
        mmc.loadPyDevice(name, device)
        mmc.initializeDevice(name)
    mmc.setXYStageDevice("stage")
    mmc.setShutterDevice("shutter")
    mmc.setCameraDevice("camera")

    frames: list[np.ndarray] = []

    def keep(image: np.ndarray) -> None:
        frames.append(image)

    mmc.mda.events.frameReady.connect(keep)
    agent = infogaze.load("digits")
    episode = scan(mmc, agent.episode(seed=0, stop=infogaze.Confident(0.99)), SCALE, event=MDAEvent(exposure=5.0))

    probability, label = episode.probabilities[0].max(0)
    print(f"label {agent.classes[label]}, probability {probability:.2f}, after {len(episode.history)} looks")
    draw(out, frames, agent=agent, episode=episode, scale=SCALE)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "micromanager_scan.png"))
