"""What may go wrong with a scene before it is looked at: it is shifted, scaled, blurred, made noisy, partly covered or badly exposed; and
with a look: it is taken beside the place that was asked for.

What happens to a scene depends on its image, the severity and its seed alone. All is elementwise, so that neither its batch nor the
choice of an algorithm for it changes a bit. Edge pixels are repeated where a corruption needs what is beyond them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int, Num, UInt8
from scipy.ndimage import gaussian_filter
from torch import Tensor

from infogaze.evaluation.rollouts import SensorOf, clean_sensor
from infogaze.gaze.sensor import ImageSensor
from infogaze.grid import Location, tensor_of
from infogaze.rng import SceneNoise

_GREY = 128
_TRUNCATE = 4.0  # standard deviations, at which a Gaussian is cut off
# Looks are counted from 0: a corruption shares no random number with the first look of a scene that has the same seed.
_BEFORE_ALL_LOOKS = -1


@dataclass(frozen=True, kw_only=True)
class Corruption:
    """One kind, and how strong it is made."""

    unit: str
    """What a severity counts, as it reads after the number."""
    severities: tuple[float, ...]
    """From none, 0, to strong for scenes of 32x32 pixels."""
    apply: Callable[[UInt8[Tensor, "B C H W"], float, Int[Tensor, " B"]], UInt8[Tensor, "B C H W"]]
    """The corrupted images, from images, severity and scene seeds."""
    sensor: Callable[[float], SensorOf] = lambda severity: clean_sensor
    """What looks at them, from the severity."""


def shift(images: UInt8[Tensor, "B C H W"], pixels: float, seeds: Int[Tensor, " B"]) -> UInt8[Tensor, "B C H W"]:
    """Move each scene so many pixels in a direction of its own, to the nearest whole pixel: interpolation would blur it too."""
    height, width = images.shape[-2:]
    angle = 2 * math.pi * _random(images, seeds).uniform()  # [B]
    down, right = ((pixels * side).round().long() for side in (angle.sin(), angle.cos()))
    rows = (torch.arange(height, device=images.device) - down[:, None]).clamp(0, height - 1)  # [B, H]
    cols = (torch.arange(width, device=images.device) - right[:, None]).clamp(0, width - 1)  # [B, W]
    scene = torch.arange(len(images), device=images.device)[:, None, None]
    return images.permute(0, 2, 3, 1)[scene, rows[:, :, None], cols[:, None, :]].permute(0, 3, 1, 2).contiguous()


def scale(images: UInt8[Tensor, "B C H W"], beyond: float, seeds: Int[Tensor, " B"]) -> UInt8[Tensor, "B C H W"]:
    """Enlarge each scene about its centre by the factor 1 + `beyond`, by bilinear interpolation; what leaves the frame is lost."""
    return _pixels(_zoom(_zoom(images.float(), 1 + beyond, 2), 1 + beyond, 3))


def blur(images: UInt8[Tensor, "B C H W"], sigma: float, seeds: Int[Tensor, " B"]) -> UInt8[Tensor, "B C H W"]:
    """Convolve each scene with a Gaussian of this standard deviation in pixels, cut off at four of them."""
    if sigma == 0:
        return images
    smooth = gaussian_filter(images.cpu().float().numpy(), sigma, mode="nearest", truncate=_TRUNCATE, axes=(2, 3))
    return _pixels(torch.from_numpy(smooth).to(images.device))


def noise(images: UInt8[Tensor, "B C H W"], deviation: float, seeds: Int[Tensor, " B"]) -> UInt8[Tensor, "B C H W"]:
    """Add independent normal noise to each value; its standard deviation is in units of the pixel range."""
    return _pixels(images + 255 * deviation * _random(images, seeds).normal(*images.shape[1:]))


def occlusion(images: UInt8[Tensor, "B C H W"], share: float, seeds: Int[Tensor, " B"]) -> UInt8[Tensor, "B C H W"]:
    """Cover this share of the area, as nearly as whole pixels can, with one grey square at a place of the scene's own."""
    height, width = images.shape[-2:]
    side = min(round(math.sqrt(share * height * width)), height, width)
    where = _random(images, seeds).uniform(2)  # [B, 2]
    top, left = (where * torch.tensor([height - side + 1, width - side + 1], device=images.device)).long().unbind(1)
    covered_rows = _within(top, side, height)
    covered_cols = _within(left, side, width)
    covered = covered_rows[:, :, None] & covered_cols[:, None, :]  # [B, H, W]
    return images.masked_fill(covered[:, None], _GREY)


