"""A sweep as a list of commands that wait for each other: phase 1 once a seed, then every method from there, then the judgement.

Each command is one that a user could type. What it leaves says whether it is done, so a sweep that was killed goes on where it was.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from infogaze.evaluation import store
from infogaze.evaluation.judged import Judged
from infogaze.evaluation.measurement import Measurement
from infogaze.evaluation.registry import measurements_for
from infogaze.evaluation.store import EvaluationError
from infogaze.methods.registry import METHODS, PLAIN_METHOD
from infogaze.model_description import ModelFolderError
from infogaze.models import weights_digest


@dataclass(frozen=True, kw_only=True)
class Job:
    """One command line of the sweep."""

    name: str
    stage: str
    """phase-1, methods or judgement."""
    commands: tuple[tuple[str, ...], ...]
    """Arguments of `infogaze`, one after the other."""
    needs: tuple[str, ...] = ()
    """Jobs that must be done first."""
    done: Callable[[], bool]


def jobs(
    out: Path,
    methods: Sequence[str],
    *,
    seeds: int,
    train: Callable[[str], Sequence[str]],
    measure: Sequence[str],
    device: str,
) -> list[Job]:
    """All of a sweep. `train` gives what the commands for training a method have in common, `measure` is what is measured of each run."""
    evaluate = ("--measure", *measure, "--device", device)
    made, shares = [], [name for name in methods if shares_phase_1(name)]
    for seed in range(seeds):
        first = out / "phase-1" / f"for-seed-{seed}"
        common = ("--seed", str(seed), "--out")
        if shares:
            command = ("train", *train(PLAIN_METHOD), "--method", PLAIN_METHOD, "--phases", "1", *common, str(first))
            made.append(
                Job(
                    name=f"phase-1/seed-{seed}",
                    stage="phase-1",
                    commands=(command,),
                    done=(first / "model.json").exists,
                )
            )
        for name in methods:
            run = out / name / f"seed-{seed}"
            options: tuple[str, ...] = ("--method", name, *common, str(run))
            if name in shares:
                later = [str(number) for number in range(2, len(METHODS[name].phases) + 1)]
                options = (*options, "--phases", *later, "--start-from", str(first))
            entries = [entry for entry in measurements_for(METHODS[name], measure) if not entry.needs_judge]
            made.append(
                Job(
                    name=f"{name}/seed-{seed}",
                    stage="methods",
                    commands=(("train", *train(name), *options), ("evaluate", str(run), *evaluate)),
                    needs=(f"phase-1/seed-{seed}",) if name in shares else (),
                    done=_measured(run, entries),
                )
            )
    judges = [name for name in methods if METHODS[name].sees == "everything"]
    if Judged.file in measure and judges:
        runs = [out / name / f"seed-{seed}" for name in methods if name not in judges for seed in range(seeds)]
        judge = out / judges[0] / "seed-0"
        command = ("evaluate", *map(str, runs), *evaluate, "--judge", str(judge))
        every = tuple(job.name for job in made)
        made.append(
            Job(name="judgement", stage="judgement", commands=(command,), needs=every, done=_judged(runs, judge))
        )
    return made


def shares_phase_1(name: str) -> bool:
    """Whether the method begins with the phase 1 of plain F, R and C; another R has a phase 1 of its own."""
    method = METHODS[name]
    return method.phases[0] is METHODS[PLAIN_METHOD].phases[0] and method.has_plain_backbone


def shell_line(job: Job) -> str:
    """The job as a line for a shell."""
    return " && ".join(shlex.join(("infogaze", *command)) for command in job.commands)


def _measured(run: Path, entries: Sequence[Measurement]) -> Callable[[], bool]:
    """Of the weights that the run has now; what cannot be read is not measured."""

    def done() -> bool:
        folder = run / "evaluation"
        try:
            measured = all(store.has(folder, entry.record) for entry in entries)
            return measured and store.about(folder).weights == weights_digest(run)
        except (EvaluationError, ModelFolderError):
            return False

    return done


def _judged(runs: Sequence[Path], judge: Path) -> Callable[[], bool]:
    """By this judge with the weights that it has now."""

    def done() -> bool:
        if not (judge / "model.json").exists():
            return False
        weights = weights_digest(judge)
        return all(store.has(run / "evaluation", Judged, weights) for run in runs)

    return done
