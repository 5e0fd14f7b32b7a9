"""recipes/sweep.slurm, with stand-ins for what is on the PATH of a cluster."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.sweeps import printed, tiny_set

SBATCH = """#!/bin/bash
# Runs the tasks of an array one after the other, if what they wait for went well.
echo "$@" >> submitted
for word in "$@"; do
    case $word in
        --array=1-*) tasks=${word#--array=1-} ;;
        --dependency=afterok:*) needs=${word##*:} ;;
        --*) ;;
        *) script+=("$word") ;;
    esac
done
job=$(wc -l < submitted)
if [ -z "${needs:-}" ] || grep -qx "$needs" succeeded; then
    for task in $(seq "$tasks"); do SLURM_ARRAY_TASK_ID=$task bash "${script[@]}" || failed=1; done
    [ -n "${failed:-}" ] || echo "$job" >> succeeded
fi
echo "$job;cluster"
"""
INFOGAZE = """#!/bin/bash
if [ "$1" = sweep ]; then echo "$@" >> asked; cat "printed-${@: -1}"; exit; fi
echo "infogaze $*" >> ran
case "$*" in *"${BROKEN:-nothing is broken}"*) exit 1 ;; esac
"""
TORCHRUN = """#!/bin/bash
echo "torchrun $*" >> ran
"""


@dataclass(frozen=True)
class Cluster:
    """A folder to submit from."""

    home: Path
    arguments: list[str]
    stages: dict[str, list[str]]

    def submit(self, **environment: str) -> tuple[list[str], list[str]]:
        """What ran, in order, and what was submitted."""
        path = f"{self.home / 'bin'}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(
            ["bash", "sweep.slurm"], cwd=self.home, check=True, capture_output=True,
            env={**os.environ, "PATH": path, **environment},
        )  # fmt: skip
        return (self.home / "ran").read_text().splitlines(), (self.home / "submitted").read_text().splitlines()


@pytest.fixture
def cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Cluster]:
    scenes = tiny_set(tmp_path, monkeypatch)

    def made(gpus: int, *asked: str) -> Cluster:
        home = tmp_path / "cluster"
        (home / "bin").mkdir(parents=True)
        for name, text in (("sbatch", SBATCH), ("infogaze", INFOGAZE), ("torchrun", TORCHRUN)):
            (home / "bin" / name).write_text(text)
            (home / "bin" / name).chmod(0o755)
        arguments = ["digits", "--data", "arrays", "--root", str(scenes), "--recipe", "smoke", *asked]
        stages = {}
        for stage in ("phase-1", "methods", "judgement"):
            stages[stage] = printed(capsys, ["sweep", *arguments, "--out", "my out"], stage)
            (home / f"printed-{stage}").write_text("".join(f"{line}\n" for line in stages[stage]))
        script = (ROOT / "recipes" / "sweep.slurm").read_text().splitlines()
        for name, value in (("OUT", "'my out'"), ("SWEEP", f"({shlex.join(arguments)})"), ("GPUS", str(gpus))):
            (place,) = [number for number, line in enumerate(script) if line.startswith(f"{name}=")]
            script[place] = f"{name}={value}"
        (home / "sweep.slurm").write_text("\n".join(script) + "\n")
        return Cluster(home, arguments, stages)

    return made


def commands(lines: list[str]) -> list[str]:
    """Without quotes, as the stand-in notes them."""
    return [" ".join(shlex.split(part)) for line in lines for part in line.split(" && ")]


def test_the_slurm_script_runs_every_printed_line_once_and_stage_after_stage(cluster: Callable[..., Cluster]) -> None:
    made = cluster(1, "--methods", "random,ram,cnn", "--seeds", "2")
    ran, submitted = made.submit()
    assert ran == [command for lines in made.stages.values() for command in commands(lines)]
    asked = (made.home / "asked").read_text().splitlines()
    assert asked == [f"sweep {' '.join(made.arguments)} --out my out --print-stage {stage}" for stage in made.stages]
    assert [re.findall(r"--array=1-(\d+)", line) for line in submitted] == [["2"], ["6"], ["1"]]
    assert [re.findall(r"--dependency=(\S+)", line) for line in submitted] == [[], ["afterok:1"], ["afterok:2"]]


def test_on_several_gpus_the_slurm_script_trains_under_torchrun_and_evaluates_without(
    cluster: Callable[..., Cluster],
) -> None:
    made = cluster(4, "--methods", "random,cnn", "--seeds", "1")
    ran, submitted = made.submit()
    plain = [command for lines in made.stages.values() for command in commands(lines)]
    torchrun = "torchrun --standalone --nproc-per-node 4 -m infogaze.cli train"
    assert ran == [re.sub("^infogaze train", torchrun, command) for command in plain]
    assert sum(line.startswith("torchrun") for line in ran) == 3
    assert [re.findall(r"--gres=gpu:(\d)", line) for line in submitted] == [["4"], ["4"], ["1"]]


def test_a_stage_of_the_slurm_script_does_not_begin_after_one_that_failed(cluster: Callable[..., Cluster]) -> None:
    made = cluster(1, "--methods", "random,cnn", "--seeds", "2")
    ran, submitted = made.submit(BROKEN="--out my out/phase-1/for-seed-0")
    assert ran == commands(made.stages["phase-1"])
    assert all("--kill-on-invalid-dep=yes" in line for line in submitted[1:])


def test_the_slurm_script_leaves_out_a_stage_with_nothing_to_do(cluster: Callable[..., Cluster]) -> None:
    made = cluster(1, "--methods", "attention", "--seeds", "1")
    ran, submitted = made.submit()
    assert ran == commands(made.stages["methods"])
    assert len(submitted) == 1
    assert "--dependency" not in submitted[0]


def test_the_slurm_script_stops_where_the_sweep_is_refused(cluster: Callable[..., Cluster]) -> None:
    made = cluster(1, "--methods", "random", "--seeds", "1")
    (made.home / "bin" / "infogaze").write_text("#!/bin/sh\nexit 2\n")
    with pytest.raises(subprocess.CalledProcessError):
        made.submit()
    assert not (made.home / "submitted").exists()
