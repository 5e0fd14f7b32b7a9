"""CIFAR-10, CIFAR-100 and SVHN through torchvision, which knows their addresses and checksums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from torchvision import datasets
from torchvision.datasets.utils import check_integrity

from infogaze.data.options import Options
from infogaze.data.problems import DataError, Problem
from infogaze.data.reading import Reading, pictures_in_array

CIFAR10, CIFAR100, SVHN = datasets.CIFAR10, datasets.CIFAR100, datasets.SVHN
Cifar = type[datasets.CIFAR10]  # torchvision makes CIFAR-100 a subclass of it.


def cifar_files(kind: Cifar, root: Path) -> list[Path]:
    """The files that are read."""
    return list(_cifar_sums(kind, root))


def read_cifar(kind: Cifar, root: Path, options: Options) -> Reading:
    """The pickled batch files; they are unpickled only once their checksums prove to be the published ones."""
    _verify(_cifar_sums(kind, root))
    both = [kind(_cifar_home(kind, root), train=part) for part in (True, False)]
    train, test = (
        pictures_in_array(split.data.transpose(0, 3, 1, 2), np.array(split.targets, np.int64), options)
        for split in both
    )
    return Reading(train, test, tuple(both[0].classes))


def download_cifar(kind: Cifar, root: Path) -> None:
    """Fetch what is missing."""
    _download(root, lambda: kind(_cifar_home(kind, root), download=True))


def svhn_files(root: Path) -> list[Path]:
    """The files that are read."""
    return list(_svhn_sums(root))


def read_svhn(root: Path, options: Options) -> Reading:
    """train_32x32.mat and test_32x32.mat; the `extra` split is left out."""
    _verify(_svhn_sums(root))
    both = [SVHN(root, part) for part in ("train", "test")]
    train, test = (pictures_in_array(split.data, split.labels, options) for split in both)
    return Reading(train, test, tuple(str(digit) for digit in range(10)))


def download_svhn(root: Path) -> None:
    """Fetch what is missing."""
    _download(root, lambda: [SVHN(root, part, download=True) for part in ("train", "test")])


def _cifar_home(kind: Cifar, root: Path) -> Path:
    """The folder around the batch files' own, which a user may have given as the root."""
    return root.parent if root.name == kind.base_folder else root


def _cifar_sums(kind: Cifar, root: Path) -> dict[Path, str]:
    files = [*kind.train_list, *kind.test_list, (kind.meta["filename"], kind.meta["md5"])]
    return {_cifar_home(kind, root) / kind.base_folder / name: md5 for name, md5 in files}


def _svhn_sums(root: Path) -> dict[Path, str]:
    return {root / name: md5 for _, name, md5 in (SVHN.split_list[part] for part in ("train", "test"))}


def _verify(sums: Mapping[Path, str]) -> None:
    problems = [
        Problem(path, "is damaged: its checksum is not the published one" if path.is_file() else "is missing")
        for path, md5 in sums.items()
        if not check_integrity(path, md5)
    ]
    if problems:
        raise DataError(*problems)


def _download(root: Path, fetch: Callable[[], object]) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
        fetch()
    except (OSError, RuntimeError) as error:  # No network, a full disk, or torchvision's word for a wrong checksum.
        raise DataError(Problem(root, f"could not be filled by a download: {error}")) from None
