"""A model as a folder: `model.json` says what it is, safetensors files beside it hold the weights. Nothing is pickled.

This is the one place that puts an agent together: a method's networks, its policy, and the weights.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.files import make_folder, read_whole, write_json, write_whole
from infogaze.gaze.agent import Agent, Origin
from infogaze.gaze.stopping import CalibratedStop, Gain
from infogaze.methods.registry import METHODS, build_for
from infogaze.model_description import FORMAT, WEIGHTS, Description, ModelFolderError, name_of_today, read_description
from infogaze.nn.distilled import DistilledGain
from infogaze.nn.model import GlimpseClassifier
from infogaze.nn.posterior import MaskedLinear
from infogaze.nn.typicality import Typicality
from infogaze.pictures import Fit
from infogaze.typed import to_plain

_TYPICALITY = "typicality.safetensors"
_DISTILLED = "gain.safetensors"


def bundled() -> list[str]:
    """The names that `load` knows without a folder."""
    return sorted(entry.name for entry in resources.files("infogaze").joinpath("bundled").iterdir() if entry.is_dir())


def load(
    name_or_folder: str | os.PathLike[str],
    device: torch.device | str = "cpu",
    *,
    gain: Gain = "exact",
    compile: bool = False,
) -> Agent:
    """An agent from a bundled name or from a folder that `save` or a training run wrote. Digests and shapes are checked.

    With gain "distilled" it chooses by the gain that `infogaze distil` made, not by what it imagines.

    With `compile`, on a CUDA device: parts are compiled, decisions captured as one graph, and products in bfloat16. The first look at a
    batch of a new size then takes long, and the others are fast.
    """
    if isinstance(name_or_folder, str) and name_or_folder in bundled():
        with resources.as_file(resources.files("infogaze").joinpath("bundled", name_or_folder)) as folder:
            agent = _load(folder, device)
    else:
        folder = Path(name_or_folder)
        if not folder.is_dir():
            raise ModelFolderError(
                f"{folder}: no such folder, and no bundled model has that name ({', '.join(bundled())})"
            )
        agent = _load(folder, device)
    stop = agent.stop
    if gain == "distilled":
        agent = agent.with_distilled_gain()
    # A rule promises nothing for the looks of another gain.
    agent = agent.with_stop(stop if stop is not None and stop.gain == gain else None)
    return compiled(agent) if compile else agent


def compiled(agent: Agent) -> Agent:
    """The same agent, faster: for CUDA devices, where small operations cost more to launch than to do."""
    from infogaze.gaze.captured import CapturedPolicy
    from infogaze.nn.compilation import compile_parts

    require_cuda(agent.model.device)
    compile_parts(agent.model)
    fast = agent.with_policy(CapturedPolicy(agent.policy)).with_stop(agent.stop)
    fast.precision = "bfloat16"
    return fast


def require_cuda(device: torch.device) -> None:
    """Refuse to compile for another device, where it is no faster."""
    if device.type != "cuda":
        raise InfogazeError(f"compile is for CUDA devices, and the model is on {device}")


def make_agent(
    model: GlimpseClassifier,
    classes: tuple[str, ...],
    *,
    origin: Origin,
    num_looks: int,
    flip_tta: bool = False,
    fit: Fit = "crop",
    temperatures: Sequence[float] | None = None,
    typicality: Typicality | None = None,
    stop: CalibratedStop | None = None,
    distilled: DistilledGain | None = None,
) -> Agent:
    """An agent around a method's networks, choosing its looks as the method does."""
    return Agent(
        model,
        classes,
        policy=METHODS[origin.method].policy(origin.num_samples),
        num_looks=num_looks,
        flip_tta=flip_tta,
        fit=fit,
        temperatures=temperatures,
        typicality=typicality,
        stop=stop,
        distilled=distilled,
        origin=origin,
    )


