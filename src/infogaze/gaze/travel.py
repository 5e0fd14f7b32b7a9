"""Looks that take time: the way from one location to the next, the exposure, and the clock that an episode keeps by them.

How many nats a second a look is worth decides, not how many nats: of two looks as good, the nearer. Pairs of looks were tried, and were
no better (LOG.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Num
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.gaze.policies import Choice, moved
from infogaze.grid import GlimpseGrid

Way = Callable[[Float64[Tensor, "B 1 2"], Float64[Tensor, "B N 2"]], Float[Tensor, "B N"]]
"""The seconds it takes from where the sensor is to other locations, rows and columns in pixels."""

_ROUNDING = 1e-9
"""The share of a budget by which sums of seconds may be off: three looks of 0.1 s fit into 0.3 s."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The way of a stage whose two axes move at once, so that the one that takes longer counts."""

    speed: float | tuple[float, ...] = math.inf
    """Pixels a second; or those of the rows (up and down) and of the columns (left and right)."""
    settle: float = 0.0
    """Seconds until it stands still after any move."""

    def __post_init__(self) -> None:
        if len(self.axes) != 2 or not all(value > 0.0 for value in self.axes):
            raise InfogazeError(f"speed is {self.speed}; one number above 0, or one of the rows and one of the columns")
        if not 0.0 <= self.settle < math.inf:
            raise InfogazeError(f"settle is {self.settle}; it must be at least 0 seconds")

    @property
    def axes(self) -> tuple[float, ...]:
        """The speeds of the rows and of the columns."""
        return self.speed if isinstance(self.speed, tuple) else (self.speed, self.speed)

    def __call__(self, here: Float64[Tensor, "B 1 2"], there: Float64[Tensor, "B N 2"]) -> Float64[Tensor, "B N"]:
        """The seconds of the slower axis, and the time to settle where there is a move at all."""
        distance = (there - here).abs()
        moving = (distance > 0).any(-1)
        return (distance / distance.new_tensor(self.axes)).amax(-1) + self.settle * moving.double()


@dataclass(frozen=True, kw_only=True, eq=False)
class Travel:
    """How long looks take with a sensor that has to get there: the way, and then the exposure."""

    way: Way | np.ndarray | Float[Tensor, "L L"] = field(default_factory=Stage)
    """Seconds of the way alone: a `Stage`, a matrix from each place of the grid (row) to each (column), infinite where there is no way, or
    any function of two locations. By a matrix, a location between places is as far away as the place nearest to it."""
    exposure: float = 1.0
    """Seconds of the look itself."""
    start: tuple[float, float] | None = None
    """Row and column that the sensor points to at first, in the scene or beside it; None: where the first look is, so that there is no way
    to it."""
    weighed: bool = True
    """Whether the next look is the one with the most gain a second, and the last the one with the most gain, where looks are chosen by a
    map; if not, time is counted and changes no choice but that of places too far to be reached in the time left."""

    def __post_init__(self) -> None:
        if not 0.0 < self.exposure < math.inf:
            raise InfogazeError(f"exposure is {self.exposure}; it must be above 0 seconds")
        if isinstance(self.way, np.ndarray | Tensor):
            matrix = torch.as_tensor(np.asarray(self.way.cpu() if isinstance(self.way, Tensor) else self.way)).double()
            if matrix.dim() != 2 or len(matrix) != matrix.shape[-1] or not bool((matrix >= 0).all()):
                raise InfogazeError(
                    f"way is a matrix of shape {tuple(matrix.shape)}; it must be square, of seconds of at least 0, with no NaN"
                )
            object.__setattr__(self, "way", matrix)
        elif not callable(self.way):
            raise InfogazeError(f"way is {self.way!r}; a Stage, a matrix of seconds or a function is needed")

    def seconds(
        self, here: Num[Tensor, "B 2"], there: Num[Tensor, "B N 2"], *, grid: GlimpseGrid
    ) -> Float64[Tensor, "B N"]:
        """What looks at other locations take, way and exposure together; where `here` is NaN, which is nowhere, the exposure alone."""
        here, there = here.double(), there.double()
        if isinstance(self.way, Tensor):
            if len(self.way) != grid.num_locations:
                raise InfogazeError(f"way is a matrix of {len(self.way)} places; the grid has {grid.num_locations}")
            way = self.way.to(here.device)[grid.nearest(here)[:, None], grid.nearest(there)]
        else:
            assert callable(self.way)
            way = self.way(here[:, None], there).double()
            if way.shape != there.shape[:2]:
                raise InfogazeError(f"the way has shape {tuple(way.shape)}; {tuple(there.shape[:2])} is needed")
        way = torch.where(here.isnan().any(-1, keepdim=True), 0.0, way)
        if not isinstance(self.way, Tensor | Stage) and not bool((way >= 0).all()):
            raise InfogazeError(f"the way takes {float(way[~(way >= 0)][0])} seconds; at least 0 is needed")
        return way + self.exposure


