from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import infogaze
from infogaze.cli.main import main
from infogaze.data.registry import load_set
from infogaze.models import weights_digest
from tests.cli.test_evaluate import home, trained
from tests.support import calls

__all__ = ["home", "trained"]  # fixtures
FEW = ("--num-scenes", "12", "--epochs", "3", "--device", "cpu")


def copy(trained: Path, home: Path, name: str = "paper-corrected-0-set") -> Path:
    return Path(shutil.copytree(trained / name, home / name))


def test_a_run_gets_a_gain_that_it_can_look_by(trained: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = copy(trained, home)
    before = weights_digest(run)
    assert "infogaze distil" in calls.refused(capsys, "look", "--model", str(run), "--policy", "distilled")
    main(["distil", str(run), *FEW])
    said = capsys.readouterr().out
    assert f"stored in {run}" in said
    assert "tried on 16 test scenes" in said
    looks = infogaze.load(run).num_looks
    rows = said.splitlines()[-looks:]
    assert [int(row.split()[0]) for row in rows] == list(range(looks))
    assert all(float(row.split()[1]) >= 0.0 for row in rows[1:])
    assert weights_digest(run) == before
    exact, fast = infogaze.load(run), infogaze.load(run, gain="distilled")
    assert not isinstance(exact.policy, infogaze.DistilledPolicy)
    assert isinstance(fast.policy, infogaze.DistilledPolicy)
    main(["look", "--model", str(run), "--policy", "distilled", "--out", str(home / "look.png")])
    line = calls.refused(
        capsys, "look", "--model", str(run), "--policy", "distilled", "--num-samples", "3", "--out", str(home / "b.png")
    )
    assert "num_samples" in line


def test_another_folder_gets_it_and_the_run_stays_as_it_is(trained: Path, home: Path) -> None:
    run = copy(trained, home)
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    main(["distil", str(run), *FEW, "--num-trials", "0", "--out", str(home / "with-gain")])
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before
    assert infogaze.load(home / "with-gain").distilled is not None


def test_what_it_cannot_do_it_says(trained: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = copy(trained, home)
    assert "is a bundled model" in calls.refused(capsys, "distil", "digits")
    assert "imagines nothing" in calls.refused(capsys, "distil", str(copy(trained, home, "random-0-set")), *FEW)
    assert "num_scenes is 0" in calls.refused(capsys, "distil", str(run), "--num-scenes", "0")
    assert "is there already" in calls.refused(capsys, "distil", str(run), *FEW, "--out", str(run))


def test_images_of_ones_own_teach_a_bundled_model(tmp_path: Path) -> None:
    images = load_set("digits").train.images[:60]
    done = infogaze.distil("digits", images=images, out=tmp_path / "mine", epochs=2, quiet=True)
    assert done.trial is None
    agent = infogaze.load(tmp_path / "mine")
    assert agent.distilled is not None
    for ours, theirs in zip(agent.distilled.parameters(), done.gain.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert len(agent.with_distilled_gain().classify(images[0]).episode.history) == agent.num_looks
