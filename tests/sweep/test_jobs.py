"""The sweep, with its jobs in this process, which need not import everything anew."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from infogaze import METHODS
from infogaze.cli.evaluate import Evaluate
from infogaze.cli.main import main, parse
from infogaze.cli.settings import RunFile, changes_of, read_changes_of, resolved_options
from infogaze.cli.sweep import Sweep
from infogaze.cli.train import Train
from infogaze.data.options import ReadOptions
from infogaze.evaluation import store
from infogaze.evaluation.comparing import recipe_digest
from infogaze.evaluation.exact_pass import Records
from infogaze.evaluation.judged import Judged
from infogaze.evaluation.many_looks import ManyLooks
from infogaze.evaluation.store import EvaluationError
from infogaze.models import load, save
from infogaze.report.gather import gather
from infogaze.sweep import processes
from infogaze.sweep.jobs import Job, jobs
from infogaze.sweep.processes import Failed, run_jobs
from infogaze.training.recipe import RECIPES
from tests.support.calls import refused, refused_by_parser
from tests.support.sweeps import Swept, given, here, printed, run_here, tiny_set, write_set

BIN = Path(sys.executable).parent
NO_PHASE_1 = {"attention", "cnn"}
"""With self-attention R is another, and the CNN has nothing of F, R and C."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFOGAZE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A set, and a recipe and networks with which a run takes no time."""
    return tiny_set(tmp_path, monkeypatch)


@pytest.fixture
def sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Swept]:
    """The command, with the jobs in this process."""
    return lambda scenes, *more: run_here(capsys, scenes, tmp_path / "out", *more)


def options_of(command: object) -> dict[str, Any]:
    """What a call to train says, its changes to preset and recipe among it."""
    assert isinstance(command, Train)
    return {field.name: getattr(command, field.name) for field in fields(Train)} | {
        "changes": changes_of(command),
        "read": read_changes_of(command),
    }


def test_phase_1_is_trained_once_a_seed_and_all_that_share_it_begin_there(tmp_path: Path) -> None:
    work = jobs(tmp_path, list(METHODS), seeds=2, train=lambda method: ["digits"], measure=("records",), device="cpu")
    firsts = [job for job in work if job.stage == "phase-1"]
    assert [job.name for job in firsts] == ["phase-1/seed-0", "phase-1/seed-1"]
    assert all(job.needs == () for job in firsts)
    rest = {job.name: job for job in work if job.stage == "methods"}
    assert len(rest) == 2 * len(METHODS)
    for name in METHODS:
        for seed in (0, 1):
            job = rest[f"{name}/seed-{seed}"]
            command = parse(list(job.commands[0]))
            assert isinstance(command, Train)
            assert (command.method, command.seed, command.out) == (name, seed, tmp_path / name / f"seed-{seed}")
            if name in NO_PHASE_1:
                assert (job.needs, command.start_from, command.phases) == ((), None, None)
            else:
                assert job.needs == (f"phase-1/seed-{seed}",)
                assert command.start_from == str(tmp_path / "phase-1" / f"for-seed-{seed}")
                assert command.phases == tuple(range(2, len(METHODS[name].phases) + 1))


def test_a_sweep_trains_evaluates_and_judges_all_and_skips_what_is_done(
    tiny: Path, tmp_path: Path, sweep: Callable[..., Swept]
) -> None:
    asked = ("--methods", "random,oracle,cnn", "--seeds", "2")
    first = sweep(tiny, *asked)
    runs = [f"{name}/seed-{seed}" for seed in (0, 1) for name in ("random", "oracle", "cnn")]
    assert sorted(first.ran) == sorted(["phase-1/seed-0", "phase-1/seed-1", *runs, "judgement"])
    assert first.ran[-1] == "judgement"
    for name in runs:
        assert store.has(tmp_path / "out" / name / "evaluation", Records)
    looked = [tmp_path / "out" / name / "evaluation" for name in runs if "cnn" not in name]
    judges = {tuple(store.read(folder, Judged).judge.tolist()) for folder in looked}
    assert len(judges) == 1, "all by one judge"
    again = sweep(tiny, *asked)
    assert again.ran == []
    assert again.said[0] == "9 of 9 done, 0 to go, 1 at a time"
    assert again.table == first.table


