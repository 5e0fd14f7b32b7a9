from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import infogaze
from infogaze import METHODS, ModelConfig
from infogaze.cli import names
from infogaze.cli.main import main
from infogaze.evaluation.registry import MEASUREMENTS
from infogaze.files import FileError, locked
from infogaze.nn.model import build
from infogaze.presets import PRESETS
from infogaze.training.recipe import RECIPES, PhaseRecipe
from tests.support import calls
from tests.support.sweeps import DIGITS, PART, SIZES, TINY


@pytest.fixture
def arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small set of wide scenes, and a recipe to match."""
    monkeypatch.setenv("INFOGAZE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(RECIPES, "smoke", TINY)
    monkeypatch.setitem(PRESETS, "digits", replace(DIGITS, model=SIZES, num_looks=4, num_samples=3))
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 48)
    images = (labels[:, None, None] * 80 + rng.integers(0, 40, (48, 12, 20))).astype(np.uint8)
    path = tmp_path / "set.npz"
    np.savez(path, train_x=images[:32], train_y=labels[:32], test_x=images[32:], test_y=labels[32:])
    return path


def call(arrays: Path, out: Path, *more: str) -> list[str]:
    given = ["--data", "arrays", "--root", str(arrays), "--recipe", "smoke", "--device", "cpu", "--out", str(out)]
    return ["train", "digits", *given, *more]


def train(arrays: Path, out: Path, *more: str) -> None:
    main(call(arrays, out, *more))


def refused(capsys: pytest.CaptureFixture[str], arrays: Path, out: Path, *more: str) -> str:
    """The one line of a refusal."""
    return calls.refused(capsys, *call(arrays, out, *more))


def config_of(run: Path) -> ModelConfig:
    """The sizes of a trained model."""
    agent = infogaze.load(run)
    assert agent.origin is not None
    return agent.origin.config


def test_train_makes_a_model_folder_of_the_datas_own_sizes(arrays: Path, tmp_path: Path) -> None:
    train(arrays, tmp_path / "run")
    config = config_of(tmp_path / "run")
    assert (config.height, config.width, config.channels, config.num_classes) == (12, 20, 1, 3)
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {
        "config.json", "metrics.jsonl", "checkpoints", "model.json", "model.safetensors",
    }  # fmt: skip


def test_a_run_of_some_phases_says_which_are_left(
    arrays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(arrays, tmp_path / "one", "--phases", "1")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("model: ")]
    assert line == f"model: {tmp_path / 'one'}; phase 2 and 3 of infogaze not trained yet, see --start-from"
    train(arrays, tmp_path / "rest", "--phases", "2", "3", "--start-from", str(tmp_path / "one"))
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("model: ")]
    assert line == f"model: {tmp_path / 'rest'}"


def test_a_model_remembers_how_its_pictures_were_brought_to_size(arrays: Path, tmp_path: Path) -> None:
    train(arrays, tmp_path / "as they are", "--phases", "1")
    assert infogaze.load(tmp_path / "as they are").fit == "crop"
    train(arrays, tmp_path / "padded", "--phases", "1", "--read.size", "13", "15", "--read.fit", "pad")
    assert infogaze.load(tmp_path / "padded").fit == "pad"


def test_a_phase_can_be_run_alone_from_the_phase_before(arrays: Path, tmp_path: Path) -> None:
    train(arrays, tmp_path / "one", "--phases", "1")
    train(arrays, tmp_path / "rest", "--phases", "2", "3", "--start-from", str(tmp_path / "one"))
    train(arrays, tmp_path / "all")
    first, rest, whole = (infogaze.load(tmp_path / name).model.state_dict() for name in ("one", "rest", "all"))
    assert same(rest, whole), "in two runs as in one"
    head = "imagination.keys.weight"
    assert not torch.equal(first[head], whole[head])


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """The same weights, but for how a processor may round."""
    assert one.keys() == other.keys()
    return all(torch.allclose(value, other[name], rtol=1e-4, atol=1e-6) for name, value in one.items())


def steps_by_phase(run: Path) -> dict[int, int]:
    """How many steps each phase of a run took."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {line["phase"]: line["step"] for line in lines}


