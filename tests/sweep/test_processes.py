"""The sweep with real processes: stopped, killed, or run by a shell, it ends as if undisturbed."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from infogaze.cli.main import main
from infogaze.cli.worker import run_in_turn
from infogaze.sweep import processes
from tests.support.sweeps import Swept, given, here, printed, run_here, write_set

BIN = Path(sys.executable).parent
# A phase 1 that takes seconds, so that it can be met at work.
ASKED = ("--methods", "random", "--seeds", "1", "--measure", "records", "--recipe.phase1.epochs", "20")
MODEL = "random/seed-0/model.safetensors"
RECORDS = "random/seed-0/evaluation/records.safetensors"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFOGAZE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Swept]:
    """The command, with the jobs in this process."""
    return lambda scenes, *more: run_here(capsys, scenes, tmp_path / "out", *more)


@dataclass(frozen=True)
class Straight:
    """A sweep that nobody disturbed."""

    scenes: Path
    table: list[str]
    files: dict[str, dict[str, Tensor]]

    def is_equal_to(self, out: Path, table: list[str]) -> None:
        assert table == self.table
        for name, tensors in self.files.items():
            torch.testing.assert_close(load_file(out / name), tensors, rtol=1e-3, atol=1e-5)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Straight:
    home = tmp_path_factory.mktemp("straight")
    scenes = write_set(home / "set.npz", 400)
    said = home / "said"
    with (
        pytest.MonkeyPatch.context() as patch, here() as ran,
        said.open("w") as output, contextlib.redirect_stdout(output),
    ):  # fmt: skip
        patch.setenv("INFOGAZE_CACHE", str(home / "cache"))
        main(given(scenes, home / "out", *ASKED))
    files = {name: load_file(home / "out" / name) for name in (MODEL, RECORDS)}
    return Straight(scenes, Swept(ran, said.read_text().splitlines()).table, files)


def wait_for(met: Callable[[], bool], seconds: float = 60.0) -> bool:
    until = time.monotonic() + seconds
    while not met() and time.monotonic() < until:
        time.sleep(0.01)
    return met()


def at_work(out: Path) -> set[int]:
    """The processes that were started for jobs of this sweep."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            if b"infogaze.cli.worker" in line and str(out).encode() in line:
                found.add(int(entry.name))
    return found


@pytest.mark.slow
def test_sigterm_saves_what_was_earned_and_the_same_command_ends_as_if_undisturbed(
    straight: Straight,
    tmp_path: Path,
    sweep: Callable[..., Swept],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    over = threading.Event()
    monkeypatch.setattr(processes, "_WAIT", 0.02)

    def terminate() -> None:
        if wait_for(lambda: over.is_set() or (out / "phase-1/for-seed-0/metrics.jsonl").exists()) and not over.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=terminate)
    watcher.start()
    try:
        with pytest.raises(SystemExit) as stop:
            main(given(straight.scenes, out, *ASKED))
    finally:
        over.set()
        watcher.join()
    assert stop.value.code == 128 + signal.SIGTERM
    assert "stopped; the same command again goes on from there" in capsys.readouterr().out
    assert at_work(out) == set()
    assert "stopped in phase 1 after step" in (out / "logs" / "phase-1-seed-0.log").read_text()
    assert not (out / "phase-1" / "for-seed-0" / "model.json").exists()
    swept = sweep(straight.scenes, *ASKED)
    assert swept.ran == ["phase-1/seed-0", "random/seed-0"]
    straight.is_equal_to(out, swept.table)


def begun(scenes: Path, out: Path) -> subprocess.Popen[bytes]:
    """A sweep in a process of its own, which can be killed."""
    options = ["digits", "--data", "arrays", "--root", str(scenes), "--recipe", "smoke", "--device", "cpu"]
    call = [str(BIN / "infogaze"), "sweep", *options, *ASKED, "--out", str(out)]
    return subprocess.Popen(call, stdout=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process die with the one that started it")
def test_kill_9_takes_the_children_along_and_the_same_command_ends_as_if_undisturbed(
    straight: Straight, tmp_path: Path, sweep: Callable[..., Swept]
) -> None:
    out = tmp_path / "out"
    process = begun(straight.scenes, out)
    try:
        assert wait_for((out / "phase-1/for-seed-0/config.json").exists)
        assert len(at_work(out)) == 1
    finally:
        process.kill()
        process.wait()
    assert wait_for(lambda: not at_work(out), 20), "nobody is left"
    assert not (out / "phase-1" / "for-seed-0" / "model.json").exists()
    swept = sweep(straight.scenes, *ASKED)
    assert swept.ran == ["phase-1/seed-0", "random/seed-0"]
    straight.is_equal_to(out, swept.table)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process die with the one that started it")
def test_a_job_whose_sweep_was_killed_before_it_could_ask_to_die_with_it_does_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    class Library:
        def prctl(self, option: int, number: int) -> None:
            asked.append(f"prctl {option} {number}")

    monkeypatch.setattr("ctypes.CDLL", lambda name: Library())
    monkeypatch.setattr("infogaze.cli.main.main", lambda arguments: asked.append(" ".join(arguments)))
    run_in_turn(os.getppid(), ["train 'one two'", "evaluate"])
    assert asked == ["prctl 1 9", "train one two", "evaluate"]
    with pytest.raises(SystemExit):
        run_in_turn(os.getppid() + 1, ["train", "evaluate"])
    assert asked[3:] == ["prctl 1 9"], "it asked first, so that no moment is left uncovered"


@pytest.mark.slow
def test_the_printed_lines_run_by_a_shell_give_the_same_table(
    straight: Straight, tmp_path: Path, sweep: Callable[..., Swept], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = given(straight.scenes, tmp_path / "out", *ASKED)
    (first,), (rest,) = (printed(capsys, arguments, stage) for stage in ("phase-1", "methods"))
    main(shlex.split(first)[1:])  # here, because a process of its own takes seconds to import all
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["sh", "-c", rest], check=True, capture_output=True, env={**os.environ, "PATH": path})
    swept = sweep(straight.scenes, *ASKED)
    assert swept.ran == []
    straight.is_equal_to(tmp_path / "out", swept.table)