def save(
    agent: Agent,
    folder: str | os.PathLike[str],
    *,
    dtype: torch.dtype = torch.float32,
    largest_file: int | None = None,
) -> None:
    """Write the agent to a folder, which `load` opens. Each file appears whole or not at all.

    The weights are one file, or as many as it takes to keep each to about `largest_file` bytes; a tensor is never split.
    """
    if agent.origin is None:
        raise InfogazeError("an agent around a model of one's own has no origin, so it cannot be saved as a folder")
    if agent.is_derived:
        raise InfogazeError("an agent with another question or grid cannot be saved; save the one it was made from")
    tensors = {name: _stored(value, dtype) for name, value in _packed(agent.model).items()}
    files = {name: tensors_to_bytes(part) for name, part in _in_files(tensors, largest_file).items()}
    typical = None
    if agent.typicality is not None:
        statistics = {"mean": agent.typicality.mean, "whitening": agent.typicality.whitening}
        typical = tensors_to_bytes({name: _stored(value, torch.float32) for name, value in statistics.items()})
    distilled = None
    if agent.distilled is not None:
        distilled = _distilled_file(agent.distilled, dtype)
    description = Description(
        format=FORMAT,
        method=agent.origin.method,
        model=agent.origin.config,
        num_looks=agent.num_looks,
        num_samples=agent.origin.num_samples,
        flip_tta=agent.flip_tta,
        fit=agent.fit,
        classes=agent.classes,
        weights={name: _digest(data) for name, data in files.items()},
        temperatures=agent.temperatures,
        ood_threshold=None if agent.typicality is None else agent.typicality.threshold,
        typicality=None if typical is None else _digest(typical),
        stop=agent.stop,
        distilled=None if distilled is None else _digest(distilled),
    )
    if typical is not None:
        files[_TYPICALITY] = typical
    if distilled is not None:
        files[_DISTILLED] = distilled
    folder = make_folder(Path(folder))
    for name, data in files.items():
        write_whole(folder / name, data)
    write_json(folder / "model.json", to_plain(description))
    ours = ("model.safetensors", "model-*-of-*.safetensors", _TYPICALITY, _DISTILLED)
    for old in {path for pattern in ours for path in folder.glob(pattern)}:
        if old.name not in files:
            old.unlink()


def store_stop(folder: Path, stop: CalibratedStop | None) -> None:
    """Give the model in a folder a calibrated rule, or take it away; its weights are not touched."""
    path = folder / "model.json"
    write_json(path, to_plain(replace(read_description(path), stop=stop, format=FORMAT)))


def store_distilled(folder: Path, distilled: DistilledGain) -> None:
    """Give the model in a folder a distilled gain, beside its weights, which are not touched. A rule for the looks of the gain that was
    there before promises nothing now, and is taken away."""
    path, data = folder / "model.json", _distilled_file(distilled, torch.float32)
    found = read_description(path)
    stop = None if found.stop is not None and found.stop.gain == "distilled" else found.stop
    write_whole(folder / _DISTILLED, data)
    write_json(path, to_plain(replace(found, distilled=_digest(data), stop=stop, format=FORMAT)))


