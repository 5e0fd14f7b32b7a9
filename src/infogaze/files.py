"""Files and folders: written whole or not at all, read within bounds, one process a folder. What fails is said in a line with its path."""

from __future__ import annotations

import errno
import json
import os
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from infogaze.errors import InfogazeError

try:
    import fcntl
except ImportError:  # a system without such locks has none of ours
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
"""The file of a folder that `locked` locks. It stays when the lock goes: were it removed, two processes could hold two such files."""

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""What systems say that have no hard links."""


class FileError(InfogazeError):
    """A file or folder that the system refuses to read or write."""

    def __init__(self, path: Path, what: str, error: OSError) -> None:
        why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)
        super().__init__(f"{path}: {what}: {why}")
        self.disk_full = error.errno in (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Guard:
    """Says whether this process may still write."""

    name: str
    """Of the work that only one process may do at a time."""
    ask: Callable[[], None]
    """Does not return where another process does it now."""


_guards: list[Guard] = []


def guard_writes(guard: Guard) -> None:
    """From now on every write of this process asks first; and a lock of this work, held by a process that has lost it, is broken."""
    _guards[:] = [guard]


def _ask() -> None:
    for guard in _guards:
        guard.ask()


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part."""
    _ask()
    _write_whole(path, data, before_it_counts=_ask)


def write_unguarded(path: Path, data: bytes) -> None:
    """The same without asking: for what a guard itself writes."""
    _write_whole(path, data, before_it_counts=lambda: None)


def append(path: Path, text: str) -> None:
    """Add to the end of a file."""
    _ask()
    try:
        with path.open("a") as file:
            file.write(text)
    except OSError as error:
        raise FileError(path, "cannot be written", error) from None


def _write_whole(path: Path, data: bytes, before_it_counts: Callable[[], None]) -> None:
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        before_it_counts()
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):  # what kept us from writing it may keep us from removing it
            partial.unlink(missing_ok=True)
        raise FileError(path, "cannot be written", error) from None


def create_whole(path: Path, data: bytes) -> bool:
    """Write a file unless there is one: of any number of processes, on any machines, one succeeds, and nobody sees a part of it.

    True for the one that made it. Where the system has no hard links, others may see it while it is still empty.
    """
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        try:
            with partial.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                path.hardlink_to(partial)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                with path.open("xb") as file:
                    file.write(data)
            return True
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
    except FileExistsError:
        return False
    except OSError as error:
        raise FileError(path, "cannot be written", error) from None


def write_json(path: Path, value: Any) -> None:
    """The value as JSON that a person can read."""
    write_whole(path, (json.dumps(value, indent=1) + "\n").encode())


def make_folder(path: Path) -> Path:
    """The folder, made with those above it where it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(path, "no folder can be made here", error) from None
    return path


def read_whole(path: Path) -> bytes:
    """All of a file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileError(path, "cannot be read", error) from None


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    data = read_whole(path)
    try:
        return json.loads(data)
    except RecursionError:
        raise InfogazeError(f"{path}: not readable as JSON: it is nested too deeply") from None
    except ValueError as error:
        raise InfogazeError(f"{path}: not readable as JSON: {' '.join(str(error).split())}") from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """While the block runs no other process gets this lock; the system frees it when this process ends, however it ends."""
    if fcntl is None:
        yield
        return
    path = folder / LOCK
    work = f" for {_guards[0].name}" if _guards else ""
    with _lock_file(path, work) as file:
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}{work}\n")
        file.flush()
        yield


def _lock_file(path: Path, work: str) -> IO[str]:
    """The file, locked; InfogazeError where another process has it."""
    while True:
        try:
            file = path.open("a+")
        except OSError as error:
            raise FileError(path, "cannot be written", error) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            with file:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise FileError(path, "cannot be locked", error) from None
                file.seek(0)
                holder = file.read().strip()
            if not work or not holder.endswith(work):
                raise InfogazeError(f"{path.parent}: in use by {holder or 'another process'}") from None
            # Who has it was to do this work before us, and can write no more: its guard will not let it.
            _ask()
            path.unlink(missing_ok=True)
            continue
        # A file that was taken from its place meanwhile is nobody's lock.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()
