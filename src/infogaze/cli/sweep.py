"""`infogaze sweep PRESET`: train and evaluate many methods and seeds, and print the table as it fills."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro

from infogaze.cli.names import MEASUREMENT_NAMES, METHOD_NAMES, PRESET_NAMES, RECIPE_NAMES
from infogaze.cli.overrides import as_arguments
from infogaze.cli.settings import (
    RunFile,
    changes_of,
    read_changes_of,
    resolved_options,
    resolved_preset,
    resolved_recipe,
    with_values,
    without_names,
)
from infogaze.data.options import ReadOptions
from infogaze.data.registry import load_set
from infogaze.devices import device_named
from infogaze.errors import InfogazeError
from infogaze.files import create_whole, make_folder, read_json
from infogaze.methods.registry import METHODS
from infogaze.presets import Preset
from infogaze.progress import display
from infogaze.runs import require_num_labels, require_val_fraction
from infogaze.sweep.jobs import Job, jobs, shell_line
from infogaze.sweep.joining import join_jobs
from infogaze.sweep.leases import Leases, require_lease
from infogaze.sweep.processes import Failed, run_jobs
from infogaze.sweep.table import table
from infogaze.tasks.signals import stop_signals
from infogaze.tasks.train import fitted, require_own

_AT_ONCE_ON_GPU = 3
"""While one compiles or evaluates, which leaves the device idle, others train."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Train and evaluate methods over seeds.

    Each run lies in OUT/METHOD/seed-N; phase 1 is trained once a seed for all that share it. What is done is skipped, and the same command
    again goes on after being killed. A table with means and intervals is printed as runs end. For a cluster, --print-stage writes the
    commands down instead, one a line (see recipes/sweep.slurm).
    """

    preset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar=PRESET_NAMES)]
    """Sizes of the networks and what belongs to the data set."""
    out: Path
    """Folder of the sweep."""
    methods: Annotated[str, tyro.conf.arg(metavar=f"all|{METHOD_NAMES}")] = "all"
    """Names with commas between, or all."""
    seeds: int = 3
    """How many, from 0 on."""
    data: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """The image set, see `infogaze data list`; the preset's own if not given."""
    root: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")] = None
    """Where the set's files are; digits needs none."""
    recipe: Annotated[str | None, tyro.conf.arg(metavar=RECIPE_NAMES, help_behavior_hint="")] = None
    """How long and how hard; the preset's own if not given."""
    length: float = 1.0
    """Train for this many times the recipe's epochs or steps, in every phase: 0.5 is half as long."""
    val_fraction: Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="")] = None
    """Share of the training split that is the validation split in every run; see `infogaze train --help`."""
    num_labels: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """How many training images keep their label in every run; see `infogaze train --help`."""
    teacher: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")] = None
    """A run that teaches all methods that look; see `infogaze train --help`."""
    measure: Annotated[tuple[str, ...], tyro.conf.arg(metavar=f"{MEASUREMENT_NAMES} [...]")] = ("records", "judged")
    """What is measured of every run, see `infogaze evaluate --help`; judged where the cnn is among the methods."""
    at_once: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Commands that run at the same time on the device; 3 on a GPU and 1 on the CPU if not given."""
    device: str = "auto"
    """Where to train: cpu, cuda, cuda:1; auto takes a GPU if there is one."""
    join: bool = False
    """Share the jobs with all that were started so on the same folder, on this machine and on others: each takes what nobody does, and goes
    on from the checkpoint of one that has fallen silent."""
    lease: float = 60.0
    """With --join: seconds without a sign of life after which others may take a job."""
    print_stage: Literal["phase-1", "methods", "judgement"] | None = None
    """Print the commands of this stage and run nothing. A stage needs the one before it to be done."""

    def run(self) -> None:
        """Make the list, then print it or work it off."""
        names = list(METHODS) if self.methods == "all" else self.methods.split(",")
        for name in names:
            _ = METHODS[name]
        if len(set(names)) < len(names):
            raise InfogazeError(f"methods are {self.methods!r}; each may be named once")
        if self.seeds < 1:
            raise InfogazeError(f"seeds is {self.seeds}; it must be at least 1")
        # Refused here, before the folder is claimed.
        settings = resolved_preset(RunFile(), self.preset)
        preset_changes, recipe_changes = changes_of(self)
        # What one of the methods sets itself is for the others; what all of them set would change nothing.
        for size, value in preset_changes.get("model", {}).items():
            if all(METHODS[name].overrides.get(size, value) != value for name in names):
                require_own(names[0], {size: value})
        resolved_recipe(RunFile(), self.recipe or settings.recipe, recipe_changes).scaled(self.length)
        self._options()
        if self.val_fraction is not None:
            require_val_fraction(self.val_fraction)
        require_num_labels(self.num_labels)
        if self.at_once is not None and self.at_once < 1:
            raise InfogazeError(f"at_once is {self.at_once}; it must be at least 1")
        require_lease(self.lease)
        work = jobs(self.out, names, seeds=self.seeds, train=self._train, measure=self.measure, device=self.device)
        if self.print_stage is not None:
            for job in work:
                if job.stage == self.print_stage:
                    print(shell_line(job))
            return
        self._work_off(names, work, settings)

    def _work_off(self, names: list[str], work: list[Job], settings: Preset) -> None:
        device = device_named(self.device)
        # Before anything is claimed: what is wrong is told at once, and jobs that begin together find the cache made.
        images = load_set(settings.data if self.data is None else self.data, self.root, self._options())
        fitted(settings, images, changes_of(self)[0])
        self._claim()
        leases = Leases(self.out / "leases", self.lease) if self.join else None
        at_once = self.at_once if self.at_once is not None else (_AT_ONCE_ON_GPU if device.type == "cuda" else 1)
        with display() as screen, stop_signals() as heard:

            def on_finished(job: Job) -> None:
                screen.say(f"{job.name}: done")
                if job.stage == "methods":
                    screen.say(table(self.out, names, self.seeds))

            try:
                share = run_jobs if leases is None else partial(join_jobs, leases=leases)
                share(
                    work,
                    logs=self.out / "logs",
                    at_once=at_once,
                    say=screen.say,
                    on_finished=on_finished,
                    should_stop=lambda: bool(heard),
                )
            except Failed as error:
                screen.say(f"infogaze: {error}")
                raise SystemExit(1) from None
            if heard:
                screen.say("stopped; the same command again goes on from there")
                raise SystemExit(128 + (heard[0] if heard else signal.SIGTERM))
            screen.say(table(self.out, names, self.seeds))
            screen.say(f"runs: {self.out}; `infogaze report` makes a page of them")

    def _claim(self) -> None:
        """The folder belongs to one way of training; methods and seeds may be added to it."""
        make_folder(self.out)
        wanted = self._train()
        path = self.out / "sweep.json"
        # Of many that join at once one makes it.
        if (
            not create_whole(path, (json.dumps(wanted, indent=1) + "\n").encode())
            and (found := read_json(path)) != wanted
        ):
            raise InfogazeError(f"{self.out} holds a sweep with other settings: {' '.join(map(str, found))}")

    def _train(self, method: str | None = None) -> list[str]:
        """What all commands for training have in common; for one method, without the sizes that it sets itself."""
        arguments = [self.preset, "--device", self.device]
        if self.recipe is not None:
            arguments += ["--recipe", self.recipe]
        if self.length != 1.0:
            arguments += ["--length", str(self.length)]
        if self.data is not None:
            arguments += ["--data", self.data]
        if self.root is not None:
            arguments += ["--root", str(self.root)]
        if self.val_fraction is not None:
            arguments += ["--val-fraction", str(self.val_fraction)]
        if self.num_labels is not None:
            arguments += ["--num-labels", str(self.num_labels)]
        if self.teacher is not None and (method is None or METHODS[method].sees != "everything"):
            arguments += ["--teacher", str(self.teacher)]
        arguments += as_arguments(read_changes_of(self), "read.")
        preset_changes, recipe_changes = changes_of(self)
        fixed = {} if method is None else METHODS[method].overrides
        sizes = {name: value for name, value in preset_changes.pop("model", {}).items() if name not in fixed}
        if sizes:
            preset_changes["model"] = sizes
        return arguments + as_arguments(preset_changes) + as_arguments(recipe_changes, "recipe.")

    def _options(self) -> ReadOptions:
        return resolved_options(RunFile(), read_changes_of(self))


def read(arguments: Sequence[str]) -> Sweep:
    """The command with its options, those of the values of preset, model and recipe among them."""
    return tyro.cli(with_values(Sweep, arguments), prog="infogaze sweep", args=without_names(arguments))
