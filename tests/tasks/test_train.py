"""Training on own pictures, from the command line and from Python: what it warns of, prints, keeps and returns."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import infogaze
from infogaze.cli.main import main
from infogaze.data.options import ReadOptions
from infogaze.data.registry import load_set
from infogaze.errors import InfogazeError
from infogaze.evaluation.rollouts import roll_out
from infogaze.evaluation.temperature import fit_temperatures
from infogaze.gaze.agent import Agent
from infogaze.methods.registry import METHODS
from infogaze.presets import PRESETS, preset
from infogaze.progress import Bar, display
from infogaze.runs import read_config
from infogaze.tasks.train import train
from infogaze.tasks.validation import split_validation
from infogaze.tasks.watching import TrainingBars
from infogaze.training.meters import Reading
from infogaze.training.plan import Progress
from infogaze.training.recipe import RECIPES, PhaseRecipe, recipe
from tests.support.calls import refused
from tests.support.own import QUICK, write_pictures
from tests.support.sets import noise, write_image

SMALL = replace(
    preset("own"),
    num_samples=2,
    model=replace(
        preset("own").model, glimpse_widths=(4,), feature_size=8, belief_size=16, latent_size=4, flow_layers=1
    ),
)
"""What `QUICK` makes of the preset."""


def steps(count: int, batch_size: int = 32, learning_rate: float = 2e-3) -> PhaseRecipe:
    return PhaseRecipe(steps=count, batch_size=batch_size, learning_rate=learning_rate)


BRIEF = replace(
    recipe("own"), phase1=steps(6, 8), phase2=steps(2), phase3=steps(2, learning_rate=1e-3), full_image=steps(2)
)
"""What `QUICK` makes of the recipe."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFOGAZE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return write_pictures(tmp_path / "pictures", ("dark", "grey", "light"), count=20)


def call(pictures: Path, out: Path, *more: str) -> list[str]:
    return ["train", "--root", str(pictures), "--out", str(out), *QUICK, *more]


def warnings(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("warning: ")]


def validated(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "val_accuracy" in line]


def test_a_folder_is_trained_on_with_the_preset_for_own_pictures_its_recipe_and_a_validation_split(
    pictures: Path, tmp_path: Path
) -> None:
    main(call(pictures, tmp_path / "run"))
    config = read_config(tmp_path / "run")
    assert (config.preset.name, config.data.name, config.val_fraction) == ("own", "folder", 0.1)
    assert config.recipe == BRIEF
    sizes = METHODS[config.method].sizes(SMALL.model)
    assert config.preset.model == replace(sizes, height=20, width=24, num_classes=3)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_trained_by_its_own_recipe_unless_another_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr("infogaze.cli.train.train", lambda **given: asked.append(given))
    main(["train", name, "--out", str(tmp_path / "run")])
    main(["train", name, "--out", str(tmp_path / "run"), "--recipe", "paper"])
    assert [given["recipe"] for given in asked] == [RECIPES[PRESETS[name].recipe], RECIPES["paper"]]
    assert all(given["preset"] == PRESETS[name] for given in asked)


