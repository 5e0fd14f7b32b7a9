"""A sweep's jobs shared with other workers: each takes what nobody holds, and what falls silent is taken over."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from infogaze.files import make_folder
from infogaze.sweep import processes
from infogaze.sweep.jobs import Job
from infogaze.sweep.leases import LOST, Lease, Leases
from infogaze.sweep.processes import Failed, log_of

_WAIT = 1.0  # seconds between looks at our processes and at what others do

Running = dict[str, tuple[Job, Any, Lease]]
"""By name: a job, its process, as `processes.start` gives it, and its lease."""


def join_jobs(
    work: Sequence[Job],
    leases: Leases,
    *,
    logs: Path,
    at_once: int,
    say: Callable[[str], None],
    on_finished: Callable[[Job], None],
    should_stop: Callable[[], bool],
) -> None:
    """Run what is not done and not held by others, until all is done by somebody."""
    make_folder(logs)
    done, failed, running = set[str](), set[str](), Running()
    try:
        while not should_stop():
            for job in work:
                if job.name not in done and job.name not in running and job.done():
                    done.add(job.name)
            left = [job for job in work if job.name not in done and job.name not in running]
            for job in left:
                if len(running) < at_once and set(job.needs) <= done and job.name not in failed:
                    _begin(job, leases, running=running, logs=logs, at_once=at_once, say=say)
            _collect(running, done=done, failed=failed, logs=logs, say=say, on_finished=on_finished)
            if not running and not _may_come(left, failed, leases):
                break
            time.sleep(_WAIT)
    finally:
        for _, process, _ in running.values():
            process.send_signal(signal.SIGTERM)
        for _, process, lease in running.values():
            process.wait()
            lease.release()
    if failed - done and not should_stop():
        raise Failed(f"failed here: {', '.join(sorted(failed - done))}; the same command again tries once more")


def _begin(job: Job, leases: Leases, *, running: Running, logs: Path, at_once: int, say: Callable[[str], None]) -> None:
    """Run a job if it can be had."""
    lease = leases.claim(job.name)
    if lease is None:
        return
    if job.done():  # by another worker, between our look and our claim
        lease.release()
        return
    running[job.name] = job, processes.start(job, log_of(logs, job.name), at_once, lease=lease), lease
    say(f"{job.name}: begins" if lease.path.suffix == ".0" else f"{job.name}: goes on here")


def _collect(
    running: Running,
    *,
    done: set[str],
    failed: set[str],
    logs: Path,
    say: Callable[[str], None],
    on_finished: Callable[[Job], None],
) -> None:
    """What came of the processes that have ended."""
    for name, (job, process, lease) in list(running.items()):
        if process.poll() is None:
            continue
        del running[name]
        if process.returncode == LOST or lease.is_lost:
            say(f"{name}: taken over by another worker")
            continue
        if process.returncode == 0 and job.done():
            done.add(name)
            on_finished(job)
        else:
            failed.add(name)
            say(f"{name}: failed; its output is in {log_of(logs, name)}")
        lease.release()


def _may_come(left: Sequence[Job], failed: Collection[str], leases: Leases) -> bool:
    """Whether there is something to wait for: a job that can be run here, or that another worker holds."""
    hopeless = set(failed)
    for job in left:  # in an order in which what is needed comes first
        if hopeless & set(job.needs):
            hopeless.add(job.name)
    return any(job.name not in hopeless or leases.is_held(job.name) for job in left)
