"""From images and labels to what a step learns from: augmented, mixed, taught by a teacher, and then seen through a faulty sensor.

The teacher sees each scene as it is, whole; the faults are the learner's alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from infogaze.data.augmentation import NUMBERS, Augmentation, draw_from, transform
from infogaze.data.sensor_faults import STRENGTHS, draw_displacement, draw_faults, has_faults, with_faults
from infogaze.grid import GlimpseGrid
from infogaze.nn.pixels import normalise_pixels
from infogaze.training.phases import Batch, NoiseSpec, draw_noise
from infogaze.training.recipe import Recipe
from infogaze.training.targets import Teacher, label_targets, mixed, mixing_quantiles, partners, softened

_MORE = 16
"""One scene in so many is taught with more looks than the budget."""


class Examples:
    """Makes batches. Every process draws the numbers of the complete batch, and takes those of its own part."""

    def __init__(
        self,
        *,
        recipe: Recipe,
        augmentation: Augmentation | None,
        noise: Mapping[str, NoiseSpec],
        batch_size: int,
        grid: GlimpseGrid,
        num_classes: int,
        mixes: bool,
        more_looks: int,
        teacher: Teacher | None,
        generator: torch.Generator,
    ) -> None:
        self._recipe, self._augmentation, self._noise = recipe, augmentation, noise
        self._batch_size, self._num_locations, self._num_classes = batch_size, grid.num_locations, num_classes
        self._more_looks, self._teacher, self._generator = more_looks, teacher, generator
        self._quantiles = mixing_quantiles(recipe.mixup).to(generator.device) if mixes and recipe.mixup else None

    def batch(
        self, images: UInt8[Tensor, "b C H W"], labels: Int[Tensor, " b"], part: slice, *, progress: Float[Tensor, ""]
    ) -> Batch:
        """What the step learns from these, which are this part of its batch."""
        noise = {
            name: values[part] for name, values in draw_noise(self._noise, self._batch_size, self._generator).items()
        }
        scenes, targets = self._transformed(images, part), None
        if self._quantiles is not None or self._teacher is not None:
            targets = label_targets(labels, self._num_classes)
        if self._quantiles is not None and targets is not None:
            share = self._quantiles[(self._uniform() * len(self._quantiles)).long()][part]
            partner = partners(labels)
            scenes, targets = mixed(scenes, share, partner), mixed(targets, share, partner)
        if self._teacher is not None and targets is not None:
            with torch.no_grad():
                said = self._teacher(normalise_pixels(scenes))
            targets = softened(
                targets, said, weight=self._recipe.teacher_weight, temperature=self._recipe.teacher_temperature
            )
        return Batch(
            images=normalise_pixels(self._through_sensor(scenes, part)),
            labels=labels,
            noise=noise,
            progress=progress,
            targets=targets,
            displacement=self._displacement(part),
            more_places=self._more_places(part),
        )

    def _transformed(self, images: Tensor, part: slice) -> Float[Tensor, "b C H W"]:
        """Augmented, in [0, 1]."""
        if self._augmentation is None:
            return images / 255.0
        drawn = draw_from(
            self._uniform(NUMBERS)[part], self._augmentation, height=images.shape[2], width=images.shape[3]
        )
        return transform(images / 255.0, drawn)

    def _through_sensor(self, scenes: Tensor, part: slice) -> Tensor:
        if self._augmentation is None or not has_faults(self._augmentation):
            return scenes
        faults = draw_faults(self._uniform(STRENGTHS)[part], self._augmentation)
        size = (self._batch_size, *scenes.shape[1:])
        normal = torch.randn(size, generator=self._generator, device=scenes.device)[part]
        return with_faults(scenes, faults, normal, largest_blur=self._augmentation.blur)

    def _displacement(self, part: slice) -> Int[Tensor, "b L 2"] | None:
        if self._augmentation is None or not self._augmentation.displacement:
            return None
        return draw_displacement(self._uniform(self._num_locations, 2)[part], self._augmentation.displacement)

    def _more_places(self, part: slice) -> Float[Tensor, "some L"] | None:
        if not self._more_looks:
            return None
        order = self._uniform(self._num_locations)[part]
        return order[: max(1, len(order) // _MORE)]

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(self._batch_size, *shape, generator=self._generator, device=self._generator.device)
