"""A contact sheet of a set: a dozen images of each of up to ten classes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from matplotlib.figure import Figure

from infogaze.data.options import AS_IT_IS, ReadOptions
from infogaze.data.reading import Reading
from infogaze.data.registry import read_set
from infogaze.errors import DataError
from infogaze.files import make_folder, write_whole

_CLASSES = 10
_EXAMPLES = 12
_NAME = 28  # characters of a class's name
_SIDE = 100  # pixels of an image's longer side, about
_DPI = 160


def draw_contact_sheet(
    name: str, root: Path | str | None, *, out: Path | str, options: ReadOptions = AS_IT_IS, seed: int = 0
) -> Path:
    """Write a contact sheet, a PNG: a dozen training images, drawn by seed, of each of up to ten classes."""
    reading = read_set(name, root, options)
    if reading.problems:
        raise DataError(*reading.problems)
    classes = len(reading.classes)
    shown = np.unique(np.linspace(0, classes - 1, min(classes, _CLASSES)).round().astype(int)).tolist()
    draw = np.random.default_rng(seed)
    rows = [_examples(reading, label, draw) for label in shown]
    title = f"{name}: {len(reading.train):,} images to train on, {len(reading.test):,} to test, "
    title += f"{classes} classes" if classes == len(shown) else f"{len(shown)} of {classes} classes"
    figure = _sheet(rows, [reading.classes[label] for label in shown], title)
    out = Path(out)
    make_folder(out.parent)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    write_whole(out, drawn.getvalue())
    return out


def _examples(reading: Reading, label: int, draw: np.random.Generator) -> list[UInt8[np.ndarray, "C H W"]]:
    places = np.flatnonzero(reading.train.labels == label)
    examples = []
    for place in draw.permutation(places)[:_EXAMPLES].tolist():
        images, problems = reading.train.decode(place, place + 1)
        if problems:
            raise DataError(*problems)
        examples.append(images[0])
    return examples


def _sheet(rows: Sequence[Sequence[UInt8[np.ndarray, "C H W"]]], names: Sequence[str], title: str) -> Figure:
    """One row a class, its name to the left. All lengths are in pixels, so that small images are enlarged evenly."""
    _, height, width = rows[0][0].shape
    scale = max(1, round(_SIDE / max(height, width))) if max(height, width) <= _SIDE else _SIDE / max(height, width)
    tall, wide = round(height * scale), round(width * scale)
    names = [name if len(name) <= _NAME else name[: _NAME - 1] + "…" for name in names]
    gap, head, left = 10, 80, 40 + 14 * max(len(name) for name in names)
    sheet = (left + _EXAMPLES * (wide + gap) + 24, head + len(rows) * (tall + gap) + 20)
    figure = Figure((sheet[0] / _DPI, sheet[1] / _DPI), dpi=_DPI, facecolor="white")
    figure.text(32 / sheet[0], 1 - head / 2 / sheet[1], title, fontsize=10, fontweight="bold", va="center")
    for row, (images, name) in enumerate(zip(rows, names, strict=True)):
        bottom = sheet[1] - head - (row + 1) * (tall + gap) + gap
        figure.text((left - 20) / sheet[0], (bottom + tall / 2) / sheet[1], name, fontsize=9, ha="right", va="center")
        for col, image in enumerate(images):
            corner = ((left + col * (wide + gap)) / sheet[0], bottom / sheet[1])
            axes = figure.add_axes((*corner, wide / sheet[0], tall / sheet[1]))
            axes.set_axis_off()
            colour = np.broadcast_to(image, (3, height, width)).transpose(1, 2, 0)
            axes.imshow(colour, interpolation="antialiased", aspect="auto")
    return figure
