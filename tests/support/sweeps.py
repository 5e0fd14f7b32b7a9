"""Small sweeps, and what they print, for the tests of the command and of the scripts around it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from infogaze.cli.main import main
from infogaze.presets import PRESETS
from infogaze.sweep import processes
from infogaze.sweep.jobs import Job
from infogaze.sweep.leases import Lease
from infogaze.training.recipe import RECIPES, PhaseRecipe, Recipe

PART = PhaseRecipe(epochs=1, batch_size=16, learning_rate=1e-3)
TINY = Recipe(phase1=PART, phase2=PART, phase3=PART, full_image=PART)
DIGITS = PRESETS["digits"]
SIZES = replace(DIGITS.model, glimpse_widths=(4,), feature_size=8, belief_size=16, latent_size=4, flow_layers=1)


def write_set(path: Path, train: int) -> Path:
    """Wide scenes whose brightness tells their class, and 24 to test on that are hard to tell apart."""
    rng = np.random.default_rng(0)
    labels = np.arange(train + 24) % 3
    images = (labels[:, None, None] * 30 + rng.integers(0, 160, (train + 24, 12, 20))).astype(np.uint8)
    np.savez(path, train_x=images[:train], train_y=labels[:train], test_x=images[train:], test_y=labels[train:])
    return path


def tiny_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A set, and a recipe and networks with which a run takes no time."""
    monkeypatch.setenv("INFOGAZE_CACHE", str(folder / "cache"))
    monkeypatch.setitem(RECIPES, "smoke", TINY)
    monkeypatch.setitem(PRESETS, "digits", replace(DIGITS, model=SIZES, num_looks=3, num_samples=2))
    return write_set(folder / "set.npz", 32)


def printed(capsys: pytest.CaptureFixture[str], arguments: list[str], stage: str) -> list[str]:
    capsys.readouterr()
    main([*arguments, "--print-stage", stage])
    return capsys.readouterr().out.splitlines()


def given(scenes: Path, out: Path, *more: str) -> list[str]:
    fixed = ["--data", "arrays", "--root", str(scenes), "--recipe", "smoke", "--device", "cpu", "--out", str(out)]
    return ["sweep", "digits", *fixed, *more]


@dataclass
class Over:
    """A process that has ended."""

    returncode: int | None

    def poll(self) -> int | None:
        return self.returncode


@contextlib.contextmanager
def here() -> Iterator[list[str]]:
    """Run the commands of a sweep in this process; the names of the jobs that ran."""
    ran: list[str] = []

    def start(job: Job, log: Path, at_once: int, *, lease: Lease | None = None) -> Over:
        ran.append(job.name)
        code: object = 0
        with log.open("a") as output, contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            try:
                for command in job.commands:
                    main(command)
            except SystemExit as stop:
                code = stop.code
        return Over(code if isinstance(code, int) else 1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "start", start)
        patch.setattr(processes, "_WAIT", 0.0)
        yield ran


@dataclass
class Swept:
    """What a sweep did."""

    ran: list[str]
    said: list[str]
    code: int = 0
    table: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        heads = [number for number, line in enumerate(self.said) if line.startswith("accuracy by look")]
        if heads:
            self.table = [line for line in self.said[heads[-1] :] if not line.startswith("runs: ")]


def run_here(capsys: pytest.CaptureFixture[str], scenes: Path, out: Path, *more: str) -> Swept:
    """The command, with the jobs in this process."""
    capsys.readouterr()
    code: object = 0
    with here() as ran:
        try:
            main(given(scenes, out, *more))
        except SystemExit as stop:
            code = stop.code
    assert isinstance(code, int)
    return Swept(ran, capsys.readouterr().out.splitlines(), code)
