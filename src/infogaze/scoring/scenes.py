"""The scenes to be scored: a set of the registry, at its source, or any folder of pictures; read a batch at a time."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from infogaze.data.options import ReadOptions
from infogaze.data.reading import Pictures
from infogaze.data.registry import SETS, read_set
from infogaze.errors import DataError, InfogazeError
from infogaze.gaze.agent import Agent

Part = Literal["all", "train", "test"]
"""Of a set with splits."""


@dataclass(frozen=True, kw_only=True)
class Scenes:
    """Scenes in an order that stays."""

    count: int
    ids: Callable[[int, int], list[str]]
    """What scenes start to stop are called: a path below the folder, or such as test/12."""
    labels: Callable[[int, int], list[str | None]]
    """Their true classes, where they are known."""
    batch: Callable[[int, int], dict[str, np.ndarray]]
    """The columns `image` and `id` that a `Scorer` is given of them."""
    fingerprint: str
    """Of the names of all scenes, or of the files that they are read from and their sizes."""


def scenes_of(
    source: str, agent: Agent, *, root: Path | None = None, part: Part = "all", options: ReadOptions | None = None
) -> Scenes:
    """The scenes of a set by its name, or of all pictures in a folder, at the size of the model's scenes."""
    if source in SETS:
        return _of_set(source, agent, root=root, part=part, options=options or ReadOptions())
    if not Path(source).is_dir():
        raise InfogazeError(f"{source}: no such folder, and no set has that name; there are {', '.join(SETS)}")
    if root is not None or part != "all" or options not in (None, ReadOptions()):
        raise InfogazeError(f"{source}: a folder of pictures; a root, a split and ways to read belong to a set")
    return _of_folder(Path(source))


def _of_folder(folder: Path) -> Scenes:
    """All pictures in a folder and those below it, by their names; hidden ones are left out."""
    Image.init()
    endings = {ending for ending, kind in Image.EXTENSION.items() if kind in Image.OPEN}
    names = sorted(name for name in _names(folder) if os.path.splitext(name)[1].lower() in endings)  # noqa: PTH122
    if not names:
        raise InfogazeError(f"{folder}: holds no pictures that Pillow reads")

    def batch(start: int, stop: int) -> dict[str, np.ndarray]:
        paths = [str(folder / name) for name in names[start:stop]]
        return {"image": np.array(paths, dtype=object), "id": np.array(names[start:stop], dtype=object)}

    return Scenes(
        count=len(names),
        ids=lambda start, stop: names[start:stop],
        labels=lambda start, stop: [None] * (min(stop, len(names)) - start),
        batch=batch,
        fingerprint=_digest(names),
    )


def _names(folder: Path) -> Iterator[str]:
    """Paths below the folder, as they are written on any system."""

    def refuse(error: OSError) -> None:
        raise InfogazeError(f"{error.filename}: cannot be read: {error.strerror}")

    for home, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if not name.startswith("."):
                yield (Path(home) / name).relative_to(folder).as_posix()


def _of_set(name: str, agent: Agent, *, root: Path | None, part: Part, options: ReadOptions) -> Scenes:
    """A set's splits one after the other, nothing cached; a scene's number is that of its image in its split."""
    grid = agent.model.grid
    if options.size not in (None, (grid.height, grid.width)):
        raise InfogazeError(f"size is {options.size}; the model's scenes are {grid.height}x{grid.width}")
    reading = read_set(name, root, replace(options, size=(grid.height, grid.width), fit=agent.fit))
    if reading.problems:
        raise DataError(*reading.problems)
    splits = {split: getattr(reading, split) for split in ("train", "test") if part in ("all", split)}
    _require_channels(name, agent, next(iter(splits.values())))

    def within(start: int, stop: int) -> Iterator[tuple[str, Pictures, range]]:
        """The same scenes by their splits."""
        first = 0
        for split, pictures in splits.items():
            mine = range(max(start - first, 0), min(stop - first, len(pictures)))
            if mine:
                yield split, pictures, mine
            first += len(pictures)

    def ids(start: int, stop: int) -> list[str]:
        return [f"{split}/{number}" for split, _, mine in within(start, stop) for number in mine]

    def labels(start: int, stop: int) -> list[str | None]:
        return [
            reading.classes[pictures.labels[number]] for _, pictures, mine in within(start, stop) for number in mine
        ]

    def batch(start: int, stop: int) -> dict[str, np.ndarray]:
        images, numbers = [], []
        for _, pictures, mine in within(start, stop):
            decoded, problems = pictures.decode(mine.start, mine.stop)
            if problems:
                raise DataError(*problems)
            images.append(decoded)
            numbers.append(np.arange(mine.start, mine.stop))
        return {"image": np.concatenate(images), "id": np.concatenate(numbers)}

    return Scenes(
        count=sum(map(len, splits.values())),
        ids=ids,
        labels=labels,
        batch=batch,
        fingerprint=_digest([name, part, _files(name, root), repr(options)]),
    )


def _require_channels(name: str, agent: Agent, pictures: Pictures) -> None:
    assert agent.origin is not None
    wanted, found = agent.origin.config.channels, pictures.shape[0]
    if found != wanted:
        more = "; --read.channels changes that" if "channels" in SETS[name].options else ""
        raise InfogazeError(f"{name} has {found} channels, and the model takes {wanted}{more}")


def _files(name: str, root: Path | None) -> list[tuple[str, int]]:
    """The files of a set below its root and their sizes: not when they were written, which differs from machine to machine."""
    files = SETS[name].files
    if files is None or root is None:
        return []
    home = root.expanduser()
    return [(os.path.relpath(path, home), path.stat().st_size) for path in sorted(files(home)) if path.exists()]


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
