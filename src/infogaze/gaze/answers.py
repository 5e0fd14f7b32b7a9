"""What a sensor said of a batch of scenes, put together over several attempts: of each scene, the first look that did not fail."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Num
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.gaze.sensor import Seen
from infogaze.grid import tensor_of


@dataclass(frozen=True)
class Answers:
    """The looks that succeeded so far; those of other scenes are zeros at the places asked for."""

    glimpse: Num[Tensor, "B C g g"]
    at: Num[Tensor, "B 2"]
    reported: bool
    """Whether any place is as a sensor said, and not as it was asked."""

    def seen(self, failed: Bool[Tensor, " B"] | None = None) -> Seen:
        """As a sensor says it."""
        return Seen(self.glimpse, self.at if self.reported else None, failed)


def gathered(
    before: Answers | None,
    answer: Num[Tensor, "B C g g"] | np.ndarray | Seen,
    *,
    where: Num[Tensor, "B 2"],
    lacking: Bool[Tensor, " B"],
) -> tuple[Answers, Bool[Tensor, " B"]]:
    """The answers with a new one for the scenes that lack one, and the scenes that still do."""
    seen = answer if isinstance(answer, Seen) else Seen(answer)
    glimpse = tensor_of(seen.glimpse).to(where.device)
    failed = torch.zeros_like(lacking) if seen.failed is None else torch.as_tensor(seen.failed, device=where.device)
    if failed.dtype != torch.bool or failed.shape != lacking.shape or glimpse.shape[:1] != lacking.shape:
        raise InfogazeError(
            f"the sensor says that looks failed as {failed.dtype} of shape {tuple(failed.shape)}, of glimpses of shape "
            f"{tuple(glimpse.shape)}; bool of shape ({len(where)},) is needed"
        )
    at = where if seen.at is None else tensor_of(seen.at).to(where.device).expand(where.shape)
    # What a failed look left behind may be anything, and is not used.
    at, glimpse = torch.where(failed[:, None], where, at), glimpse.masked_fill(failed[:, None, None, None], 0)
    reported = seen.at is not None
    if before is not None:
        if (glimpse.shape, glimpse.dtype) != (before.glimpse.shape, before.glimpse.dtype):
            raise InfogazeError(
                f"the sensor gave {glimpse.dtype} of shape {tuple(glimpse.shape)} after {before.glimpse.dtype} of shape "
                f"{tuple(before.glimpse.shape)}; glimpses of one kind are needed"
            )
        glimpse = torch.where(lacking[:, None, None, None], glimpse, before.glimpse)
        at = torch.where(lacking[:, None], at, before.at)
        reported = reported or before.reported
    return Answers(glimpse, at, reported), lacking & failed
