"""`infogaze sweep PRESET`: train and evaluate many methods and seeds, and print the table as it fills."""

from __future__ import annotations

import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from torch import Tensor

from infogaze.cli.evaluate import MeasurementName
from infogaze.cli.train import PresetName, RecipeName, chosen_device, stop_signals
from infogaze.data.options import AS_IT_IS, Options
from infogaze.data.registry import load_set
from infogaze.errors import InfogazeError
from infogaze.evaluation import records
from infogaze.evaluation.accuracy import accuracy_over_runs
from infogaze.evaluation.comparing import incomparable, not_one_curve
from infogaze.evaluation.records import About, EvaluationError, Records
from infogaze.files import make_folder, read_json, write_json
from infogaze.methods.registry import METHODS, method
from infogaze.presets import preset
from infogaze.progress import display
from infogaze.runs import require_share
from infogaze.sweep.jobs import Failed, Job, carry_out, jobs, spelled
from infogaze.training.recipe import recipe

_AT_ONCE_ON_GPU = 3
"""While one compiles or evaluates, which leaves the device idle, others train."""


@dataclass(frozen=True)
class Sweep:
    """Train and evaluate methods over seeds, each in OUT/METHOD/seed-N, phase 1 once a seed for all that share it.

    What is done is skipped, and the same command again goes on after being killed. A table with means and intervals is printed as runs
    end. For a cluster, --print-stage writes the commands down instead, one a line (see recipes/sweep.slurm).
    """

    preset: Annotated[PresetName, tyro.conf.Positional, tyro.conf.arg(metavar="PRESET")]
    """Sizes of the networks and what belongs to the data set: svhn, cifar10, cifar10-plus, cinic10, cifar100, tinyimagenet or digits."""
    out: Path
    """Folder of the sweep."""
    methods: str = "all"
    """Names with commas between, or all: infogaze, no-hindsight, gaussian, gaussian-no-hindsight, attention, random, ram, ram-plus,
    discriminative, oracle, cnn."""
    seeds: int = 3
    """How many, from 0 on."""
    data: str | None = None
    """The image set, see `infogaze data list`; the preset's own if not given."""
    root: Path | None = None
    """Where the set's files are; digits needs none."""
    read: Options = Options()
    """How the images are read."""
    recipe: RecipeName = "fast"
    """How long and how hard: paper, fast, quickstart or smoke."""
    length: float = 1.0
    """Train for this many times the recipe's epochs, in every phase: 0.5 is half as long."""
    hold_out: float = 0.0
    """Share of the training split kept back in every run."""
    measure: tuple[MeasurementName, ...] = ("records", "judged")
    """What is measured of every run, see `infogaze evaluate --help`; judged where the cnn is among the methods."""
    at_once: int | None = None
    """Commands that run at the same time on the device; 3 on a GPU and 1 on the CPU if not given."""
    device: str = "auto"
    """Where to train: cpu, cuda, cuda:1; auto takes a GPU if there is one."""
    print_stage: Literal["phase-1", "methods", "judgement"] | None = None
    """Print the commands of this stage and run nothing. A stage needs the one before it to be done."""

    def run(self) -> None:
        """Make the list, then print it or work it off."""
        names = list(METHODS) if self.methods == "all" else self.methods.split(",")
        for name in names:
            method(name)
        if len(set(names)) < len(names):
            raise InfogazeError(f"methods are {self.methods!r}; each may be named once")
        if self.seeds < 1:
            raise InfogazeError(f"seeds is {self.seeds}; it must be at least 1")
        recipe(self.recipe).lengthened(self.length)  # refused here, before the folder is claimed
        require_share(self.hold_out)
        if self.at_once is not None and self.at_once < 1:
            raise InfogazeError(f"at_once is {self.at_once}; it must be at least 1")
        work = jobs(self.out, names, self.seeds, self._train(), self.measure, self.device)
        if self.print_stage is not None:
            for job in work:
                if job.stage == self.print_stage:
                    print(spelled(job))
            return
        self._work_off(names, work)

    def _work_off(self, names: list[str], work: list[Job]) -> None:
        device = chosen_device(self.device)
        # Read before anything is claimed: a wrong root is told at once, and jobs that begin together find the cache made.
        load_set(preset(self.preset).data if self.data is None else self.data, self.root, self.read)
        self._claim()
        at_once = self.at_once if self.at_once is not None else (_AT_ONCE_ON_GPU if device.type == "cuda" else 1)
        with display() as screen, stop_signals() as asked:

            def finished(job: Job) -> None:
                screen.say(f"{job.name}: done")
                if job.stage == "methods":
                    screen.say(table(self.out, names, self.seeds))

            try:
                carry_out(work, self.out / "logs", at_once, screen.say, finished, lambda: bool(asked))
            except Failed as error:
                screen.say(f"infogaze: {error}")
                raise SystemExit(1) from None
            if asked:
                screen.say("stopped; the same command again goes on from there")
                raise SystemExit(128 + (asked[0] if asked else signal.SIGTERM))
            screen.say(table(self.out, names, self.seeds))
            screen.say(f"runs: {self.out}; `infogaze report` makes a page of them")

    def _claim(self) -> None:
        """The folder belongs to one way of training; methods and seeds may be added to it."""
        make_folder(self.out)
        wanted = self._train()
        path = self.out / "sweep.json"
        if path.exists() and (found := read_json(path)) != wanted:
            raise InfogazeError(f"{self.out} holds a sweep with other settings: {' '.join(map(str, found))}")
        write_json(path, wanted)

    def _train(self) -> list[str]:
        given = [self.preset, "--recipe", self.recipe, "--device", self.device]
        if self.length != 1.0:
            given += ["--length", str(self.length)]
        if self.data is not None:
            given += ["--data", self.data]
        if self.root is not None:
            given += ["--root", str(self.root)]
        if self.hold_out:
            given += ["--hold-out", str(self.hold_out)]
        for option, value in asdict(self.read).items():
            if value == getattr(AS_IT_IS, option):
                continue
            flag = f"--read.{option.replace('_', '-')}"
            if isinstance(value, bool):
                given.append(f"--read.no-{option.replace('_', '-')}")
            else:
                given += [flag, *map(str, value if isinstance(value, tuple) else (value,))]
        return given


