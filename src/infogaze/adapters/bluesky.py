"""A bluesky RunEngine scans where an episode asks: an optimizer for bluesky-adaptive, and glimpses read off documents.

`scan` is a plan that does it all. Its parts are for those with a plan of their own: `GlimpseOptimizer` is bluesky-adaptive's `Optimizer`
around an episode, `GlimpseDocuments` its evaluation function.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Num
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.gaze.episode import Episode
from infogaze.gaze.scale import Scale

try:
    from bluesky.preprocessors import msg_mutator, subs_wrapper
    from bluesky.protocols import Readable
    from bluesky.utils import FailedStatus, Msg, MsgGenerator
    from bluesky_adaptive.plans import default_acquire, optimize
    from bluesky_adaptive.protocols import ID_KEY, Actuator, OptimizationProblem
    from event_model import Filler, unpack_event_page
except ImportError as error:
    raise InfogazeError(
        f"infogaze.adapters.bluesky needs the extra 'bluesky' ({error}): pip install 'infogaze[bluesky]'"
    ) from None

UNITS = {"nm": 0.001, "um": 1.0, "mm": 1000.0}
"""What axes may count in, in micrometres."""
GLIMPSE = "glimpse"
"""The outcome with what was seen: uint8 or float in [0, 1], [C, g, g], or [g, g] of one channel."""
READBACK = "_readback"
"""Behind the name of an axis: the outcome with where it really stood."""
FAILURES = (FailedStatus, OSError)
"""What a device raises that fails; to be late is an OSError too. Anything else is a mistake, and ends the plan."""


class GlimpseOptimizer:
    """An episode of one scene as bluesky-adaptive wants it: it suggests where the axes should stand, and ingests what was seen there.

    It suggests one place at a time, because the next depends on what is seen. A place whose look failed is suggested again, until it was
    tried `attempts` times; then the episode leaves it out.
    """

    def __init__(
        self,
        episode: Episode,
        scale: Scale,
        *,
        axes: tuple[str, str],
        unit: str = "um",
        attempts: int = 2,
        save_to: str | os.PathLike[str] | None = None,
    ) -> None:
        """`axes` are the names of those for x and y; `save_to` is where `checkpoint` writes the episode."""
        if episode.batch != 1:
            raise InfogazeError(f"the episode has {episode.batch} scenes; two axes look at one")
        if attempts < 1:
            raise InfogazeError(f"attempts is {attempts}; it must be at least 1")
        if unit not in UNITS:
            raise InfogazeError(f"unit is {unit!r}; {', '.join(UNITS)} are allowed")
        self.episode = episode
        """What is looked at and believed."""
        self.failures = 0
        """How many looks failed, those that were made again among them."""
        self._scale, self._axes, self._micrometres = scale, axes, UNITS[unit]
        self._attempts, self._save_to = attempts, save_to
        self._number = 0  # of the suggestion that is waited for
        self._failed_here = 0

    def suggest(self, num_points: int | None = None) -> list[dict[str, Any]]:
        """Where the axes, x and y, should stand for the next look."""
        if num_points not in {None, 1}:
            raise InfogazeError(f"n_points is {num_points}; places are suggested one at a time, with n_points=1")
        self._number += 1
        return [{ID_KEY: self._number, **self._position(self.episode.next_location())}]

    def ingest(self, points: Sequence[Mapping[str, Any]]) -> None:
        """Take in what was seen, and where the axes really stood; a point that was not suggested too, as seen where its axes say."""
        for point in points:
            glimpse = np.asarray(point[GLIMPSE])
            glimpse = glimpse[None, None] if glimpse.ndim == 2 else glimpse[None]
            stood = [point.get(f"{axis}{READBACK}", point.get(axis)) for axis in self._axes]
            where = None
            if None not in stood:
                where = self._scale.from_stage([[self._micrometres * float(value) for value in stood]]).float()
            if point[ID_KEY] == self._number:
                self.episode.observe(glimpse, reached=where)
            else:
                self.episode.observe(glimpse, at=where)
            self._failed_here = 0

    def should_stop(self) -> tuple[bool, str | None]:
        """Whether the episode is over, and why: its stop rule, its budget, or no location left."""
        return self.episode.done, self.episode.ended_by[0]

    def register_failures(self, suggestions: Sequence[Mapping[str, Any]]) -> None:
        """Count a look that failed. A mistake in a program is none, nor is a plan that was paused, stopped or aborted."""
        error = sys.exception()
        if error is not None and not isinstance(error, FAILURES):
            return
        self.failures += 1
        self._failed_here += 1
        if self._failed_here >= self._attempts:
            self._failed_here = 0
            self.episode.skip()

    def checkpoint(self) -> None:
        """Write the episode to its file, from which `Agent.resume` takes it up again."""
        if self._save_to is None:
            raise InfogazeError("there is no file to write checkpoints to; give save_to=")
        self.episode.save(self._save_to)

    def get_best_points(self) -> list[tuple[int, dict[str, float], dict[str, float]]]:
        """The look that told most about the label: the one by which the entropy fell most. None before the first look."""
        history = self.episode.history
        if not history:
            return []
        entropies = [math.log(history[0].probabilities.shape[1]), *(float(look.entropy) for look in history)]
        fell = [before - after for before, after in pairwise(entropies)]
        best = fell.index(max(fell))
        return [(best + 1, self._position(history[best].location), {"entropy": entropies[best + 1]})]

    def _position(self, location: Num[Tensor, "1 2"]) -> dict[str, float]:
        """Where the axes stand for a location, by their names."""
        (position,) = (self._scale.to_stage(location) / self._micrometres).tolist()
        return dict(zip(self._axes, position, strict=True))


class GlimpseDocuments:
    """Reads glimpses off the documents of a run: subscribe its `receive` to the RunEngine, and give itself as the evaluation function."""

    def __init__(
        self,
        image: str,
        *,
        readbacks: Mapping[str, str],
        to_glimpse: Callable[[np.ndarray], np.ndarray] | None = None,
        handlers: dict[str, Callable[..., Any]] | None = None,
    ) -> None:
        """`image` is the data key of the detector's picture, `readbacks` those of where the axes stood, by the axes' names.

        `to_glimpse` makes a glimpse of a picture that is none: [g, g] or [C, g, g], uint8 or float in [0, 1]. `handlers` open data that
        documents only point to, as event_model's `Filler` takes them, by their spec.
        """
        self._image, self._readbacks, self._to_glimpse = image, dict(readbacks), to_glimpse
        self._filler = None if handlers is None else Filler(handlers, inplace=False)
        self._runs: dict[str, str] = {}
        self._last: tuple[str, Mapping[str, Any]] | None = None

    def receive(self, name: str, doc: Any) -> None:
        """Take a document; what is kept is the last event with a picture, and which run it is of."""
        if self._filler is not None:
            name, doc = self._filler(name, doc)
        if name == "start":
            self._last = None
        elif name == "descriptor":
            if self._image in doc["data_keys"]:
                self._runs[doc["uid"]] = doc["run_start"]
        elif name == "event" and doc["descriptor"] in self._runs:
            self._last = (self._runs[doc["descriptor"]], doc)
        elif name == "event_page":
            for event in unpack_event_page(doc):
                self.receive("event", event)

    def __call__(self, uid: Any, suggestions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """What was seen at the one suggestion, and where the axes stood: the event of the run `uid`, or of the run that is open."""
        (suggestion,) = suggestions
        run, event = self._last or (None, None)
        self._last = None
        if event is None or (isinstance(uid, str) and uid != run):
            raise InfogazeError(
                f"no event of the run holds {self._image!r}; give image= as the detector names it, and subscribe `receive`"
            )
        data = event["data"]
        if not event.get("filled", {}).get(self._image, True):
            raise InfogazeError(f"{self._image!r} is data outside the documents; give handlers= that open it")
        picture = np.asarray(data[self._image])
        seen = picture if self._to_glimpse is None else self._to_glimpse(picture)
        stood = {f"{axis}{READBACK}": float(data[key]) for axis, key in self._readbacks.items() if key in data}
        return [{ID_KEY: suggestion[ID_KEY], GLIMPSE: seen, **stood}]


def scan(
    episode: Episode,
    scale: Scale,
    *,
    axes: tuple[Actuator, Actuator],
    detector: Readable[Any],
    image: str | None = None,
    unit: str = "um",
    attempts: int = 2,
    timeout: float | None = None,
    save_to: str | os.PathLike[str] | None = None,
    to_glimpse: Callable[[np.ndarray], np.ndarray] | None = None,
    handlers: dict[str, Callable[..., Any]] | None = None,
) -> MsgGenerator[GlimpseOptimizer]:
    """Move the `axes`, x and y, to where the episode asks, and read the `detector`, until the episode is over.

    It is bluesky-adaptive's `optimize` with its default acquisition. A look fails when a device does, or when it takes more than `timeout`
    seconds to move or to read; the run is then closed as failed, and another goes on. After every look the episode is written to the file
    `save_to`, from which `Agent.resume` takes it up again.
    """
    names = (axes[0].name, axes[1].name)
    optimizer = GlimpseOptimizer(episode, scale, axes=names, unit=unit, attempts=attempts, save_to=save_to)
    documents = GlimpseDocuments(
        detector.name if image is None else image,
        readbacks={axis.name: _readback(axis) for axis in axes},
        to_glimpse=to_glimpse,
        handlers=handlers,
    )
    problem = OptimizationProblem(
        optimizer=optimizer,
        actuators=axes,
        sensors=[detector],
        evaluation_function=documents,
        acquisition_plan=partial(_acquire, timeout=timeout),
    )

    def looks() -> MsgGenerator[GlimpseOptimizer]:
        while not episode.done:
            before = optimizer.failures
            try:
                yield from optimize(problem, iterations=None, checkpoint_interval=None if save_to is None else 1)
            except FAILURES:
                if optimizer.failures == before:
                    raise
        if save_to is not None:
            optimizer.checkpoint()  # optimize ends before it writes the last
        return optimizer

    return (yield from subs_wrapper(looks(), documents.receive))


def _acquire(*args: Any, timeout: float | None, **kwargs: Any) -> MsgGenerator[str]:
    """The default acquisition, whose devices have so many seconds for each thing they do."""

    def limited(msg: Msg) -> Msg:
        if msg.command != "wait" or msg.kwargs.get("timeout") is not None:
            return msg
        return msg._replace(kwargs={**msg.kwargs, "timeout": timeout})

    return (yield from msg_mutator(default_acquire(*args, **kwargs), limited))


def _readback(axis: Actuator) -> str:
    """The data key that says where an axis stands: its first hint, or its name."""
    fields = getattr(axis, "hints", {}).get("fields", [])
    return fields[0] if fields else axis.name