def test_methods_seeds_and_what_was_lost_are_added_without_touching_the_rest(
    tiny: Path, tmp_path: Path, sweep: Callable[..., Swept]
) -> None:
    assert sweep(tiny, "--methods", "random", "--seeds", "1").ran == ["phase-1/seed-0", "random/seed-0"]
    kept = {path: path.read_bytes() for path in (tmp_path / "out" / "random" / "seed-0").rglob("*") if path.is_file()}
    assert sweep(tiny, "--methods", "random,ram", "--seeds", "1").ran == ["ram/seed-0"]
    assert sweep(tiny, "--methods", "random", "--seeds", "2").ran == ["phase-1/seed-1", "random/seed-1"]
    added = sweep(tiny, "--methods", "random,ram,cnn", "--seeds", "1")
    assert added.ran == ["cnn/seed-0", "judgement"]
    (tmp_path / "out" / "ram" / "seed-0" / "evaluation" / "records.safetensors").unlink()
    assert sweep(tiny, "--methods", "random,ram,cnn", "--seeds", "1").ran == ["ram/seed-0"]
    for path, data in kept.items():
        assert path.name == "about.json" or path.read_bytes() == data, path.name


def test_more_can_be_measured_of_a_finished_sweep_without_training_again(
    tiny: Path, tmp_path: Path, sweep: Callable[..., Swept]
) -> None:
    asked = ("--methods", "random", "--seeds", "1", "--measure", "records")
    first, run = sweep(tiny, *asked), tmp_path / "out" / "random" / "seed-0"
    metrics, model = (run / "metrics.jsonl").read_bytes(), (run / "model.safetensors").read_bytes()
    kept = (run / "evaluation" / "records.safetensors").stat().st_mtime_ns
    more = sweep(tiny, *asked, "many-looks")
    assert more.ran == ["random/seed-0"]
    assert store.has(run / "evaluation", ManyLooks)
    assert (metrics, model) == ((run / "metrics.jsonl").read_bytes(), (run / "model.safetensors").read_bytes())
    assert (run / "evaluation" / "records.safetensors").stat().st_mtime_ns == kept
    assert more.table == first.table


def test_another_judge_judges_again(tiny: Path, tmp_path: Path, sweep: Callable[..., Swept]) -> None:
    asked, cnn = ("--methods", "random,cnn", "--seeds", "1"), tmp_path / "out" / "cnn" / "seed-0"
    sweep(tiny, *asked)
    before = store.read(tmp_path / "out" / "random" / "seed-0" / "evaluation", Judged)
    judge = load(cnn)
    with torch.no_grad():
        for weights in judge.model.parameters():
            weights.neg_()
    save(judge, cnn)
    main(["evaluate", str(cnn), "--measure", "records", "--device", "cpu"])
    assert sweep(tiny, *asked).ran == ["judgement"]
    after = store.read(tmp_path / "out" / "random" / "seed-0" / "evaluation", Judged)
    assert not torch.equal(after.judge, before.judge)
    assert sweep(tiny, *asked).ran == []


def test_a_run_with_other_weights_than_were_measured_is_measured_again(
    tiny: Path, tmp_path: Path, sweep: Callable[..., Swept]
) -> None:
    asked, run = ("--methods", "random", "--seeds", "2", "--measure", "records"), tmp_path / "out" / "random" / "seed-0"
    sweep(tiny, *asked)
    said = store.about(run / "evaluation")
    assert (said.recipe, said.val_fraction) == (recipe_digest("random", RECIPES["smoke"]), 0.0)
    agent = load(run)
    with torch.no_grad():
        for weights in agent.model.parameters():
            weights.neg_()
    save(agent, run)
    work = jobs(tmp_path / "out", ["random"], seeds=1, train=lambda method: [], measure=["records"], device="cpu")
    (job,) = [job for job in work if job.stage == "methods"]
    assert not job.done()
    main(["evaluate", str(run), "--measure", "records", "--device", "cpu"])
    assert job.done()
    for damaged in (run / "model.json", run / "evaluation" / "about.json"):
        kept = damaged.read_bytes()
        damaged.write_text("{")
        assert not job.done()
        damaged.write_bytes(kept)
    (run / "model.json").unlink()
    assert not job.done()


