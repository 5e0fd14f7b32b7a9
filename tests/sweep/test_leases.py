"""Leases: one holder at a time, silence told by the waiting worker's own clock, and a holder that lost writes nothing more."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infogaze import files
from infogaze.errors import InfogazeError
from infogaze.files import Guard, append, guard_writes, locked, write_whole
from infogaze.sweep.leases import LOST, Lease, Leases, keep

JOB = "random/seed-0"


class Clock:
    """Of one worker; it says what it is told to."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_of_many_workers_one_gets_a_job(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        got = list(pool.map(lambda _: Leases(tmp_path, 60.0).claim(JOB), range(64)))
    assert len([lease for lease in got if lease is not None]) == 1


def test_a_job_is_free_once_its_holder_was_silent_for_so_long_on_the_watchers_own_clock(tmp_path: Path) -> None:
    held = Leases(tmp_path, 10.0, clock=Clock(0.0)).claim(JOB)
    assert held is not None
    clock = Clock(1e9)  # clocks that do not agree, as those of two machines
    other = Leases(tmp_path, 10.0, clock=clock)
    assert other.claim(JOB) is None, "however old it may be, this worker has just met it"
    clock.now += 9.9
    assert other.claim(JOB) is None
    held.renew()
    clock.now += 9.9
    assert other.claim(JOB) is None, "it has spoken meanwhile"
    assert other.is_held(JOB)
    assert not held.is_lost
    clock.now += 10.0
    assert not other.is_held(JOB)
    taken = other.claim(JOB)
    assert taken is not None
    assert held.is_lost
    assert not taken.is_lost


def test_of_many_that_wait_for_a_silent_holder_one_gets_its_job(tmp_path: Path) -> None:
    assert Leases(tmp_path, 10.0).claim(JOB) is not None
    clocks = [Clock(0.0) for _ in range(16)]
    waiting = [Leases(tmp_path, 10.0, clock=clock) for clock in clocks]
    assert [leases.claim(JOB) for leases in waiting] == [None] * 16
    for clock in clocks:
        clock.now = 11.0
    with ThreadPoolExecutor(16) as pool:
        got = list(pool.map(lambda leases: leases.claim(JOB), waiting))
    assert len([lease for lease in got if lease is not None]) == 1


def test_the_time_is_the_holders_whatever_the_watcher_was_told(tmp_path: Path) -> None:
    assert Leases(tmp_path, 100.0).claim(JOB) is not None
    clock = Clock(0.0)
    hasty = Leases(tmp_path, 1.0, clock=clock)
    assert hasty.claim(JOB) is None
    clock.now = 99.0
    assert hasty.claim(JOB) is None
    clock.now = 100.0
    assert hasty.claim(JOB) is not None


def test_what_is_released_is_free_at_once_but_not_by_one_who_lost_it(tmp_path: Path) -> None:
    one, two = Leases(tmp_path, 60.0), Leases(tmp_path, 60.0)
    first = one.claim(JOB)
    assert first is not None
    first.release()
    second = two.claim(JOB)
    assert second is not None
    assert first.is_lost
    first.release()
    assert one.claim(JOB) is None, "the second holds it still"


def test_a_lease_that_nobody_can_read_is_a_silent_one(tmp_path: Path) -> None:
    assert Leases(tmp_path, 60.0).claim(JOB) is not None
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"")
    clock = Clock(0.0)
    leases = Leases(tmp_path, 5.0, clock=clock)
    assert leases.claim(JOB) is None
    clock.now = 5.0
    assert leases.claim(JOB) is not None


def test_jobs_whose_names_begin_alike_are_two(tmp_path: Path) -> None:
    leases = Leases(tmp_path, 60.0)
    assert [leases.claim(name) is not None for name in ("ram/seed-1", "ram/seed-10", "ram-plus/seed-1")] == [True] * 3


@pytest.mark.parametrize("seconds", [0.0, 0.9, -1.0, float("nan"), float("inf")])
def test_a_time_in_which_nobody_can_speak_is_refused(seconds: float, tmp_path: Path) -> None:
    with pytest.raises(InfogazeError, match=f"lease is {seconds}; it must be at least 1 second"):
        Leases(tmp_path, seconds)