def table(out: Path, names: list[str], seeds: int) -> str:
    """Accuracy by look of what is there, in %, with the half width of its 95 % interval and the seeds behind it.

    What cannot be read, or not be set against the first, is left out and named in a line below.
    """
    rows, left_out = _rows(out, names, seeds)
    lines = []
    for name, found in rows.items():
        estimate = accuracy_over_runs([one.right for one in found])
        half = (estimate.high - estimate.low) / 2
        cells = [f"{100 * m:5.1f} ±{100 * h:4.1f}" for m, h in zip(estimate.value.tolist(), half.tolist(), strict=True)]
        mark = {"looks": "", "everything": ", sees all"}.get(METHODS[name].sees, ", not deployable")
        twin = ", twin" if found[0].about.twin else ""
        lines.append(f"{name + mark + twin:<24}" + "  ".join(cells) + f"   {len(found)} of {seeds} seeds")
    looks = max(line.count("±") for line in lines) if lines else 0
    head = f"{'accuracy by look, %':<24}" + "  ".join(f"{look:>5}      " for look in range(looks))
    return "\n".join([head, *lines, *(f"left out: {why}" for why in left_out)])


@dataclass(frozen=True)
class _Found:
    """An evaluation that was read."""

    run: Path
    about: About
    right: Tensor


def _rows(out: Path, names: list[str], seeds: int) -> tuple[dict[str, list[_Found]], list[str]]:
    """What goes into one table, by method, and why the rest does not, in words."""
    rows: dict[str, list[_Found]] = {}
    left_out = []
    for name in names:
        for run in (out / name / f"seed-{seed}" for seed in range(seeds)):
            folder = run / "evaluation"
            try:
                if not records.has(folder, Records):
                    continue
                found = _Found(run, records.about(folder), records.read(folder, Records).right)
            except EvaluationError as error:
                left_out.append(str(error))
                continue
            first = next(iter(rows.values()), [found])[0]
            clashes = [(first, incomparable(found.about, first.about))]
            clashes += [(other, _not_one_row(found, other)) for other in rows.get(name, [])]
            reasons = [f"{run} and {other.run} {why}" for other, why in clashes if why]
            if reasons:
                left_out.append(reasons[0])
            else:
                rows.setdefault(name, []).append(found)
    return rows, left_out


def _not_one_row(found: _Found, other: _Found) -> str:
    if found.right.shape != other.right.shape:
        return "cannot be one curve: another number of scenes or looks in the records"
    return not_one_curve(found.about, other.about)
