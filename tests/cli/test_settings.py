"""Every value of preset, model and recipe can be set by an option and by a TOML file, with the same result."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from infogaze.cli.main import parse
from infogaze.cli.overrides import as_arguments, field_texts, given, overrides_type
from infogaze.cli.settings import (
    RunFile,
    changes_of,
    read_changes_of,
    read_run_file,
    resolved_changes,
    resolved_options,
    resolved_preset,
    resolved_recipe,
)
from infogaze.data.augmentation import Augmentation
from infogaze.data.options import ReadOptions
from infogaze.errors import InfogazeError
from infogaze.nn.config import ModelConfig
from infogaze.presets import Preset, preset
from infogaze.training.recipe import PhaseRecipe, Recipe, recipe
from infogaze.typed import override
from tests.support.calls import refused

BASE = preset("own")
WAY = recipe("own")

OF_A_PHASE = {"epochs": 2.5, "steps": 77, "batch_size": 9, "learning_rate": 0.02}
VALUES: dict[str, Any] = {
    "num_looks": 5, "num_samples": 3, "num_entries": 7, "beta": 2.5, "learning_rates": (1e-4, 2e-4, 3e-4), "dropout": 0.1,
    "horizontal_flip": False, "flip_tta": True,
    "model.glimpse_size": 10, "model.stride": 3, "model.glimpse_widths": (8, 16), "model.feature_size": 17,
    "model.belief_size": 19, "model.latent_size": 5, "model.flow_layers": 0, "model.spline_bins": 7, "model.spline_bound": 2.5,
    "model.attention_hops": 2, "model.glimpse_residuals": 1, "model.residual_belief": False, "model.gain_correction": True,
    "model.dictionary_entries": 9, "model.token_layers": 2, "model.token_heads": 4,
    "recipe.schedule": "plateau", "recipe.betas": (0.8, 0.95), "recipe.weight_decay": 0.3, "recipe.grad_clip": 0.0,
    "recipe.num_samples": 5, "recipe.num_entries": 3, "recipe.batch_norm_images": 123,
    "recipe.keep_best": False, "recipe.mixup": 0.2, "recipe.teacher_weight": 0.9, "recipe.teacher_temperature": 2.0, "recipe.more_looks": 8,
    "recipe.kl_warmup": 0.25, "recipe.ema_decay": 0.5, "recipe.precision": "float32",
    **{f"recipe.{part}.{name}": value for part in ("phase1", "phase2", "phase3", "full_image") for name, value in OF_A_PHASE.items()},
    "recipe.augmentation.crop_scale": (0.5, 0.9), "recipe.augmentation.crop_ratio": (0.9, 1.1), "recipe.augmentation.flip": False,
    "recipe.augmentation.brightness": 0.1, "recipe.augmentation.contrast": 0.3, "recipe.augmentation.saturation": 0.7,
    "recipe.augmentation.exposure": 0.5, "recipe.augmentation.blur": 1.5, "recipe.augmentation.noise": 0.05,
    "recipe.augmentation.displacement": 2,
    "read.size": (20, 24), "read.fit": "pad", "read.channels": 1, "read.test_share": 0.3, "read.seed": 4,
    "read.merge_validation": False,
}  # fmt: skip
"""Another value than the preset `own`, its recipe and plain reading have, for every setting."""
OF_THE_DATA = {"height", "width", "channels", "num_classes"}
NOT_SETTINGS = {"name", "data", "recipe", "model", "val_fraction"}
"""Of a preset: they have options of another kind."""

# Phases 2 and 3 both count epochs, or both steps.
ALONG: dict[str, dict[str, Any]] = {
    "recipe.phase2.epochs": {"recipe.phase3.epochs": 1.0},
    "recipe.phase3.epochs": {"recipe.phase2.epochs": 1.0},
    # What the preset has otherwise does not go with tokens.
    "model.token_layers": {"model.token_heads": 4, "model.residual_belief": False},
}


def test_there_is_a_case_for_every_field() -> None:
    ways = {field.name for field in fields(Preset)} - NOT_SETTINGS
    ways |= {f"model.{field.name}" for field in fields(ModelConfig) if field.name not in OF_THE_DATA}
    ways |= {f"read.{field.name}" for field in fields(ReadOptions)}
    for field in fields(Recipe):
        value = getattr(WAY, field.name)
        inner = [f".{part.name}" for part in fields(value)] if is_dataclass(value) else [""]
        ways |= {f"recipe.{field.name}{part}" for part in inner}
    assert set(VALUES) == ways
    assert {f".{field.name}" for field in fields(PhaseRecipe)} == {f".{name}" for name in OF_A_PHASE}


def table_of(changes: dict[str, Any]) -> dict[str, Any]:
    """Changes by way as tables within tables."""
    table: dict[str, Any] = {}
    for way, value in changes.items():
        *outer, last = way.split(".")
        inner = table
        for name in outer:
            inner = inner.setdefault(name, {})
        inner[last] = list(value) if isinstance(value, tuple) else value
    return table


def in_toml(table: dict[str, Any], head: str = "") -> str:
    """The tables as TOML."""
    lines = [f"[{head}]"] if head else []
    lines += [f"{name} = {written(value)}" for name, value in table.items() if not isinstance(value, dict)]
    lines += [in_toml(value, f"{head}.{name}".lstrip(".")) for name, value in table.items() if isinstance(value, dict)]
    return "\n".join(lines)


def written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)


Resolved = tuple[Preset, Recipe, ReadOptions]


def by_options(changes: dict[str, Any], file: Path | None = None) -> Resolved:
    command = parse(["train", "own", "--out", "x", *as_arguments(table_of(changes))])
    of_preset, of_recipe = changes_of(command)
    said = read_run_file(file)
    return (
        override(resolved_preset(said, "own"), resolved_changes(said, of_preset)),
        resolved_recipe(said, "own", of_recipe),
        resolved_options(said, read_changes_of(command)),
    )


def by_file(changes: dict[str, Any], path: Path) -> Resolved:
    path.write_text(in_toml(table_of(changes)) + "\n")
    return by_options({}, path)


def changed(record: Any, way: list[str], value: Any) -> Any:
    """The record with another value at the end of a way, and one count of a phase's length."""
    name, *rest = way
    if rest:
        return replace(record, **{name: changed(getattr(record, name), rest, value)})
    other = {"epochs": "steps", "steps": "epochs"}.get(name)
    return replace(record, **{name: value, **({} if other is None else {other: None})})


