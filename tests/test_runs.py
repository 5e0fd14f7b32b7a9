"""Run folders: one belongs to one configuration, which reads back as the records that wrote it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infogaze.data.options import ReadOptions
from infogaze.errors import InfogazeError
from infogaze.files import locked
from infogaze.methods.registry import METHODS
from infogaze.runs import DataChoice, RunConfig, RunFolder, read_config
from tests.support.small_run import configuration

CONFIG = configuration()


@pytest.mark.parametrize("method", METHODS)
def test_a_configuration_reads_back_as_the_records_that_wrote_it(method: str, tmp_path: Path) -> None:
    config = replace(
        configuration(method, seed=3, val_fraction=0.2),
        data=DataChoice("folder", "/my pictures", ReadOptions(size=(20, 30), fit="crop", channels=1)),
    )
    RunFolder(tmp_path / "run", config)
    assert read_config(tmp_path / "run") == config
    RunFolder(tmp_path / "run", config)


def test_versions_and_revision_stand_beside_the_configuration(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run", CONFIG)
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert set(stored) == {"config", "versions", "revision"}
    assert {"infogaze", "torch", "python"} <= set(stored["versions"])


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (replace(CONFIG, seed=1), r"seed is 0 there and 1 here"),
        (replace(CONFIG, val_fraction=0.5), r"val_fraction is 0\.0 there and 0\.5 here"),
        (replace(CONFIG, phases=(1,)), r"phases is \[1, 2, 3\] there and \[1\] here"),
        (replace(CONFIG, recipe=CONFIG.recipe.scaled(2)), r"recipe\.\w+\.epochs is \S+ there and \S+ here"),
        (replace(CONFIG, preset=replace(CONFIG.preset, beta=9.0)), r"preset\.beta is 2\.0 there and 9\.0 here"),
        (replace(CONFIG, data=DataChoice("made up", "/x", ReadOptions())), r"data\.root is None there and /x here"),
    ],
    ids=["seed", "val_fraction", "phases", "recipe", "preset", "data"],
)
def test_another_configuration_is_refused_with_the_first_difference(
    other: RunConfig, named: str, tmp_path: Path
) -> None:
    RunFolder(tmp_path / "run", CONFIG)
    with pytest.raises(InfogazeError, match=named) as caught:
        RunFolder(tmp_path / "run", other)
    assert "\n" not in str(caught.value)
    assert read_config(tmp_path / "run") == CONFIG


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InfogazeError, match="not empty and not a run"):
        RunFolder(tmp_path, CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_that_is_locked_or_was_left_half_written_can_be_begun(tmp_path: Path) -> None:
    (tmp_path / "config.json.partial").write_text("{")
    with locked(tmp_path):
        RunFolder(tmp_path, CONFIG)
    assert read_config(tmp_path) == CONFIG


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(InfogazeError, match=r"not a run folder, it has no config\.json"):
        read_config(tmp_path)
    for text in ("", "{", "[]", "null", "{}", '{"config": []}', '{"config": {}}'):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(InfogazeError, match=r"config\.json: ") as caught:
            read_config(tmp_path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda config: config.pop("recipe"), "recipe is missing"),
        (lambda config: config.pop("data"), "data is missing"),
        (lambda config: config["recipe"]["phase1"].pop("batch_size"), "recipe.phase1.batch_size is missing"),
        (lambda config: config["recipe"].update(smoothing=0.1), "smoothing"),
        (lambda config: config["recipe"].update(ema_decay="high"), "recipe.ema_decay is 'high'"),
        (lambda config: config["preset"]["model"].update(stride=0), "stride is 0"),
        (lambda config: config.update(method="guess"), "'guess'"),
        (lambda config: config.update(phases=[4]), "phases are (4,)"),
        (lambda config: config.update(seed=2**70), str(2**70)),
    ],
)
def test_what_is_wrong_in_a_configuration_is_named_with_its_way(
    change: Callable[[dict[str, Any]], object], named: str, tmp_path: Path
) -> None:
    RunFolder(tmp_path, CONFIG)
    stored = json.loads((tmp_path / "config.json").read_text())
    change(stored["config"])
    (tmp_path / "config.json").write_text(json.dumps(stored))
    with pytest.raises(InfogazeError) as caught:
        read_config(tmp_path)
    assert named in str(caught.value)
    assert str(tmp_path / "config.json") in str(caught.value)


def test_a_configuration_from_before_a_field_was_there_has_its_default(tmp_path: Path) -> None:
    RunFolder(tmp_path, CONFIG)
    stored = json.loads((tmp_path / "config.json").read_text())
    for table, name in ((stored["config"], "val_fraction"), (stored["config"]["recipe"], "kl_warmup")):
        del table[name]
    (tmp_path / "config.json").write_text(json.dumps(stored))
    assert read_config(tmp_path) == CONFIG


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"phases": ()}, "phases are ()"),
        ({"phases": (2, 1)}, "phases are (2, 1)"),
        ({"phases": (1, 1)}, "phases are (1, 1)"),
        ({"phases": (1, 4)}, "phases are (1, 4)"),
        ({"phases": (2, 3)}, "phase 2 needs the weights"),
        ({"val_fraction": 1.0}, "val_fraction is 1.0"),
        ({"val_fraction": -0.1}, "val_fraction is -0.1"),
        ({"seed": 2**63}, str(2**63)),
        ({"method": "guess"}, "'guess'"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InfogazeError) as caught:
        replace(CONFIG, **changes)
    assert named in str(caught.value)
