"""A user's own images: one sub-folder a class, in train/ and test/ or split here by seed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from infogaze.data.options import ReadOptions
from infogaze.data.reading import Pictures, Reading, pictures_in_files, split_in_memory
from infogaze.data.sets import Split
from infogaze.errors import DataError, Problem
from infogaze.pictures import Form, channels_of, open_picture

ClassFiles = Mapping[str, Sequence[Path]]


def read_folder(root: Path, options: ReadOptions) -> Reading:
    """Class sub-folders of any image formats, sizes and modes; train/ and test/ where both are there."""
    given = [(root / part).is_dir() for part in ("train", "test")]
    if any(given) and not all(given):
        there, missing = ("train", "test") if given[0] else ("test", "train")
        raise DataError(
            Problem(
                root, f"has {there}/ but no {missing}/; add it, or give {there}/ itself as the root to split it by seed"
            )
        )
    problems: list[Problem] = []
    train: ClassFiles
    test: ClassFiles
    if all(given):
        train, test = class_files(root / "train", problems), class_files(root / "test", problems)
        problems += [
            Problem(root / "test" / name, "is a class that train/ lacks") for name in test if name not in train
        ]
    else:
        train, test = split_by_seed(class_files(root, problems), options.test_share, options.seed)
        if not any(test.values()):
            problems.append(Problem(root, "has too few images to split off a test set: no class has two"))
    classes = tuple(train)
    form = _form([path for files in (train, test) for paths in files.values() for path in paths], options)
    return Reading(
        train=labelled(train, classes, form),
        test=labelled(test, classes, form),
        classes=classes,
        problems=tuple(problems),
    )


def read_labelled(folder: Path, classes: Sequence[str], form: Form) -> Split:
    """All pictures of a folder with one sub-folder a class, as one split; sub-folders must be named as some of these classes."""
    problems: list[Problem] = []
    files = class_files(folder, problems)
    problems += [
        Problem(folder / name, f"is no class; there are {', '.join(classes)}") for name in files if name not in classes
    ]
    if problems:
        raise DataError(*problems)
    return split_in_memory(labelled(files, classes, form))


def class_files(folder: Path, problems: list[Problem]) -> dict[str, list[Path]]:
    """The files of each class, by name; hidden ones are left out, and what is odd joins the problems."""
    if not folder.is_dir():
        raise DataError(Problem(folder, "no such folder"))
    classes = {entry.name: visible(entry) for entry in visible(folder) if entry.is_dir()}
    if not classes:
        raise DataError(Problem(folder, "holds no class folders"))
    for name, entries in classes.items():
        nested = [entry for entry in entries if entry.is_dir()]
        problems += [
            Problem(entry, "is a folder within a class; images lie in the class folder itself") for entry in nested
        ]
        classes[name] = [entry for entry in entries if entry not in nested]
        if not entries:
            problems.append(Problem(folder / name, "is a class without images"))
    return classes


def labelled(files: ClassFiles, classes: Sequence[str], form: Form) -> Pictures:
    """A split of these files, class by class; a class that is not among `classes` is left out."""
    labels = {name: label for label, name in enumerate(classes)}
    pairs = [(path, labels[name]) for name, paths in files.items() if name in labels for path in paths]
    return pictures_in_files([path for path, _ in pairs], [label for _, label in pairs], form)


def split_by_seed(files: ClassFiles, test_share: float, seed: int) -> tuple[ClassFiles, ClassFiles]:
    """Train and test files with the same share of every class; a class of two or more has at least one image in each.

    Images are ordered by a hash of their names and the seed, so that one more image moves hardly any other across.
    """
    train, test = {}, {}
    for name, paths in files.items():
        shuffled = sorted(paths, key=lambda path: hashlib.sha256(f"{seed}/{name}/{path.name}".encode()).digest())
        count = min(max(round(len(paths) * test_share), 1), len(paths) - 1) if paths else 0
        train[name], test[name] = sorted(shuffled[count:]), sorted(shuffled[:count])
    return train, test


def visible(folder: Path) -> list[Path]:
    """What lies in a folder, by name, without what is hidden."""
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise DataError(Problem(folder, f"cannot be read: {error.strerror}")) from None


def _form(paths: Iterable[Path], options: ReadOptions) -> Form:
    """What was asked for; what was not is as in the first picture that can be read."""
    channels: int | None = options.channels
    size = options.size
    for path in paths:
        if channels and size:
            break
        try:
            first = open_picture(path)
        except DataError:
            continue
        channels, size = channels or channels_of(first), size or (first.height, first.width)
    return Form(
        channels=channels or 3,
        convert=options.channels is not None,
        native=None if options.size else size,
        size=size or (1, 1),  # No picture can be read at all: decoding will say so of each.
        fit=options.fit,
        advice=" like the first; --read.size HEIGHT WIDTH brings all to one size",
    )
