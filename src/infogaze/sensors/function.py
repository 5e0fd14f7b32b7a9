"""Any Python callable as a sensor: one scene and one place at a time, in pixels of the scene or micrometres of a stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Num
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.gaze.scale import Scale
from infogaze.gaze.sensor import LookFailed, Seen
from infogaze.grid import Location, tensor_of
from infogaze.sensors.crops import CropForm

Snap = Callable[[float, float], Any]
"""A picture of a place: `snap(row, col)`, or `snap(x, y)` where there is a scale."""


@dataclass(frozen=True)
class _Look:
    """Of one scene."""

    glimpse: Num[Tensor, "C g g"]
    at: Num[Tensor, " 2"] | None


class CallableSensor:
    """A sensor that calls `snap(row, col)` for a square crop; of several scenes, one callable each.

    With `scale` it calls `snap(x, y)`, the middle of the glimpse in micrometres of the stage. A crop is [s, s], [s, s, C] or [C, s, s], and
    with more pixels than a glimpse it is brought to its size. `snap` may return `(crop, (row, col))` or `(crop, (x, y))`: what it saw, and
    where it really was. By raising LookFailed it gives the place of its scene up.
    """

    def __init__(
        self,
        snap: Snap | Sequence[Snap],
        glimpse_size: int,
        *,
        scale: Scale | None = None,
        channels: int | None = None,
        white: float | None = None,
    ) -> None:
        """`channels` are those of the model, for which grey crops are repeated. `white` is the value that is white, which crops of other
        types than uint8 and floats in [0, 1] need."""
        self._snaps = (snap,) if callable(snap) else tuple(snap)
        if not self._snaps or not all(callable(one) for one in self._snaps):
            raise InfogazeError(f"snap is {snap!r}; a callable is needed, or one for each scene")
        self._form = CropForm(glimpse_size=glimpse_size, channels=channels, white=white)
        self._scale = scale
        self._kept: dict[int, tuple[list[float], _Look]] = {}  # looks that succeeded beside one that failed
        if scale is not None and scale.glimpse_size != glimpse_size:
            raise InfogazeError(
                f"the scale is for glimpses of {scale.glimpse_size} pixels, and these have {glimpse_size}"
            )

    def look(self, where: Location) -> Num[Tensor, "B C g g"] | Seen:
        """The glimpses at `where`, and where they really were or which failed, if any scene said so."""
        where = tensor_of(where)
        if where.shape != (len(self._snaps), 2):
            raise InfogazeError(
                f"locations have shape {tuple(where.shape)}; ({len(self._snaps)}, 2) is expected, one for each scene"
            )
        asked = (where if self._scale is None else self._scale.to_stage(where)).tolist()
        looks = [self._look(scene, position) for scene, position in enumerate(asked)]
        failed = [look is None for look in looks]
        # When other scenes are looked at again, what was seen here is not photographed twice.
        kept = {scene: (asked[scene], look) for scene, look in enumerate(looks) if look is not None}
        self._kept = kept if any(failed) else {}
        done = [look for look in looks if look is not None]
        if not done:
            raise LookFailed("no scene could be looked at")
        glimpse = torch.stack([torch.zeros_like(done[0].glimpse) if look is None else look.glimpse for look in looks])
        at = None
        if any(look.at is not None for look in done):
            reported = [None if look is None else look.at for look in looks]
            at = torch.stack([where[i].double() if one is None else one for i, one in enumerate(reported)])
        elif not any(failed):
            return glimpse
        return Seen(glimpse, at, failed)

    def _look(self, scene: int, position: list[float]) -> _Look | None:
        """One scene's; None where it failed."""
        before, look = self._kept.get(scene, ([], None))
        if before == position:
            return look
        try:
            crop, at = _taken_apart(self._snaps[scene](*position))
        except LookFailed:
            return None
        return _Look(self._form.glimpse(crop), None if at is None else self._row_and_col(at))

    def _row_and_col(self, at: Any) -> Num[Tensor, " 2"]:
        location = torch.as_tensor(at, dtype=torch.float64) if self._scale is None else self._scale.from_stage(at)
        if location.shape != (2,):
            raise InfogazeError(f"a place is reported as {at!r}; two numbers are needed")
        return location


def _taken_apart(answer: Any) -> tuple[Any, Any]:
    """A crop, and where it was taken if that is said."""
    return answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
