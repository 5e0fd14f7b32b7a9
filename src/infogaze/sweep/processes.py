"""The jobs of a sweep as processes: so many at a time, each as soon as what it needs is there."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from infogaze.files import make_folder
from infogaze.sweep.jobs import Job
from infogaze.sweep.leases import Lease

_WAIT = 0.2  # seconds between looks at the running commands
_WORKER = "infogaze.cli.worker"


class Failed(RuntimeError):
    """Some commands of a sweep failed; the message says which and where their output is."""


def run_jobs(
    work: Sequence[Job],
    logs: Path,
    *,
    at_once: int,
    say: Callable[[str], None],
    on_finished: Callable[[Job], None],
    should_stop: Callable[[], bool],
) -> None:
    """Run what is not done. Output goes to a file a job."""
    make_folder(logs)
    done = {job.name for job in work if job.done()}
    waiting = [job for job in work if job.name not in done]
    running: dict[str, tuple[Job, subprocess.Popen[bytes]]] = {}
    failed: list[str] = []
    say(f"{len(done)} of {len(work)} done, {len(waiting)} to go, {at_once} at a time")
    try:
        while waiting or running:
            if should_stop():
                break
            for job in [job for job in waiting if len(running) < at_once]:
                if any(need in failed for need in job.needs):
                    waiting.remove(job)
                    failed.append(job.name)
                elif set(job.needs) <= done and len(running) < at_once:
                    waiting.remove(job)
                    say(f"{job.name}: begins")
                    running[job.name] = job, start(job, log_of(logs, job.name), at_once)
            for name, (job, process) in list(running.items()):
                if process.poll() is None:
                    continue
                del running[name]
                if process.returncode == 0 and job.done():
                    done.add(name)
                    on_finished(job)
                else:
                    failed.append(name)
                    say(f"{name}: failed; its output is in {log_of(logs, name)}")
            time.sleep(_WAIT)
    finally:
        for _, process in running.values():
            process.send_signal(signal.SIGTERM)
        for _, process in running.values():
            process.wait()
    if failed:
        raise Failed(
            f"failed, or needs one that failed: {', '.join(failed)}; the same command again tries them once more"
        )


def start(job: Job, log: Path, at_once: int, *, lease: Lease | None = None) -> subprocess.Popen[bytes]:
    """One process for the job's commands; it dies with us, so that a sweep begun again finds nobody at its folders.

    With a lease it renews it, and ends when it loses it.
    """
    threads = str(max(1, (os.cpu_count() or 1) // at_once))
    lines = [shlex.join(command) for command in job.commands]
    held = [] if lease is None else ["--lease", str(lease.path), str(lease.seconds)]
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", _WORKER, str(os.getpid()), *held, *lines],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", threads)},
        )  # fmt: skip


def log_of(logs: Path, name: str) -> Path:
    """The file with what a job prints."""
    return logs / f"{name.replace('/', '-')}.log"
