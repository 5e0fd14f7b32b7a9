"""One look of every scene through a sensor, whatever becomes of it: it is taken in, or its place is given up for another."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Num
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.gaze.episode import Episode
from infogaze.gaze.sensor import GlimpseFunction, LookFailed, Seen
from infogaze.grid import tensor_of


def take_look(episode: Episode, look: GlimpseFunction) -> None:
    """Look where the episode asks, and tell it what was seen.

    Scenes whose looks fail are looked at in other places, until each that goes on was seen once. What was seen of the others meanwhile is
    not used: they are as if no look beside them had failed.
    """
    lacking, seen, reported = episode.running, None, False
    while not episode.done:
        where = episode.next_location()
        if not bool(lacking.any()):
            break
        failed = lacking
        with suppress(LookFailed):
            answer = look(where)
            if seen is None and not isinstance(answer, Seen):
                return episode.observe(answer)
            reported = reported or (isinstance(answer, Seen) and answer.at is not None)
            whole = _whole(answer, where)
            seen, failed = whole if seen is None else _either(whole, seen, lacking), lacking & whole.failed
        if not bool(failed.any()):
            break
        episode.skip(failed)
        lacking = failed & episode.running
    if seen is not None and not episode.done:
        episode.observe(seen.glimpse, reached=seen.at if reported else None)
    return None


@dataclass(frozen=True)
class _Whole:
    """An answer in which nothing is left out."""

    glimpse: Num[Tensor, "B C g g"]
    at: Num[Tensor, "B 2"]
    failed: Bool[Tensor, " B"]


def _whole(answer: Num[Tensor, "B C g g"] | np.ndarray | Seen, where: Num[Tensor, "B 2"]) -> _Whole:
    seen = answer if isinstance(answer, Seen) else Seen(answer)
    glimpse = tensor_of(seen.glimpse).to(where.device)
    at = where if seen.at is None else tensor_of(seen.at).to(where.device).expand(where.shape)
    if seen.failed is None:
        return _Whole(glimpse, at, torch.zeros_like(where[:, 0], dtype=torch.bool))
    failed = torch.as_tensor(seen.failed, device=where.device)
    if failed.dtype != torch.bool or failed.shape != where.shape[:1] or glimpse.shape[:1] != where.shape[:1]:
        raise InfogazeError(
            f"the sensor says that looks failed as {failed.dtype} of shape {tuple(failed.shape)}, of glimpses of shape "
            f"{tuple(glimpse.shape)}; bool of shape ({len(where)},) is needed"
        )
    # What a failed look left behind may be anything, and is not used.
    return _Whole(glimpse.masked_fill(failed[:, None, None, None], 0), torch.where(failed[:, None], where, at), failed)


def _either(new: _Whole, old: _Whole, use_new: Bool[Tensor, " B"]) -> _Whole:
    """The new answer for these scenes, the old one for the others."""
    if new.glimpse.shape != old.glimpse.shape or new.glimpse.dtype != old.glimpse.dtype:
        raise InfogazeError(
            f"the sensor gave {new.glimpse.dtype} of shape {tuple(new.glimpse.shape)} after {old.glimpse.dtype} of shape "
            f"{tuple(old.glimpse.shape)}; glimpses of one kind are needed"
        )
    return _Whole(
        torch.where(use_new[:, None, None, None], new.glimpse, old.glimpse),
        torch.where(use_new[:, None], new.at, old.at),
        new.failed,
    )
