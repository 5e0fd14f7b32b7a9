from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import infogaze
from infogaze.cli.evaluate import Evaluate
from infogaze.cli.main import main, parse
from infogaze.errors import InfogazeError
from infogaze.evaluation import store
from infogaze.evaluation.comparing import recipe_digest
from infogaze.evaluation.corrupted import Corrupted
from infogaze.evaluation.exact_pass import Records
from infogaze.evaluation.judged import Judged
from infogaze.evaluation.many_looks import ManyLooks
from infogaze.evaluation.measurement import Measurement, OnProgress, Subject
from infogaze.evaluation.registry import MEASUREMENTS
from infogaze.evaluation.sample_counts import SampleCounts
from infogaze.evaluation.store import Record
from infogaze.presets import PRESETS
from infogaze.tasks.evaluate import evaluate as evaluate_from_python
from infogaze.training.recipe import RECIPES
from tests.support import calls
from tests.support.looks import looked_alike
from tests.support.sweeps import DIGITS, SIZES, TINY

FEW = 2
ALL = {entry.record for entry in MEASUREMENTS.values()}


def write_set(path: Path, *, height: int = 12, classes: int = 3, seed: int = 0) -> Path:
    """A small set of wide scenes whose brightness tells their class."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, 48 - classes)])
    images = (labels[:, None, None] * 80 + rng.integers(0, 40, (48, height, 20))).astype(np.uint8)
    np.savez(path, train_x=images[:32], train_y=labels[:32], test_x=images[32:], test_y=labels[32:])
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a set, and runs of some methods on it."""
    home = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFOGAZE_CACHE", str(home / "cache"))
        patch.setitem(RECIPES, "smoke", TINY)
        patch.setitem(PRESETS, "digits", replace(DIGITS, model=SIZES, num_looks=4, num_samples=3))
        write_set(home / "set.npz")
        write_set(home / "low.npz", height=16)
        train(home, "infogaze")
        train(home, "paper-corrected")
        train(home, "random")
        train(home, "random", seed=1)
        train(home, "cnn")
        train(home, "cnn", seed=1)
        train(home, "cnn", data="low")
    return home


def train(home: Path, method: str, seed: int = 0, data: str = "set") -> None:
    given = ["--data", "arrays", "--root", str(home / f"{data}.npz"), "--recipe", "smoke", "--device", "cpu"]
    out = home / f"{method}-{seed}-{data}"
    main(["train", "digits", *given, "--method", method, "--seed", str(seed), "--out", str(out)])


@pytest.fixture(scope="module")
def evaluated(trained: Path) -> Path:
    """The same folder with all there is to measure of one run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFOGAZE_CACHE", str(trained / "cache"))
        evaluate(trained / "paper-corrected-0-set", "--judge", trained / "cnn-0-set")
    return trained


@pytest.fixture
def home(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of one's own, with caches shared."""
    monkeypatch.setenv("INFOGAZE_CACHE", str(trained / "cache"))
    return tmp_path


def copy(trained: Path, home: Path, name: str) -> Path:
    return Path(shutil.copytree(trained / name, home / name))


def call(*arguments: Path | str) -> list[str]:
    return ["evaluate", "--num-scenes", str(FEW), "--device", "cpu", *map(str, arguments)]


def evaluate(*arguments: Path | str) -> None:
    main(call(*arguments))


def files(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "evaluation").iterdir()}


def measured(run: Path) -> set[type[Record]]:
    return {kind for kind in ALL if store.has(run / "evaluation", kind)}


def refused(capsys: pytest.CaptureFixture[str], *arguments: Path | str) -> str:
    """The one line of a refusal, with exit code 2."""
    return calls.refused(capsys, *call(*arguments))


def test_all_there_is_to_measure_is_measured_unless_less_is_asked_for() -> None:
    command = parse(["evaluate", "run"])
    assert isinstance(command, Evaluate)
    assert command.measure == tuple(MEASUREMENTS)
    for name in MEASUREMENTS:
        command = parse(["evaluate", "run", "--measure", name])
        assert isinstance(command, Evaluate)
        assert command.measure == (name,)