def expected(changes: dict[str, Any]) -> Resolved:
    settings, way, options = BASE, WAY, ReadOptions()
    phases: dict[str, Any] = {}
    for name, value in changes.items():
        room, *rest = name.split(".")
        if room == "read":
            options = changed(options, rest, value)
        elif room == "recipe" and rest[0] in {"phase2", "phase3"}:
            # Both at once: one alone may not fit the other.
            phases[rest[0]] = changed(phases.get(rest[0], getattr(way, rest[0])), rest[1:], value)
        elif room == "recipe":
            way = changed(way, rest, value)
        else:
            settings = changed(settings, [room, *rest], value)
    return settings, replace(way, **phases), options


@pytest.mark.parametrize("way", VALUES)
def test_a_value_can_be_set_by_an_option_and_by_a_file_with_the_same_result(way: str, tmp_path: Path) -> None:
    changes = {**ALONG.get(way, {}), way: VALUES[way]}
    wanted = expected(changes)
    assert wanted != (BASE, WAY, ReadOptions()), "it is another value"
    assert by_options(changes) == wanted
    assert by_file(changes, tmp_path / "run.toml") == wanted


def test_many_values_can_be_set_at_once(tmp_path: Path) -> None:
    apart = {"horizontal_flip", "model.token_layers"}  # do not go with the others
    changes = {way: value for way, value in VALUES.items() if not way.endswith(".epochs") and way not in apart}
    assert by_options(changes) == by_file(changes, tmp_path / "run.toml") == expected(changes)