def weights_digest(folder: Path) -> str:
    """One digest for all weights of a model folder, temperatures among them, as its description gives them; the files themselves are not
    read."""
    description = read_description(folder / "model.json")
    numbers: dict[str, Any] = dict(description.weights)
    if description.temperatures is not None:
        numbers["temperatures"] = description.temperatures
    return _digest(json.dumps(numbers, sort_keys=True).encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _in_files(tensors: dict[str, Tensor], largest: int | None) -> dict[str, dict[str, Tensor]]:
    """The tensors by the file they go into, in order."""
    if largest is None:
        return {WEIGHTS: tensors}
    parts: list[dict[str, Tensor]] = [{}]
    for name, value in tensors.items():
        if parts[-1] and sum(other.nbytes for other in parts[-1].values()) + value.nbytes > largest:
            parts.append({})
        parts[-1][name] = value
    return {f"model-{number}-of-{len(parts)}.safetensors": part for number, part in enumerate(parts, 1)}


def _stored(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.detach().to("cpu", dtype if value.is_floating_point() else value.dtype).contiguous()


def _distilled_file(distilled: DistilledGain, dtype: torch.dtype) -> bytes:
    return tensors_to_bytes({name: _stored(value, dtype) for name, value in distilled.state_dict().items()})


def _masked(model: GlimpseClassifier) -> dict[str, MaskedLinear]:
    return {name: part for name, part in model.named_modules() if isinstance(part, MaskedLinear)}


def _packed(model: GlimpseClassifier) -> dict[str, Tensor]:
    """The state with only those masked weights that are ever used, as a vector."""
    masks = {f"{name}.weight": part.mask for name, part in _masked(model).items()}
    return {name: value[masks[name]] if name in masks else value for name, value in model.state_dict().items()}


def _load(folder: Path, device: torch.device | str) -> Agent:
    path = folder / "model.json"
    description = read_description(path)
    tensors: dict[str, Tensor] = {}
    for name, digest in description.weights.items():
        tensors.update({name_of_today(key): value for key, value in _tensors(folder / name, digest).items()})
    try:
        # Without memory for its weights: what the files do not hold is not made.
        with torch.device("meta"):
            bare = build_for(description.method, description.model)
    except InfogazeError as error:
        raise ModelFolderError(f"{path}: not a valid description of a model: {error}") from None
    _require_shapes(bare, tensors, folder)
    model = build_for(description.method, description.model)
    _fill(model, tensors, folder)
    distilled = _distilled(folder, description)
    origin = Origin(method=description.method, config=description.model, num_samples=description.num_samples)
    return make_agent(
        model.to(device),
        description.classes,
        origin=origin,
        num_looks=description.num_looks,
        flip_tta=description.flip_tta,
        fit=description.fit,
        temperatures=description.temperatures,
        typicality=_typicality(folder, description),
        stop=description.stop,
        distilled=None if distilled is None else distilled.to(device),
    )


def _tensors(path: Path, digest: str) -> dict[str, Tensor]:
    """The tensors of a file, which is the one that the description speaks of."""
    if path.is_symlink() or not path.is_file():
        raise ModelFolderError(f"{path}: {'a link, not a file' if path.is_symlink() else 'missing'}")
    data = read_whole(path)
    if _digest(data) != digest:
        raise ModelFolderError(f"{path}: damaged or truncated, its digest is not the one in model.json")
    try:
        return tensors_from_bytes(data)
    except SafetensorError as error:
        raise ModelFolderError(f"{path}: not a safetensors file: {error}") from None


def _require_shapes(model: GlimpseClassifier, tensors: dict[str, Tensor], folder: Path) -> None:
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


def _fill(model: GlimpseClassifier, tensors: dict[str, Tensor], folder: Path) -> None:
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


def _typicality(folder: Path, description: Description) -> Typicality | None:
    if description.typicality is None or description.ood_threshold is None:
        return None
    path, size = folder / _TYPICALITY, description.model.feature_size
    found = _tensors(path, description.typicality)
    if {name: tuple(value.shape) for name, value in found.items()} != {"mean": (size,), "whitening": (size, size)}:
        raise ModelFolderError(f"{path}: does not hold the statistics of {size} features")
    if not all(bool(value.isfinite().all()) for value in found.values()):
        raise ModelFolderError(f"{path}: holds NaN or infinity")
    return Typicality(found["mean"].float(), found["whitening"].float(), description.ood_threshold)


def _distilled(folder: Path, description: Description) -> DistilledGain | None:
    if description.distilled is None:
        return None
    path, config = folder / _DISTILLED, description.model
    found = _tensors(path, description.distilled)
    distilled = DistilledGain(config.belief_size, config.grid.num_locations)
    wanted = {name: tuple(value.shape) for name, value in distilled.state_dict().items()}
    if {name: tuple(value.shape) for name, value in found.items()} != wanted:
        raise ModelFolderError(f"{path}: does not hold a gain for this model")
    if not all(bool(value.isfinite().all()) for value in found.values()):
        raise ModelFolderError(f"{path}: holds NaN or infinity")
    distilled.load_state_dict({name: value.float() for name, value in found.items()})
    return distilled
