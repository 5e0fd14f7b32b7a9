"""A run: its configuration, read back as the records that wrote it, and its folder, which belongs to one configuration."""

from __future__ import annotations

import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infogaze.data.options import ReadOptions
from infogaze.errors import InfogazeError
from infogaze.files import LOCK, make_folder, read_json, write_json
from infogaze.methods.registry import METHODS
from infogaze.presets import Preset
from infogaze.rng import require_seed
from infogaze.training.folder import TrainingFolder
from infogaze.training.recipe import Recipe
from infogaze.typed import from_plain, to_plain
from infogaze.version import __version__

_CONFIG = "config.json"


@dataclass(frozen=True)
class DataChoice:
    """Which images to train on."""

    name: str
    """A set of the registry."""
    root: str | None
    """Where its files are."""
    options: ReadOptions
    """How they are read."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that the outcome of a run depends on."""

    method: str
    """A name of `infogaze.METHODS`."""
    preset: Preset
    recipe: Recipe
    data: DataChoice
    seed: int
    phases: tuple[int, ...]
    """Which of the method's phases to run."""
    start_from: str | None = None
    """A model folder whose weights to begin with."""
    val_fraction: float = 0.0
    """Share of the training split that is the validation split, by which the best weights of each phase are kept."""

    num_labels: int | None = None
    """How many images of the training split keep their label; None leaves all."""
    teacher: str | None = None
    """A model folder of a network that sees complete images and teaches this one; None for none."""

    def __post_init__(self) -> None:
        allowed = range(1, len(METHODS[self.method].phases) + 1)
        if not self.phases or list(self.phases) != sorted(set(self.phases)) or not set(self.phases) <= set(allowed):
            listed = ", ".join(map(str, allowed))
            raise InfogazeError(f"phases are {self.phases}; some of {listed} in order are allowed for {self.method}")
        if self.phases[0] > 1 and self.start_from is None:
            raise InfogazeError(
                f"phase {self.phases[0]} needs the weights of the phase before; name their folder to start from"
            )
        require_val_fraction(self.val_fraction)
        require_seed(self.seed)
        require_num_labels(self.num_labels)


def require_val_fraction(val_fraction: float) -> None:
    """Refuses what is no share of the training split."""
    if not 0.0 <= val_fraction < 1.0:
        raise InfogazeError(f"val_fraction is {val_fraction}; it must be at least 0 and below 1")


def require_num_labels(num_labels: int | None) -> None:
    """Refuses what is no number of labels."""
    if num_labels is not None and num_labels < 1:
        raise InfogazeError(f"num_labels is {num_labels}; it must be at least 1")


class RunFolder(TrainingFolder):
    """`config.json`, `metrics.jsonl`, `checkpoints/`, and the model when it is trained."""

    def __init__(self, path: Path, config: RunConfig) -> None:
        super().__init__(path)
        stored, wanted = path / _CONFIG, to_plain(config)
        if stored.exists():
            found = to_plain(read_config(path))
            if found != wanted:
                name, old, new = _first_difference(found, wanted)
                raise InfogazeError(
                    f"{path} holds a run of another configuration: {name} is {old} there and {new} here"
                )
            return
        make_folder(path)
        if any(entry.suffix != ".partial" and entry.name != LOCK for entry in path.iterdir()):
            raise InfogazeError(f"{path}: not empty and not a run; name another folder")
        write_json(stored, {"config": wanted, "versions": versions(), "revision": _revision()})


def read_config(folder: Path) -> RunConfig:
    """The configuration of a run folder."""
    path = folder / _CONFIG
    if not path.is_file():
        raise InfogazeError(f"{folder}: not a run folder, it has no {_CONFIG}; `infogaze train --out` writes one")
    try:
        return from_plain(RunConfig, read_json(path)["config"])
    except (InfogazeError, KeyError, TypeError) as error:
        said = str(error) if isinstance(error, InfogazeError) else "it has no config"
        raise InfogazeError(f"{path}: not the configuration of a run: {said}") from None


def versions() -> dict[str, str]:
    """Of Python and of the packages that compute."""
    return {
        "infogaze": __version__, "python": platform.python_version(), "torch": torch.__version__,
        "torchvision": version("torchvision"), "numpy": np.__version__,
    }  # fmt: skip


def _first_difference(old: Any, new: Any, name: str = "") -> tuple[str, Any, Any]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(set(old) | set(new)):
            if old.get(key) != new.get(key):
                return _first_difference(old.get(key), new.get(key), f"{name}.{key}" if name else key)
    return name, old, new


def _revision() -> str | None:
    """The git revision of the source, with a mark where it has changes; None where it is not in a checkout."""
    here = Path(__file__).parent
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40"],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()
