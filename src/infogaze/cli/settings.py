"""The settings of a training: a preset and a recipe, changed by a TOML file, and by options, which go before the file.

A file has the names of the options: `num_looks = 5`, `[model]`, `[read]`, `[recipe]` with `name` and `[recipe.phase1]`; and of a run
`preset`, `method`, `data`, `root`, `val_fraction`, `num_labels` and `seed`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from infogaze.cli.overrides import OFF, given, overrides_type
from infogaze.data.options import ReadOptions
from infogaze.errors import InfogazeError
from infogaze.files import read_whole
from infogaze.nn.config import ModelConfig
from infogaze.presets import PRESETS, Preset
from infogaze.presets import preset as preset_named
from infogaze.training.recipe import RECIPES, Recipe
from infogaze.training.recipe import recipe as recipe_named
from infogaze.typed import from_plain, override

C = TypeVar("C")

_OF_THE_IMAGES = ("height", "width", "channels", "num_classes")
_NOT_OPTIONS = ("name", "data", "model", "recipe", "val_fraction")
"""Fields of a preset that have options of another kind, or none."""


@dataclass(frozen=True, kw_only=True)
class _OfRun:
    preset: str | None = None
    method: str | None = None
    data: str | None = None
    root: str | None = None
    """As seen from the file, so that it can be used from any folder."""
    val_fraction: float | None = None
    num_labels: int | None = None
    seed: int | None = None
    recipe_name: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunFile(_OfRun):
    """What a TOML file says; nothing where there is none."""

    recipe_values: dict[str, Any] = field(default_factory=dict)
    preset_values: dict[str, Any] = field(default_factory=dict)
    read: dict[str, Any] = field(default_factory=dict)


def read_run_file(path: Path | None) -> RunFile:
    """The file's values; InfogazeError names what it does not know, or what has another type."""
    if path is None:
        return RunFile()
    try:
        values = tomllib.loads(read_whole(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InfogazeError(f"{path}: not readable as TOML: {' '.join(str(error).split())}") from None
    of_preset = [one.name for one in fields(Preset) if one.name not in _NOT_OPTIONS] + ["model"]
    of_run = ["preset", "method", "data", "root", "val_fraction", "num_labels", "seed"]
    known = [*of_run, *of_preset, "recipe", "read"]
    if unknown := sorted(set(values) - set(known)):
        raise InfogazeError(f"{path}: {unknown[0]} is no setting; there are {', '.join(known)}")
    for name in ("recipe", "read", "model"):
        if not isinstance(values.get(name, {}), dict):
            raise InfogazeError(f"{path}: {name} is {values[name]!r}; a table [{name}] is allowed")
    recipe = dict(values.get("recipe", {}))
    plain = {name: values[name] for name in of_run if name in values}
    if isinstance(plain.get("root"), str):
        plain["root"] = str(path.parent / plain["root"])
    try:
        run = from_plain(_OfRun, {**plain, "recipe_name": recipe.pop("name", None)})
    except InfogazeError as error:
        raise InfogazeError(f"{path}: {error}") from None
    return RunFile(
        **{one.name: getattr(run, one.name) for one in fields(_OfRun)},
        recipe_values=recipe,
        preset_values={name: values[name] for name in of_preset if name in values},
        read=values.get("read", {}),
    )


def resolved_preset(file: RunFile, name: str | None) -> Preset:
    """The preset of this name, or the file's, as it is: changes are made once the size of the images is known."""
    return preset_named(name or file.preset or "own")


def resolved_changes(file: RunFile, changes: dict[str, Any]) -> dict[str, Any]:
    """The changes of a preset's values: those of the file, and then those of the options."""
    model = {**file.preset_values.get("model", {}), **changes.get("model", {})}
    return {**file.preset_values, **changes, **({"model": model} if model else {})}


def resolved_recipe(file: RunFile, name: str, changes: dict[str, Any]) -> Recipe:
    """The recipe of this name with the changes of the file and then those of the options."""
    return override(override(recipe_named(name), _as_meant(file.recipe_values)), _as_meant(changes))


def resolved_options(file: RunFile, changes: dict[str, Any]) -> ReadOptions:
    """How images are read: as the options say, where they say nothing as the file does."""
    return override(override(ReadOptions(), file.read), changes)


def _as_meant(changes: dict[str, Any]) -> dict[str, Any]:
    """A phase counts epochs or steps: who gives one takes back the other. A table with `off = true` takes away what it is of."""
    changed = {}
    for name, value in changes.items():
        if isinstance(value, dict) and ("epochs" in value) != ("steps" in value):
            value = {**value, "steps" if "epochs" in value else "epochs": None}
        changed[name] = None if value == {OFF: True} else value
    return changed


def preset_options(arguments: Sequence[str]) -> tuple[type, type]:
    """The options of a preset's own values and of its model's sizes; help shows those of the preset that the call names."""
    settings = PRESETS[_preset_in(arguments)]
    values = overrides_type(Preset, settings, origin=settings.name, leave_out=_NOT_OPTIONS)
    return values, overrides_type(ModelConfig, settings.model, origin=settings.name, leave_out=_OF_THE_IMAGES)


def recipe_options(arguments: Sequence[str]) -> type:
    """The options of a recipe's values; help shows those of the recipe that the call names, or of the preset's own."""
    called = dict(pairwise(arguments)).get("--recipe", "")
    name = called if called in RECIPES else PRESETS[_preset_in(arguments)].recipe
    return overrides_type(Recipe, RECIPES[name], origin=name)


def _preset_in(arguments: Sequence[str]) -> str:
    return next((argument for argument in arguments if argument in PRESETS), "own")


def with_read(command: type[C]) -> type[C]:
    """The command with the options of how images are read."""
    read = overrides_type(ReadOptions, ReadOptions(), origin="default")
    return _with_options(
        command,
        [("read", Annotated[read, tyro.conf.arg(help="How the images are read.")], field(default_factory=read))],
    )


def with_values(command: type[C], arguments: Sequence[str]) -> type[C]:
    """The command with the options of all values of preset, model and recipe, and of how images are read."""
    values, model = preset_options(arguments)
    recipe = recipe_options(arguments)
    more: list[tuple[str, Any, Any]] = [
        ("values", Annotated[values, tyro.conf.arg(name="")], field(default_factory=values)),
        (
            "model",
            Annotated[model, tyro.conf.arg(help="Sizes of the networks and of the grid.")],
            field(default_factory=model),
        ),
        (
            "recipe_values",
            Annotated[recipe, tyro.conf.arg(name="recipe", help="How long and how hard each phase trains.")],
            field(default_factory=recipe),
        ),
    ]
    return _with_options(with_read(command), more)


def _with_options(command: type[C], more: list[tuple[str, Any, Any]]) -> type[C]:
    extended = make_dataclass(command.__name__, more, bases=(command,), frozen=True, kw_only=True)
    extended.__doc__ = command.__doc__
    return extended


def read_changes_of(command: Any) -> dict[str, Any]:
    """What these options change in how images are read."""
    return given(command.read) if hasattr(command, "read") else {}


def changes_of(command: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What these options change in the preset and in the recipe."""
    values, model, recipe = (
        given(getattr(command, name)) if hasattr(command, name) else {} for name in ("values", "model", "recipe_values")
    )
    return {**values, **({"model": model} if model else {})}, recipe


def without_names(arguments: Sequence[str]) -> list[str]:
    """A call for help without the preset that it names, which the parser would leave out of the help."""
    wants_help = any(argument in {"-h", "--help"} for argument in arguments)
    return [argument for argument in arguments if not (wants_help and argument in PRESETS)]
