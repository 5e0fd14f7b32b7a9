"""Workers that share a folder, with real processes: none does a job twice, and what one leaves another goes on with."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from infogaze.cli.main import main
from infogaze.evaluation import store
from infogaze.evaluation.exact_pass import Records
from infogaze.sweep import joining
from infogaze.sweep.jobs import Job
from infogaze.sweep.joining import join_jobs
from infogaze.sweep.leases import LOST, Lease, Leases
from infogaze.sweep.processes import Failed
from tests.support.calls import refused
from tests.support.sweeps import given, run_here, tiny_set, write_set
from tests.sweep.test_leases import wait_for
from tests.sweep.test_processes import at_work

BIN = Path(sys.executable).parent
SECONDS = 10.0
"""Of the leases here: a busy machine may keep a process silent for a while."""

WORKER = """
import sys
from pathlib import Path
from infogaze.sweep.jobs import Job
from infogaze.sweep.joining import join_jobs
from infogaze.sweep.leases import Leases
out, seconds, command = Path(sys.argv[1]), float(sys.argv[2]), tuple(sys.argv[3:])
say = lambda line: print(line, flush=True)
job = Job(name="run/seed-0", stage="methods", commands=(command,), done=(out / "run" / "model.json").exists)
join_jobs(
    [job], Leases(out / "leases", seconds), logs=out / "logs", at_once=1, say=say,
    on_finished=lambda job: say(f"{job.name}: done"), should_stop=lambda: False,
)
"""
"""A worker with one job, a training that saves often."""


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFOGAZE_CACHE", str(tmp_path_factory.getbasetemp() / "cache-of-workers"))


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_set(tmp_path_factory.mktemp("scenes") / "set.npz", 400)


def training(scenes: Path, out: Path) -> list[str]:
    """A training of some seconds."""
    return [
        "train", "digits", "--data", "arrays", "--root", str(scenes), "--recipe", "smoke", "--device", "cpu",
        "--method", "random", "--phases", "1", "--recipe.phase1.epochs", "20", "--save-every", "0.2", "--out", str(out / "run"),
    ]  # fmt: skip


@contextlib.contextmanager
def worker(scenes: Path, out: Path, said: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker in a process of its own, and what it says."""
    with said.open("wb") as output:
        call = [sys.executable, "-c", WORKER, str(out), str(SECONDS), *training(scenes, out)]
        process = subprocess.Popen(call, stdout=output)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def straight(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The weights of a training that nobody disturbed."""
    out = tmp_path_factory.mktemp("straight")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFOGAZE_CACHE", str(out / "cache"))
        main(training(scenes, out))
    return load_file(out / "run" / "model.safetensors")


def checkpoints(out: Path) -> list[Path]:
    return sorted((out / "run" / "checkpoints").glob("*.safetensors"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process die with the one that started it")
def test_the_job_of_a_killed_worker_is_taken_over_and_goes_on_from_its_checkpoint(
    scenes: Path, straight: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    out, first, second = tmp_path / "out", tmp_path / "first", tmp_path / "second"
    with worker(scenes, out, first) as process:
        assert wait_for(lambda: bool(checkpoints(out)))
        process.kill()
        process.wait()
    assert wait_for(lambda: not at_work(out)), "nobody is left"
    assert not (out / "run" / "model.json").exists()
    steps = (out / "run" / "metrics.jsonl").read_text().splitlines()
    reached = int(checkpoints(out)[-1].name.split("step")[1][:8])
    assert reached > 0
    with worker(scenes, out, second) as process:
        assert process.wait(300) == 0
    assert first.read_text() == "run/seed-0: begins\n"
    assert second.read_text() == "run/seed-0: goes on here\nrun/seed-0: done\n"
    after = (out / "run" / "metrics.jsonl").read_text().splitlines()
    kept = [line for line in steps if line in after]
    assert kept, "what the first had measured up to its checkpoint was not measured again"
    torch.testing.assert_close(load_file(out / "run" / "model.safetensors"), straight, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows processes in /proc")
def test_a_worker_whose_job_was_taken_over_stops_and_does_not_write(
    scenes: Path, straight: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    out, first, second = tmp_path / "out", tmp_path / "first", tmp_path / "second"
    with worker(scenes, out, first) as one:
        assert wait_for(lambda: bool(checkpoints(out)))
        (asleep,) = at_work(out)
        os.kill(asleep, signal.SIGSTOP)
        with worker(scenes, out, second) as two:
            assert wait_for(lambda: "goes on here" in second.read_text())
            assert wait_for(lambda: len(at_work(out)) == 2)
            os.kill(asleep, signal.SIGCONT)
            assert wait_for(lambda: "taken over by another worker" in first.read_text())
            assert two.wait(300) == 0
            assert one.wait(300) == 0
    assert first.read_text() == "run/seed-0: begins\nrun/seed-0: taken over by another worker\n"
    assert second.read_text() == "run/seed-0: goes on here\nrun/seed-0: done\n"
    log = (out / "logs" / "run-seed-0.log").read_text()
    assert "infogaze: run-seed-0: another worker has taken this job; nothing more is written here" in log
    torch.testing.assert_close(load_file(out / "run" / "model.safetensors"), straight, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_workers_share_the_jobs_of_a_sweep_and_none_is_done_twice(scenes: Path, tmp_path: Path) -> None:
    out, said = tmp_path / "out", [tmp_path / "first", tmp_path / "second"]
    asked = ["--methods", "random", "--seeds", "2", "--measure", "records", "--join"]
    call = [str(BIN / "infogaze"), *given(scenes, out, *asked)]
    with said[0].open("wb") as first, said[1].open("wb") as second:
        one = subprocess.Popen(call, stdout=first)
        try:
            assert wait_for(lambda: "begins" in said[0].read_text())
            one.send_signal(signal.SIGSTOP)  # its job goes on, and it takes no other
            two = subprocess.Popen(call, stdout=second)
            try:
                assert wait_for(lambda: said[1].read_text().count(": done") == 3, 300)
                one.send_signal(signal.SIGCONT)
                assert (one.wait(300), two.wait(300)) == (0, 0)
            finally:
                two.kill()
                two.wait()
        finally:
            one.kill()
            one.wait()
    lines = [path.read_text().splitlines() for path in said]
    begun = [[line.split(":")[0] for line in told if line.endswith(": begins")] for told in lines]
    assert begun[0] == ["phase-1/seed-0"]
    assert sorted(begun[1]) == ["phase-1/seed-1", "random/seed-0", "random/seed-1"]
    assert not [line for told in lines for line in told if "goes on here" in line or "taken over" in line]
    for seed in (0, 1):
        assert store.has(out / "random" / f"seed-{seed}" / "evaluation", Records)
    tables = [told[-3:] for told in lines]
    assert tables[0] == tables[1]
    assert "2 of 2 seeds" in tables[0][1]


def test_a_sweep_that_is_joined_does_what_the_sweep_alone_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(joining, "_WAIT", 0.0)
    scenes, asked = tiny_set(tmp_path, monkeypatch), ("--methods", "random,cnn", "--seeds", "1")
    alone = run_here(capsys, scenes, tmp_path / "alone", *asked)
    joined = run_here(capsys, scenes, tmp_path / "joined", *asked, "--join")
    assert joined.ran == ["phase-1/seed-0", "random/seed-0", "cnn/seed-0", "judgement"]
    assert sorted(joined.ran) == sorted(alone.ran)
    assert joined.table == alone.table
    again = run_here(capsys, scenes, tmp_path / "joined", *asked, "--join")
    assert again.ran == []
    assert again.table == alone.table
    line = refused(capsys, *given(scenes, tmp_path / "joined", *asked, "--join", "--lease", "0.5"))
    assert "lease is 0.5; it must be at least 1 second" in line


class Process:
    """Ends as soon as it is asked, having done this."""

    def __init__(self, code: int) -> None:
        self.returncode = code

    def poll(self) -> int:
        return self.returncode


def join(work: list[Job], leases: Leases, logs: Path) -> list[str]:
    """Work the jobs off; what was said."""
    said: list[str] = []
    join_jobs(
        work, leases, logs=logs, at_once=2, say=said.append,
        on_finished=lambda job: said.append(f"{job.name}: done"), should_stop=lambda: False,
    )  # fmt: skip
    return said


def test_what_fails_here_is_named_and_what_needs_it_is_left_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "_WAIT", 0.0)
    done: list[str] = []
    started: list[str] = []

    def start(job: Job, log: Path, at_once: int, *, lease: Lease) -> Process:
        started.append(job.name)
        if job.name == "bad":
            return Process(1)
        done.append(job.name)
        return Process(0)

    monkeypatch.setattr("infogaze.sweep.processes.start", start)

    def job(name: str, *needs: str) -> Job:
        return Job(name=name, stage="methods", commands=(), needs=needs, done=lambda: name in done)

    work = [job("bad"), job("good"), job("after bad", "bad"), job("after good", "good"), job("last", "after bad")]
    leases = Leases(tmp_path / "leases", 60.0)
    with pytest.raises(Failed, match="failed here: bad; the same command again tries once more"):
        join(work, leases, tmp_path / "logs")
    assert started == ["bad", "good", "after good"]
    other = Leases(tmp_path / "leases", 60.0)
    assert other.claim("bad") is not None, "it was released, for another worker to try"


def test_a_job_that_another_did_or_lost_its_way_here_is_not_called_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "_WAIT", 0.0)
    asked = {"lost": 0, "stolen": 0}

    def start(job: Job, log: Path, at_once: int, *, lease: Lease) -> Process:
        if job.name == "stolen":
            (lease.path.with_suffix(".1")).write_bytes(lease.path.read_bytes())
            return Process(1)
        return Process(LOST)

    monkeypatch.setattr("infogaze.sweep.processes.start", start)

    def done_by_another(name: str) -> bool:
        asked[name] += 1
        return asked[name] > 3

    work = [
        Job(name="lost", stage="methods", commands=(), done=lambda: done_by_another("lost")),
        Job(name="stolen", stage="methods", commands=(), done=lambda: done_by_another("stolen")),
    ]
    said = join(work, Leases(tmp_path / "leases", 60.0), tmp_path / "logs")
    assert set(said) == {
        "lost: begins", "lost: taken over by another worker", "stolen: begins", "stolen: taken over by another worker",
    }  # fmt: skip


def test_a_job_that_was_done_between_look_and_claim_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "_WAIT", 0.0)
    answers = iter([False, True, True])
    work = [Job(name="quick", stage="methods", commands=(), done=lambda: next(answers))]
    leases = Leases(tmp_path / "leases", 60.0)
    assert join(work, leases, tmp_path / "logs") == []
    assert not leases.is_held("quick")
