"""CIFAR-10, CIFAR-100 and SVHN through torchvision, which knows their addresses and checksums.

torchvision takes seconds to import, so it is imported when one of them is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from infogaze.data.options import ReadOptions
from infogaze.data.reading import Reading, pictures_in_array
from infogaze.errors import DataError, Problem

if TYPE_CHECKING:
    from torchvision import datasets

Cifar = Literal["CIFAR10", "CIFAR100"]
"""As torchvision calls them."""


def cifar_files(kind: Cifar, root: Path) -> list[Path]:
    """The files that are read."""
    return list(_cifar_sums(kind, root))


def read_cifar(kind: Cifar, root: Path, options: ReadOptions) -> Reading:
    """The pickled batch files; they are unpickled only once their checksums prove to be the published ones."""
    _verify(_cifar_sums(kind, root))
    both = [_cifar(kind)(_cifar_home(kind, root), train=part) for part in (True, False)]
    train, test = (
        pictures_in_array(split.data.transpose(0, 3, 1, 2), np.array(split.targets, np.int64), options)
        for split in both
    )
    return Reading(train=train, test=test, classes=tuple(both[0].classes))


def download_cifar(kind: Cifar, root: Path) -> None:
    """Fetch what is missing."""
    _download(root, lambda: _cifar(kind)(_cifar_home(kind, root), download=True))


def svhn_files(root: Path) -> list[Path]:
    """The files that are read."""
    return list(_svhn_sums(root))


def read_svhn(root: Path, options: ReadOptions) -> Reading:
    """train_32x32.mat and test_32x32.mat; the `extra` split is left out."""
    _verify(_svhn_sums(root))
    both = [_svhn()(root, part) for part in ("train", "test")]
    train, test = (pictures_in_array(split.data, split.labels, options) for split in both)
    return Reading(train=train, test=test, classes=tuple(str(digit) for digit in range(10)))


def download_svhn(root: Path) -> None:
    """Fetch what is missing."""
    _download(root, lambda: [_svhn()(root, part, download=True) for part in ("train", "test")])


def _cifar(kind: Cifar) -> type[datasets.CIFAR10]:
    from torchvision import datasets

    return {"CIFAR10": datasets.CIFAR10, "CIFAR100": datasets.CIFAR100}[kind]


def _svhn() -> type[datasets.SVHN]:
    from torchvision import datasets

    return datasets.SVHN


def _cifar_home(kind: Cifar, root: Path) -> Path:
    """The folder around the batch files' own, which a user may have given as the root."""
    return root.parent if root.name == _cifar(kind).base_folder else root


def _cifar_sums(kind: Cifar, root: Path) -> dict[Path, str]:
    known = _cifar(kind)
    files = [*known.train_list, *known.test_list, (known.meta["filename"], known.meta["md5"])]
    return {_cifar_home(kind, root) / known.base_folder / name: md5 for name, md5 in files}


def _svhn_sums(root: Path) -> dict[Path, str]:
    return {root / name: md5 for _, name, md5 in (_svhn().split_list[part] for part in ("train", "test"))}


def _verify(sums: Mapping[Path, str]) -> None:
    from torchvision.datasets.utils import check_integrity

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
