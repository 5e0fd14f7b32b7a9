"""Any Python callable as a sensor: one scene and one place at a time, in pixels of the scene or micrometres of a stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
        glimpses: list[Tensor | None] = []
        reported: list[Tensor | None] = []
        for snap, position in zip(self._snaps, asked, strict=True):
            try:
                crop, at = _taken_apart(snap(*position))
            except LookFailed:
                crop, at = None, None
            glimpses.append(None if crop is None else self._form.glimpse(crop))
            reported.append(None if at is None else self._row_and_col(at))
        shown = next((glimpse for glimpse in glimpses if glimpse is not None), None)
        if shown is None:
            raise LookFailed("no scene could be looked at")
        failed = [glimpse is None for glimpse in glimpses]
        glimpse = torch.stack([torch.zeros_like(shown) if one is None else one for one in glimpses])
        at = None
        if any(one is not None for one in reported):
            at = torch.stack([where[i].double() if one is None else one for i, one in enumerate(reported)])
        elif not any(failed):
            return glimpse
        return Seen(glimpse, at, failed)

    def _row_and_col(self, at: Any) -> Num[Tensor, " 2"]:
        location = torch.as_tensor(at, dtype=torch.float64) if self._scale is None else self._scale.from_stage(at)
        if location.shape != (2,):
            raise InfogazeError(f"a place is reported as {at!r}; two numbers are needed")
        return location


def _taken_apart(answer: Any) -> tuple[Any, Any]:
    """A crop, and where it was taken if that is said."""
    return answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
