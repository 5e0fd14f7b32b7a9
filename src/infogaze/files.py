"""Files and folders: written whole or not at all, read within bounds, one process a folder. What fails is said in a line with its path."""

from __future__ import annotations

import errno
import json
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

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


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
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
    try:
        file = path.open("a+")
    except OSError as error:
        raise FileError(path, "cannot be written", error) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise FileError(path, "cannot be locked", error) from None
            file.seek(0)
            raise InfogazeError(f"{folder}: in use by {file.read().strip() or 'another process'}") from None
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield
