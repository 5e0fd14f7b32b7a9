"""A microscope under pymmcore-plus scans where an episode asks: `run_mda` over a queue of events, and glimpses from `frameReady`.

Two threads meet in two queues. The caller's thread holds the episode, puts events into the one and waits for signs in the other. The
acquisition's thread takes events, and gives a sign for every frame and whenever it is done with an event: so a frame that was lost is
noticed at once. Neither waits for the other without end. The caller waits for at most `timeout` seconds without a sign, and then or when it
is interrupted tells the acquisition that there are no more events.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import TracebackType
from typing import Any

import numpy as np
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.gaze.episode import Episode
from infogaze.gaze.scale import Scale

_LEVEL = logging.root.level
try:
    from pymmcore_plus import CMMCorePlus
    from useq import MDAEvent
except ImportError as error:
    raise InfogazeError(
        f"infogaze.adapters.micromanager needs the extra 'micromanager' ({error}): pip install 'infogaze[micromanager]'"
    ) from None
finally:
    logging.root.setLevel(_LEVEL)  # pymmcore-plus has just set it to DEBUG, for every library of the program

_KEY = "infogaze_look"
"""Of an event's metadata: the number of the event."""
_POLL = 0.05  # seconds from one look at whether the acquisition is alive to the next


def scan(
    mmc: CMMCorePlus,
    episode: Episode,
    scale: Scale,
    *,
    event: MDAEvent | None = None,
    attempts: int = 2,
    timeout: float = 30.0,
    save_to: str | os.PathLike[str] | None = None,
    to_glimpse: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Episode:
    """Move the stage to where the episode asks, and take frames, until the episode is over or the acquisition is cancelled.

    Returns the episode, which goes on from where it is if it is given again. `event` is what all looks share: exposure, channel, z.
    A look that gives no frame is made again, `attempts` times in all; then the episode leaves its place out. It is an error if the
    acquisition does nothing for `timeout` seconds. `to_glimpse` makes a glimpse of a frame that is none: [g, g], [g, g, C] or [C, g, g],
    uint8 or float in [0, 1]. After every look the episode is written to the file `save_to`, from which `Agent.resume` takes it up again.
    """
    if episode.batch != 1:
        raise InfogazeError(f"the episode has {episode.batch} scenes; a stage looks at one")
    if attempts < 1:
        raise InfogazeError(f"attempts is {attempts}; it must be at least 1")
    if not 0.0 < timeout <= threading.TIMEOUT_MAX:
        raise InfogazeError(f"timeout is {timeout}; a number of seconds above 0 is needed")
    if mmc.mda.is_running():
        raise InfogazeError("an acquisition is running already; wait for its end, or cancel it")
    try:
        with _Acquisition(mmc, MDAEvent() if event is None else event, timeout) as acquisition:
            while not episode.done:
                (position,) = scale.to_stage(episode.next_location()).tolist()
                tried = (acquisition.look(*position) for _ in range(attempts))
                frame = next((found for found in tried if found is not None), None)
                if frame is None:
                    episode.skip()
                    continue
                seen = frame.image if to_glimpse is None else to_glimpse(frame.image)
                episode.observe(_channels_first(seen)[None], reached=_location(frame.position, scale))
                if save_to is not None:
                    episode.save(save_to)
    except _Cancelled:
        pass
    return episode


@dataclass(frozen=True)
class _Frame:
    number: int
    image: np.ndarray
    position: Mapping[str, float]


@dataclass(frozen=True)
class _Done:
    """With this event, whether it gave a frame or not."""

    number: int


class _Cancelled(Exception):
    """The acquisition was, by its user."""


class _Acquisition(Iterator[MDAEvent]):
    """The events of an acquisition that runs while the context lasts, each given when a look is asked for."""

    def __init__(self, mmc: CMMCorePlus, event: MDAEvent, timeout: float) -> None:
        self._mmc, self._event, self._timeout = mmc, event, timeout
        self._events: queue.Queue[MDAEvent | None] = queue.Queue()
        self._signs: queue.Queue[_Frame | _Done] = queue.Queue()
        self._number = 0  # of the last event given
        self._done = 0  # of the last event that the acquisition took; its thread alone reads and writes it
        self._cancelled = threading.Event()
        self._silent = False

    def __enter__(self) -> _Acquisition:
        self._mmc.mda.events.frameReady.connect(self._on_frame, *_at_once(self._mmc.mda.events))
        self._mmc.mda.events.sequenceCanceled.connect(self._on_cancel, *_at_once(self._mmc.mda.events))
        self._thread = self._mmc.run_mda(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._thread.is_alive():
            self._mmc.mda.cancel()  # first, so that an event that still waits is not carried out
        self._events.put(None)
        if not self._silent:
            self._thread.join(self._timeout)
        self._mmc.mda.events.frameReady.disconnect(self._on_frame)
        self._mmc.mda.events.sequenceCanceled.disconnect(self._on_cancel)

    def look(self, x: float, y: float) -> _Frame | None:
        """The frame taken at this position; None if it was lost."""
        self._number += 1
        at = {"x_pos": x, "y_pos": y, "metadata": {**self._event.metadata, _KEY: self._number}}
        self._events.put(self._event.replace(**at))
        since = time.monotonic()
        while True:
            alive = self._thread.is_alive()
            try:
                sign = self._signs.get(timeout=_POLL)
            except queue.Empty:
                if not alive and self._cancelled.is_set():
                    raise _Cancelled from None
                if not alive:
                    raise InfogazeError(
                        "the acquisition ended by an error, before the episode did; see pymmcore-plus's log"
                    ) from None
                if self._mmc.mda.is_paused():
                    since = time.monotonic()
                if time.monotonic() - since > self._timeout:
                    self._silent = True
                    raise InfogazeError(
                        f"the microscope did nothing for {self._timeout:g} seconds, sent to x {x:g}, y {y:g} um; "
                        "see pymmcore-plus's log, or give a longer timeout="
                    ) from None
                continue
            if sign.number == self._number:
                return sign if isinstance(sign, _Frame) else None

    def __next__(self) -> MDAEvent:
        """What the acquisition's thread asks for when it is done with the event before."""
        self._signs.put(_Done(self._done))
        event = self._events.get()
        if event is None:
            raise StopIteration
        self._done = event.metadata[_KEY]
        return event

    def _on_frame(self, image: np.ndarray, event: MDAEvent, meta: Mapping[str, Any]) -> None:
        if _KEY in event.metadata:
            self._signs.put(_Frame(event.metadata[_KEY], image, meta.get("position", {})))

    def _on_cancel(self) -> None:
        self._cancelled.set()


def _at_once(events: object) -> tuple[Any, ...]:
    """What signals are connected with, so that they call in the thread that gives them.

    In a program with Qt they are Qt's, and would else wait for the event loop of the caller's thread, which waits for them.
    """
    if "qtpy" not in sys.modules:
        return ()
    core = import_module("qtpy.QtCore")
    return (core.Qt.ConnectionType.DirectConnection,) if isinstance(events, core.QObject) else ()


def _location(position: Mapping[str, float], scale: Scale) -> Tensor | None:
    """Where a frame was taken; None where it does not say so."""
    if "x" not in position or "y" not in position:
        return None
    return scale.from_stage([[position["x"], position["y"]]]).float()


def _channels_first(frame: np.ndarray) -> np.ndarray:
    """A frame as [C, g, g]."""
    if frame.ndim == 2:
        return frame[None]
    return frame.transpose(2, 0, 1) if frame.ndim == 3 and frame.shape[0] == frame.shape[1] else frame
