"""How long looks take, as options of a command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from infogaze.errors import InfogazeError
from infogaze.gaze.travel import Stage, Travel

_NUMBER = tyro.conf.arg(metavar="FLOAT", help_behavior_hint="")


@dataclass(frozen=True, kw_only=True)
class TravelOptions:
    """A sensor that has to get to where it looks. With any of these, looks are chosen by gain a second."""

    seconds: Annotated[float | None, _NUMBER] = None
    """The most that all looks may take; the number of looks is then no limit, unless --budget is given too."""
    exposure: Annotated[float | None, _NUMBER] = None
    """Seconds of each look itself; 1 if not given."""
    speed: Annotated[tuple[float, ...], tyro.conf.arg(metavar="FLOAT [FLOAT]", help_behavior_hint="")] = ()
    """Pixels a second of the way, or those up and down and those left and right: both axes move at once. The way takes no time if neither
    this nor --way is given."""
    settle: Annotated[float | None, _NUMBER] = None
    """Seconds that any move takes beyond its way."""
    way: Annotated[Path | None, tyro.conf.arg(metavar="CSV", help_behavior_hint="")] = None
    """A file of numbers with commas between them: the seconds from each place of the grid (a line) to each place, row by row; inf where
    there is no way."""
    start: Annotated[tuple[float, float] | None, tyro.conf.arg(metavar="ROW COL", help_behavior_hint="")] = None
    """Where the sensor is at first; if not given, where the first look is."""

    def travel(self) -> Travel | None:
        """What they say together; None where none is given."""
        if self == TravelOptions():
            return None
        if len(self.speed) > 2:
            raise InfogazeError(
                f"--speed has {len(self.speed)} numbers; one, or one of the rows and one of the columns"
            )
        exposure = 1.0 if self.exposure is None else self.exposure
        if self.way is not None:
            if self.speed or self.settle is not None:
                raise InfogazeError("--way says how long every way takes; --speed and --settle do not go with it")
            return Travel(way=_matrix(self.way), exposure=exposure, start=self.start)
        speed = self.speed[0] if len(self.speed) == 1 else (self.speed or (np.inf, np.inf))
        settle = 0.0 if self.settle is None else self.settle
        return Travel(way=Stage(speed=speed, settle=settle), exposure=exposure, start=self.start)


def _matrix(path: Path) -> np.ndarray:
    if not path.is_file():
        raise InfogazeError(f"{path}: no such file")
    try:
        return np.loadtxt(path, delimiter=",", ndmin=2)
    except ValueError as error:
        raise InfogazeError(f"{path}: not lines of numbers with commas between them: {error}") from None
