"""How a set is to be read. A source knows some of these options; the registry refuses those that mean nothing to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from infogaze.errors import InfogazeError
from infogaze.pictures import Fit
from infogaze.rng import require_seed

LARGEST = 16_384
"""Pixels of a side that an image may be brought to."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options of reading; the defaults take a set as it is."""

    size: tuple[int, int] | None = None
    """Height and width that all images are brought to, with Lanczos. None: as they are, and then all alike."""
    fit: Fit = "resize"
    """How an image is brought to the size: stretched (`resize`), its middle (`crop`), or with black bars (`pad`)."""
    channels: Literal[1, 3] | None = None
    """1 turns all images to grey, 3 to colour. None: as they are, and then all alike."""
    test_share: float = 0.2
    """Share of each class that becomes the test split, where the source has no test split of its own."""
    seed: int = 0
    """Of what is drawn while reading: which images become the test split, how an embedded set is rendered."""
    merge_validation: bool = True
    """Whether a validation split joins the training split, as the paper's authors did; otherwise it stays unused."""

    def __post_init__(self) -> None:
        require_seed(self.seed)
        if self.size is not None and (len(self.size) != 2 or min(self.size) < 1 or max(self.size) > LARGEST):
            raise InfogazeError(f"size is {self.size}; it must be a height and a width of 1 to {LARGEST} pixels")
        if self.fit not in get_args(Fit):
            raise InfogazeError(f"fit is {self.fit!r}; it must be one of {', '.join(get_args(Fit))}")
        if self.channels not in (None, 1, 3):
            raise InfogazeError(f"channels is {self.channels}; it must be 1 or 3")
        if not 0 < self.test_share < 1:
            raise InfogazeError(f"test_share is {self.test_share}; it must be between 0 and 1")


AS_IT_IS = ReadOptions()
