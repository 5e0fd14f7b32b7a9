"""A set in one .npz file: train_x, train_y, test_x, test_y and, if one likes, classes."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from infogaze.data.options import ReadOptions
from infogaze.data.reading import Reading, pictures_in_array
from infogaze.errors import DataError, InfogazeError, Problem

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_NEEDED = ("train_x", "train_y", "test_x", "test_y")


def read_arrays(path: Path, options: ReadOptions) -> Reading:
    """Images are uint8, NHWC, NCHW or NHW; labels whole numbers from 0; classes strings, else the labels' numbers."""
    arrays = _members(path)
    faults = [fault for split in ("train", "test") for fault in _faults(split, arrays)] + _faults_of_names(arrays)
    if faults:
        raise DataError(*(Problem(path, fault) for fault in faults))
    images = {split: _channels_first(arrays[f"{split}_x"]) for split in ("train", "test")}
    labels = {split: arrays[f"{split}_y"].astype(np.int64) for split in ("train", "test")}
    # Each class has an image to train on, so without names there are at most as many classes as those.
    faults = [] if "classes" in arrays else _faults_of_labels(labels, len(labels["train"]))
    if faults:
        raise DataError(*(Problem(path, fault) for fault in faults))
    classes = _classes(arrays, labels["train"])
    faults = _faults_together(images, labels, classes)
    if faults:
        raise DataError(*(Problem(path, fault) for fault in faults))
    train, test = (pictures_in_array(images[split], labels[split], options) for split in ("train", "test"))
    return Reading(train=train, test=test, classes=classes)


def _members(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise DataError(Problem(path, "no such file"))
    if not os.access(path, os.R_OK):
        raise DataError(Problem(path, "may not be read by this user"))
    if not zipfile.is_zipfile(path):
        raise DataError(Problem(path, f"is damaged or no .npz file; it is to hold {', '.join(_NEEDED)}"))
    arrays, problems = {}, []
    # Never unpickled: a file from elsewhere could run anything.
    with zipfile.ZipFile(path) as file, np.load(path, allow_pickle=False) as members:
        for name in (*_NEEDED, "classes"):
            if name in members.files:
                try:
                    _require_true_header(file, name)
                    arrays[name] = members[name]
                except (ValueError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
                    problems.append(Problem(path, f"{name} cannot be read: {error}"))
            elif name in _NEEDED:
                problems.append(Problem(path, f"{name} is missing"))
    if problems:
        raise DataError(*problems)
    return arrays


def _require_true_header(file: zipfile.ZipFile, name: str) -> None:
    """Refuse an array whose header announces another size than there is: memory for it would be asked for before it is read."""
    member = file.getinfo(f"{name}.npy")
    with file.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        if version not in _HEADERS:
            raise InfogazeError(f"its format is {version[0]}.{version[1]}; 1.0 and 2.0 are allowed")
        shape, _, dtype = _HEADERS[version](stream)
        if dtype.hasobject:
            raise InfogazeError("it holds Python objects, which are never unpickled")
        announced, held = math.prod(shape) * dtype.itemsize, member.file_size - stream.tell()
    if announced != held:
        raise InfogazeError(f"its header announces {announced} bytes and it holds {held}")


def _faults(split: str, arrays: Mapping[str, np.ndarray]) -> list[str]:
    """What is wrong with one split by itself."""
    images, labels = arrays[f"{split}_x"], arrays[f"{split}_y"]
    faults = []
    if images.dtype != np.uint8:
        faults.append(f"{split}_x is {images.dtype}; images are uint8")
    if images.ndim == 4 and (images.shape[1] in (1, 3)) == (images.shape[3] in (1, 3)):
        faults.append(
            f"{split}_x has shape {images.shape}; the second or the last number, not both, must be 1 or 3 channels"
        )
    elif images.ndim not in (3, 4):
        faults.append(f"{split}_x has shape {images.shape}; images are NHWC, NCHW or NHW")
    if not np.issubdtype(labels.dtype, np.integer) or labels.ndim != 1:
        faults.append(f"{split}_y is {labels.dtype} of shape {labels.shape}; labels are whole numbers, one an image")
    elif images.shape[:1] != labels.shape:
        faults.append(f"{split}_x holds {len(images)} images and {split}_y {len(labels)} labels")
    if not images.size:
        faults.append(f"{split}_x holds no images")
    return faults


def _faults_of_names(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """What is wrong with the names of the classes, if there are any."""
    names = arrays.get("classes", np.array(["0"]))
    if names.dtype.kind != "U" or names.ndim != 1 or not names.size:
        return [f"classes is {names.dtype} of shape {names.shape}; it is a row of strings"]
    return [f"classes has {name!r} twice" for name, count in Counter(names.tolist()).items() if count > 1]


def _faults_together(
    images: Mapping[str, np.ndarray], labels: Mapping[str, np.ndarray], classes: tuple[str, ...]
) -> list[str]:
    """What is wrong between the splits and the classes."""
    faults = []
    if images["train"].shape[1] != images["test"].shape[1]:
        faults.append(f"train_x has {images['train'].shape[1]} channels and test_x {images['test'].shape[1]}")
    elif images["train"].shape[1:] != images["test"].shape[1:]:
        faults.append(
            "train_x holds images of {1}x{2} and test_x of {4}x{5}".format(
                *images["train"].shape[1:], *images["test"].shape[1:]
            )
        )
    faults += _faults_of_labels(labels, len(classes))
    counts = np.bincount(
        labels["train"][(labels["train"] >= 0) & (labels["train"] < len(classes))], minlength=len(classes)
    )
    tested = set(labels["test"].tolist())
    for label in np.flatnonzero(counts == 0).tolist():
        where = ", and test_y has it" if label in tested else ""
        faults.append(f"class {label} ({classes[label]}) has no images in train_x{where}")
    return faults


def _faults_of_labels(labels: Mapping[str, np.ndarray], classes: int) -> list[str]:
    """Labels that are none of so many classes."""
    faults = []
    for split, values in labels.items():
        found, first, counts = np.unique(values, return_index=True, return_counts=True)
        for label, place, count in zip(found.tolist(), first.tolist(), counts.tolist(), strict=True):
            if not 0 <= label < classes:
                others = f", and {count - 1} more are" if count > 1 else ""
                faults.append(
                    f"{split}_y[{place}] is {label}{others}, not one of the {classes} classes 0 to {classes - 1}"
                )
    return faults


def _classes(arrays: Mapping[str, np.ndarray], train_labels: np.ndarray) -> tuple[str, ...]:
    if "classes" in arrays:
        return tuple(str(name) for name in arrays["classes"].tolist())
    return tuple(str(label) for label in range(int(train_labels.max()) + 1))


def _channels_first(images: np.ndarray) -> np.ndarray:
    if images.ndim == 3:
        return images[:, None]
    return images if images.shape[1] in (1, 3) else images.transpose(0, 3, 1, 2)
