"""A sweep as a list of commands that wait for each other: phase 1 once a seed, then every method from there, then the judgement.

Each command is one that a user could type. What it leaves says whether it is done, so a sweep that was killed goes on where it was.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from infogaze.evaluation import records
from infogaze.evaluation.measuring import kinds_for
from infogaze.evaluation.records import EvaluationError, Judged, Measurement
from infogaze.files import make_folder
from infogaze.methods.registry import METHODS
from infogaze.methods.three_phases import RECOGNISE
from infogaze.models import ModelFolderError, weights_digest

_WAIT = 0.2  # seconds between looks at the running commands
_DIE_WITH_PARENT = 1  # Linux: PR_SET_PDEATHSIG


@dataclass(frozen=True)
class Job:
    """One command line of the sweep."""

    name: str
    stage: str
    """phase-1, methods or judgement."""
    commands: tuple[tuple[str, ...], ...]
    """Arguments of `infogaze`, one after the other."""
    needs: tuple[str, ...]
    """Jobs that must be done first."""
    done: Callable[[], bool]


def jobs(
    out: Path, methods: Sequence[str], seeds: int, train: Sequence[str], measure: Sequence[str], device: str
) -> list[Job]:
    """All of a sweep. `train` is what the commands for training have in common, `measure` what is measured of each run."""
    evaluate = ("--measure", *measure, "--device", device)
    made, shares = [], [name for name in methods if shares_phase_1(name)]
    for seed in range(seeds):
        first = out / "phase-1" / f"for-seed-{seed}"
        if shares:
            command = ("train", *train, "--method", "random", "--phases", "1", "--seed", str(seed), "--out", str(first))
            made.append(Job(f"phase-1/seed-{seed}", "phase-1", (command,), (), _has(first / "model.json")))
        for name in methods:
            run = out / name / f"seed-{seed}"
            options: tuple[str, ...] = ("--method", name, "--seed", str(seed), "--out", str(run))
            if name in shares:
                later = [str(number) for number in range(2, len(METHODS[name].phases) + 1)]
                options = (*options, "--phases", *later, "--start-from", str(first))
            made.append(
                Job(
                    f"{name}/seed-{seed}", "methods",
                    (("train", *train, *options), ("evaluate", str(run), *evaluate)),
                    (f"phase-1/seed-{seed}",) if name in shares else (),
                    _measured(run, kinds_for(name, measure) - {Judged}),
                )
            )  # fmt: skip
    if "judged" in measure and "cnn" in methods:
        runs = [out / name / f"seed-{seed}" for name in methods if name != "cnn" for seed in range(seeds)]
        judge = out / "cnn" / "seed-0"
        command = ("evaluate", *map(str, runs), *evaluate, "--judge", str(judge))
        every = tuple(job.name for job in made)
        made.append(Job("judgement", "judgement", (command,), every, _judged(runs, judge)))
    return made


def shares_phase_1(name: str) -> bool:
    """Whether the method begins with the phase 1 of plain F, R and C; another R has a phase 1 of its own."""
    return METHODS[name].phases[0] is RECOGNISE and name != "attention"


def _has(path: Path) -> Callable[[], bool]:
    return path.exists


def _measured(run: Path, kinds: set[type[Measurement]]) -> Callable[[], bool]:
    """Of the weights that the run has now; what cannot be read is not measured."""

    def done() -> bool:
        folder = run / "evaluation"
        try:
            measured = all(records.has(folder, kind) for kind in kinds)
            return measured and records.about(folder).weights == weights_digest(run)
        except (EvaluationError, ModelFolderError):
            return False

    return done


def _judged(runs: Sequence[Path], judge: Path) -> Callable[[], bool]:
    """By this judge with the weights that it has now."""

    def done() -> bool:
        if not (judge / "model.json").exists():
            return False
        weights = weights_digest(judge)
        return all(records.has(run / "evaluation", Judged, weights) for run in runs)

    return done


def spelled(job: Job) -> str:
    """The job as a line for a shell."""
    return " && ".join(shlex.join(("infogaze", *command)) for command in job.commands)


class Failed(RuntimeError):
    """Some commands of a sweep failed; the message says which and where their output is."""


def carry_out(
    work: Sequence[Job],
    logs: Path,
    at_once: int,
    say: Callable[[str], None],
    finished: Callable[[Job], None],
    asked_to_stop: Callable[[], bool],
) -> None:
    """Run what is not done, so many at a time, each as soon as what it needs is there. Output goes to a file a job."""
    make_folder(logs)
    done = {job.name for job in work if job.done()}
    waiting = [job for job in work if job.name not in done]
    running: dict[str, tuple[Job, subprocess.Popen[bytes]]] = {}
    failed: list[str] = []
    say(f"{len(done)} of {len(work)} done, {len(waiting)} to go, {at_once} at a time")
    try:
        while waiting or running:
            if asked_to_stop():
                break
            for job in [job for job in waiting if len(running) < at_once]:
                if any(need in failed for need in job.needs):
                    waiting.remove(job)
                    failed.append(job.name)
                elif set(job.needs) <= done and len(running) < at_once:
                    waiting.remove(job)
                    say(f"{job.name}: begins")
                    running[job.name] = job, _start(job, logs / f"{job.name.replace('/', '-')}.log", at_once)
            for name, (job, process) in list(running.items()):
                if process.poll() is None:
                    continue
                del running[name]
                if process.returncode == 0 and job.done():
                    done.add(name)
                    finished(job)
                else:
                    failed.append(name)
                    say(f"{name}: failed; its output is in {logs / name.replace('/', '-')}.log")
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


def _start(job: Job, log: Path, at_once: int) -> subprocess.Popen[bytes]:
    """One process for the job's commands; it dies with us, so that a sweep begun again finds nobody at its folders."""
    threads = str(max(1, (os.cpu_count() or 1) // at_once))
    program = "import sys; from infogaze.sweep.jobs import run_in_turn; run_in_turn(int(sys.argv[1]), sys.argv[2:])"
    lines = [shlex.join(command) for command in job.commands]
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-c", program, str(os.getpid()), *lines],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", threads)},
        )  # fmt: skip


def run_in_turn(parent: int, lines: Sequence[str]) -> None:
    """Run commands of `infogaze` in this process, which ends when `parent`, the one that started it, does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before it could take us with it
            raise SystemExit(1)
    from infogaze.cli.main import main

    for line in lines:
        main(shlex.split(line))
