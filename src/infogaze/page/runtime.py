"""onnxruntime-web: the two files of it that the page needs, fetched once by npm or taken from an unpacked copy, and checked."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from infogaze.data.cache import cache_root
from infogaze.errors import InfogazeError
from infogaze.files import make_folder, read_whole, write_whole

PACKAGE, VERSION = "onnxruntime-web", "1.30.0"
_PATIENCE = 600.0  # seconds


@dataclass(frozen=True, kw_only=True)
class RuntimeFile:
    """A file of the package."""

    source: str
    """Its path in the package."""
    name: str
    """On the page: all web servers know these endings."""
    sha256: str


FILES = (
    RuntimeFile(
        source="dist/ort.wasm.bundle.min.mjs",
        name="ort.js",
        sha256="11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
    ),
    RuntimeFile(
        source="dist/ort-wasm-simd-threaded.wasm",
        name="ort.wasm",
        sha256="3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
    ),
)
"""One script and the runtime itself, which runs in one thread unless it is told otherwise."""


def runtime_files(given: Path | None = None) -> dict[str, bytes]:
    """The files by their name on the page: of an unpacked copy, else of the cache, else fetched by npm into the cache."""
    if given is not None:
        return _files_in(given)
    kept = cache_root() / f"{PACKAGE}-{VERSION}"
    if not all((kept / file.source).is_file() for file in FILES):
        _fetch(kept)
    return _files_in(kept)


def _files_in(folder: Path) -> dict[str, bytes]:
    """Those of a folder that is the package, or holds it as `npm install` does."""
    inside = folder / "node_modules" / PACKAGE
    root = inside if inside.is_dir() else folder / "package" if (folder / "package").is_dir() else folder
    found = {}
    for file in FILES:
        path = root / file.source
        if not path.is_file():
            raise InfogazeError(f"{folder}: no {file.source}; an unpacked copy of {PACKAGE} {VERSION} is needed")
        data = read_whole(path)
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise InfogazeError(f"{path}: not the file of {PACKAGE} {VERSION}: its SHA-256 is another")
        found[file.name] = data
    return found


def _fetch(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise InfogazeError(
            f"npm is not installed, and fetches {PACKAGE} for the page; install it, or give --runtime an unpacked copy of version {VERSION}"
        )
    with tempfile.TemporaryDirectory() as made:
        call = [npm, "pack", f"{PACKAGE}@{VERSION}", "--silent", "--ignore-scripts", "--pack-destination", made]
        try:
            done = subprocess.run(call, cwd=made, capture_output=True, text=True, check=False, timeout=_PATIENCE)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _not_fetched(error) from None
        packed = [*Path(made).glob("*.tgz")]
        if done.returncode or not packed:
            raise _not_fetched(done.stderr)
        with tarfile.open(packed[0]) as archive:
            for file in FILES:
                data = archive.extractfile(f"package/{file.source}")
                assert data is not None
                make_folder((folder / file.source).parent)
                write_whole(folder / file.source, data.read())


def _not_fetched(why: object) -> InfogazeError:
    said = " ".join(str(why).split())[:200] or "npm said nothing"
    return InfogazeError(
        f"{PACKAGE} {VERSION} cannot be fetched by npm: {said}; or give --runtime an unpacked copy of that version"
    )
