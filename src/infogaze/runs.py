"""A run folder: its resolved configuration, versions and metrics. A folder belongs to one configuration."""

from __future__ import annotations

import json
import platform
import subprocess
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infogaze.data.options import Options
from infogaze.errors import InfogazeError
from infogaze.files import LOCK, FileError, make_folder, read_json, write_json, write_whole
from infogaze.methods.registry import method
from infogaze.presets import Preset
from infogaze.rng import require_seed
from infogaze.training.recipe import Recipe


@dataclass(frozen=True)
class DataChoice:
    """Which images to train on."""

    name: str
    """A set of the registry."""
    root: str | None
    """Where its files are."""
    options: Options
    """How they are read."""


@dataclass(frozen=True)
class RunConfig:
    """Everything that the outcome of a run depends on."""

    preset: Preset
    recipe: Recipe
    data: DataChoice
    seed: int
    method: str = "infogaze"
    """A name of `infogaze.METHODS`."""
    phases: tuple[int, ...] = (1, 2, 3)
    """Which of the method's phases to run."""
    start_from: str | None = None
    """A model folder whose weights to begin with."""
    hold_out: float = 0.0
    """Share of the training split that is kept back, to choose by it the weights that a phase hands on."""

    def __post_init__(self) -> None:
        allowed = range(1, len(method(self.method).phases) + 1)
        if not self.phases or list(self.phases) != sorted(set(self.phases)) or not set(self.phases) <= set(allowed):
            listed = ", ".join(map(str, allowed))
            raise InfogazeError(f"phases are {self.phases}; some of {listed} in order are allowed for {self.method}")
        if self.phases[0] > 1 and self.start_from is None:
            raise InfogazeError(
                f"phase {self.phases[0]} needs the weights of the phase before; name their folder to start from"
            )
        require_share(self.hold_out)
        require_seed(self.seed)


def require_share(hold_out: float) -> None:
    """Refuses what is no share to keep back."""
    if not 0.0 <= hold_out < 1.0:
        raise InfogazeError(f"hold_out is {hold_out}; it must be at least 0 and below 1")


class RunFolder:
    """`config.json`, `metrics.jsonl`, `checkpoints/`, and the model when it is done."""

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self._metrics = path / "metrics.jsonl"
        wanted = json.loads(json.dumps(asdict(config)))
        stored = path / "config.json"
        if stored.exists():
            _require_same(stored, wanted)
            return
        make_folder(path)
        if any(entry.suffix != ".partial" and entry.name != LOCK for entry in path.iterdir()):
            raise InfogazeError(f"{path}: not empty and not a run; name another folder")
        record = {"config": wanted, "versions": _versions(), "revision": _revision()}
        write_json(stored, record)

    def metrics(self) -> list[dict[str, Any]]:
        """All lines written so far; a last line that was cut off is left out."""
        if not self._metrics.exists():
            return []
        lines = []
        for line in self._metrics.read_text().splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                break
        return lines

    def rewind(self, phase: int, step: int) -> None:
        """Forget the metrics of steps after this one of this phase, from 1, which will be taken again."""
        kept = [line for line in self.metrics() if (line["phase"], line["step"]) <= (phase, step)]
        write_whole(self._metrics, "".join(json.dumps(line) + "\n" for line in kept).encode())

    def note(self, line: dict[str, Any]) -> None:
        """Add a line of metrics."""
        try:
            with self._metrics.open("a") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise FileError(self._metrics, "cannot be written", error) from None


def _require_same(stored: Path, wanted: dict[str, Any]) -> None:
    try:
        found = read_json(stored)["config"]
    except (InfogazeError, KeyError, TypeError):
        raise InfogazeError(f"{stored}: not the configuration of a run; name another folder") from None
    if found != wanted:
        name, old, new = _first_difference(found, wanted)
        raise InfogazeError(
            f"{stored.parent} holds a run of another configuration: {name} is {old} there and {new} here"
        )


def _first_difference(old: Any, new: Any, name: str = "") -> tuple[str, Any, Any]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(set(old) | set(new)):
            if old.get(key) != new.get(key):
                return _first_difference(old.get(key), new.get(key), f"{name}.{key}" if name else key)
    return name, old, new


def _versions() -> dict[str, str]:
    from infogaze import __version__

    return {
        "infogaze": __version__, "python": platform.python_version(), "torch": torch.__version__,
        "torchvision": version("torchvision"), "numpy": np.__version__,
    }  # fmt: skip


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