def test_too_few_steps_and_too_many_locations_are_warned_of_with_what_helps(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(call(pictures, tmp_path / "run", "--model.stride", "1", "--phases", "1"))
    few, many = warnings(capsys.readouterr().out)
    assert all(word in few for word in ("phase 1", "6 steps", "--recipe.phase1.steps"))
    assert all(word in many for word in ("221 locations", "20x24", "--model.glimpse-size 8 --model.stride 4"))


def test_enough_steps_and_few_locations_are_not_warned_of(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infogaze.tasks.train.run_phases", lambda *given, **more: None)
    main(call(pictures, tmp_path / "run", *(word for k in (1, 2, 3) for word in (f"--recipe.phase{k}.steps", "300"))))
    assert warnings(capsys.readouterr().out) == []


def test_a_network_that_sees_all_teaches_one_that_looks_and_nothing_else_can(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(call(pictures, tmp_path / "cnn", "--method", "cnn"))
    main(call(pictures, tmp_path / "taught", "--teacher", str(tmp_path / "cnn")))
    config = read_config(tmp_path / "taught")
    assert config.teacher == str(tmp_path / "cnn")
    first = [json.loads(line) for line in (tmp_path / "taught" / "metrics.jsonl").read_text().splitlines()]
    main(call(pictures, tmp_path / "alone"))
    second = [json.loads(line) for line in (tmp_path / "alone" / "metrics.jsonl").read_text().splitlines()]
    assert first[0]["loss"] != second[0]["loss"]
    said = refused(capsys, *call(pictures, tmp_path / "run", "--teacher", str(tmp_path / "alone")))
    assert all(word in said for word in ("alone: a run of infogaze", "a teacher must be one of", "cnn"))
    others = write_pictures(tmp_path / "others", ("dark", "light"), count=20)
    said = refused(capsys, *call(others, tmp_path / "run", "--teacher", str(tmp_path / "cnn")))
    assert "cnn: its 3 classes are not the 2 of the training images" in said
    larger = call(pictures, tmp_path / "run", "--teacher", str(tmp_path / "cnn"), "--read.size", "20", "20")
    assert "cnn: its scenes are 3x20x24, the training images 3x20x20" in refused(capsys, *larger)
    assert not (tmp_path / "run").exists()


def test_the_option_for_a_network_that_sees_all_is_named_by_its_own_phase(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(call(pictures, tmp_path / "run", "--method", "cnn", "--recipe.full-image.steps", "2"))
    (few,) = warnings(capsys.readouterr().out)
    assert all(word in few for word in ("phase 1", "2 steps", "--recipe.full-image.steps"))


def test_known_sets_are_not_warned_of_few_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    brief = ("--recipe.phase1.epochs", "0.01", "--phases", "1", "--device", "cpu")
    main(["train", "digits", "--out", str(tmp_path / "run"), *brief])
    assert warnings(capsys.readouterr().out) == []


def test_the_end_of_each_phase_shows_loss_and_accuracy_in_training_and_validation(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(call(pictures, tmp_path / "run"))
    ends = [line for line in capsys.readouterr().out.splitlines() if re.match(r"phase \d.*100 %", line)]
    assert [line[: len("phase 1")] for line in ends] == ["phase 1", "phase 2", "phase 3"]
    for line in ends[::2]:  # phase 2 learns to imagine: it classifies nothing
        assert re.search(r"loss [\d.]+, training accuracy [\d ]+ %, validation accuracy [\d ]+ %", line), line


def test_the_last_lines_set_looks_by_gain_against_looks_at_random_on_the_test_split(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(call(pictures, tmp_path / "run", "--num-looks", "4"))
    head, ours, random = capsys.readouterr().out.splitlines()[-3:]
    assert "test accuracy" in head
    assert "12 images" in head, "a fifth of each class"
    assert ours.startswith("looks by infogaze")
    assert random.startswith("looks at random")
    cells = [re.findall(r"([\d.]+) ±\s*([\d.]+)", line) for line in (ours, random)]
    assert [len(row) for row in cells] == [4, 4]
    assert cells[0][0] == cells[1][0], "first looks are the same"
    assert all(0 <= float(mean) <= 100 for row in cells for mean, _ in row)


@pytest.mark.parametrize("method", ["random", "cnn"])
def test_a_method_that_chooses_nothing_is_not_set_against_random(
    method: str, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(call(pictures, tmp_path / "run", "--method", method))
    assert "looks at random" not in capsys.readouterr().out


def test_a_run_ends_with_the_weights_of_the_best_validation_accuracy(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[dict[str, torch.Tensor]] = []

    def validator(scenes: object, config: object) -> Any:
        def validate(model: torch.nn.Module, phase: object) -> tuple[float, ...]:
            kept.append({name: value.clone() for name, value in model.state_dict().items()})
            return (0.9,) if len(kept) == 2 else (0.1,)

        return validate

    monkeypatch.setattr("infogaze.tasks.train.validator", validator)
    main(call(pictures, tmp_path / "run", "--phases", "1"))
    assert len(kept) == 6
    agent = infogaze.load(tmp_path / "run")
    weights = dict(agent.model.named_parameters())
    assert all(torch.equal(value, kept[1][name]) for name, value in weights.items() if name.startswith("backbone"))
    assert any(not torch.equal(value, kept[5][name]) for name, value in weights.items() if name.startswith("backbone"))


def test_a_validation_split_can_be_refused_and_made_larger(pictures: Path, tmp_path: Path) -> None:
    main(call(pictures, tmp_path / "none", "--phases", "1", "--val-fraction", "0"))
    assert validated(tmp_path / "none") == []
    main(call(pictures, tmp_path / "half", "--phases", "1", "--val-fraction", "0.5"))
    assert len(validated(tmp_path / "half")) == 6


def test_200_pictures_of_different_sizes_are_one_line_that_names_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for k in range(200):
        write_image(tmp_path / "pictures" / "ab"[k % 2] / f"{k:03}.png", noise(k, 20, 20 + k % 9, 3))
    line = refused(capsys, "train", "--root", tmp_path / "pictures", "--out", tmp_path / "run", "--device", "cpu")
    assert all(word in line for word in ("20x2", "--read.size", "files"))
    assert "more)" not in line
    assert not (tmp_path / "run").exists()
    main(["data", "check", "folder", "--root", str(tmp_path / "pictures"), "--read.size", "20", "20"])


@pytest.mark.slow
def test_what_tells_the_classes_apart_is_learned(tmp_path: Path) -> None:
    pictures = write_pictures(tmp_path / "pictures", ("dark", "light"), count=40)
    agent = train(
        out=tmp_path / "run",
        preset=SMALL,
        root=pictures,
        recipe=replace(BRIEF, phase1=steps(60, 16, 5e-3)),
        device="cpu",
        quiet=True,
    )
    assert validated(tmp_path / "run")[-1]["val_accuracy"][-1] > 0.8
    for name, value in (("dark", 20), ("light", 120)):
        assert agent.classify(np.full((20, 24, 3), value, np.uint8)).label == name


def states(*runs: Path | Agent) -> list[dict[str, torch.Tensor]]:
    agents = [run if isinstance(run, Agent) else infogaze.load(run) for run in runs]
    return [dict(agent.model.named_parameters()) for agent in agents]


def test_train_from_python_does_what_the_command_does_and_returns_the_agent(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(call(pictures, tmp_path / "command", "--seed", "3", "--read.channels", "1"))
    capsys.readouterr()
    agent = infogaze.train(
        out=tmp_path / "python",
        preset=SMALL,
        root=pictures,
        read=ReadOptions(channels=1),
        recipe=BRIEF,
        seed=3,
        device="cpu",
        quiet=True,
    )
    assert capsys.readouterr().out == ""
    assert read_config(tmp_path / "python") == read_config(tmp_path / "command")
    one, other, returned = states(tmp_path / "python", tmp_path / "command", agent)
    for name, value in one.items():
        assert torch.allclose(value, other[name], rtol=1e-4, atol=1e-6), name
        # What is saved is what is returned, but for masked weights, which are never used.
        if not name.endswith(("between.weight", "from_elements.weight", "to_knots.weight")):
            assert torch.equal(value, returned[name]), name
    assert agent.classes == ("dark", "grey", "light")


def test_changes_are_made_once_the_size_of_the_pictures_is_known(tmp_path: Path) -> None:
    """A preset for small pictures, and changes that fit these alone: neither fits without the other."""
    pictures = write_pictures(tmp_path / "pictures", count=4, sizes=((96, 128),))
    changes = {"num_looks": 3, "model": {"glimpse_size": 48, "stride": 40}}
    agent = train(
        out=tmp_path / "run", preset=SMALL, root=pictures, recipe=BRIEF, changes=changes, device="cpu", quiet=True
    )
    assert agent.origin is not None
    sizes, grid = agent.origin.config, agent.model.grid
    assert (sizes.height, sizes.width, sizes.glimpse_size, sizes.stride) == (96, 128, 48, 40)
    assert (grid.num_locations, agent.num_looks) == (3 * 3, 3), "rows 0, 40 and 48, columns 0, 40 and 80"
    assert read_config(tmp_path / "run").preset.model == sizes


@pytest.mark.parametrize("changes", [{"model": {"glimpse_size": 97}}, {"model": {"no_size": 1}}, {"no_value": 1}])
def test_changes_that_fit_nothing_are_refused(changes: dict[str, Any], pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(InfogazeError, match="97 pixels|no_size|no_value"):
        train(out=tmp_path / "run", preset=SMALL, root=pictures, recipe=BRIEF, changes=changes, device="cpu")
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.parametrize("val_fraction", [0.0, 0.25])
def test_a_model_with_a_validation_split_has_a_temperature_for_each_number_of_looks(
    val_fraction: float, pictures: Path, tmp_path: Path
) -> None:
    agent = train(
        out=tmp_path / "run",
        preset=SMALL,
        data="folder",
        root=pictures,
        recipe=BRIEF,
        val_fraction=val_fraction,
        device="cpu",
        quiet=True,
    )
    if not val_fraction:
        assert agent.temperatures is None
        return
    assert agent.temperatures is not None
    assert len(agent.temperatures) == agent.num_looks
    assert agent.temperatures == infogaze.load(tmp_path / "run").temperatures
    config = read_config(tmp_path / "run")
    images = load_set("folder", str(pictures), config.data.options)
    _, validation = split_validation(images.train, config)
    agent.temperatures = None
    looked = roll_out(agent, validation)
    assert fit_temperatures(looked.labels, looked.log_probabilities) == pytest.approx(
        infogaze.load(tmp_path / "run").temperatures, rel=1e-3
    )


@pytest.mark.parametrize(("count", "known"), [(20, False), (80, True)])
def test_a_model_of_enough_scenes_knows_those_unlike_any_of_them(count: int, known: bool, tmp_path: Path) -> None:
    pictures = write_pictures(tmp_path / "pictures", count=count)
    agent = train(out=tmp_path / "run", preset=SMALL, root=pictures, recipe=BRIEF, device="cpu", quiet=True)
    assert (agent.typicality is not None) == (infogaze.load(tmp_path / "run").typicality is not None) == known
    if known:
        usual, odd = np.full((20, 24, 3), 20, np.uint8), noise(0, 20, 24, 3)
        assert not agent.classify(usual).out_of_distribution
        assert agent.classify(odd).out_of_distribution


def test_train_from_python_takes_names_and_goes_on_where_it_was(pictures: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "out": str(tmp_path / "run"), "preset": SMALL, "root": str(pictures), "recipe": BRIEF, "device": "cpu", "quiet": True,
    }  # fmt: skip
    first, again = (infogaze.train(**given) for _ in range(2))
    assert all(torch.equal(value, states(again)[0][name]) for name, value in states(first)[0].items())
    longer = {**given, "length": 2.0}
    with pytest.raises(InfogazeError, match=r"another configuration: recipe\..*steps is \d+ there and \d+ here"):
        infogaze.train(**longer)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"preset": "mnist"}, "'mnist'"),
        ({"recipe": "slow"}, "'slow'"),
        ({"method": "guess"}, "'guess'"),
        (
            {"method": "gaussian", "changes": {"model": {"flow_layers": 2}}},
            r"model\.flow_layers is 2; the method gaussian sets it to 0",
        ),
        ({"data": "mnist"}, "'mnist'"),
        ({"device": "toaster"}, "'toaster'"),
        ({"length": 0.0}, "length is 0.0"),
        ({"val_fraction": 1.0}, "val_fraction is 1.0"),
        ({"save_every": -1.0}, "save_every is -1.0"),
        ({"seed": 2**70}, str(2**70)),
        ({"phases": [3, 1]}, r"\(3, 1\)"),
        ({"root": None}, "folder needs --root"),
    ],
)
def test_train_from_python_refuses_what_the_command_refuses(
    wrong: dict[str, Any], named: str, pictures: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"preset": SMALL, "root": pictures, "recipe": BRIEF, "device": "cpu", "quiet": True}
    with pytest.raises(InfogazeError, match=named):
        infogaze.train(out=tmp_path / "run", **{**given, **wrong})
    assert not (tmp_path / "run").exists()


def test_only_some_of_many_looks_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    monkeypatch.setattr(Bar, "advance", lambda self, units, note="": notes.append(note))
    with display(quiet=True) as screen:
        bars = TrainingBars(screen)
        for looks in (3, 16):
            reading = Reading(loss=1.0, accuracy=tuple(k / 100 for k in range(looks)))
            progress = Progress(
                phase=looks, name="x", step=1, steps=9, batch_size=4, reading=reading, val_accuracy=(), fresh=True
            )
            bars.on_step(progress)
            bars.on_step(progress)
    assert notes == ["loss 1.00, training accuracy 0 1 2 %", "loss 1.00, training accuracy 0 8 15 %"]