HOLDER = """
import os, sys, time
from pathlib import Path
from infogaze.files import append, locked, write_whole
from infogaze.sweep.leases import LOST, Lease, keep
home = Path(sys.argv[1])
keep(Lease(Path(sys.argv[2]), float(sys.argv[3])), end=lambda why: (print(why, flush=True), os._exit(LOST)))
with locked(home):
    for number in range(10 ** 6):
        write_whole(home / "state", str(number).encode())
        append(home / "log", f"{number}\\n")
        time.sleep(0.2)
"""


@contextlib.contextmanager
def holder(home: Path, lease: Lease) -> Iterator[subprocess.Popen[str]]:
    """A process that writes to the folder as long as it holds the lease, and has begun to."""
    call = [sys.executable, "-c", HOLDER, str(home), str(lease.path), str(lease.seconds)]
    process = subprocess.Popen(call, stdout=subprocess.PIPE, text=True)
    try:
        assert wait_for((home / "log").exists)
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(met: Callable[[], bool], seconds: float = 300.0) -> bool:
    until = time.monotonic() + seconds
    while not met() and time.monotonic() < until:
        time.sleep(0.01)
    return met()


def test_a_holder_renews_its_lease_by_itself(tmp_path: Path) -> None:
    lease = Leases(tmp_path / "leases", 3.0).claim(JOB)
    assert lease is not None
    with holder(tmp_path, lease) as process:
        for _ in range(3):
            before = lease.path.read_bytes()
            assert wait_for(lambda before=before: lease.path.read_bytes() != before)  # type: ignore[misc]
        assert process.poll() is None


def test_a_holder_that_slept_through_its_lease_writes_nothing_when_it_wakes_and_its_lock_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(0.0)
    other = Leases(tmp_path / "leases", 60.0, clock=clock)
    lease = Leases(tmp_path / "leases", 60.0).claim(JOB)
    assert lease is not None
    with holder(tmp_path, lease) as process:
        process.send_signal(signal.SIGSTOP)
        assert other.claim(JOB) is None
        with (
            pytest.raises(InfogazeError, match=f"in use by process {process.pid} on .* for random-seed-0"),
            locked(tmp_path),
        ):
            pass
        clock.now = 60.0
        taken = other.claim(JOB)
        assert taken is not None
        monkeypatch.setattr(files, "_guards", [])
        guard_writes(Guard(taken.job, lambda: None))
        with locked(tmp_path):
            write_whole(tmp_path / "state", b"ours")
            (tmp_path / "log").write_text("ours\n")
            process.send_signal(signal.SIGCONT)
            said, _ = process.communicate(timeout=300)
            assert process.returncode == LOST
            assert said.strip() == "random-seed-0: another worker has taken this job; nothing more is written here"
            assert (tmp_path / "state").read_bytes() == b"ours"
            assert (tmp_path / "log").read_text() == "ours\n"


def test_the_lock_of_other_work_is_not_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = Leases(tmp_path / "leases", 60.0).claim(JOB)
    assert lease is not None
    with holder(tmp_path, lease):
        monkeypatch.setattr(files, "_guards", [])
        guard_writes(Guard("ram-seed-0", lambda: None))
        with pytest.raises(InfogazeError, match="in use by process"), locked(tmp_path):
            pass


class Ended(BaseException):
    """What ends a process, here."""


def test_a_guarded_process_asks_before_every_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_guards", [])
    path = tmp_path / "state"
    asked = 0

    def ask() -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise Ended

    guard_writes(Guard("work", ask))
    with pytest.raises(Ended):
        write_whole(path, b"late")
    assert not path.exists(), "it was taken while the data was on its way"
    with pytest.raises(Ended):
        write_whole(path, b"")
    with pytest.raises(Ended):
        append(path, "")
    assert not path.exists()


def test_a_holder_that_cannot_renew_ends_before_others_may_take_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_guards", [])
    lease = Leases(tmp_path / "leases", 1.0).claim(JOB)
    assert lease is not None
    said: list[str] = []
    monkeypatch.setattr(Lease, "renew", _no_disk)
    keep(lease, end=said.append)
    assert wait_for(lambda: bool(said))
    assert said == ["random-seed-0: the lease could not be renewed: the disk is gone"]


def _no_disk(lease: Lease) -> None:
    raise OSError("the disk is gone")
