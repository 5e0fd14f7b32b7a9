"""Pixels of one size from pixels of another: each is the mean over the area that it covers."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Num, Shaped


def shares(start: float, step: float, count: int, *, first: int, last: int) -> Float[np.ndarray, "count n"]:
    """How much of each of `count` new pixels lies on the old ones from `first` to before `last`.

    The new ones begin at `start` and are `step` wide, in old ones. Rows add up to 1 where all that a new pixel covers is there.
    """
    begin = start + step * np.arange(count)[:, None]
    pixel = np.arange(first, last)[None]
    overlap = np.minimum(begin + step, pixel + 1) - np.maximum(begin, pixel)
    return overlap.clip(min=0.0) / step


def averaged(
    block: Num[np.ndarray, "h w *rest"], rows: Float[np.ndarray, "g h"], cols: Float[np.ndarray, "k w"]
) -> Float[np.ndarray, "g k *rest"]:
    """The means over a block, by the shares of its rows and of its columns."""
    return np.moveaxis(np.tensordot(cols, np.tensordot(rows, block, (1, 0)), (1, 1)), 0, 1)


def reduced(crop: Num[np.ndarray, "s s *rest"], side: int) -> Shaped[np.ndarray, "g g *rest"]:
    """A square crop brought to so many pixels a side; one that has them stays as it is, bit by bit."""
    if len(crop) == side:
        return crop
    share = shares(0.0, len(crop) / side, side, first=0, last=len(crop))
    return averaged(crop.astype(np.float64), share, share)