OTHERS: dict[str, Any] = {
    "num_looks": 9, "beta": 0.5, "flip_tta": False, "model.stride": 2, "model.glimpse_widths": (4,), "recipe.ema_decay": 0.0,
    "recipe.phase1.steps": 5, "recipe.phase1.epochs": 1.0, "recipe.augmentation.flip": True, "read.fit": "resize",
    "read.merge_validation": True, "read.seed": 0, "recipe.weight_decay": 0.1,
}  # fmt: skip
"""Values for the command line, where a file has those above; some are what there would be without a file."""


@pytest.mark.parametrize("way", OTHERS)
def test_options_go_before_the_file(way: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(in_toml(table_of({way: VALUES[way]})) + "\n")
    assert by_options({way: OTHERS[way]}, tmp_path / "run.toml") == expected({way: OTHERS[way]})


def test_what_the_options_leave_out_is_the_files(tmp_path: Path) -> None:
    both = {"num_looks": 5, "model.stride": 3, "recipe.phase1.batch_size": 9, "read.fit": "pad"}
    (tmp_path / "run.toml").write_text(in_toml(table_of(both)) + "\n")
    more = {"beta": 2.5, "model.latent_size": 5, "recipe.phase1.steps": 77, "read.seed": 4}
    assert by_options(more, tmp_path / "run.toml") == expected({**both, **more})


def test_the_augmentation_can_be_turned_off_by_an_option_and_by_a_file(tmp_path: Path) -> None:
    without = replace(WAY, augmentation=None)
    command = parse(["train", "own", "--out", "x", "--recipe.augmentation.off"])
    assert resolved_recipe(RunFile(), "own", changes_of(command)[1]) == without
    (tmp_path / "run.toml").write_text("[recipe.augmentation]\noff = true\n")
    assert by_options({}, tmp_path / "run.toml")[1] == without
    assert by_options({"recipe.augmentation.flip": False}, tmp_path / "run.toml")[1].augmentation == Augmentation(
        flip=False
    )


@pytest.mark.parametrize(("base", "name"), [("own", "epochs"), ("quickstart", "steps")])
def test_who_gives_epochs_takes_back_steps_and_the_other_way_round(base: str, name: str) -> None:
    before = recipe(base).phase1
    after = resolved_recipe(RunFile(), base, {"phase1": {name: 7}}).phase1
    assert (before.epochs is None) != (after.epochs is None)
    assert after == PhaseRecipe(**{name: 7}, batch_size=before.batch_size, learning_rate=before.learning_rate)


def test_a_file_that_gives_both_epochs_and_steps_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("[recipe.phase1]\nepochs = 2\nsteps = 3\n")
    with pytest.raises(InfogazeError, match=r"phase1: epochs is 2.* and steps is 3"):
        by_options({}, tmp_path / "run.toml")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("nun_looks = 3", ("run.toml", "nun_looks", "num_looks")),
        ("name = 'mine'", ("run.toml", "name")),
        ("[optimiser]\nrate = 3", ("run.toml", "optimiser")),
        ("[model]\nheigth = 3", ("model", "heigth", "stride")),
        ("[recipe]\nepochs = 3", ("epochs", "phase1")),
        ("[recipe.phase1]\nlength = 3", ("phase1", "length", "steps")),
        ("[recipe.phase4]\nsteps = 3", ("phase4", "phase1")),
        ("[recipe.augmentation]\noff = false", ("augmentation", "off", "flip")),
        ("[read]\nshape = 3", ("shape", "size")),
        ("num_looks = 'five'", ("num_looks", "'five'", "a whole number")),
        ("num_looks = 5.0", ("num_looks", "5.0", "a whole number")),
        ("horizontal_flip = 1", ("horizontal_flip", "1", "true or false")),
        ("model = 3", ("run.toml", "model", "[model]")),
        ("recipe = 'fast'", ("run.toml", "recipe", "'fast'", "[recipe]")),
        ("seed = 'zero'", ("run.toml", "seed", "'zero'")),
        ("val_fraction = true", ("run.toml", "val_fraction", "True")),
        ("root = 3", ("run.toml", "root", "3")),
        ("preset = 'mnist'", ("'mnist'", "own")),
        ("[recipe]\nname = 'slow'", ("'slow'", "fast")),
        ("method = 'guess'", ("'guess'", "infogaze")),
        ("[model]\nstride = 0", ("stride is 0",)),
        ("[read]\nsize = [1]", ("size", "[1]")),
        ("[read]\nfit = 'squeeze'", ("fit", "'squeeze'", "crop")),
        ("num_looks = ", ("run.toml", "TOML")),
        ("num_looks = 3\nnum_looks = 4", ("run.toml", "TOML")),
    ],
)
def test_what_a_file_cannot_say_is_one_line_that_names_it(
    text: str, named: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.toml"
    path.write_text(f"{text}\n")
    given = [] if "mnist" in text else ["digits"]
    line = refused(
        capsys, "train", *given, "--data", "digits", "--config", path, "--device", "cpu", "--out", tmp_path / "run"
    )
    assert all(word in line for word in named), line
    assert not (tmp_path / "run").exists()


def test_a_file_that_is_missing_or_no_text_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nowhere.toml" in refused(capsys, "train", "--config", tmp_path / "nowhere.toml", "--out", tmp_path / "run")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    assert "bytes.toml" in refused(capsys, "train", "--config", tmp_path / "bytes.toml", "--out", tmp_path / "run")


def test_a_root_in_a_file_is_as_seen_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / "run.toml").write_text("root = '../pictures'\n")
    monkeypatch.chdir(tmp_path)
    found = read_run_file(Path("settings/run.toml")).root
    assert found is not None
    assert Path(found).resolve() == tmp_path / "pictures"
    (tmp_path / "settings" / "run.toml").write_text("root = '/pictures'\n")
    assert read_run_file(Path("settings/run.toml")).root == "/pictures"


