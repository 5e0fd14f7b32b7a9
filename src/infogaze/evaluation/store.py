"""What an evaluation of a run leaves on disk: compact records that every figure is made from, so that a new figure needs no new run.

A run's `evaluation/` holds `about.json` and one safetensors file a measurement. Each appears whole, with its digest in `about.json`, which
has one of its own; what is damaged, or was changed by another hand, is named when it is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.files import make_folder, read_json, read_whole, write_json, write_whole
from infogaze.grid import GlimpseGrid
from infogaze.typed import from_plain, to_plain

FORMAT = 2


class EvaluationError(InfogazeError):
    """A folder that holds no usable evaluation; the message is one line that says which file and why."""


class Record:
    """What one measurement leaves: its subclasses are dataclasses of tensors."""

    file: ClassVar[str]
    """The name of the measurement, and of its file."""
    __dataclass_fields__: ClassVar[dict[str, Any]]


R = TypeVar("R", bound=Record)


@dataclass(frozen=True, kw_only=True)
class About:
    """What was measured, on what."""

    method: str
    """A name of `infogaze.METHODS`."""
    preset: str
    """Whose sizes and hyper-parameters the run has."""
    seed: int
    """Of the training."""
    data: str
    """The image set's name."""
    test: str
    """Digest of the test images and labels: runs with another one cannot be compared."""
    scenes: int
    """How many test images."""
    classes: tuple[str, ...]
    """Their names."""
    num_looks: int
    """T, the budget."""
    num_samples: int
    """Contents of each location behind each gain map, P samples or M entries; 0 where the method imagines nothing."""
    grid: GlimpseGrid
    """The locations of a scene."""
    deployable: bool
    """False where the policy needs to see the scene it chooses for: the oracle."""
    whole: bool
    """True where the method sees the complete image: the CNN."""
    first_looks: int
    """Seed of the first looks and of the noise of the policy, the same for all methods."""
    device: str
    """What it was measured on."""
    versions: dict[str, str]
    """Of Python and the packages that compute."""
    weights: str
    """Digest of the model's weights."""
    flip_tta: bool
    """Whether it uses horizontal-flip test-time augmentation."""
    recipe: str
    """Digest of what its training read of the recipe (see `infogaze.evaluation.comparing`)."""
    val_fraction: float
    """Share of the training split that was the validation split."""
    fit: str
    """How images of another size were brought to the scenes', resize, crop or pad; empty where none were."""
    num_labels: int | None = None
    """How many training images had a label; None where all had."""
    teacher: str | None = None
    """Digest of the weights of the network that taught it; None for none."""


_COMPACT = {torch.float32: torch.float16, torch.int64: torch.int32}


def begin(folder: Path, about: About) -> None:
    """Make the folder an evaluation of this; one of something else that was in it is forgotten."""
    wanted = to_plain(about)
    try:
        if (folder / "about.json").exists() and _index(folder)["about"] == wanted:
            return
    except EvaluationError:
        pass  # what cannot be read is forgotten too
    make_folder(folder)
    _write_index(folder, {"format": FORMAT, "about": wanted, "files": {}, "sources": {}})


def write(folder: Path, measured: Record, source: str = "") -> None:
    """Add a measurement to an evaluation that was begun. `source` is what it depends on beyond that: a judge, a number of scenes."""
    tensors = {}
    for field in fields(measured):
        value: Tensor = getattr(measured, field.name)
        kind = _COMPACT.get(value.dtype, value.dtype)
        tensors[field.name] = value.detach().cpu().to(kind).contiguous()
    data = tensors_to_bytes(tensors)
    write_whole(folder / f"{measured.file}.safetensors", data)
    index = _index(folder)
    index["files"][measured.file] = hashlib.sha256(data).hexdigest()
    index["sources"][measured.file] = source
    _write_index(folder, index)


def about(folder: Path) -> About:
    """What the evaluation in this folder is of."""
    try:
        return from_plain(About, _index(folder)["about"])
    except EvaluationError:
        raise
    except InfogazeError as error:
        raise EvaluationError(f"{folder / 'about.json'}: not a valid description of an evaluation: {error}") from None


def has(folder: Path, kind: type[Record], source: str | None = None) -> bool:
    """Whether this was measured and its file is there; where a source is named, from that one."""
    if not (folder / "about.json").exists() or not (folder / f"{kind.file}.safetensors").is_file():
        return False
    index = _index(folder)
    return kind.file in index["files"] and source in (None, index["sources"].get(kind.file, ""))


def read(folder: Path, kind: type[R]) -> R:
    """A measurement from its file: floats in float32, whole numbers in int64."""
    path = folder / f"{kind.file}.safetensors"
    digest = _index(folder)["files"].get(kind.file)
    if digest is None or not path.is_file():
        raise EvaluationError(f"{path}: missing; `infogaze evaluate` writes it")
    data = read_whole(path)
    if hashlib.sha256(data).hexdigest() != digest:
        raise EvaluationError(f"{path}: damaged or truncated, its digest is not the one in about.json")
    make: Callable[..., R] = kind
    try:
        return make(**{name: _wide(value) for name, value in tensors_from_bytes(data).items()})
    except (SafetensorError, KeyError, TypeError) as error:
        raise EvaluationError(f"{path}: not a measurement of this kind: {error}") from None


def _wide(value: Tensor) -> Tensor:
    if value.is_floating_point():
        return value.float()
    return value if value.dtype == torch.uint8 else value.long()


def _index(folder: Path) -> dict[str, Any]:
    """What `about.json` holds: what was measured of what, and the digest of each file."""
    path = folder / "about.json"
    if not path.is_file():
        raise EvaluationError(f"{folder}: no evaluation; `infogaze evaluate` writes one")
    try:
        index: dict[str, Any] = read_json(path)
        if index["format"] != FORMAT:
            raise EvaluationError(f"{path}: format {index['format']}, and this version reads format {FORMAT}")
        index["files"], index["about"], index["sources"]
        if index.pop("digest") != _digest(index):
            raise EvaluationError(f"{path}: changed since it was written, its digest is another")
    except (InfogazeError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, EvaluationError):
            raise
        raise EvaluationError(f"{path}: not a description of an evaluation") from None
    return index


def _write_index(folder: Path, index: dict[str, Any]) -> None:
    write_json(folder / "about.json", {**index, "digest": _digest(index)})


def _digest(index: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()
