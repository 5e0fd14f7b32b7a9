from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import infogaze
from infogaze.cli.main import main
from infogaze.evaluation import store
from infogaze.evaluation.exact_pass import Records
from infogaze.tasks.calibrate import Trial
from tests.cli.test_evaluate import home, trained
from tests.support import calls

__all__ = ["home", "trained"]  # fixtures
LOOSE = ("--gap", "0.4", "--delta", "0.4", "--device", "cpu")


def copy(trained: Path, home: Path, name: str = "paper-corrected-0-set") -> Path:
    return Path(shutil.copytree(trained / name, home / name))


def test_a_run_gets_a_rule_that_its_episodes_stop_by(
    trained: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy(trained, home)
    weights = (run / "model.safetensors").read_bytes()
    main(["calibrate", str(run), *LOOSE])
    said = capsys.readouterr().out
    agent = infogaze.load(run)
    assert agent.stop is not None
    assert (agent.stop.rule, agent.stop.gap, agent.stop.scenes, agent.stop.budget) == ("confidence", 0.4, 8, 4)
    assert f"{agent.stop}, calibrated on 8 scenes, stored in {run}" in said
    assert "tried on 8 others" in said
    assert (run / "model.safetensors").read_bytes() == weights
    assert store.has(run / "evaluation", Records), "what was looked at is kept, as by evaluate"
    assert agent.episode().ended_by == (None,)


def test_pictures_of_a_folder_calibrate_a_bundled_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    classes = infogaze.load("digits").classes
    rng = np.random.default_rng(0)
    for name in classes[:2]:
        (tmp_path / "held-out" / name).mkdir(parents=True)
        for number in range(6):
            Image.fromarray(rng.integers(0, 255, (40, 48), np.uint8)).save(
                tmp_path / "held-out" / name / f"{number}.png"
            )
    given = ["calibrate", "digits", "--images", str(tmp_path / "held-out"), *LOOSE]
    assert "out must name a folder" in calls.refused(capsys, *given)
    main([*given, "--out", str(tmp_path / "mine"), "--share", "1", "--rule", "gain"])
    said = capsys.readouterr().out
    assert "calibrated on 12 scenes" in said
    assert "tried on" not in said
    stop = infogaze.load(tmp_path / "mine").stop
    assert stop is not None
    assert (stop.rule, stop.scenes) == ("gain", 12)
    assert "is there already" in calls.refused(capsys, *given, "--out", str(tmp_path / "mine"))
    (tmp_path / "held-out" / "zebra").mkdir()
    assert "zebra" in calls.refused(capsys, *given, "--out", str(tmp_path / "other"))


def test_from_python_it_says_how_the_rule_does_on_scenes_it_was_not_calibrated_on(trained: Path, home: Path) -> None:
    run = copy(trained, home)
    infogaze.evaluate(run, measure=(), quiet=True)
    done = infogaze.calibrate(run, gap=0.4, delta=0.4, by_look=True, share=0.75, quiet=True)
    records, trial = store.read(run / "evaluation", Records), done.trial
    assert done.stop == infogaze.load(run).stop
    assert done.stop.by_look
    assert isinstance(trial, Trial)
    assert (done.stop.scenes, trial.accuracy.n, trial.full.n) == (12, 4, 4)
    by_look = records.correct.double().mean(0)
    assert 1 <= trial.looks <= 4
    assert float(trial.full.value) - float(trial.accuracy.value) == pytest.approx(float(trial.cost.value))
    assert 0 <= trial.fixed <= 1
    assert by_look.shape == (4,)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("--gap", "0"), "gap is 0.0; it must be above 0 and below 1"),
        (("--delta", "1"), "delta is 1.0; it must be above 0 and below 1"),
        (("--share", "0"), "share is 0.0; it must be above 0 and at most 1"),
        (("--gap", "0.01"), "8 scenes are too few: a gap of 0.01 with delta 0.05 needs at least 299"),
        (("--gap", "0.4", "--delta", "0.4", "--by-look", "--share", "0.1"), "needs at least 4"),
    ],
)
def test_what_cannot_be_promised_is_refused_and_the_model_stays_as_it_was(
    given: tuple[str, ...], why: str, trained: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy(trained, home)
    before = (run / "model.json").read_bytes()
    assert why in calls.refused(capsys, "calibrate", str(run), "--device", "cpu", *given)
    assert (run / "model.json").read_bytes() == before


def test_a_model_that_sees_all_has_nothing_to_stop(
    trained: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy(trained, home, "cnn-0-set")
    assert "only one that looks for itself can stop early" in calls.refused(capsys, "calibrate", str(run), *LOOSE)


def test_a_calibrated_run_is_still_evaluated_in_full_and_not_measured_again(trained: Path, home: Path) -> None:
    run = copy(trained, home)
    before = infogaze.evaluate(run, measure=(), quiet=True)[str(run)]
    kept = (run / "evaluation" / "records.safetensors").stat().st_mtime_ns
    infogaze.calibrate(run, gap=0.4, delta=0.4, quiet=True)
    after = infogaze.evaluate(run, measure=(), quiet=True)[str(run)]
    assert torch.equal(before.value, after.value)
    assert (run / "evaluation" / "records.safetensors").stat().st_mtime_ns == kept
    assert "stop" in json.loads((run / "model.json").read_text())


def test_a_rule_for_the_looks_of_a_distilled_gain_is_asked_with_no_others(
    trained: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy(trained, home)
    assert "no distilled gain" in calls.refused(capsys, "calibrate", str(run), *LOOSE, "--gain", "distilled")
    infogaze.distil(run, num_scenes=8, epochs=1, num_trials=0, device="cpu", quiet=True)
    done = infogaze.calibrate(run, gap=0.4, delta=0.4, gain="distilled", device="cpu", quiet=True)
    assert done.stop.gain == "distilled"
    assert infogaze.load(run).stop is None
    fast = infogaze.load(run, gain="distilled")
    assert fast.stop == done.stop
    assert fast.episode()._stop == done.stop
    assert not store.has(run / "evaluation", Records), "the evaluation of a run is of its exact gain"
    infogaze.distil(run, num_scenes=8, epochs=2, num_trials=0, device="cpu", quiet=True)
    assert infogaze.load(run, gain="distilled").stop is None, "another gain has other looks"
    infogaze.calibrate(run, gap=0.4, delta=0.4, device="cpu", quiet=True)
    infogaze.distil(run, num_scenes=8, epochs=1, num_trials=0, device="cpu", quiet=True)
    assert infogaze.load(run, gain="distilled").stop is None
    assert infogaze.load(run).stop is not None
