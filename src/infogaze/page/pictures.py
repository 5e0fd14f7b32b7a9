"""The pictures that come with the page: drawings of ours, and handwritten digits of the embedded test split."""

from __future__ import annotations

import io
from dataclasses import dataclass
from importlib import resources

import numpy as np
from PIL import Image

from infogaze.data.digits import DIGITS, digits

_DRAWN = ("horse", "truck", "bird", "automobile", "frog", "airplane", "dog", "deer", "cat")
"""What the drawings beside the sample show, in the order in which they are offered."""
_DIGITS = ("3", "5", "8", "0", "6", "2")


@dataclass(frozen=True)
class BundledPicture:
    """A picture that the page offers, hidden."""

    name: str
    """It says nothing of what is shown: links have it."""
    label: str
    """What it shows."""
    data: bytes
    """A PNG file."""


def bundled_pictures(classes: set[str]) -> list[BundledPicture]:
    """The pictures of these classes; the first drawing alone if there is none."""
    found = _drawings()
    if set(DIGITS) <= classes:
        found += _handwritten()
    return [picture for picture in found if picture.label in classes] or found[:1]


def _drawings() -> list[BundledPicture]:
    package = resources.files("infogaze")
    files = {"ship": package.joinpath("bundled", "sample.png")}
    files |= {label: package.joinpath("page", "drawn", f"{label}.png") for label in _DRAWN}
    return [
        BundledPicture(f"drawing-{number}", label, file.read_bytes())
        for number, (label, file) in enumerate(files.items(), 1)
    ]


def _handwritten() -> list[BundledPicture]:
    """The first test drawing of each of a few digits."""
    test = digits(copies=1).test
    found = []
    for number, label in enumerate(_DIGITS, 1):
        first = int((test.labels == int(label)).nonzero()[0])
        out = io.BytesIO()
        Image.fromarray(np.asarray(test.images[first, 0])).save(out, "PNG", optimize=True)
        found.append(BundledPicture(f"digit-{number}", label, out.getvalue()))
    return found
