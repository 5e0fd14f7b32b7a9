"""What `model.json` says of a model, in today's words: earlier formats are read as if they had been written now."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infogaze.errors import InfogazeError
from infogaze.files import read_json
from infogaze.gaze.agent import require_temperatures
from infogaze.gaze.stopping import CalibratedStop
from infogaze.nn.config import ModelConfig
from infogaze.pictures import Fit
from infogaze.typed import from_plain

FORMAT = 3
WEIGHTS = "model.safetensors"
"""The file of the weights, where they are one."""
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\.safetensors")
_DIGEST = re.compile("[0-9a-f]{64}")


class ModelFolderError(InfogazeError):
    """A folder that holds no usable model; the message is one line that says which file and why."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """What `model.json` says. It may come from a stranger, so every field has its range, and weights lie in the folder itself."""

    format: int
    method: str
    model: ModelConfig
    num_looks: int
    num_samples: int
    flip_tta: bool
    fit: Fit
    classes: tuple[str, ...]
    weights: dict[str, str]
    """SHA-256 of each file."""
    temperatures: tuple[float, ...] | None = None
    """For each number of looks, what log-probabilities are divided by before they are stated; None states them as they are."""
    ood_threshold: float | None = None
    """Scenes with a larger mean score of their glimpses are out of distribution; None where the folder says nothing of them."""
    typicality: str | None = None
    """SHA-256 of the file with the statistics behind that score."""
    stop: CalibratedStop | None = None
    """When scenes may stop, as `infogaze calibrate` chose it; None looks until the budget is spent."""
    distilled: str | None = None
    """SHA-256 of the file with the gain that `infogaze distil` made; None where there is none."""

    def __post_init__(self) -> None:
        for name, most in (("num_looks", 1_000_000), ("num_samples", 100_000)):
            if not 1 <= getattr(self, name) <= most:
                raise InfogazeError(f"{name} is {getattr(self, name)}; it must be from 1 to {most}")
        if len(self.classes) != self.model.num_classes:
            raise InfogazeError(
                f"classes has {len(self.classes)} names for a model of {self.model.num_classes} classes"
            )
        for name, count in Counter(self.classes).items():
            if count > 1:
                raise InfogazeError(f"classes has {name!r} {count} times")
        if self.temperatures is not None:
            require_temperatures(self.temperatures)
        for name in self.weights:
            if not _FILE_NAME.fullmatch(name):
                raise InfogazeError(
                    f"weights names {name!r}; a file of the folder itself is allowed, such as {WEIGHTS}"
                )
        others = (digest for digest in (self.typicality, self.distilled) if digest is not None)
        for digest in (*self.weights.values(), *others):
            if not _DIGEST.fullmatch(digest):
                raise InfogazeError(f"a digest is {digest!r}; 64 hexadecimal digits (SHA-256) are allowed")
        if (self.typicality is None) != (self.ood_threshold is None):
            raise InfogazeError("ood_threshold and typicality belong together; one of them is missing")


def read_description(path: Path) -> Description:
    """What a file says, in today's words; one that says nothing of a model is refused."""
    if not path.is_file():
        raise ModelFolderError(f"{path}: missing, so this folder holds no model")
    try:
        found = read_json(path)
        if not isinstance(found, dict) or "format" not in found:
            raise InfogazeError(f"{path}: not a description of a model")
        if found["format"] == 1:
            found = _from_format_1(found)
        if found["format"] == 2:
            found = _from_format_2(found)
        if found["format"] != FORMAT:
            raise InfogazeError(
                f"{path}: format {found['format']}, and this version of infogaze reads formats 1 to {FORMAT}"
            )
    except InfogazeError as error:
        raise ModelFolderError(str(error)) from None
    try:
        return from_plain(Description, found)
    except InfogazeError as error:
        raise ModelFolderError(f"{path}: not a valid description of a model: {error}") from None


_RENAMED_WEIGHTS = {
    "hindsight.": "correction.", "posterior.": "imagination.posterior.", "decoder.": "imagination.decoder.",
    "log_variance": "imagination.log_variance",
}  # fmt: skip
"""How the names of tensors began before."""
_RENAMED_FIELDS = {"looks": "num_looks", "samples": "num_samples", "twin": "flip_tta"}
_RENAMED_SIZES = {
    "classes": "num_classes", "glimpse": "glimpse_size", "keeping": "residual_belief", "hindsight": "gain_correction",
}  # fmt: skip
_RENAMED_METHODS = {
    1: {"no-hindsight": "paper", "gaussian-no-hindsight": "gaussian", "gaussian": "infogaze-gaussian"},
    2: {"infogaze": "paper", "infogaze-gaussian": "gaussian"},
}
"""By the format in which they had these names."""


def name_of_today(name: str) -> str:
    """What a tensor is called now."""
    for before, now in _RENAMED_WEIGHTS.items():
        if name.startswith(before):
            return now + name.removeprefix(before)
    return name


def _from_format_1(found: dict[str, Any]) -> dict[str, Any]:
    """A description of the first format in the words of the second."""
    said: dict[str, Any] = {"method": "infogaze", "twin": False, "fit": "crop", **found, "format": 2}
    said = {_RENAMED_FIELDS.get(name, name): value for name, value in said.items()}
    if isinstance(said.get("model"), dict):
        said["model"] = {_RENAMED_SIZES.get(name, name): value for name, value in said["model"].items()}
    return {**said, "method": _renamed(said["method"], 1)}


def _from_format_2(found: dict[str, Any]) -> dict[str, Any]:
    """A description of the second format, in which `infogaze` was the paper's imagination, in today's words."""
    before, sizes = found.get("method"), found.get("model")
    now = _renamed(before, 2)
    if now != before and isinstance(sizes, dict) and sizes.get("gain_correction"):
        now = f"{now}-corrected"
    return {**found, "method": now, "format": FORMAT}


def _renamed(method: object, form: int) -> object:
    return _RENAMED_METHODS[form].get(method, method) if isinstance(method, str) else method
