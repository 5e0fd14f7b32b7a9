"""The embedded set: scikit-learn's handwritten digits, enlarged to most of a 32x32 canvas, shifted a little, with noise."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from infogaze.data.sets import ImageSet, Split

_CANVAS = 32
_SIDE = 28
_TEST_DIGITS = 600
DIGITS = tuple(str(digit) for digit in range(10))
"""The names of the classes."""
_NOISE = 12.0  # standard deviation, of 255


def digits(seed: int = 0, copies: int = 8) -> ImageSet:
    """Train and test digits are different drawings: 1197, each rendered `copies` times anew, and 600, each once."""
    images, labels = handwritten()
    generator = torch.Generator().manual_seed(seed)
    train, test = parted(len(labels), generator)
    train = train.repeat(copies)
    return ImageSet(
        train=_render(images[train], labels[train], generator),
        test=_render(images[test], labels[test], generator),
        classes=DIGITS,
    )


def handwritten() -> tuple[Float[Tensor, "N 8 8"], Int[Tensor, " N"]]:
    """The 1797 drawings of scikit-learn, ink from 0 to 1, and their labels."""
    from sklearn.datasets import load_digits  # takes longer than all else that a command begins with

    drawings = load_digits()
    return torch.from_numpy(drawings.images.astype(np.float32) / 16.0), torch.from_numpy(drawings.target).long()


def parted(count: int, generator: torch.Generator) -> tuple[Int[Tensor, " n"], Int[Tensor, " m"]]:
    """Which drawings are for training, and which 600 for testing."""
    order = torch.randperm(count, generator=generator)
    return order[_TEST_DIGITS:], order[:_TEST_DIGITS]


def _render(drawings: Float[Tensor, "N 8 8"], labels: Int[Tensor, " N"], generator: torch.Generator) -> Split:
    large = functional.interpolate(drawings[:, None], size=(_SIDE, _SIDE), mode="bicubic", align_corners=False)[:, 0]
    room = _CANVAS - _SIDE
    corner = torch.randint(0, room + 1, (len(labels), 2), generator=generator)
    canvas = torch.zeros(len(labels), _CANVAS, _CANVAS)
    for top in range(room + 1):
        for left in range(room + 1):
            here = (corner == torch.tensor([top, left])).all(1)
            canvas[here, top : top + _SIDE, left : left + _SIDE] = large[here]
    noisy = canvas.clamp(0, 1) * 255 + _NOISE * torch.randn(canvas.shape, generator=generator)
    return Split(noisy.round().clamp(0, 255).to(torch.uint8)[:, None], labels)
