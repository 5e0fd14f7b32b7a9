"""A model as a folder: `model.json` says what it is, safetensors files beside it hold the weights. Nothing is pickled."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from infogaze.agent import Agent
from infogaze.data.options import Fit
from infogaze.methods import build_for
from infogaze.model import ModelConfig, Recogniser
from infogaze.posterior import MaskedLinear

FORMAT = 1
_WEIGHTS = "model.safetensors"


class ModelFolderError(ValueError):
    """A folder that holds no usable model; the message is one line that says which file and why."""


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
        raise ValueError("an agent around a model of one's own has no config, so it cannot be saved as a folder")
    tensors = {name: _stored(value, dtype) for name, value in _packed(agent.model).items()}
    files = {name: tensors_to_bytes(part) for name, part in _in_files(tensors, largest_file).items()}
    description = {
        "format": FORMAT,
        "method": agent.method,
        "model": asdict(agent.config),
        "looks": agent.looks,
        "samples": agent.samples,
        "twin": agent.twin,
        "fit": agent.fit,
        "classes": list(agent.classes),
        "weights": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_whole(folder / name, data)
    write_whole(folder / "model.json", (json.dumps(description, indent=1) + "\n").encode())
    for old in {*folder.glob("model.safetensors"), *folder.glob("model-*-of-*.safetensors")}:
        if old.name not in files:
            old.unlink()


def weights_digest(folder: Path) -> str:
    """One digest for all weights of a model folder, as its description gives them; the files themselves are not read."""
    digests = _description(folder / "model.json").get("weights")
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


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def _stored(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.detach().to("cpu", dtype if value.is_floating_point() else value.dtype).contiguous()


def _masks(model: Recogniser) -> dict[str, Tensor]:
    return {f"{name}.weight": part.mask for name, part in model.named_modules() if isinstance(part, MaskedLinear)}


def _packed(model: Recogniser) -> dict[str, Tensor]:
    """The state with only those masked weights that are ever used, as a vector."""
    masks = _masks(model)
    return {name: value[masks[name]] if name in masks else value for name, value in model.state_dict().items()}


def _load(folder: Path, device: torch.device | str) -> Agent:
    description = _description(folder / "model.json")
    try:
        config = ModelConfig(
            **{**description["model"], "glimpse_widths": tuple(description["model"]["glimpse_widths"])}
        )
        classes, looks, samples = description["classes"], int(description["looks"]), int(description["samples"])
        method, twin = description.get("method", "infogaze"), bool(description.get("twin", False))
        fit = description.get("fit", "crop")
        if fit not in get_args(Fit):
            raise ValueError(f"fit is {fit!r}")
        model = build_for(method, config)
        agent = Agent(model, classes, looks=looks, samples=samples, config=config, method=method, twin=twin, fit=fit)
        digests = dict(description["weights"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFolderError(f"{folder / 'model.json'}: not a valid description of a model: {error}") from None
    tensors: dict[str, Tensor] = {}
    for name, digest in digests.items():
        tensors.update(_tensors(folder / name, digest))
    _fill(model, tensors, folder)
    model.to(device)
    return agent


def _description(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ModelFolderError(f"{path}: missing, so this folder holds no model")
    try:
        description = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ModelFolderError(f"{path}: not readable as JSON: {error}") from None
    if not isinstance(description, dict) or "format" not in description:
        raise ModelFolderError(f"{path}: not a description of a model")
    if description["format"] != FORMAT:
        raise ModelFolderError(
            f"{path}: format {description['format']}, and this version of infogaze reads format {FORMAT}"
        )
    return description


def _tensors(path: Path, digest: str) -> dict[str, Tensor]:
    if not path.is_file():
        raise ModelFolderError(f"{path}: missing")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise ModelFolderError(f"{path}: damaged or truncated, its digest is not the one in model.json")
    try:
        return tensors_from_bytes(data)
    except SafetensorError as error:
        raise ModelFolderError(f"{path}: not a safetensors file: {error}") from None


def _fill(model: Recogniser, tensors: dict[str, Tensor], folder: Path) -> None:
    state, masks = model.state_dict(), _masks(model)
    if missing := sorted(set(state) ^ set(tensors)):
        raise ModelFolderError(f"{folder}: the weights do not belong to this model, {missing[0]} is on one side only")
    for name, value in state.items():
        stored = tensors[name]
        expected = (int(masks[name].sum()),) if name in masks else tuple(value.shape)
        if tuple(stored.shape) != expected:
            raise ModelFolderError(f"{folder}: {name} has shape {tuple(stored.shape)}, the model needs {expected}")
        if not bool(stored.isfinite().all()):
            raise ModelFolderError(f"{folder}: {name} holds NaN or infinity")
        if name in masks:
            value[masks[name]] = stored.to(value.dtype)
        else:
            value.copy_(stored)