def test_without_the_cnn_nothing_is_judged(tiny: Path, tmp_path: Path, sweep: Callable[..., Swept]) -> None:
    assert "judgement" not in sweep(tiny, "--methods", "random", "--seeds", "1").ran
    swept = sweep(tiny, "--methods", "random,cnn", "--seeds", "1", "--measure", "records")
    assert swept.ran == ["cnn/seed-0"]


def test_a_job_that_fails_is_named_with_its_log_and_only_those_that_need_it_stay_undone(
    tiny: Path, tmp_path: Path, sweep: Callable[..., Swept]
) -> None:
    occupied = tmp_path / "out" / "phase-1" / "for-seed-0"
    occupied.mkdir(parents=True)
    (occupied / "notes.txt").write_text("mine")
    asked = ("--methods", "random,ram,cnn", "--seeds", "2")
    swept = sweep(tiny, *asked)
    assert swept.code == 1
    log = tmp_path / "out" / "logs" / "phase-1-seed-0.log"
    assert f"phase-1/seed-0: failed; its output is in {log}" in swept.said
    assert "not empty and not a run" in log.read_text()
    assert swept.ran == [
        "phase-1/seed-0", "cnn/seed-0", "phase-1/seed-1", "random/seed-1", "ram/seed-1", "cnn/seed-1",
    ]  # fmt: skip
    for name in ("random/seed-0", "ram/seed-0", "judgement"):
        assert name in swept.said[-1]
    assert "the same command again tries them once more" in swept.said[-1]
    (occupied / "notes.txt").unlink()
    again = sweep(tiny, *asked)
    assert again.code == 0
    assert again.ran == ["phase-1/seed-0", "random/seed-0", "ram/seed-0", "judgement"]


def test_a_command_that_leaves_nothing_behind_has_failed_whatever_it_says(tmp_path: Path) -> None:
    lying = Job(name="lying", stage="methods", commands=(("data", "list"),), done=lambda: False)
    with here(), pytest.raises(Failed, match="lying"):
        work_off([lying], tmp_path / "logs", at_once=1, ended=[])


