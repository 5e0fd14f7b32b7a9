"""What a camera or a service hands out, as a glimpse: channels first, of the model's size and channel count, uint8 or float in [0, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Num
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.sensors.area import reduced


@dataclass(frozen=True, kw_only=True)
class CropForm:
    """What crops become."""

    glimpse_size: int
    """Side in pixels. A larger crop is brought to it, each pixel the mean over the area that it covers."""
    crop_size: int | None = None
    """Side that every crop must have; None allows any from that of a glimpse on."""
    channels: int | None = None
    """Of the model: grey crops are repeated as often. None leaves them as they are."""
    white: float | None = None
    """The value that is white; what is above it is white too. If None, 255 of uint8 and 1 of floats; other types need it."""

    def __post_init__(self) -> None:
        if self.glimpse_size < 1:
            raise InfogazeError(f"glimpse_size is {self.glimpse_size}; it must be at least 1")
        if self.channels is not None and self.channels < 1:
            raise InfogazeError(f"channels is {self.channels}; it must be at least 1")
        if self.white is not None and not 0.0 < self.white < float("inf"):
            raise InfogazeError(f"white is {self.white}; it must be above 0")

    def glimpse(self, crop: Any) -> Num[Tensor, "C g g"]:
        """A square crop [s, s], [s, s, C] or [C, s, s] as a glimpse."""
        pixels = _channels_last(np.asarray(crop.cpu() if isinstance(crop, Tensor) else crop))
        if len(pixels) < self.glimpse_size or self.crop_size not in {None, len(pixels)}:
            allowed = f"at least {self.glimpse_size}" if self.crop_size is None else self.crop_size
            raise InfogazeError(f"a crop has {len(pixels)} pixels a side; {allowed} are needed")
        if self.channels is not None and pixels.shape[-1] != self.channels:
            if pixels.shape[-1] != 1:
                raise InfogazeError(f"a crop has {pixels.shape[-1]} channels; the model takes {self.channels}")
            pixels = np.repeat(pixels, self.channels, -1)
        white = self.white
        if white is None and not (pixels.dtype == np.uint8 or pixels.dtype.kind == "f"):
            raise InfogazeError(f"a crop is {pixels.dtype}; give white=, the value that is white")
        if white is None and pixels.dtype == np.uint8:
            if len(pixels) == self.glimpse_size:
                return torch.from_numpy(pixels.transpose(2, 0, 1).copy())
            white = 255.0
        values = reduced(pixels, self.glimpse_size).astype(np.float64)
        if white is not None:
            values = np.minimum(values / white, 1.0)
        return torch.from_numpy(values.transpose(2, 0, 1).astype(np.float32))


def _channels_last(crop: np.ndarray) -> np.ndarray:
    if crop.ndim == 2:
        crop = crop[..., None]
    elif crop.ndim == 3 and crop.shape[1] == crop.shape[2]:
        crop = crop.transpose(1, 2, 0)
    if crop.ndim != 3 or crop.shape[0] != crop.shape[1] or not crop.size:
        raise InfogazeError(f"a crop has shape {crop.shape}; a square [s, s], [s, s, C] or [C, s, s] is needed")
    return crop