def test_without_a_file_nothing_is_said() -> None:
    assert read_run_file(None) == RunFile()
    assert resolved_preset(RunFile(), None) == BASE
    assert resolved_options(RunFile(), {}) == ReadOptions()


def test_a_preset_named_in_the_call_goes_before_the_files(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("preset = 'cifar10'\n")
    file = read_run_file(tmp_path / "run.toml")
    assert resolved_preset(file, None) == preset("cifar10")
    assert resolved_preset(file, "svhn") == preset("svhn")


@pytest.mark.parametrize("changes", [{"beta": 2.5}, {"model.glimpse_widths": (8, 16), "recipe.phase1.steps": 77}, {}])
def test_changes_written_as_arguments_come_back(changes: dict[str, Any]) -> None:
    command = parse(["train", "own", "--out", "x", *as_arguments(table_of(changes))])
    of_preset, of_recipe = changes_of(command)
    assert {**of_preset, **({"recipe": of_recipe} if of_recipe else {})} == table_of(changes)


def test_options_not_given_are_nothing() -> None:
    kind = overrides_type(Recipe, WAY, origin="own")
    assert given(kind()) == {}


@pytest.mark.parametrize("kind", [Preset, ModelConfig, Recipe, PhaseRecipe, Augmentation, ReadOptions])
def test_every_setting_says_what_it_is(kind: type) -> None:
    texts = field_texts(kind)
    assert set(texts) == {field.name for field in fields(kind)}
    assert all(texts.values()), [name for name, text in texts.items() if not text]
    assert not any("\n" in text for text in texts.values())
