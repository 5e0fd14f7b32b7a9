"""Jobs shared by workers that see one folder: who holds a job says so again and again, and who falls silent loses it.

A job's lease is a row of files, JOB.0, JOB.1, ...; the last counts. Its holder writes a new number into it every few seconds. Any other
worker takes the job by making the next file, which the system lets one of them do, once it has seen the same number for the lease's time
on its own clock: no two clocks need to agree. A holder that finds a next file has lost the job, and ends at once.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infogaze.errors import InfogazeError
from infogaze.files import Guard, create_whole, guard_writes, make_folder, write_unguarded

LOST = 75
"""The exit code of a process that has lost its lease."""
_BEATS = 6
"""In the time of a lease."""


@dataclass(frozen=True)
class Lease:
    """A job held by this worker, or by the process that it started for it."""

    path: Path
    seconds: float
    """Of silence after which others may take the job."""

    @property
    def job(self) -> str:
        """Its name as a file's."""
        return self.path.stem

    @property
    def is_lost(self) -> bool:
        """Whether another worker has taken the job."""
        return _after(self.path).exists() or not self.path.exists()

    def renew(self) -> None:
        """Say that the job is still held."""
        write_unguarded(self.path, _words(self.seconds))

    def release(self) -> None:
        """Leave the job to whoever comes first."""
        if not self.is_lost:
            write_unguarded(self.path, _words(0.0))


class Leases:
    """The leases of a folder, as one worker sees them."""

    def __init__(self, folder: Path, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        require_lease(seconds)
        self._folder, self._seconds, self._clock = make_folder(folder), seconds, clock
        self._seen: dict[Path, tuple[bytes, float]] = {}

    def claim(self, job: str) -> Lease | None:
        """The job, if nobody holds it; None otherwise."""
        last = self._last(job)
        if last is not None and not self._is_free(last):
            return None
        path = self._folder / f"{_file(job)}.0" if last is None else _after(last)
        return Lease(path, self._seconds) if create_whole(path, _words(self._seconds)) else None

    def is_held(self, job: str) -> bool:
        """Whether somebody holds the job, as far as this worker has seen."""
        last = self._last(job)
        return last is not None and not self._is_free(last)

    def _last(self, job: str) -> Path | None:
        found = [path for path in self._folder.glob(f"{_file(job)}.*") if path.suffix[1:].isdigit()]
        return max(found, key=lambda path: int(path.suffix[1:]), default=None)

    def _is_free(self, path: Path) -> bool:
        """Whether the holder has let go, or has said nothing new for so long."""
        try:
            said = path.read_bytes()
            seconds = float(json.loads(said)["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            # A machine that fails while it writes may leave anything: it is silent too.
            said, seconds = b"", self._seconds
        now = self._clock()
        before, since = self._seen.get(path, (None, now))
        if said != before:
            self._seen[path] = said, now
            since = now
        return now - since >= seconds


def require_lease(seconds: float) -> None:
    """Refuse a time in which nobody can say anything."""
    if not 1.0 <= seconds < float("inf"):
        raise InfogazeError(f"lease is {seconds}; it must be at least 1 second")


def keep(lease: Lease, *, end: Callable[[str], Any]) -> None:
    """Renew the lease from a thread of this process, and let it write nothing once the lease is lost: `end` then ends the process."""
    began = time.monotonic()
    renewed = [began]

    def ask() -> None:
        if lease.is_lost:
            end(f"{lease.job}: another worker has taken this job; nothing more is written here")

    def beat() -> None:
        while True:
            try:
                ask()
                lease.renew()
                renewed[0] = time.monotonic()
            except (InfogazeError, OSError) as error:
                # Others see as little of us as we of the folder, and may take the job.
                if time.monotonic() - renewed[0] > lease.seconds * 2 / 3:
                    end(f"{lease.job}: the lease could not be renewed: {error}")
                    return
            time.sleep(lease.seconds / _BEATS)

    guard_writes(Guard(lease.job, ask))
    threading.Thread(target=beat, daemon=True).start()


def _words(seconds: float) -> bytes:
    """What a holder says, never twice the same; a lease of no time is free."""
    said = {"seconds": seconds, "by": f"process {os.getpid()} on {socket.gethostname()}", "word": uuid.uuid4().hex}
    return json.dumps(said).encode()


def _after(path: Path) -> Path:
    return path.with_suffix(f".{int(path.suffix[1:]) + 1}")


def _file(job: str) -> str:
    return job.replace("/", "-")
