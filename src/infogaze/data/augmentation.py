"""The paper's augmentation (appendix B), batched on the device: random crop and scale, then flip, then colour jitter.

What is drawn (`draw_from`) is apart from what is done (`transform`), so that images can be held to torchvision's functions.
Both are free of host synchronisation and of shapes that depend on data: they compile whole and fit a CUDA graph.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from infogaze.errors import InfogazeError

_ATTEMPTS = 10
NUMBERS = 2 * _ATTEMPTS + 9
"""Random numbers that an image takes: areas and ratios of the attempts, row, column, flip, three factors and their order."""
_LUMA = (0.2989, 0.587, 0.114)


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """What may happen to a training image; the defaults are the paper's authors'."""

    crop_scale: tuple[float, float] = (0.75, 1.0)
    """Least and greatest share of the image's area that a crop keeps."""
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Least and greatest ratio of a crop's width to its height."""
    flip: bool = True
    """Whether an image is mirrored, left to right, with probability one half."""
    brightness: float = 0.4
    """Brightness is multiplied by a factor within this of 1."""
    contrast: float = 0.4
    """Contrast likewise."""
    saturation: float = 0.4
    """Saturation likewise; grey images have none."""
    exposure: float = 0.0
    """The sensor's exposure: up to so many stops too much or too little, with probability one half."""
    blur: float = 0.0
    """The sensor's blur: a Gaussian of up to so many pixels (standard deviation), with probability one half."""
    noise: float = 0.0
    """The sensor's noise: normal, of up to this share of the pixel range (standard deviation), with probability one half."""
    displacement: int = 0
    """How many pixels at most a glimpse is taken from the place that was asked for, in each direction."""

    def __post_init__(self) -> None:
        low, high = self.crop_scale
        if not 0 < low <= high <= 1:
            raise InfogazeError(f"crop_scale is {self.crop_scale}; it must rise, within 0 and 1")
        low, high = self.crop_ratio
        if not 0 < low <= high:
            raise InfogazeError(f"crop_ratio is {self.crop_ratio}; it must rise, above 0")
        for name in ("brightness", "contrast", "saturation", "exposure", "blur", "noise", "displacement"):
            if getattr(self, name) < 0:
                raise InfogazeError(f"{name} is {getattr(self, name)}; it must not be negative")


@dataclass(frozen=True, kw_only=True)
class Draw:
    """What happens to each image of a batch."""

    box: Int[Tensor, "B 4"]
    """The crop's top row, left column, height and width."""
    flip: Bool[Tensor, " B"]
    """Whether it is mirrored."""
    factors: Float[Tensor, "B 3"]
    """Of brightness, contrast and saturation."""
    turn: Int[Tensor, "B 3"]
    """When brightness, contrast and saturation have their turn: a permutation of 0, 1, 2."""


def draw_from(uniform: Float[Tensor, "B numbers"], augmentation: Augmentation, *, height: int, width: int) -> Draw:
    """What these random numbers, `NUMBERS` an image and uniform on [0, 1), mean. A compiled step is given them."""
    area, ratio, place, flip, factors, order = torch.split(uniform, [_ATTEMPTS, _ATTEMPTS, 2, 1, 3, 3], 1)
    amounts = (augmentation.brightness, augmentation.contrast, augmentation.saturation)
    return Draw(
        box=_box(area, ratio, place, augmentation=augmentation, height=height, width=width),
        flip=(flip[:, 0] < 0.5) & augmentation.flip,
        factors=torch.stack(
            [_between(u, max(0.0, 1 - a), 1 + a) for u, a in zip(factors.unbind(1), amounts, strict=True)], 1
        ),
        turn=_ranks(order),
    )


def transform(images: Float[Tensor, "B C H W"], drawn: Draw) -> Float[Tensor, "B C H W"]:
    """Do what was drawn to images with pixels in [0, 1]."""
    return jitter(crop(images, drawn.box, drawn.flip), drawn.factors, drawn.turn)