def exposure(images: UInt8[Tensor, "B C H W"], stops: float, seeds: Int[Tensor, " B"]) -> UInt8[Tensor, "B C H W"]:
    """So many stops too much light or too little, as it falls for each scene; what is too bright is cut off."""
    sign = torch.where(_random(images, seeds).uniform() < 0.5, -1.0, 1.0)  # [B]
    return _pixels(images * torch.exp2(stops * sign)[:, None, None, None])


def untouched(images: UInt8[Tensor, "B C H W"], severity: float, seeds: Int[Tensor, " B"]) -> UInt8[Tensor, "B C H W"]:
    """The scenes unchanged, for what goes wrong at each look."""
    return images


class DisplacedSensor(ImageSensor):
    """A sensor over images that goes to a place so many pixels from the one asked for, in a direction of each look's own."""

    def __init__(self, images: Tensor, glimpse_size: int, seeds: Int[Tensor, " B"], *, pixels: float) -> None:
        super().__init__(images, glimpse_size)
        self._pixels, self._seeds = pixels, seeds.to(images.device)
        self._last = [side - glimpse_size for side in images.shape[-2:]]

    def look(self, where: Location) -> Num[Tensor, "B C g g"]:
        """The glimpses at the nearest whole pixels, never outside of the scene."""
        angle = 2 * math.pi * SceneNoise(self._seeds, _BEFORE_ALL_LOOKS - len(self.log)).uniform()  # [B]
        away = torch.stack([(self._pixels * side).round() for side in (angle.sin(), angle.cos())], -1)
        rows, cols = (tensor_of(where).to(away.device) + away).unbind(-1)
        return super().look(torch.stack([rows.clamp(0, self._last[0]), cols.clamp(0, self._last[1])], -1).long())


CORRUPTIONS: dict[str, Corruption] = {
    "shift": Corruption(unit="pixels", severities=(0.0, 1.0, 2.0, 4.0, 8.0), apply=shift),
    "scale": Corruption(unit="times larger", severities=(0.0, 0.1, 0.2, 0.4, 0.8), apply=scale),
    "blur": Corruption(unit="pixels (sigma)", severities=(0.0, 0.5, 1.0, 1.5, 2.0), apply=blur),
    "noise": Corruption(unit="of the pixel range (sigma)", severities=(0.0, 0.04, 0.08, 0.16, 0.32), apply=noise),
    "occlusion": Corruption(unit="of the area", severities=(0.0, 0.05, 0.1, 0.2, 0.4), apply=occlusion),
    "exposure": Corruption(unit="stops, up or down", severities=(0.0, 0.5, 1.0, 1.5, 2.0), apply=exposure),
    "displacement": Corruption(
        unit="pixels from the place asked for",
        severities=(0.0, 1.0, 2.0, 3.0, 4.0),
        apply=untouched,
        sensor=lambda pixels: partial(DisplacedSensor, pixels=pixels),
    ),
}
"""By name, in the order of `Corrupted.severities`. The first severity of each is 0 and changes nothing."""


def _random(images: Tensor, seeds: Tensor) -> SceneNoise:
    return SceneNoise(seeds.to(images.device), _BEFORE_ALL_LOOKS)


def _pixels(values: Float[Tensor, "B C H W"]) -> UInt8[Tensor, "B C H W"]:
    return values.round().clamp(0, 255).to(torch.uint8)


def _zoom(images: Tensor, factor: float, side: int) -> Tensor:
    """Enlarge about the centre along one side of the image."""
    size = images.shape[side]
    middle = (size - 1) / 2
    source = middle + (torch.arange(size, device=images.device) - middle) / factor
    before = source.floor().long()
    after = (before + 1).clamp(max=size - 1)
    weight = (source - before).view(-1, *[1] * (images.dim() - 1 - side))
    return (1 - weight) * images.index_select(side, before) + weight * images.index_select(side, after)


def _within(first: Int[Tensor, " B"], count: int, size: int) -> Tensor:
    """Which of `size` pixels are among the `count` from the first on, [B, size]."""
    pixel = torch.arange(size, device=first.device)
    return (pixel >= first[:, None]) & (pixel < first[:, None] + count)
