"""CINIC-10 and TinyImageNet in the folders their authors distribute."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from infogaze.data.folder import class_files, labelled, visible
from infogaze.data.options import ReadOptions
from infogaze.data.reading import Reading, pictures_in_files
from infogaze.errors import DataError, Problem
from infogaze.pictures import Form

CINIC10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def cinic10_home(root: Path) -> Path:
    """The folder with train/, valid/ and test/: the root, or CINIC-10/ in it."""
    return root / "CINIC-10" if (root / "CINIC-10").is_dir() else root


def read_cinic10(root: Path, options: ReadOptions) -> Reading:
    """train/, valid/ and test/, each with ten class folders of 32x32 PNGs.

    valid/ joins the training split unless asked otherwise, as the paper's authors did; where it is absent, as in a part
    of the set, train/ stands alone.
    """
    home = cinic10_home(root)
    problems: list[Problem] = []
    files: dict[str, dict[str, list[Path]]] = {}
    for part in ("train", "valid", "test"):
        if part == "valid" and not (options.merge_validation and (home / part).is_dir()):
            continue
        files[part] = class_files(home / part, problems)
        problems += [
            Problem(home / part / name, "missing class folder") for name in CINIC10_CLASSES if name not in files[part]
        ]
        problems += [
            Problem(home / part / name, "is no class of CINIC-10")
            for name in files[part]
            if name not in CINIC10_CLASSES
        ]
    train = {
        name: [path for part in ("train", "valid") for path in files.get(part, {}).get(name, [])]
        for name in CINIC10_CLASSES
    }
    form = _colour(32, options)
    return Reading(
        train=labelled(train, CINIC10_CLASSES, form),
        test=labelled(files["test"], CINIC10_CLASSES, form),
        classes=CINIC10_CLASSES,
        problems=tuple(problems),
    )


def tinyimagenet_home(root: Path) -> Path:
    """The folder with wnids.txt: the root, or tiny-imagenet-200/ in it."""
    return root / "tiny-imagenet-200" if (root / "tiny-imagenet-200").is_dir() else root


def read_tinyimagenet(root: Path, options: ReadOptions) -> Reading:
    """wnids.txt, train/WNID/images and val/images with val_annotations.txt; 64x64 JPEGs, the grey ones made colour.

    The official validation split is the test split, since the labels of the official test split were never published.
    """
    home = tinyimagenet_home(root)
    wnids = [line.strip() for line in _lines(home / "wnids.txt") if line.strip()]
    problems: list[Problem] = []
    train = [
        (path, label)
        for label, wnid in enumerate(wnids)
        for path in _images(home / "train" / wnid / "images", problems)
    ]
    test = _annotated(home / "val", wnids, problems)
    form = _colour(64, options)
    return Reading(
        train=pictures_in_files([path for path, _ in train], [label for _, label in train], form),
        test=pictures_in_files([path for path, _ in test], [label for _, label in test], form),
        classes=_names(home, wnids),
        problems=tuple(problems),
    )


def _colour(side: int, options: ReadOptions) -> Form:
    return Form(channels=3, convert=True, native=(side, side), size=options.size or (side, side), fit=options.fit)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except FileNotFoundError:
        raise DataError(Problem(path, "is missing")) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(Problem(path, f"cannot be read as text: {error}")) from None


def _images(folder: Path, problems: list[Problem]) -> list[Path]:
    files = visible(folder) if folder.is_dir() else []
    if not files:
        problems.append(Problem(folder, "is a class without images" if folder.is_dir() else "missing class folder"))
    return files


def _annotated(folder: Path, wnids: list[str], problems: list[Problem]) -> list[tuple[Path, int]]:
    """The pictures that val_annotations.txt lists, in its order, with their labels."""
    annotations = folder / "val_annotations.txt"
    labels = {wnid: label for label, wnid in enumerate(wnids)}
    pairs = []
    for number, line in enumerate(_lines(annotations), start=1):
        name, wnid, *_ = [*line.split("\t"), "", ""]  # What follows is the bounding box.
        if wnid.strip() in labels:
            pairs.append((folder / "images" / name, labels[wnid.strip()]))
        elif line.strip():
            problems.append(Problem(annotations, f"line {number}: {wnid.strip()!r} is not a class of wnids.txt"))
    if not pairs:
        problems.append(Problem(annotations, "lists no image"))
    return pairs


def _names(home: Path, wnids: list[str]) -> tuple[str, ...]:
    """The first word of words.txt for each class, with the wnid where two share it; without words.txt, the wnids."""
    if not (home / "words.txt").is_file():
        return tuple(wnids)
    words = dict(line.split("\t", 1) for line in _lines(home / "words.txt") if "\t" in line)
    names = [words.get(wnid, wnid).split(",")[0].strip() for wnid in wnids]
    shared = Counter(names)
    return tuple(f"{name} ({wnid})" if shared[name] > 1 else name for name, wnid in zip(names, wnids, strict=True))
