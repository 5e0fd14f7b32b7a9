"""The embedded set to search in: a small handwritten digit anywhere on a larger canvas, among pieces of other digits.

As in cluttered translated MNIST (Mnih et al., 2014), made from scikit-learn's digits. Most places hold nothing or a distractor, so that
looks at random seldom meet the digit, and what was seen says little about where it is.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from infogaze.data.digits import DIGITS, handwritten, parted
from infogaze.data.sets import ImageSet, Split

_CANVAS = 40
_SIDE = 12
_PIECE = 6
"""Side of a distractor."""
_PIECES = 10
"""Distractors in a scene."""
_TEST_COPIES = 4
_NOISE = 8.0  # standard deviation, of 255


def cluttered(seed: int = 0, copies: int = 16) -> ImageSet:
    """Train and test digits, and the distractors with them, are of different drawings: 1197, each in `copies` scenes, and 600, in four."""
    small, labels = handwritten()
    images = functional.interpolate(small[:, None], size=(_SIDE, _SIDE), mode="bicubic", align_corners=False)
    images = images[:, 0].clamp(0, 1)
    generator = torch.Generator().manual_seed(seed)
    train, test = parted(len(labels), generator)
    return ImageSet(
        train=_render(images[train], labels[train], copies=copies, generator=generator),
        test=_render(images[test], labels[test], copies=_TEST_COPIES, generator=generator),
        classes=DIGITS,
    )


def _render(
    drawings: Float[Tensor, "N s s"], labels: Int[Tensor, " N"], *, copies: int, generator: torch.Generator
) -> Split:
    count = len(drawings) * copies
    canvas = torch.zeros(count, _CANVAS, _CANVAS)
    for _ in range(_PIECES):
        source = torch.randint(len(drawings), (count,), generator=generator)
        pieces = _windows(drawings[source], _corners(count, _SIDE - _PIECE, generator), _PIECE)
        _paste(canvas, pieces, _corners(count, _CANVAS - _PIECE, generator))
    # The digit last: no distractor covers it.
    _paste(canvas, drawings.repeat(copies, 1, 1), _corners(count, _CANVAS - _SIDE, generator), over=True)
    noisy = canvas * 255 + _NOISE * torch.randn(canvas.shape, generator=generator)
    return Split(noisy.round().clamp(0, 255).to(torch.uint8)[:, None], labels.repeat(copies))


def _corners(count: int, room: int, generator: torch.Generator) -> Int[Tensor, "N 2"]:
    return torch.randint(0, room + 1, (count, 2), generator=generator)


def _window(corner: Int[Tensor, "N 2"], side: int) -> tuple[Tensor, Tensor, Tensor]:
    """The indices of a square window of each image."""
    rows, cols = (corner[:, axis, None] + torch.arange(side) for axis in range(2))
    return torch.arange(len(corner))[:, None, None], rows[:, :, None], cols[:, None, :]


def _windows(images: Float[Tensor, "N h w"], corner: Int[Tensor, "N 2"], side: int) -> Float[Tensor, "N p p"]:
    return images[_window(corner, side)]


def _paste(
    canvas: Float[Tensor, "N H W"], pieces: Float[Tensor, "N p p"], corner: Int[Tensor, "N 2"], *, over: bool = False
) -> None:
    """Draw over what is there, or where both have ink as dark as the darker."""
    window = _window(corner, pieces.shape[-1])
    canvas[window] = pieces if over else torch.maximum(canvas[window], pieces)