def test_a_run_saved_with_flip_tta_is_measured_with_it_and_looks_at_the_same_locations(
    trained: Path, home: Path
) -> None:
    run = copy(trained, home, "paper-corrected-0-set")
    evaluate(run, "--measure", "records")
    alone = store.read(run / "evaluation", Records)
    agent = infogaze.load(run)
    agent.flip_tta = True
    infogaze.save(agent, run)
    evaluate(run, "--measure", "records")
    flipped = store.read(run / "evaluation", Records)
    assert store.about(run / "evaluation").flip_tta
    assert torch.equal(alone.locations, flipped.locations)
    assert not torch.allclose(alone.log_probabilities, flipped.log_probabilities)


def test_a_run_is_measured_in_full_and_accuracy_by_look_is_printed(
    evaluated: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = evaluated / "paper-corrected-0-set"
    ours, other = (copy(evaluated, home, f"{name}-0-set") for name in ("infogaze", "random"))
    evaluate(run, ours, other, "--judge", evaluated / "cnn-0-set")
    assert {kind.file for kind in ALL - measured(run)} == {"imagined"}
    assert {kind.file for kind in ALL - measured(ours)} == {"latents"}
    assert {kind.file for kind in ALL - measured(other)} == {"imagined", "latents", "sample-counts", "coherence"}
    about = store.about(run / "evaluation")
    assert (about.method, about.preset, about.seed, about.data) == ("paper-corrected", "digits", 0, "set")
    assert (about.scenes, about.num_looks, about.num_samples, about.classes) == (16, 4, 3, ("0", "1", "2"))
    assert (about.whole, about.deployable, about.first_looks) == (False, True, 0)
    assert store.about(other / "evaluation").num_samples == 0
    found = store.read(run / "evaluation", Records)
    with np.load(evaluated / "set.npz") as arrays:
        assert found.labels.tolist() == arrays["test_y"].tolist()
    for kind in (ManyLooks, SampleCounts, Corrupted):
        assert len(store.read(run / "evaluation", kind).labels) == FEW  # type: ignore[attr-defined]
    lines = capsys.readouterr().out.splitlines()
    for folder in (run, ours, other):
        correct = store.read(folder / "evaluation", Records).correct.numpy().mean(0)
        looks = " ".join(f"{100 * share:.1f}" for share in correct)
        assert f"{folder}: accuracy by look {looks} %, 16 scenes" in lines


def test_the_cnn_is_measured_in_one_look(trained: Path, home: Path) -> None:
    run = copy(trained, home, "cnn-0-set")
    evaluate(run)
    assert measured(run) == {Records}
    assert store.read(run / "evaluation", Records).predictions.shape == (16, 1)
    assert store.about(run / "evaluation").whole


def test_repeated_elsewhere_it_is_identical_to_the_byte(evaluated: Path, home: Path) -> None:
    run, again = evaluated / "paper-corrected-0-set", home / "again"
    shutil.copytree(run, again)
    shutil.rmtree(again / "evaluation")
    asked = ("records", "judged", "showcase", "latents", "many-looks", "corruptions", "travel")
    evaluate(again, "--measure", *asked, "--judge", evaluated / "cnn-0-set")
    assert set(files(again)) == {"about.json", *(f"{name}.safetensors" for name in asked)}
    for name, data in files(again).items():
        if name != "about.json":
            assert data == files(run)[name], name
    # The times of sample-counts differ, and so does their digest.
    first, second = (json.loads(files(folder)["about.json"]) for folder in (run, again))
    assert first["about"] == second["about"]
    assert {name: first["files"][name] for name in asked} == second["files"]


def test_only_what_is_missing_is_measured(trained: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, work = copy(trained, home, "random-0-set"), list[str]()
    for name, entry in list(MEASUREMENTS.items()):

        def noted(subject: Subject, on_progress: OnProgress, entry: Measurement = entry) -> Record:
            work.append(entry.name)
            return entry.measure(subject, on_progress)

        monkeypatch.setitem(MEASUREMENTS, name, replace(entry, measure=noted))

    def asked(*arguments: Path | str) -> list[str]:
        work.clear()
        evaluate(run, *arguments)
        return list(work)

    judge = ("--judge", trained / "cnn-0-set")
    assert asked("--measure", "many-looks") == ["records", "many-looks"], "the records always"
    assert asked("--measure", "records", "showcase", "judged") == ["showcase"], "nothing is judged without a judge"
    assert asked(*judge) == ["judged", "corruptions", "early-stopping", "travel"]
    before = files(run)
    assert asked(*judge) == []
    assert files(run) == before
    (run / "evaluation" / "many-looks.safetensors").unlink()
    assert asked(*judge) == ["many-looks"]
    assert files(run) == before
    assert asked("--judge", trained / "cnn-1-set") == ["judged"], "another judge"
    work.clear()
    main(["evaluate", str(run), "--num-scenes", str(FEW + 1), "--device", "cpu"])
    assert work == ["many-looks", "corruptions", "travel"], "other scenes"
    assert len(store.read(run / "evaluation", ManyLooks).labels) == FEW + 1
    assert asked("--seed", "1", "--measure", "records") == ["records"], "other first looks"
    assert measured(run) == {Records}


def test_a_run_that_was_trained_anew_is_measured_anew(trained: Path, home: Path) -> None:
    run = copy(trained, home, "random-0-set")
    evaluate(run, "--measure", "records", "many-looks")
    before = store.read(run / "evaluation", Records)
    for name in ("model.json", "model.safetensors"):
        shutil.copy(trained / "random-1-set" / name, run / name)
    evaluate(run, "--measure", "records")
    after = store.read(run / "evaluation", Records)
    assert not np.allclose(before.log_probabilities, after.log_probabilities)
    assert np.array_equal(before.locations[:, 0], after.locations[:, 0])
    assert measured(run) == {Records}, "the rest was of the old weights"


def test_other_images_are_measured_anew(trained: Path, home: Path) -> None:
    run, other = copy(trained, home, "random-0-set"), write_set(home / "other.npz", seed=1)
    evaluate(run, "--measure", "records")
    before = store.about(run / "evaluation")
    evaluate(run, "--measure", "records", "--root", other)
    after = store.about(run / "evaluation")
    assert before.test != after.test
    with np.load(other) as arrays:
        assert store.read(run / "evaluation", Records).labels.tolist() == arrays["test_y"].tolist()


def test_batches_of_any_size_predict_the_same(trained: Path, home: Path) -> None:
    run, other = copy(trained, home, "random-0-set"), home / "other"
    shutil.copytree(run, other)
    evaluate(run, "--measure", "records")
    evaluate(other, "--measure", "records", "--batch-size", "3")
    one, two = (store.read(folder / "evaluation", Records) for folder in (run, other))
    alike = looked_alike(one.locations, two.locations)
    # Records keep half precision: what another batch rounds otherwise is not seen there, but for a tie.
    assert float((one.predictions == two.predictions)[alike].double().mean()) > 0.95


def test_a_folder_that_is_no_run_is_refused(trained: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "empty").mkdir()
    assert f"{home / 'empty'}: not a run folder, it has no config.json" in refused(capsys, home / "empty")
    assert "nowhere: not a run folder" in refused(capsys, home / "nowhere")
    for text in ("", "{", "[]", '{"config": {}}'):
        (home / "empty" / "config.json").write_text(text)
        assert "config.json: not the configuration of a run" in refused(capsys, home / "empty")
    unfinished = copy(trained, home, "random-0-set")
    (unfinished / "model.json").unlink()
    assert "model.json: missing, so this folder holds no model" in refused(capsys, unfinished)
    assert not (unfinished / "evaluation").exists()
    assert "no run is named" in refused(capsys)


@pytest.mark.parametrize("lost", ["config.json", "model.json", "model.safetensors"])
def test_a_slip_in_the_last_run_is_told_before_the_first_is_measured(
    lost: str, trained: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, wrong = copy(trained, home, "random-0-set"), copy(trained, home, "random-1-set")
    (wrong / lost).unlink()
    assert str(wrong) in refused(capsys, run, wrong)
    assert not (run / "evaluation").exists()


def test_a_last_run_that_the_images_do_not_fit_is_told_before_the_first_is_measured(
    trained: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, wrong = copy(trained, home, "random-0-set"), copy(trained, home, "cnn-0-low")
    said = refused(capsys, run, wrong, "--root", trained / "set.npz")
    assert f"{wrong}: its scenes are 1x16x20, the test images 1x12x20" in said
    assert not (run / "evaluation").exists()


def test_a_judge_that_is_none_is_refused(trained: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = copy(trained, home, "random-0-set")
    said = refused(capsys, run, "--judge", trained / "paper-corrected-0-set")
    assert "paper-corrected-0-set: a run of paper-corrected; a judge must be one of cnn" in said
    assert "nowhere: no such folder" in refused(capsys, run, "--judge", home / "nowhere")
    said = refused(capsys, run, "--judge", trained / "cnn-0-low")
    assert "cnn-0-low: its scenes are 1x16x20, the test images 1x12x20" in said
    assert not (run / "evaluation").exists(), "before anything is measured"


def test_a_judge_of_other_glimpses_is_refused(trained: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, judge = copy(trained, home, "random-0-set"), copy(trained, home, "cnn-0-set")
    description = json.loads((judge / "model.json").read_text())
    description["model"]["glimpse_size"] = 7
    (judge / "model.json").write_text(json.dumps(description))
    said = refused(capsys, run, "--judge", judge)
    assert f"{judge}: judges looks on another grid" in said
    assert str(run) in said


def test_images_that_do_not_fit_the_run_are_refused(
    trained: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy(trained, home, "random-0-set")
    said = refused(capsys, run, "--root", trained / "low.npz")
    assert f"{run}: its scenes are 1x12x20, the test images 1x16x20" in said
    said = refused(capsys, run, "--root", write_set(home / "two.npz", classes=2))
    assert f"{run}: its 3 classes are not the 2 of the test images" in said
    assert "no such file" in refused(capsys, run, "--root", home / "nowhere.npz")


def test_compiling_elsewhere_than_on_a_gpu_is_refused_before_anything_is_measured(
    trained: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(trained / "random-0-set", home / "random-0-set"))
    line = refused(capsys, "evaluate", str(run), "--device", "cpu", "--compile")
    assert "compile is for CUDA devices" in line
    assert not (run / "evaluation").exists()


def test_wrong_values_are_refused(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained / "random-0-set"
    assert "batch_size is 0; it must be at least 1" in refused(capsys, run, "--batch-size", "0")
    assert "num_scenes is 0" in refused(capsys, run, "--num-scenes", "0")
    assert str(2**70) in refused(capsys, run, "--seed", str(2**70))
    line = refused(capsys, run, "--measure", "everything")
    assert "everything" in line
    assert "many-looks" in line


def test_damage_is_named(trained: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = copy(trained, home, "random-0-set")
    evaluate(run, "--measure", "records")
    path = run / "evaluation" / "records.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert f"{path}: damaged or truncated" in refused(capsys, run)
    assert Judged not in measured(run)


def test_a_run_of_some_phases_is_told_as_such(trained: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = copy(trained, home, "paper-corrected-0-set")
    config = json.loads((run / "config.json").read_text())
    config["config"]["phases"] = [1]
    (run / "config.json").write_text(json.dumps(config))
    evaluate(run, "--measure", "records")
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.endswith("scenes; phase 2 and 3 of paper-corrected not trained yet, see --start-from")


def test_a_run_from_before_is_measured_by_the_name_that_its_method_has_today(trained: Path, home: Path) -> None:
    run = copy(trained, home, "paper-corrected-0-set")
    config, model = (json.loads((run / name).read_text()) for name in ("config.json", "model.json"))
    config["config"]["method"] = model["method"] = "infogaze"
    model["format"] = 2
    (run / "config.json").write_text(json.dumps(config))
    (run / "model.json").write_text(json.dumps(model))
    evaluate(run, "--measure", "records")
    about = store.about(run / "evaluation")
    assert about.method == "paper-corrected"
    assert about.recipe == recipe_digest("paper-corrected", TINY) != recipe_digest("infogaze", TINY)


def test_evaluate_from_python_does_what_the_command_does_and_returns_the_accuracy(
    trained: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, other = copy(trained, home, "random-0-set"), home / "other"
    shutil.copytree(run, other)
    evaluate(run, "--measure", "records", "many-looks")
    capsys.readouterr()
    found = evaluate_from_python(other, measure=["records", "many-looks"], num_scenes=FEW, device="cpu", quiet=True)
    assert capsys.readouterr().out == ""
    assert files(other) == files(run)
    correct = store.read(run / "evaluation", Records).correct
    assert found[str(other)].value.tolist() == pytest.approx(correct.double().mean(0).tolist())
    assert found[str(other)].n == len(correct)
    assert bool((found[str(other)].low <= found[str(other)].high).all())


def test_evaluate_from_python_refuses_as_the_command_does(trained: Path) -> None:
    for wrong, named in (
        ({"measure": ["luck"]}, "'luck'"),
        ({"num_scenes": 0}, "num_scenes"),
        ({"device": "x"}, "'x'"),
    ):
        with pytest.raises(InfogazeError, match=named):
            evaluate_from_python(trained / "random-0-set", **wrong)
    with pytest.raises(InfogazeError, match="no run"):
        evaluate_from_python()