def crop(
    images: Float[Tensor, "B C H W"], box: Int[Tensor, "B 4"], flip: Bool[Tensor, " B"]
) -> Float[Tensor, "B C H W"]:
    """Each image's box, bilinearly resized to the whole image (no antialias), and mirrored or not.

    One `grid_sample` does all three. Two products with interpolation matrices would say the same, but took five times
    as long on a CPU, and on a GPU would be rounded wherever TF32 or autocast is on, which leave `grid_sample` alone.
    """
    height, width = images.shape[-2:]
    top, left, box_height, box_width = box.unbind(1)
    rows = _sampled(top, box_height, count=height, dtype=images.dtype)  # [B, H]
    cols = _sampled(left, box_width, count=width, dtype=images.dtype)  # [B, W]
    cols = torch.where(flip[:, None], cols.flip(1), cols)
    # grid_sample counts from -1 at the outer edge of the first pixel to 1 at that of the last.
    y = ((2 * rows + 1) / height - 1)[:, :, None].expand(-1, height, width)
    x = ((2 * cols + 1) / width - 1)[:, None, :].expand(-1, height, width)
    grid = torch.stack([x, y], -1)  # [B, H, W, 2]
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def jitter(
    images: Float[Tensor, "B C H W"], factors: Float[Tensor, "B 3"], turn: Int[Tensor, "B 3"]
) -> Float[Tensor, "B C H W"]:
    """Brightness, contrast and saturation: blends of the image with black, with its mean grey and with its own grey."""
    if images.shape[1] == 1:
        factors = torch.cat([factors[:, :2], torch.ones_like(factors[:, 2:])], 1)
    for now in range(3):
        chosen = (turn == now).to(images.dtype)  # [B, 3], one of three is 1
        factor = (chosen * factors).sum(1)[:, None, None, None]
        _, contrast, saturation = chosen[:, :, None, None, None].unbind(1)
        grey = _grey(images)  # [B, 1, H, W]
        other = contrast * grey.mean((2, 3), keepdim=True) + saturation * grey
        images = (factor * images + (1 - factor) * other).clamp(0, 1)
    return images


def _box(area: Tensor, ratio: Tensor, place: Tensor, *, augmentation: Augmentation, height: int, width: int) -> Tensor:
    """As torchvision's RandomResizedCrop: the first of ten candidates that fits the image, else its middle."""
    pixels = _between(area, *augmentation.crop_scale) * (height * width)
    aspect = _between(ratio, *(math.log(bound) for bound in augmentation.crop_ratio)).exp()
    heights, widths = (pixels / aspect).sqrt().round(), (pixels * aspect).sqrt().round()  # [B, 10]
    fits = (heights > 0) & (heights <= height) & (widths > 0) & (widths <= width)
    first = fits.int().argmax(1, keepdim=True)
    box_height, box_width = heights.gather(1, first)[:, 0], widths.gather(1, first)[:, 0]
    room = torch.stack([height - box_height, width - box_width], 1)  # [B, 2]
    corner = torch.minimum((place * (room + 1)).floor(), room)
    found = (corner[:, 0], corner[:, 1], box_height, box_width)
    fitting = fits.any(1)
    boxes = [
        torch.where(fitting, value, other)
        for value, other in zip(found, _middle(augmentation, height, width), strict=True)
    ]
    return torch.stack(boxes, 1).long()


def _middle(augmentation: Augmentation, height: int, width: int) -> tuple[int, int, int, int]:
    """The largest box of an allowed ratio in the middle of the image."""
    low, high = augmentation.crop_ratio
    box_height, box_width = height, width
    if width / height < low:
        box_height = round(width / low)
    elif width / height > high:
        box_width = round(height * high)
    return (height - box_height) // 2, (width - box_width) // 2, box_height, box_width


def _sampled(start: Tensor, length: Tensor, *, count: int, dtype: torch.dtype) -> Tensor:
    """Where `count` output pixels lie between the pixels of the input, [B, count]; never outside of the box."""
    steps = torch.arange(count, device=start.device, dtype=dtype) + 0.5
    inside = steps * length[:, None] / count - 0.5
    return start[:, None] + inside.clamp(min=0).minimum((length - 1)[:, None])


def _grey(images: Tensor) -> Tensor:
    if images.shape[1] != 3:
        return images.mean(1, keepdim=True)
    red, green, blue = images[:, :, None].unbind(1)
    return _LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue


def _ranks(values: Tensor) -> Tensor:
    """The rank of each value in its row; of equal ones the first comes first."""
    earlier = torch.ones(values.shape[1], values.shape[1], dtype=torch.bool, device=values.device).tril(-1)
    mine, theirs = values[:, :, None], values[:, None, :]
    return ((theirs < mine) | ((theirs == mine) & earlier)).sum(2)


def _between(uniform: Tensor, low: float, high: float) -> Tensor:
    return low + (high - low) * uniform
