"""All sets by name: a table of where each comes from and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from infogaze.data.arrays import read_arrays
from infogaze.data.cache import Progress, fingerprint_of, open_or_build
from infogaze.data.cluttered import cluttered
from infogaze.data.digits import digits
from infogaze.data.folder import read_folder
from infogaze.data.official import cinic10_home, read_cinic10, read_tinyimagenet, tinyimagenet_home
from infogaze.data.options import AS_IT_IS, ReadOptions
from infogaze.data.reading import Reading, in_memory, pictures_in_array, usable
from infogaze.data.sets import ImageSet
from infogaze.data.torchvision_sets import (
    Cifar,
    cifar_files,
    download_cifar,
    download_svhn,
    read_cifar,
    read_svhn,
    svhn_files,
)
from infogaze.errors import InfogazeError


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a set comes from and how it is read."""

    images: str
    """How many, as train + test."""
    size: str
    """Height, width and channels."""
    origin: str
    """Where it comes from."""
    get: str
    """How to get it, and what to give as the root."""
    read: Callable[[Path, ReadOptions], Reading]
    """From a root."""
    files: Callable[[Path], Iterable[Path]] | None
    """The files under a root that say whether a set has changed; None where nothing on disk is read."""
    download: Callable[[Path], None] | None = None
    """Fills a root from the network."""
    options: tuple[str, ...] = ()
    """What can be asked for beside size and fit."""
    own: bool = False
    """Whether it is what a user brings, and no known set."""


def _cifar(kind: Cifar, folder: str, classes: int) -> Source:
    return Source(
        images="50,000 + 10,000",
        size="32x32x3",
        origin=f"torchvision; {classes} classes",
        get=f"a root to --download into, or one that holds {folder}/",
        read=partial(read_cifar, kind),
        files=partial(cifar_files, kind),
        download=partial(download_cifar, kind),
    )


def _embedded(make: Callable[[int], ImageSet], _: Path, options: ReadOptions) -> Reading:
    made = make(options.seed)
    train, test = (
        pictures_in_array(split.images.numpy(), split.labels.numpy(), options) for split in (made.train, made.test)
    )
    return Reading(train=train, test=test, classes=made.classes)


def _drawn(make: Callable[[int], ImageSet], *, images: str, size: str, origin: str) -> Source:
    """A set that is drawn anew by a seed, of drawings that come with a package."""
    return Source(
        images=images,
        size=size,
        origin=f"embedded: {origin}; 10 classes",
        get="nothing to get, no root",
        read=partial(_embedded, make),
        files=None,
        options=("seed",),
    )


def _below(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


SETS: dict[str, Source] = {
    "digits": _drawn(
        digits, images="9,576 + 600", size="32x32x1", origin="scikit-learn's handwritten digits, drawn large"
    ),
    "cluttered": _drawn(
        cluttered,
        images="19,152 + 2,400",
        size="40x40x1",
        origin="the same digits, small and anywhere among pieces of others",
    ),
    "svhn": Source(
        images="73,257 + 26,032",
        size="32x32x3",
        origin="torchvision; house numbers, 10 classes",
        get="a root to --download into, or one that holds train_32x32.mat and test_32x32.mat",
        read=read_svhn,
        files=svhn_files,
        download=download_svhn,
    ),
    "cifar10": _cifar("CIFAR10", "cifar-10-batches-py", 10),
    "cifar100": _cifar("CIFAR100", "cifar-100-python", 100),
    "cinic10": Source(
        images="180,000 + 90,000",
        size="32x32x3",
        origin="datashare.ed.ac.uk/handle/10283/3192; 10 classes; valid/ joins the training split",
        get="unpack CINIC-10.tar.gz; the root holds train/, valid/ and test/",
        read=read_cinic10,
        files=lambda root: _below(cinic10_home(root)),
        options=("merge_validation",),
    ),
    "tinyimagenet": Source(
        images="100,000 + 10,000",
        size="64x64x3",
        origin="cs231n.stanford.edu/tiny-imagenet-200.zip; 200 classes; the test split is the official val/",
        get="unpack tiny-imagenet-200.zip; the root holds wnids.txt, train/ and val/",
        read=read_tinyimagenet,
        files=lambda root: _below(tinyimagenet_home(root)),
    ),
    "folder": Source(
        images="yours",
        size="any",
        origin="a folder of your own images",
        get="a root with one sub-folder a class, or with train/ and test/ that have them",
        read=read_folder,
        files=_below,
        options=("channels", "test_share", "seed"),
        own=True,
    ),
    "arrays": Source(
        images="yours",
        size="any",
        origin="your own .npz file",
        get="a file with uint8 train_x, test_x and whole-number train_y, test_y; classes (names) if you like",
        read=read_arrays,
        files=lambda root: [root],
        own=True,
    ),
}
OWN_DATA = frozenset(name for name, source in SETS.items() if source.own)
"""The names under which users bring their own images."""


def load_set(
    name: str,
    root: Path | str | None = None,
    options: ReadOptions = AS_IT_IS,
    *,
    download: bool = False,
    cache: Path | str | None = None,
    progress: Progress | None = None,
) -> ImageSet:
    """A set by name, from the cache if it was read before; DataError, of one line, where a file is missing or damaged.

    Images are memory-mapped and must not be written to. `cache` is the folder of all caches, by default that of
    `cache_root`; `progress` is told images done and images in all while a set is read.
    """
    source, root = _source(name, root, options, download=download)
    if download:
        if source.download is None:
            raise InfogazeError(f"{name} cannot be downloaded by infogaze; {source.get}")
        source.download(root)
    if source.files is None:
        return in_memory(source.read(root, options))
    # Absolute, so that a cache belongs to a place, not to the way it was typed.
    identity = {"name": name, "root": str(root.resolve()), "options": asdict(options)}
    fingerprint = fingerprint_of(identity, root, source.files(root))
    return open_or_build(
        identity, fingerprint, lambda: usable(source.read(root, options), root), root=cache, progress=progress
    )


def read_set(name: str, root: Path | str | None = None, options: ReadOptions = AS_IT_IS) -> Reading:
    """A set at its source, no image decoded yet and nothing cached."""
    source, root = _source(name, root, options)
    return usable(source.read(root, options), root)


def _source(name: str, root: Path | str | None, options: ReadOptions, *, download: bool = False) -> tuple[Source, Path]:
    if name not in SETS:
        raise InfogazeError(f"no set is called {name!r}; there are {', '.join(SETS)}")
    source = SETS[name]
    known = ("size", "fit", *source.options)
    for option, value in asdict(options).items():
        if value != getattr(AS_IT_IS, option) and option not in known:
            raise InfogazeError(f"{name} has no option {option!r}; it has {', '.join(known)}")
    if source.files is None:
        return source, Path()
    if root is None and download and source.download is not None:
        raise InfogazeError(f"{name}: --download needs --root, the folder to download into")
    if root is None:
        raise InfogazeError(f"{name} needs --root: {source.get}")
    return source, Path(root).expanduser()