def test_half_the_length_is_half_the_epochs_and_half_the_steps(
    arrays: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    way = replace(
        TINY, phase1=replace(PART, epochs=3), phase2=replace(PART, epochs=2), full_image=replace(PART, epochs=5)
    )
    monkeypatch.setitem(RECIPES, "smoke", way)
    train(arrays, tmp_path / "once")
    train(arrays, tmp_path / "half", "--length", "0.5")
    kept: list[dict[str, Any]] = [
        json.loads((tmp_path / name / "config.json").read_text())["config"]["recipe"] for name in ("once", "half")
    ]
    parts = ("phase1", "phase2", "phase3", "full_image")
    assert [kept[0][part]["epochs"] for part in parts] == [3, 2, 1, 5]
    assert [kept[1][part]["epochs"] for part in parts] == [1.5, 1, 0.5, 2.5]
    # Two batches of 16 an epoch; the head of a dictionary learns alone for a quarter of phase 2.
    assert steps_by_phase(tmp_path / "once") == {1: 6, 2: 1, 3: 5}
    assert steps_by_phase(tmp_path / "half") == {1: 3, 2: 1, 3: 2}
    said = refused(capsys, arrays, tmp_path / "half")
    assert re.search(r"another configuration: recipe\.full_image\.epochs is 2\.5 there and 5(\.0)? here", said)


@pytest.mark.parametrize("length", ["0", "-1", "nan", "inf", "-inf", "1e308"])
def test_a_length_that_is_none_is_one_line_and_leaves_no_folder(
    length: str, arrays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, arrays, tmp_path / "run", "--length", length)
    assert f"length is {float(length)}" in said
    assert "1000" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("flip_tta", [False, True])
def test_a_model_has_flip_tta_where_its_preset_has_it(
    flip_tta: bool, arrays: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PRESETS, "digits", replace(PRESETS["digits"], horizontal_flip=True, flip_tta=flip_tta))
    train(arrays, tmp_path / "run", "--phases", "1")
    assert infogaze.load(tmp_path / "run").flip_tta is flip_tta


@pytest.mark.parametrize("name", [name for name in PRESETS if name not in ("digits", "cluttered")])
def test_without_data_a_preset_asks_for_the_files_of_the_set_it_is_for(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = calls.refused(capsys, "train", name, "--out", tmp_path / "run", "--device", "cpu")
    asked = {"cifar10-plus": "cifar10", "own": "folder"}.get(name, name)
    assert said.startswith(f"infogaze: {asked} needs --root: ")
    assert not (tmp_path / "run").exists()


SHARING = [name for name in METHODS if name not in {"random", "attention", "cnn"}]
"""The methods whose phase 1 is that of Random. With self-attention R is another, and the CNN has no phase 1."""


@pytest.mark.parametrize("method", SHARING)
def test_a_method_from_the_shared_phase_1_is_the_method_in_one_go(
    method: str, arrays: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RECIPES, "smoke", replace(TINY, ema_decay=0.9))
    train(arrays, tmp_path / "shared", "--method", "random", "--phases", "1", "--seed", "3")
    later = [str(number + 2) for number in range(len(METHODS[method].phases) - 1)]
    begun = ["--phases", *later, "--start-from", str(tmp_path / "shared")]
    train(arrays, tmp_path / "rest", "--method", method, "--seed", "3", *begun)
    train(arrays, tmp_path / "all", "--method", method, "--seed", "3")
    rest, whole = (infogaze.load(tmp_path / name) for name in ("rest", "all"))
    assert rest.origin == whole.origin
    assert rest.origin is not None
    assert rest.origin.method == method
    assert same(rest.model.state_dict(), whole.model.state_dict())


def test_what_a_phase_does_not_train_is_as_the_seed_made_it(arrays: Path, tmp_path: Path) -> None:
    train(arrays, tmp_path / "run", "--phases", "1", "--seed", "3")
    agent = infogaze.load(tmp_path / "run")
    for seed in (3, 0):
        fresh, found = (
            model.get_submodule("imagination").state_dict()
            for model in (build(config_of(tmp_path / "run"), seed), agent.model)
        )
        kept = [torch.equal(value, fresh[name]) for name, value in found.items()]
        assert all(kept) == (seed == 3)


def test_a_start_that_does_not_fit_is_refused_in_one_line(
    arrays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(arrays, tmp_path / "shared", "--method", "random", "--phases", "1")
    train(arrays, tmp_path / "flat", "--method", "gaussian", "--phases", "1")
    shared, flat = ["--start-from", str(tmp_path / "shared")], ["--start-from", str(tmp_path / "flat")]
    for method in ("attention", "cnn"):
        said = refused(capsys, arrays, tmp_path / method, "--method", method, *shared)
        assert all(word in said for word in ("shared: ", "other networks", method))
    with pytest.MonkeyPatch.context() as patch:  # the same shapes, another R
        patch.setitem(
            PRESETS, "digits", replace(PRESETS["digits"], model=replace(PRESETS["digits"].model, residual_belief=True))
        )
        said = refused(capsys, arrays, tmp_path / "kept", "--phases", "2", *shared)
    assert all(word in said for word in ("shared: ", "other networks", "infogaze"))
    said = refused(capsys, arrays, tmp_path / "three", "--phases", "3", *shared)
    assert re.search("shared: a model by random; phase 3 .* by infogaze", said)
    said = refused(capsys, arrays, tmp_path / "other", "--phases", "3", *flat)
    assert re.search("flat: a model by gaussian; phase 3 .* by infogaze", said)
    assert not (tmp_path / "other").exists(), (
        "a refused start leaves no folder that the mended command would stumble over"
    )
    said = refused(capsys, arrays, tmp_path / "third", "--method", "ram", "--phases", "2", "3", *shared)
    assert re.search(r"phases are \(2, 3\); .*1, 2 .*ram", said)
    said = refused(capsys, arrays, tmp_path / "second", "--method", "cnn", "--phases", "2", *shared)
    assert re.search(r"phases are \(2,\); .*1 .*cnn", said)


def test_a_start_with_other_attention_heads_is_refused_in_one_line(
    arrays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = ["--model.token-layers", "1", "--model.token-heads"]
    train(arrays, tmp_path / "one", "--method", "random", "--phases", "1", *tokens, "2")
    start = ["--phases", "2", "--start-from", str(tmp_path / "one"), *tokens]
    said = refused(capsys, arrays, tmp_path / "four", *start, "4")  # the same shapes
    assert all(word in said for word in ("one: ", "other networks", "infogaze"))
    train(arrays, tmp_path / "two", *start, "2")
    assert config_of(tmp_path / "two").token_heads == 2


def test_wrong_calls_are_one_line_and_exit_code_2(
    arrays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    for more, words in (
        (["--phases", "2"], "phase 2 needs the weights of the phase before"),
        (["--phases", "2", "1"], "phases are (2, 1)"),
        (["--val-fraction", "1.5"], "val_fraction is 1.5"),
        (["--start-from", "digits"], "a model of other networks"),
        *([] if torch.cuda.is_available() else [(["--device", "cuda"], "'cuda'")]),
        (["--device", "toaster"], "'toaster'"),
    ):
        assert words in refused(capsys, arrays, out, *more)
    assert not out.exists()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--read.size", "100000", "100000"], "(100000, 100000)"),
        (["--read.seed", str(-(2**70))], str(-(2**70))),
        (["--read.test-share", "0"], "test_share is 0.0"),
        (["--val-fraction", "0.99999"], "0.99999"),
        (["--num-labels", "0"], "num_labels is 0"),
        (["--num-labels", "1000000"], "num_labels is 1000000"),
        (["--val-fraction", "nan"], "nan"),
        (["--seed", str(2**64)], str(2**64)),
        (["--num-looks", "0"], "num_looks is 0"),
        (["--beta", "nan"], "beta is nan"),
        (["--learning-rates", "1", "1", "0"], "0.0"),
        (["--model.stride", "0"], "stride is 0"),
        (["--model.glimpse-size", "2"], "glimpse_widths"),
        (["--recipe.phase1.epochs", "-1"], "epochs is -1"),
        (["--recipe.phase3.steps", "4"], "phase2 and phase3"),
        (["--recipe.augmentation.crop-scale", "0", "1"], "crop_scale"),
        (["--flip-tta", "True"], "flip_tta"),
        (["--save-every", "nan"], "nan"),
        (["--save-every", "-1"], "-1"),
        (["--length", "nan"], "nan"),
    ],
)
def test_values_out_of_range_are_one_line_that_names_them(
    given: list[str], named: str, arrays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(capsys, arrays, tmp_path / "run", *given)
    assert named in line
    assert not (tmp_path / "run").exists(), "the mended command does not stumble over what a refused one left"


@pytest.mark.parametrize(
    ("method", "given", "named"),
    [
        ("infogaze", ["--model.gain-correction", "False"], "model.gain_correction is False; the method infogaze sets it to True"),
        ("dictionary", ["--model.gain-correction", "True"], "model.gain_correction is True; the method dictionary sets it to False"),
        ("paper", ["--model.dictionary-entries", "9"], "model.dictionary_entries is 9; the method paper sets it to 0"),
        ("gaussian-corrected", ["--model.flow-layers", "2"], "model.flow_layers is 2; the method gaussian-corrected sets it to 0"),
        ("attention", ["--model.attention-hops", "1"], "model.attention_hops is 1; the method attention sets it to 4"),
    ],
)  # fmt: skip
def test_a_size_that_the_method_sets_itself_is_refused_by_its_name(
    method: str, given: list[str], named: str, arrays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, arrays, tmp_path / "run", "--method", method, *given) == f"infogaze: {named}"
    assert not (tmp_path / "run").exists()


def test_a_size_may_be_given_as_the_method_has_it_or_to_one_that_leaves_it_open(arrays: Path, tmp_path: Path) -> None:
    one = ("--phases", "1")
    train(arrays, tmp_path / "a", *one, "--method", "paper", "--model.dictionary-entries", "0")
    train(arrays, tmp_path / "b", *one, "--method", "infogaze", "--model.dictionary-entries", "9")
    train(arrays, tmp_path / "c", *one, "--method", "random", "--model.flow-layers", "3")
    sizes = [config_of(tmp_path / name) for name in "abc"]
    assert [sizes[0].dictionary_entries, sizes[1].dictionary_entries, sizes[2].flow_layers] == [0, 9, 3]


def test_a_second_command_on_a_folder_in_use_is_refused_with_the_first_ones_process(
    arrays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run"):
        line = refused(capsys, arrays, tmp_path / "run")
    assert f"process {os.getpid()}" in line
    train(arrays, tmp_path / "run")


def test_a_full_disk_is_one_line_that_says_how_to_go_on(
    arrays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise FileError(path, "cannot be written", OSError(28, "No space left on device"))

    with monkeypatch.context() as patch:
        patch.setattr("infogaze.training.checkpoint.write_whole", full)
        with pytest.raises(SystemExit):
            train(arrays, tmp_path / "run")
    said = capsys.readouterr().err
    assert "disk is full" in said
    assert str(tmp_path / "run" / "checkpoints") in said
    assert said.count("\n") == 1
    train(arrays, tmp_path / "run")
    infogaze.load(tmp_path / "run")


def test_a_run_that_diverges_ends_in_one_line_that_says_where(
    arrays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    far = PhaseRecipe(epochs=30, batch_size=16, learning_rate=1e30)
    monkeypatch.setitem(RECIPES, "smoke", replace(TINY, phase1=far))
    with pytest.raises(SystemExit) as stop:
        train(arrays, tmp_path / "run")
    assert stop.value.code == 1
    # Two steps an epoch, and the meters are read at its end: the 20th bad one in a row is seen after a step or two more.
    assert re.search(r"infogaze: phase 1, step 2\d: 2\d steps in a row", capsys.readouterr().out.splitlines()[-1])


def test_track_writes_tensorboards_files_or_names_the_extra(
    arrays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    train(arrays, tmp_path / "run", "--track")
    assert list((tmp_path / "run" / "tensorboard").iterdir())
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    line = refused(capsys, arrays, tmp_path / "other", "--track")
    assert "--track" in line
    assert "infogaze[track]" in line


def test_the_names_on_the_command_line_are_those_there_are() -> None:
    assert names.PRESET_NAMES.split("|") == list(PRESETS)
    assert names.RECIPE_NAMES.split("|") == list(RECIPES)
    assert names.METHOD_NAMES.split("|") == list(METHODS)
    assert names.MEASUREMENT_NAMES.split("|") == list(MEASUREMENTS)


def test_the_papers_recipe_carries_its_numbers() -> None:
    paper = RECIPES["paper"]
    phases = [phase.budget(paper) for phase in METHODS["paper"].phases]
    assert [part.epochs for part in phases] == [1000, 100, 100]
    assert {part.batch_size for part in phases} == {64}
    assert {part.learning_rate for part in phases} == {None}, "the preset's own"
    assert (paper.schedule, paper.betas, paper.weight_decay) == ("plateau", (0.9, 0.999), 0.0)
