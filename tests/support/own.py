"""Folders of own pictures, whose brightness tells their class, and options with which training on them takes no time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.support.sets import write_image

QUICK = (
    "--device", "cpu", "--num-samples", "2", "--model.glimpse-widths", "4", "--model.feature-size", "8", "--model.belief-size", "16",
    "--model.latent-size", "4", "--model.flow-layers", "1", "--recipe.phase1.steps", "6", "--recipe.phase2.steps", "2",
    "--recipe.phase3.steps", "2", "--recipe.full-image.steps", "2", "--recipe.phase1.batch-size", "8",
)  # fmt: skip


def write_pictures(
    root: Path,
    classes: Sequence[str] = ("dark", "light"),
    *,
    count: int = 10,
    sizes: Sequence[tuple[int, int]] = ((20, 24),),
    channels: int = 3,
    first: int = 0,
) -> Path:
    """So many pictures of each class, their sizes in turn."""
    rng = np.random.default_rng(first)
    step = 200 // len(classes)
    for label, name in enumerate(classes):
        for number in range(count):
            shape = (*sizes[number % len(sizes)], *((channels,) if channels > 1 else ()))
            pixels = label * step + rng.integers(0, 50, shape)
            write_image(root / name / f"{first + number}.png", pixels.astype(np.uint8))
    return root
