"""Which sets there are, and whether one can be used."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from infogaze.data.cache import Progress
from infogaze.data.options import AS_IT_IS, ReadOptions
from infogaze.data.reading import Reading
from infogaze.data.registry import SETS, read_set
from infogaze.errors import DataError, Problem, collapsed


@dataclass(frozen=True, kw_only=True)
class SetRow:
    """A line of `infogaze data list`."""

    name: str
    images: str
    """How many, as train + test."""
    size: str
    """Height, width and channels."""
    origin: str
    """Where it comes from."""
    get: str
    """How to get it."""


@dataclass(frozen=True)
class Findings:
    """What `infogaze data check` found."""

    problems: tuple[Problem, ...]
    """All of them, those of one kind together; none means that the set can be used."""
    counts: dict[str, dict[str, int]]
    """Images by split and class; empty where the problems leave nothing to count."""
    shape: tuple[int, int, int] | None
    """Channels, height and width of every image."""


def list_sets() -> list[SetRow]:
    """All sets there are."""
    return [
        SetRow(name=name, images=source.images, size=source.size, origin=source.origin, get=source.get)
        for name, source in SETS.items()
    ]


def check(
    name: str, root: Path | str | None = None, options: ReadOptions = AS_IT_IS, *, progress: Progress | None = None
) -> Findings:
    """Read every image of a set at its source and say all that is wrong; nothing is cached."""
    try:
        reading = read_set(name, root, options)
    except DataError as error:
        return Findings(collapsed(error.problems), {}, None)
    problems = list(reading.problems)
    done, total = 0, len(reading.train) + len(reading.test)
    for pictures in (reading.train, reading.test):
        for images, wrong in pictures.stretches():
            problems += wrong
            done += len(images)
            if progress:
                progress(done, total)
    return Findings(collapsed(problems), _counts(reading), reading.train.shape)


def _counts(reading: Reading) -> dict[str, dict[str, int]]:
    counted = {
        part: np.bincount(pictures.labels, minlength=len(reading.classes)).tolist()
        for part, pictures in (("train", reading.train), ("test", reading.test))
    }
    return {part: dict(zip(reading.classes, counts, strict=True)) for part, counts in counted.items()}
