"""What an imperfect sensor does to a scene, batched on the device: exposure, blur, noise, and places that are not quite those asked for.

As in `augmentation`, what is drawn is apart from what is done, and nothing waits for the device. Half of the scenes have none of a fault,
each fault for itself, so that a clean sensor stays what most is known of; the others have it at any strength up to the largest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from infogaze.data.augmentation import Augmentation

STRENGTHS = 4
"""Random numbers that a scene's strengths take: of exposure and its direction, blur, noise."""
_TRUNCATE = 3.0
"""Standard deviations, at which a Gaussian blur is cut off."""


@dataclass(frozen=True, kw_only=True)
class Faults:
    """How strong each fault is in each scene of a batch."""

    exposure: Float[Tensor, " B"]
    """What pixels are multiplied by, before they are cut off at the brightest."""
    blur: Float[Tensor, " B"]
    """Standard deviation in pixels."""
    noise: Float[Tensor, " B"]
    """Standard deviation, as a share of the pixel range."""


def has_faults(augmentation: Augmentation | None) -> bool:
    """Whether any is asked for that changes pixels."""
    return augmentation is not None and max(augmentation.exposure, augmentation.blur, augmentation.noise) > 0.0


def draw_faults(uniform: Float[Tensor, "B strengths"], augmentation: Augmentation) -> Faults:
    """What these random numbers, `STRENGTHS` a scene and uniform on [0, 1), mean."""
    exposure, direction, blur, noise = uniform.unbind(1)
    stops = torch.where(direction < 0.5, -1.0, 1.0) * augmentation.exposure * _half_none(exposure)
    return Faults(
        exposure=torch.exp2(stops),
        blur=augmentation.blur * _half_none(blur),
        noise=augmentation.noise * _half_none(noise),
    )


def with_faults(
    images: Float[Tensor, "B C H W"],
    faults: Faults,
    normal: Float[Tensor, "B C H W"],
    *,
    largest_blur: float,
) -> Float[Tensor, "B C H W"]:
    """Images in [0, 1] as the sensor gives them. `normal` are the standard normal numbers behind the noise."""
    exposed = (images * _of_scene(faults.exposure)).clamp(0.0, 1.0)
    blurred = _blurred(exposed, faults.blur, largest=largest_blur) if largest_blur > 0.0 else exposed
    return (blurred + _of_scene(faults.noise) * normal).clamp(0.0, 1.0)


def draw_displacement(uniform: Float[Tensor, "B L 2"], pixels: int) -> Int[Tensor, "B L 2"]:
    """How far from each place a glimpse is taken that was asked for there: whole pixels up to so many, all equally likely."""
    return ((2 * pixels + 1) * uniform).floor().long() - pixels


def _half_none(uniform: Tensor) -> Tensor:
    return (2.0 * uniform - 1.0).clamp(min=0.0)


def _of_scene(values: Tensor) -> Tensor:
    return values[:, None, None, None]


def _blurred(images: Tensor, sigma: Tensor, *, largest: float) -> Tensor:
    """Each image convolved with a Gaussian of its own; edge pixels are repeated beyond the edge."""
    reach = max(1, round(_TRUNCATE * largest))
    distance = torch.arange(-reach, reach + 1, device=images.device, dtype=images.dtype)
    weight = torch.exp(-0.5 * (distance / sigma.clamp(min=1e-3)[:, None]) ** 2)  # [B, taps]
    weight = weight / weight.sum(1, keepdim=True)
    for side, pad in ((2, (0, 0, reach, reach)), (3, (reach, reach, 0, 0))):
        size = images.shape[side]
        wide = functional.pad(images, pad, mode="replicate")
        # Sums of shifted images, and not a convolution: that would be rounded wherever TF32 or autocast is on.
        images = sum(
            (_of_scene(one) * wide.narrow(side, tap, size) for tap, one in enumerate(weight.unbind(1))), torch.zeros(())
        )
    return images
