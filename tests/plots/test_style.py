from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from infogaze.plots.style import LINE_STYLES

Colours = NDArray[np.float64]
# Linear RGB as seen without one kind of cone, after Machado, Oliveira and Fernandes (2009), severity 1.
EYES: dict[str, Colours] = {
    "all cones": np.eye(3),
    "no red": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    "no green": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    "no blue": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
}  # fmt: skip
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(colour: str, eyes: Colours) -> Colours:
    """The CIELAB coordinates of a colour as these eyes see it."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    x, y, z = XYZ @ np.clip(eyes @ linear, 0, 1) / XYZ.sum(1)
    a, b, c = (np.cbrt(v) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return np.array([116 * b - 16, 500 * (a - b), 200 * (b - c)])


def test_white_has_the_coordinates_of_white_for_all_eyes() -> None:
    for eyes in EYES.values():
        np.testing.assert_allclose(lab("#ffffff", eyes), [100, 0, 0], atol=0.1)


@pytest.mark.parametrize("eyes", EYES)
def test_no_two_methods_look_alike_to_any_eyes(eyes: str) -> None:
    for (one, style), (other, its) in combinations(LINE_STYLES.items(), 2):
        apart = np.linalg.norm(lab(style.colour, EYES[eyes]) - lab(its.colour, EYES[eyes]))
        assert apart > 15, (one, other)
