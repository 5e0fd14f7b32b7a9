"""A microscope of Python devices under pymmcore-plus: a stage, a shutter, and a camera over a scene that fails when it is told to."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping

import numpy as np

os.environ["PYTEST_RUNNING"] = "1"  # before it is imported: or it keeps a log in the user's own folder

from pymmcore_plus.experimental.unicore import CameraDevice, ShutterDevice, UniMMCore, XYStageDevice
from torch import Tensor

from infogaze.gaze.scale import Scale
from infogaze.gaze.sensor import ImageSensor

logging.root.setLevel(logging.WARNING)  # as Python has it; pymmcore-plus has set it to DEBUG, for all tests


class Stage(XYStageDevice):
    """Goes where it is sent, but for a drift."""

    def __init__(self, drift: tuple[float, float]) -> None:
        super().__init__()
        self.drift = drift
        self.position = (0.0, 0.0)
        self.sent: list[tuple[float, float]] = []

    def set_position_um(self, x: float, y: float) -> None:
        self.sent.append((x, y))
        self.position = (x + self.drift[0], y + self.drift[1])

    def get_position_um(self) -> tuple[float, float]:
        return self.position

    def set_origin_x(self) -> None: ...

    def set_origin_y(self) -> None: ...

    def home(self) -> None: ...

    def stop(self) -> None: ...


class Shutter(ShutterDevice):
    is_open = False

    def get_open(self) -> bool:
        return self.is_open

    def set_open(self, open: bool) -> None:
        self.is_open = open


class Camera(CameraDevice):
    """Takes the window of a scene at the middle of which the stage stands."""

    def __init__(self, scene: Tensor, stage: Stage, scale: Scale) -> None:
        super().__init__()
        self._sensor = ImageSensor(scene[None], scale.glimpse_size)
        self._stage, self._scale = stage, scale
        self.exposure = 10.0
        self.before: Callable[[int], None] = lambda number: None
        """Called before each frame with its number, from 1; what it raises is lost to the frame."""
        self.frames = 0
        self.threads: set[str] = set()

    def get_exposure(self) -> float:
        return self.exposure

    def set_exposure(self, exposure: float) -> None:
        self.exposure = exposure

    def shape(self) -> tuple[int, int]:
        return (self._scale.glimpse_size, self._scale.glimpse_size)

    def dtype(self) -> type[np.uint8]:
        return np.uint8

    def start_sequence(self, n: int | None, get_buffer: Callable[..., np.ndarray]) -> Iterator[Mapping[str, str]]:
        for _ in range(n or 0):
            self.frames += 1
            self.threads.add(threading.current_thread().name)
            self.before(self.frames)
            where = self._scale.from_stage([self._stage.get_position_um()]).round().long()
            get_buffer(self.shape(), self.dtype())[:] = self._sensor.look(where)[0, 0].numpy()
            yield {}


class Microscope:
    """Its core, and the devices that tests look into."""

    def __init__(self, scene: Tensor, scale: Scale, drift: tuple[float, float] = (0.0, 0.0)) -> None:
        self.stage, self.shutter = Stage(drift), Shutter()
        self.camera = Camera(scene, self.stage, scale)
        self.core = UniMMCore()
        for name, device in (("stage", self.stage), ("shutter", self.shutter), ("camera", self.camera)):
            self.core.loadPyDevice(name, device)
            self.core.initializeDevice(name)
        self.core.setXYStageDevice("stage")
        self.core.setShutterDevice("shutter")
        self.core.setCameraDevice("camera")