class Clock:
    """The time that the looks of an episode have taken, scene by scene, and what is left of it."""

    def __init__(
        self, travel: Travel, *, grid: GlimpseGrid, scenes: int, seconds: float | None, device: torch.device
    ) -> None:
        if seconds is not None and not 0.0 < seconds < math.inf:
            raise InfogazeError(f"seconds is {seconds}; it must be above 0")
        self.travel = travel
        self.seconds = seconds
        """The most that the looks at a scene may take; None: there is no end to it."""
        self.spent: Float64[Tensor, " B"] = torch.zeros(scenes, dtype=torch.float64, device=device)
        """Seconds that the looks at each scene took."""
        start = (math.nan, math.nan) if travel.start is None else travel.start
        self.here: Float64[Tensor, "B 2"] = torch.tensor([start] * scenes, dtype=torch.float64, device=device)
        """Where the sensor points, row and column; NaN before the first look where it may begin anywhere."""
        self._grid = grid
        self._needed: tuple[Tensor, Tensor] | None = None  # from where, and what it takes

    def set(self, *, spent: Float64[Tensor, " B"], here: Float64[Tensor, "B 2"]) -> None:
        """Go on from another state: so much time spent, and the sensor there."""
        self.spent, self.here, self._needed = spent, here, None

    @property
    def needed(self) -> Float64[Tensor, "B L"]:
        """What a look at each place would take now, in seconds."""
        if self._needed is None or self._needed[0] is not self.here:
            places = self._grid.locations(self.here.device)
            self._needed = (self.here, self._seconds_to(places.expand(len(self.here), -1, 2)))
        return self._needed[1]

    @property
    def reachable(self) -> Bool[Tensor, "B L"]:
        """The places that there is a way to, and time for."""
        return self._in_time(self.needed)

    def require_time(self, candidates: Bool[Tensor, "B L"], first: Num[Tensor, "B 2"] | None) -> None:
        """Refuse a budget that ends before the first look."""
        needed = self.needed.masked_fill(~candidates, math.inf) if first is None else self._seconds_to(first[:, None])
        late = ~self._in_time(needed).any(1)
        if bool(late.any()):
            least = float(needed[late].amin(1)[0])
            if least == math.inf:
                raise InfogazeError("there is no way to any location from where the sensor is at first")
            raise InfogazeError(f"seconds is {self.seconds}; the first look takes {least:g} at least")

    def advance(self, location: Num[Tensor, "B 2"], running: Bool[Tensor, " B"]) -> None:
        """Count the way to where was looked, and the exposure, for scenes that go on."""
        taken = self._seconds_to(location[:, None])[:, 0]
        self.spent = torch.where(running, self.spent + taken, self.spent)
        self.here = torch.where(running[:, None], location.double(), self.here)

    def chosen(self, choice: Choice, candidates: Bool[Tensor, "B L"]) -> Choice:
        """The same choice with time taken into account: by gain a second where it has a map. One without, which looks where it likes, is
        moved to the nearest candidate where there is no time for its own."""
        if not choice.has_map:
            late = ~self._in_time(self._seconds_to(choice.location[:, None]))[:, 0]
            return moved(choice, self._grid, candidates=candidates, where=late)
        if not self.travel.weighed:
            return choice
        rate = per_second(choice.gain, self._used(candidates)).masked_fill(~candidates, -math.inf)
        return replace(choice, location=self._grid.locations(self.here.device)[rate.argmax(1)])

    def _used(self, candidates: Bool[Tensor, "B L"]) -> Float64[Tensor, "B L"]:
        """What looks take, and with them the rest of the time where it is too short for any other: the last look has all that is left, and
        so is the one with the most gain. That no other fits is judged by the shortest look from where the sensor is now."""
        if self.seconds is None:
            return self.needed
        left = self.seconds - self.spent[:, None]
        shortest = self.needed.masked_fill(~candidates, math.inf).amin(1, keepdim=True)
        return torch.where(left - self.needed < shortest, left.clamp(min=self.needed), self.needed)

    def _seconds_to(self, there: Tensor) -> Float64[Tensor, "B N"]:
        return self.travel.seconds(self.here, there, grid=self._grid)

    def _in_time(self, needed: Float64[Tensor, "B N"]) -> Bool[Tensor, "B N"]:
        if self.seconds is None:
            return needed.isfinite()
        return self.spent[:, None] + needed <= self.seconds * (1.0 + _ROUNDING)


def per_second(gain: Float[Tensor, "B L"], seconds: Float64[Tensor, "B L"]) -> Float64[Tensor, "B L"]:
    """What looks are worth for the time they take; of two that are worth less than nothing, the longer is the worse."""
    gain = gain.double()
    return torch.where(gain > 0, gain / seconds, gain * seconds)
