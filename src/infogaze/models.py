"""A model as a folder: `model.json` says what it is, safetensors files beside it hold the weights. Nothing is pickled."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from infogaze.data.options import Fit
from infogaze.errors import InfogazeError
from infogaze.files import make_folder, read_json, read_whole, write_json, write_whole
from infogaze.gaze.agent import Agent
from infogaze.methods.registry import build_for
from infogaze.nn.model import ModelConfig, Recogniser
from infogaze.nn.posterior import MaskedLinear
from infogaze.typed import from_plain, to_plain

FORMAT = 1
_WEIGHTS = "model.safetensors"
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\.safetensors")
_DIGEST = re.compile("[0-9a-f]{64}")


class ModelFolderError(InfogazeError):
    """A folder that holds no usable model; the message is one line that says which file and why."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """What `model.json` says. It may come from a stranger, so every field has its range, and weights lie in the folder itself."""

    format: int
    method: str = "infogaze"
    model: ModelConfig
    looks: int
    samples: int
    twin: bool = False
    fit: Fit = "crop"
    classes: tuple[str, ...]
    weights: dict[str, str]
    """SHA-256 of each file."""

    def __post_init__(self) -> None:
        for name, most in (("looks", 1_000_000), ("samples", 100_000)):
            if not 1 <= getattr(self, name) <= most:
                raise InfogazeError(f"{name} is {getattr(self, name)}; it must be from 1 to {most}")
        if len(self.classes) != self.model.classes:
            raise InfogazeError(f"classes has {len(self.classes)} names for a model of {self.model.classes} classes")
        for name, count in Counter(self.classes).items():
            if count > 1:
                raise InfogazeError(f"classes has {name!r} {count} times")
        for name, digest in self.weights.items():
            if not _FILE_NAME.fullmatch(name):
                raise InfogazeError(
                    f"weights names {name!r}; a file of the folder itself is allowed, such as {_WEIGHTS}"
                )
            if not _DIGEST.fullmatch(digest):
                raise InfogazeError(f"weights has {digest!r} for {name}; a SHA-256 digest is allowed")


def bundled() -> list[str]:
    """The names that `load` knows without a folder."""
    return sorted(entry.name for entry in resources.files("infogaze").joinpath("bundled").iterdir() if entry.is_dir())


def load(name_or_folder: str | os.PathLike[str], device: torch.device | str = "cpu") -> Agent:
    """An agent from a bundled name or from a folder that `save` or a training run wrote. Digests and shapes are checked."""
    if isinstance(name_or_folder, str) and name_or_folder in bundled():
        with resources.as_file(resources.files("infogaze").joinpath("bundled", name_or_folder)) as folder:
            return _load(folder, device)
    folder = Path(name_or_folder)
    if not folder.is_dir():
        raise ModelFolderError(f"{folder}: no such folder, and no bundled model has that name ({', '.join(bundled())})")
    return _load(folder, device)


def save(
    agent: Agent,
    folder: str | os.PathLike[str],
    dtype: torch.dtype = torch.float32,
    largest_file: int | None = None,
) -> None:
    """Write the agent to a folder, which `load` opens. Each file appears whole or not at all.

    The weights are one file, or as many as it takes to keep each to about `largest_file` bytes; a tensor is never split.
    """
    if agent.config is None:
        raise InfogazeError("an agent around a model of one's own has no config, so it cannot be saved as a folder")
    tensors = {name: _stored(value, dtype) for name, value in _packed(agent.model).items()}
    files = {name: tensors_to_bytes(part) for name, part in _in_files(tensors, largest_file).items()}
    description = Description(
        format=FORMAT,
        method=agent.method,
        model=agent.config,
        looks=agent.looks,
        samples=agent.samples,
        twin=agent.twin,
        fit=agent.fit,
        classes=agent.classes,
        weights={name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    )
    folder = make_folder(Path(folder))
    for name, data in files.items():
        write_whole(folder / name, data)
    write_json(folder / "model.json", to_plain(description))
    for old in {*folder.glob("model.safetensors"), *folder.glob("model-*-of-*.safetensors")}:
        if old.name not in files:
            old.unlink()


def weights_digest(folder: Path) -> str:
    """One digest for all weights of a model folder, as its description gives them; the files themselves are not read."""
    digests = _description(folder / "model.json").weights
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()


def _in_files(tensors: dict[str, Tensor], largest: int | None) -> dict[str, dict[str, Tensor]]:
    """The tensors by the file they go into, in order."""
    if largest is None:
        return {_WEIGHTS: tensors}
    parts: list[dict[str, Tensor]] = [{}]
    for name, value in tensors.items():
        if parts[-1] and sum(other.nbytes for other in parts[-1].values()) + value.nbytes > largest:
            parts.append({})
        parts[-1][name] = value
    return {f"model-{number}-of-{len(parts)}.safetensors": part for number, part in enumerate(parts, 1)}


def _stored(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.detach().to("cpu", dtype if value.is_floating_point() else value.dtype).contiguous()


def _masked(model: Recogniser) -> dict[str, MaskedLinear]:
    return {name: part for name, part in model.named_modules() if isinstance(part, MaskedLinear)}


def _packed(model: Recogniser) -> dict[str, Tensor]:
    """The state with only those masked weights that are ever used, as a vector."""
    masks = {f"{name}.weight": part.mask for name, part in _masked(model).items()}
    return {name: value[masks[name]] if name in masks else value for name, value in model.state_dict().items()}


def _load(folder: Path, device: torch.device | str) -> Agent:
    path = folder / "model.json"
    description = _description(path)
    tensors: dict[str, Tensor] = {}
    for name, digest in description.weights.items():
        tensors.update(_tensors(folder / name, digest))
    try:
        # Without memory for its weights: what the files do not hold is not made.
        with torch.device("meta"):
            bare = build_for(description.method, description.model)
    except InfogazeError as error:
        raise ModelFolderError(f"{path}: not a valid description of a model: {error}") from None
    _require_shapes(bare, tensors, folder)
    model = build_for(description.method, description.model)
    _fill(model, tensors, folder)
    return Agent(
        model.to(device),
        description.classes,
        looks=description.looks,
        samples=description.samples,
        config=description.model,
        method=description.method,
        twin=description.twin,
        fit=description.fit,
    )


def _description(path: Path) -> Description:
    if not path.is_file():
        raise ModelFolderError(f"{path}: missing, so this folder holds no model")
    try:
        found = read_json(path)
        if not isinstance(found, dict) or "format" not in found:
            raise InfogazeError(f"{path}: not a description of a model")
        if found["format"] != FORMAT:
            raise InfogazeError(f"{path}: format {found['format']}, and this version of infogaze reads format {FORMAT}")
    except InfogazeError as error:
        raise ModelFolderError(str(error)) from None
    try:
        return from_plain(Description, found)
    except InfogazeError as error:
        raise ModelFolderError(f"{path}: not a valid description of a model: {error}") from None


def _tensors(path: Path, digest: str) -> dict[str, Tensor]:
    """The tensors of a file, which is the one that the description speaks of."""
    if path.is_symlink() or not path.is_file():
        raise ModelFolderError(f"{path}: {'a link, not a file' if path.is_symlink() else 'missing'}")
    data = read_whole(path)
    if hashlib.sha256(data).hexdigest() != digest:
        raise ModelFolderError(f"{path}: damaged or truncated, its digest is not the one in model.json")
    try:
        return tensors_from_bytes(data)
    except SafetensorError as error:
        raise ModelFolderError(f"{path}: not a safetensors file: {error}") from None


def _require_shapes(model: Recogniser, tensors: dict[str, Tensor], folder: Path) -> None:
    """Refuse weights of another model."""
    stored = {name: tuple(value.shape) for name, value in tensors.items()}
    counts = {f"{name}.weight": part.allowed for name, part in _masked(model).items()}
    wanted = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    if missing := sorted(set(wanted) ^ set(stored)):
        raise ModelFolderError(f"{folder}: the weights do not belong to this model, {missing[0]} is on one side only")
    for name, shape in wanted.items():
        expected = (counts[name],) if name in counts else shape
        if stored[name] != expected:
            raise ModelFolderError(f"{folder}: {name} has shape {stored[name]}, the model needs {expected}")


def _fill(model: Recogniser, tensors: dict[str, Tensor], folder: Path) -> None:
    """Give the model its weights, whose shapes are known to fit."""
    masks = {f"{name}.weight": part.mask for name, part in _masked(model).items()}
    for name, value in model.state_dict().items():
        stored = tensors[name]
        if not bool(stored.isfinite().all()):
            raise ModelFolderError(f"{folder}: {name} holds NaN or infinity")
        if name in masks:
            value[masks[name]] = stored.to(value.dtype)
        else:
            value.copy_(stored)
