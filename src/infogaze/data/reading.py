"""A set at its source: labels and classes known, images decoded a stretch at a time, since a set may exceed memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64, UInt8

from infogaze.data.options import ReadOptions
from infogaze.data.sets import ImageSet, Split
from infogaze.errors import DataError, Problem
from infogaze.pictures import Form, fit_picture, read_picture

_STRETCH, _STRETCH_BYTES = 4096, 1 << 28
"""Images decoded at a time, and the memory that they may take, unless one takes more."""


@dataclass(frozen=True)
class Pictures:
    """One split of a set at its source."""

    labels: Int64[np.ndarray, " N"]
    shape: tuple[int, int, int]
    """Channels, height and width of every image."""
    decode: Callable[[int, int], tuple[np.ndarray, list[Problem]]]
    """Images start to stop, uint8 [n, C, H, W], and what was wrong with them; an image with a problem is black."""

    def __len__(self) -> int:
        return len(self.labels)

    def stretches(self) -> Iterator[tuple[UInt8[np.ndarray, "n C H W"], list[Problem]]]:
        """All images, in order."""
        count = max(1, min(_STRETCH, _STRETCH_BYTES // math.prod(self.shape)))
        for start in range(0, len(self), count):
            yield self.decode(start, min(start + count, len(self)))


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Both splits at their source, and the problems that showed before an image was decoded."""

    train: Pictures
    test: Pictures
    classes: tuple[str, ...]
    problems: tuple[Problem, ...] = ()


def usable(reading: Reading, root: Path) -> Reading:
    """The same, with what training and testing would fail on among its problems, where nothing else is known to be wrong."""
    if reading.problems:
        return reading
    problems = []
    if len(reading.classes) < 2:
        problems.append(Problem(root, f"has {len(reading.classes)} class; two or more are needed to tell apart"))
    for name, pictures in (("train on", reading.train), ("test on", reading.test)):
        if not len(pictures):
            problems.append(Problem(root, f"has no images to {name}"))
    return replace(reading, problems=tuple(problems))


def pictures_in_files(paths: Sequence[Path], labels: Sequence[int], form: Form) -> Pictures:
    """A split of one image file a picture."""

    def attempt(path: Path) -> np.ndarray | Problem:
        try:
            return read_picture(path, form)
        except DataError as error:
            return error.problems[0]

    def decode(start: int, stop: int) -> tuple[np.ndarray, list[Problem]]:
        images = np.zeros((stop - start, *form.shape), np.uint8)
        problems = []
        # Pillow leaves the interpreter alone while it decodes, so threads are enough.
        with ThreadPoolExecutor() as pool:
            for place, outcome in enumerate(pool.map(attempt, paths[start:stop])):
                if isinstance(outcome, Problem):
                    problems.append(outcome)
                else:
                    images[place] = outcome
        return images, problems

    return Pictures(np.array(labels, np.int64), form.shape, decode)


def pictures_in_array(
    images: UInt8[np.ndarray, "N C h w"], labels: Int64[np.ndarray, " N"], options: ReadOptions
) -> Pictures:
    """A split that is in memory already."""
    size = options.size or (images.shape[2], images.shape[3])
    shape = (images.shape[1], *size)

    def decode(start: int, stop: int) -> tuple[np.ndarray, list[Problem]]:
        fitted = np.empty((stop - start, *shape), np.uint8)
        for place, image in enumerate(images[start:stop]):
            fitted[place] = fit_picture(image, size, options.fit)
        return fitted, []

    return Pictures(labels, shape, decode)


def in_memory(reading: Reading) -> ImageSet:
    """The whole set, read now; DataError with all problems there are."""
    (train, wrong), (test, also) = map(_decoded, (reading.train, reading.test))
    if problems := [*reading.problems, *wrong, *also]:
        raise DataError(*problems)
    return ImageSet(train, test, reading.classes)


def split_in_memory(pictures: Pictures) -> Split:
    """One split, read now; DataError with all problems there are."""
    split, problems = _decoded(pictures)
    if problems:
        raise DataError(*problems)
    return split


def _decoded(pictures: Pictures) -> tuple[Split, list[Problem]]:
    images, problems = np.empty((len(pictures), *pictures.shape), np.uint8), []
    done = 0
    for stretch, wrong in pictures.stretches():
        images[done : done + len(stretch)] = stretch
        done += len(stretch)
        problems += wrong
    return Split(torch.from_numpy(images), torch.from_numpy(pictures.labels)), problems
