"""A beamline that is simulated down to its devices: two axes, and a detector over a scene that fails when it is told to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ophyd import Component, Device, DeviceStatus, Signal
from ophyd.sim import SynAxis
from torch import Tensor

from infogaze.gaze.scale import Scale
from infogaze.gaze.sensor import ImageSensor


class Detector(Device):
    """Reads the window of a scene at the middle of which the axes stand."""

    image = Component(Signal, value=np.zeros((8, 8), np.uint8), kind="normal")

    def __init__(self, beamline: Beamline) -> None:
        super().__init__(name="camera")
        self._beamline = beamline
        self.frames = 0
        self.before: Callable[[int], bool] = lambda number: True
        """Called before each frame with its number, from 1; what it raises fails the look, and where it says False, no frame ever comes."""

    def trigger(self) -> DeviceStatus:
        self.frames += 1
        status = DeviceStatus(self)
        try:
            if not self.before(self.frames):
                return status
        except RuntimeError as error:
            status.set_exception(error)
            return status
        self.image.put(self._beamline.window())
        status.set_finished()
        return status


class Beamline:
    """The devices, and what they are pointed at."""

    def __init__(
        self, scene: Tensor, scale: Scale, *, micrometres: float = 1.0, drift: Callable[[float], float] | None = None
    ) -> None:
        self._sensor, self._scale, self._micrometres = ImageSensor(scene[None], scale.glimpse_size), scale, micrometres
        corner = (scale.to_stage([0, 0]) / micrometres).tolist()
        self.x, self.y = (
            SynAxis(name=name, value=value, readback_func=drift)
            for name, value in zip(("stage_x", "stage_y"), corner, strict=True)
        )
        self.detector = Detector(self)

    def window(self) -> np.ndarray:
        """What the detector sees now."""
        stands = [self._micrometres * axis.position for axis in (self.x, self.y)]
        where = self._scale.from_stage([stands]).round().long()
        return self._sensor.look(where)[0, 0].numpy()

    @property
    def axes(self) -> tuple[SynAxis, SynAxis]:
        return self.x, self.y

    @property
    def seen(self) -> list[list[int]]:
        """Where the detector looked."""
        return [where[0].tolist() for where in self._sensor.log]