def work_off(work: list[Job], logs: Path, *, at_once: int, ended: list[str]) -> None:
    """Run the jobs and note which have ended."""
    run_jobs(
        work,
        logs,
        at_once=at_once,
        say=lambda line: None,
        on_finished=lambda job: ended.append(job.name),
        should_stop=lambda: False,
    )


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_so_many_run_at_once_and_none_before_what_it_needs(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    running: dict[str, int] = {}
    most = 0

    class Slow:
        """Ends when it was asked three times."""

        returncode = 0

        def __init__(self, job: Job) -> None:
            self.name = job.name

        def poll(self) -> int | None:
            running[self.name] -= 1
            if running[self.name]:
                return None
            del running[self.name]
            done.append(self.name)
            return 0

    def start(job: Job, log: Path, given: int) -> Slow:
        nonlocal most
        assert set(job.needs) <= set(done)
        running[job.name] = 3
        most = max(most, len(running))
        return Slow(job)

    monkeypatch.setattr(processes, "start", start)
    monkeypatch.setattr(processes, "_WAIT", 0.0)

    def job(name: str, *needs: str) -> Job:
        return Job(name=name, stage="methods", commands=(), needs=needs, done=lambda: name in done)

    work = [job("z", "a", "b"), job("a"), job("b"), job("c", "a"), job("d")]
    ended: list[str] = []
    work_off(work, tmp_path, at_once=at_once, ended=ended)
    assert sorted(ended) == ["a", "b", "c", "d", "z"]
    assert most == at_once


def test_a_folder_with_a_sweep_of_other_settings_is_refused(
    tiny: Path, tmp_path: Path, sweep: Callable[..., Swept], capsys: pytest.CaptureFixture[str]
) -> None:
    sweep(tiny, "--methods", "random", "--seeds", "1", "--measure", "records")
    before = sorted(path for path in (tmp_path / "out").rglob("*"))
    other = write_set(tmp_path / "other.npz", 32)
    for scenes, more in (
        (tiny, ["--val-fraction", "0.5"]),
        (tiny, ["--model.stride", "2"]),
        (tiny, ["--recipe.phase1.epochs", "2"]),
        (other, []),
        (tiny, ["--read.size", "16", "16"]),
        (tiny, ["--recipe", "quickstart"]),
        (tiny, ["--length", "0.5"]),
    ):
        said = refused(capsys, *given(scenes, tmp_path / "out", "--methods", "random,ram", *more))
        assert f"{tmp_path / 'out'} holds a sweep with other settings: digits" in said
        assert "--recipe smoke" in said
    assert sorted(path for path in (tmp_path / "out").rglob("*")) == before


def test_wrong_calls_are_one_line_that_names_what_is_allowed(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more, words in (
        (["--methods", "random,luck"], ("'luck'", *METHODS)),
        (["--methods", ""], ("''", *METHODS)),
        (["--methods", "random,random"], ("random,random", "once")),
        (["--seeds", "0"], ("seeds is 0", "at least 1")),
        (["--at-once", "0"], ("at_once is 0", "at least 1")),
        (["--length", "0"], ("length is 0.0", "above 0")),
        (["--val-fraction", "1.5"], ("val_fraction is 1.5", "below 1")),
        (["--num-labels", "0"], ("num_labels is 0", "at least 1")),
        (["--model.stride", "0"], ("stride is 0",)),
        (
            ["--methods", "gaussian,gaussian-corrected", "--model.flow-layers", "2"],
            ("flow_layers is 2", "gaussian sets it to 0"),
        ),
        (["--recipe.phase1.batch-size", "0"], ("batch_size is 0",)),
    ):
        line = refused(capsys, *given(tiny, tmp_path / "out", *more))
        assert all(word in line for word in words), line
    said = refused_by_parser(capsys, *given(tiny, tmp_path / "out", "--print-stage", "phase-9"))
    assert all(word in said for word in ("phase-9", "phase-1", "methods", "judgement"))
    assert not (tmp_path / "out").exists()


def test_stages_are_printed_one_job_a_line_and_nothing_is_done(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = given(tiny, tmp_path / "my out", "--methods", "random,cnn,attention", "--seeds", "2")
    stages = {stage: printed(capsys, arguments, stage) for stage in ("phase-1", "methods", "judgement")}
    assert [len(lines) for lines in stages.values()] == [2, 6, 1]
    for line in stages["methods"]:
        train, evaluate = (shlex.split(part) for part in line.split(" && "))
        assert train[0] == evaluate[0] == "infogaze"
        trained, evaluated = parse(train[1:]), parse(evaluate[1:])
        assert isinstance(trained, Train)
        assert isinstance(evaluated, Evaluate)
        assert evaluated.runs == (trained.out,)
    judgement = parse(shlex.split(stages["judgement"][0])[1:])
    assert isinstance(judgement, Evaluate)
    assert judgement.judge == tmp_path / "my out" / "cnn" / "seed-0"
    assert len(judgement.runs) == 4
    assert not (tmp_path / "my out").exists()
    assert printed(capsys, given(tiny, tmp_path, "--methods", "cnn"), "phase-1") == []
    assert printed(capsys, given(tiny, tmp_path, "--methods", "random"), "judgement") == []


def test_a_size_that_a_method_sets_itself_is_for_the_others(tmp_path: Path) -> None:
    given = [
        "--model.dictionary-entries",
        "9",
        "--model.stride",
        "2",
        "--methods",
        "paper,infogaze",
        "--out",
        str(tmp_path),
    ]
    sweep = parse(["sweep", "digits", *given])
    assert isinstance(sweep, Sweep)
    sizes = {
        name: changes_of(parse(["train", *sweep._train(name), "--out", "x"]))[0]["model"]
        for name in ("paper", "infogaze")
    }
    assert sizes == {"paper": {"stride": 2}, "infogaze": {"dictionary_entries": 9, "stride": 2}}


def test_every_setting_of_a_sweep_reaches_its_trainings(tmp_path: Path) -> None:
    options = ReadOptions(size=(16, 24), fit="crop", channels=3, test_share=0.25, seed=7, merge_validation=False)
    given = [
        "--data", "folder", "--root", str(tmp_path / "my pictures"), "--recipe", "paper", "--length", "0.3",
        "--val-fraction", "0.1", "--num-labels", "30", "--teacher", "cnn/seed-0", "--device", "cpu",
        "--read.size", "16", "24", "--read.fit", "crop", "--read.channels", "3",
        "--read.test-share", "0.25", "--read.seed", "7", "--read.merge-validation", "False",
        "--num-looks", "5", "--horizontal-flip", "False", "--model.glimpse-widths", "8", "16", "--recipe.phase2.steps", "40",
        "--recipe.phase3.steps", "9", "--recipe.augmentation.off",
    ]  # fmt: skip
    sweep = parse(["sweep", "cifar10", *given, "--out", str(tmp_path)])
    assert isinstance(sweep, Sweep)
    found = options_of(parse(["train", *sweep._train(), "--out", "x"]))
    assert found == options_of(parse(["train", "cifar10", *given, "--out", "x"]))
    assert resolved_options(RunFile(), found["read"]) == sweep._options() == options
    assert found["changes"] == (
        {"num_looks": 5, "horizontal_flip": False, "model": {"glimpse_widths": [8, 16]}},
        {"phase2": {"steps": 40}, "phase3": {"steps": 9}, "augmentation": None},
    )


def test_in_a_sweep_a_teacher_teaches_all_that_look(tmp_path: Path) -> None:
    sweep = parse(["sweep", "digits", "--teacher", "SWEEP/cnn/seed-0", "--out", str(tmp_path)])
    assert isinstance(sweep, Sweep)
    assert "--teacher" not in sweep._train("cnn")
    assert all("--teacher" in sweep._train(name) for name in METHODS if METHODS[name].sees != "everything")


def test_a_sweep_without_settings_asks_nothing_of_its_trainings(tmp_path: Path) -> None:
    sweep = parse(["sweep", "digits", "--out", str(tmp_path)])
    assert isinstance(sweep, Sweep)
    assert options_of(parse(["train", *sweep._train(), "--out", "x"])) == options_of(
        parse(["train", "digits", "--out", "x"])
    )
    assert sweep._train() == ["digits", "--device", "auto"]


def test_every_training_of_a_sweep_is_of_its_length_and_no_seed_of_one_of_another(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--methods", "random", "--measure", "records", "--seeds")
    run_here(capsys, tiny, tmp_path / "once", *asked, "1")
    run_here(capsys, tiny, tmp_path / "half", *asked, "2", "--length", "0.5")
    trained = [tmp_path / "half" / "phase-1" / "for-seed-1", tmp_path / "half" / "random" / "seed-1"]
    for run in trained:
        way = json.loads((run / "config.json").read_text())["config"]["recipe"]
        assert {way[part]["epochs"] for part in ("phase1", "phase2", "phase3", "full_image")} == {0.5}
    (alike,) = gather([tmp_path / "half"])
    assert [len(group.runs) for group in alike.groups] == [2]
    with pytest.raises(EvaluationError, match=r"cannot be one curve: random was trained by the recipe"):
        gather([tmp_path / "once" / "random" / "seed-0", tmp_path / "half" / "random" / "seed-1"])
    said = refused(capsys, *given(tiny, tmp_path / "half", *asked, "1"))
    assert all(
        word in said for word in ("half holds a sweep with other settings: digits", "--recipe smoke", "--length 0.5")
    )


def test_without_data_a_sweep_asks_for_the_files_of_the_set_that_its_preset_is_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, "sweep", "cifar10-plus", "--out", tmp_path / "out", "--device", "cpu")
    assert said.startswith("infogaze: cifar10 needs --root: ")
    assert not (tmp_path / "out").exists()
