"""Sets that were read once, as raw uint8 arrays with their digests; memory-mapped, so that they may exceed memory.

A cache is a folder: images and labels of both splits as .npy files, and `set.json` with their SHA-256 sums and the
classes. It appears whole or not at all. One that is damaged, or whose source has changed, is built anew.

A cache's name ends in the fingerprint of its source. So processes that build it at once want the same folder in the same
place: that of the first to finish stays, and all open it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from infogaze.data.reading import Pictures, Reading
from infogaze.data.sets import ImageSet, Split
from infogaze.errors import DataError, Problem

FORMAT = 2

Progress = Callable[[int, int], None]
"""Is told the images done and the images in all."""

_log = logging.getLogger(__name__)
_ABANDONED = 24 * 3600.0  # seconds after which a folder that nobody finished may go
_BUILDS = 3  # of a cache that others take away, or the disk damages, before it can be opened


class _UnusableError(Exception):
    """Why a cache cannot be used."""


def cache_root(given: Path | str | None = None) -> Path:
    """The folder of all caches: the one given, else $INFOGAZE_CACHE, else ~/.cache/infogaze."""
    return Path(given or os.environ.get("INFOGAZE_CACHE") or "~/.cache/infogaze").expanduser()


def fingerprint_of(identity: dict[str, Any], root: Path, files: Iterable[Path]) -> str:
    """A digest of what was asked for and of all files' paths below the root, sizes and times of change."""
    digest = hashlib.sha256(json.dumps([FORMAT, identity], sort_keys=True).encode())
    for path in sorted(files):
        if path.exists():  # Of a missing file the reading will say so.
            state = path.stat()
            digest.update(json.dumps([str(path.relative_to(root)), state.st_size, state.st_mtime_ns]).encode())
    return digest.hexdigest()


def open_or_build(
    identity: dict[str, Any],
    fingerprint: str,
    read: Callable[[], Reading],
    *,
    root: Path | str | None = None,
    progress: Progress | None = None,
) -> ImageSet:
    """The set of this identity from its cache; read, and cached, where there is none of this fingerprint."""
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    place = cache_root(root) / f"{identity['name']}-{key}-{fingerprint[:16]}"
    found = _found(place)
    if found is not None:
        return found
    older = _older(place)
    if older:
        _log.warning("%s: the source has changed; reading the set again", older[0])
    for _ in range(_BUILDS):
        _build(place, read(), progress or (lambda done, total: None))
        found = _found(place)
        if found is not None:
            for cache in older:
                with suppress(OSError):  # One that cannot be removed does no harm.
                    _put_away(cache)
            return found
    raise DataError(Problem(place, f"the cache was built {_BUILDS} times and each time lost or damaged at once"))


def _found(place: Path) -> ImageSet | None:
    """The set of this cache, if there is one; one that is unusable goes at once, so that only a new one can take its place."""
    if not place.exists():
        return None
    try:
        return _open(place)
    except _UnusableError as reason:
        _log.warning("%s: %s; reading the set again", place, reason)
    try:
        _put_away(place)
    except OSError as error:
        raise _unwritable(place, error) from None
    return None


def _older(place: Path) -> list[Path]:
    """The caches of the same set in other states of its source."""
    name, _, _ = place.name.rpartition("-")
    return [path for path in place.parent.glob(f"{name}*") if path != place and ".partial-" not in path.name]


def _open(place: Path) -> ImageSet:
    try:
        record = json.loads((place / "set.json").read_text())
        for name, digest in record["files"].items():
            if _digest(place / name) != digest:
                raise _UnusableError(f"{name} is damaged")
        return ImageSet(_split(place, "train"), _split(place, "test"), tuple(record["classes"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _UnusableError(f"damaged ({error})") from None


def _split(place: Path, part: str) -> Split:
    images = np.load(place / f"{part}_images.npy", mmap_mode="r", allow_pickle=False)
    labels = np.load(place / f"{part}_labels.npy", allow_pickle=False)
    return Split(_mapped(images), torch.from_numpy(labels))


def _mapped(images: np.ndarray) -> Tensor:
    with warnings.catch_warnings():
        # Read-only on purpose: a private writable mapping would count against memory, which the set may exceed.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(images)


def _build(place: Path, reading: Reading, progress: Progress) -> None:
    problems = list(reading.problems)
    partial = None
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(place.parent)
        partial = Path(tempfile.mkdtemp(prefix=f"{place.name}.partial-", dir=place.parent))
        stretches = _watched(reading, problems, progress)
        for part, pictures in (("train", reading.train), ("test", reading.test)):
            _write_array(
                partial / f"{part}_images.npy",
                stretches(pictures),
                shape=(len(pictures), *pictures.shape),
                dtype=np.uint8,
            )
            _write_array(partial / f"{part}_labels.npy", [pictures.labels], shape=(len(pictures),), dtype=np.int64)
        if problems:
            raise DataError(*problems)
        record = {
            "format": FORMAT,
            "classes": reading.classes,
            "files": {path.name: _digest(path) for path in sorted(partial.iterdir())},
        }
        (partial / "set.json").write_text(json.dumps(record, indent=1) + "\n")
        _publish(partial, place)
    except OSError as error:
        raise _unwritable(place, error) from None
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)


def _unwritable(place: Path, error: OSError) -> DataError:
    what = f"the cache cannot be written: {error.strerror or error}; INFOGAZE_CACHE can name another folder"
    return DataError(Problem(place, what))


def _watched(
    reading: Reading, problems: list[Problem], progress: Progress
) -> Callable[[Pictures], Iterator[np.ndarray]]:
    """The images of a split, stretch by stretch, while their problems are collected and the progress is told."""
    done, total = 0, len(reading.train) + len(reading.test)

    def stretches(pictures: Pictures) -> Iterator[np.ndarray]:
        nonlocal done
        for images, wrong in pictures.stretches():
            problems.extend(wrong)
            done += len(images)
            progress(done, total)
            yield images

    return stretches


def _write_array(path: Path, pieces: Iterable[np.ndarray], *, shape: tuple[int, ...], dtype: type[np.generic]) -> None:
    """Write an .npy file piece by piece. Not through a memory mapping: there a full disk is a crash, here an error."""
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for piece in pieces:
            file.write(np.ascontiguousarray(piece, dtype).data)


def _publish(partial: Path, place: Path) -> None:
    """Put the finished folder into its place, unless another process was first, whose is as good."""
    try:
        partial.rename(place)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise


def _put_away(place: Path) -> None:
    """Remove a cache, which leaves its place whole: nobody meets a half of it."""
    away = tempfile.TemporaryDirectory(prefix=f"{place.name}.partial-", dir=place.parent, ignore_cleanup_errors=True)
    with away, suppress(FileNotFoundError):  # Another process may have put it away meanwhile.
        place.rename(Path(away.name) / place.name)


def _remove_abandoned(root: Path) -> None:
    for folder in root.glob("*.partial-*"):
        with suppress(FileNotFoundError):  # Its process may be done with it by now.
            if time.time() - folder.stat().st_mtime > _ABANDONED:
                shutil.rmtree(folder, ignore_errors=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
