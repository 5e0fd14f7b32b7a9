"""What an evaluation of a run leaves on disk: compact records that every figure is made from, so that a new figure needs no new run.

A run's `evaluation/` holds `about.json` and one safetensors file a measurement. Each appears whole, with its digest in `about.json`;
a damaged one is named when it is read. A method that sees the complete image has one look, at all of it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Float, Int, UInt8
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.files import make_folder, read_json, read_whole, write_json, write_whole
from infogaze.grid import GlimpseGrid

FORMAT = 1


class EvaluationError(InfogazeError):
    """A folder that holds no usable evaluation; the message is one line that says which file and why."""


@dataclass(frozen=True)
class About:
    """What was measured, on what."""

    method: str
    """A name of `infogaze.methods.registry.METHODS`."""
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
    looks: int
    """T, the budget."""
    samples: int
    """P behind each gain map; 0 where the method imagines nothing."""
    grid: GlimpseGrid
    """The places of a scene."""
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
    weights: str = ""
    """Digest of the model's weights."""
    twin: bool = False
    """Whether every look is taken in mirrored too."""
    recipe: str | None = None
    """Digest of what its training read of the recipe (see `infogaze.evaluation.comparing`); None where that is not known."""
    hold_out: float | None = None
    """Share of the training split that was kept back; None where that is not known."""
    fit: str | None = None
    """How images of another size were brought to the scenes', resize, crop or pad; empty where none were, None where that is not known."""


@dataclass(frozen=True)
class Records:
    """One exact pass over the test split: every image once."""

    file: ClassVar[str] = "records"

    labels: Int[Tensor, " N"]
    """The true ones."""
    locations: Int[Tensor, "N T 2"]
    """Row and column of each look's top-left pixel."""
    named: Int[Tensor, "N T"]
    """The most likely label after each look."""
    log_probabilities: Float[Tensor, "N T classes"]
    """After each look, in nats."""
    expected: Float[Tensor, "N T"]
    """The gain that the policy expected of each look, in nats; zero where it had no map (at the first look always)."""

    @property
    def right(self) -> Tensor:
        """Whether the most likely label is the true one, [N, T] bool."""
        return self.named == self.labels[:, None]


@dataclass(frozen=True)
class ManyLooks:
    """Many more looks than trained for, up to every grid place. The scenes are the first of the test split."""

    file: ClassVar[str] = "many-looks"

    labels: Int[Tensor, " n"]
    named: Int[Tensor, "n L"]
    """The most likely label after each look."""


@dataclass(frozen=True)
class Samples:
    """What the number of imagined scenes P buys, on the first scenes of the test split. Only for methods that imagine."""

    file: ClassVar[str] = "samples"

    samples: Int[Tensor, " S"]
    """The numbers P that were tried."""
    labels: Int[Tensor, " n"]
    named: Int[Tensor, "S n T"]
    """The most likely label after each look."""
    log_probabilities: Float[Tensor, "S n T classes"]
    expected: Float[Tensor, "S n T"]
    """As in `Records`."""
    seconds: Float[Tensor, " S"]
    """How long the looks at all n scenes took."""


@dataclass(frozen=True)
class Disturbed:
    """Looks at scenes that were shifted, scaled, blurred, made noisy or partly covered. The scenes are the first of the test split."""

    file: ClassVar[str] = "disturbed"

    labels: Int[Tensor, " n"]
    strengths: Float[Tensor, "kinds levels"]
    """How strong each disturbance is, in the unit of its kind (see `infogaze.evaluation.corruptions`); the first level is always none."""
    named: Int[Tensor, "kinds levels n T"]
    """The most likely label after each look."""


@dataclass(frozen=True)
class Judged:
    """The looks of `Records` judged by a CNN that was trained on complete images and sees all but the looks masked."""

    file: ClassVar[str] = "judged"

    named: Int[Tensor, "N T"]
    """The CNN's most likely label."""
    judge: UInt8[Tensor, " digest"]
    """Digest of the CNN's weights: looks judged by another one cannot be compared."""


@dataclass(frozen=True)
class Showcase:
    """What pictures are drawn from: some scenes in full, and the mean image of each class."""

    file: ClassVar[str] = "showcase"

    scenes: Int[Tensor, " s"]
    """Their number in the test split. First the common ones, which are the same for every method; then those picked from what happened."""
    common: Int[Tensor, ""]
    """How many are common."""
    images: UInt8[Tensor, "s C H W"]
    labels: Int[Tensor, " s"]
    locations: Int[Tensor, "s T 2"]
    gains: Float[Tensor, "s T rows cols"]
    """The map that chose each look, in nats; zeros where there was none."""
    probabilities: Float[Tensor, "s T classes"]
    class_means: UInt8[Tensor, "classes C H W"]
    """The mean test image of each class."""


@dataclass(frozen=True)
class Latents:
    """Samples from q(z | h_t) for one scene, look by look. Only for methods that imagine."""

    file: ClassVar[str] = "latents"

    scene: Int[Tensor, ""]
    """Its number in the test split."""
    z: Float[Tensor, "T samples d"]


Measurement = Records | ManyLooks | Samples | Disturbed | Judged | Showcase | Latents
M = TypeVar("M", bound=Measurement)

_COMPACT = {torch.float32: torch.float16, torch.int64: torch.int32}


def begin(folder: Path, about: About) -> None:
    """Make the folder an evaluation of this; one of something else that was in it is forgotten."""
    wanted = _plain(about)
    try:
        if (folder / "about.json").exists() and _record(folder)["about"] == wanted:
            return
    except EvaluationError:
        pass  # what cannot be read is forgotten too
    make_folder(folder)
    _write_about(folder, {"format": FORMAT, "about": wanted, "files": {}})


def write(folder: Path, measured: Measurement, source: str = "") -> None:
    """Add a measurement to an evaluation that was begun. `source` is what it depends on beyond that: a judge, a number of scenes."""
    tensors = {}
    for field in fields(measured):
        value: Tensor = getattr(measured, field.name)
        kind = _COMPACT.get(value.dtype, value.dtype)
        tensors[field.name] = value.detach().cpu().to(kind).contiguous()
    data = tensors_to_bytes(tensors)
    write_whole(folder / f"{measured.file}.safetensors", data)
    record = _record(folder)
    record["files"][measured.file] = hashlib.sha256(data).hexdigest()
    record["sources"] = {**record.get("sources", {}), measured.file: source}
    _write_about(folder, record)


def about(folder: Path) -> About:
    """What the evaluation in this folder is of."""
    record = _record(folder)
    try:
        said = dict(record["about"])
        said["grid"], said["classes"] = GlimpseGrid(**said["grid"]), tuple(said["classes"])
        return About(**said)
    except (KeyError, TypeError, ValueError) as error:
        raise EvaluationError(f"{folder / 'about.json'}: not a valid description of an evaluation: {error}") from None


def has(folder: Path, kind: type[Measurement], source: str | None = None) -> bool:
    """Whether this was measured and its file is there; where a source is named, from that one."""
    if not (folder / "about.json").exists() or not (folder / f"{kind.file}.safetensors").is_file():
        return False
    record = _record(folder)
    return kind.file in record["files"] and source in (None, record.get("sources", {}).get(kind.file, ""))


def read(folder: Path, kind: type[M]) -> M:
    """A measurement from its file: floats in float32, whole numbers in int64."""
    path = folder / f"{kind.file}.safetensors"
    digest = _record(folder)["files"].get(kind.file)
    if digest is None or not path.is_file():
        raise EvaluationError(f"{path}: missing; `infogaze evaluate` writes it")
    data = read_whole(path)
    if hashlib.sha256(data).hexdigest() != digest:
        raise EvaluationError(f"{path}: damaged or truncated, its digest is not the one in about.json")
    try:
        return kind(**{name: _wide(value) for name, value in tensors_from_bytes(data).items()})
    except (SafetensorError, KeyError, TypeError) as error:
        raise EvaluationError(f"{path}: not a measurement of this kind: {error}") from None


def _wide(value: Tensor) -> Tensor:
    if value.is_floating_point():
        return value.float()
    return value if value.dtype == torch.uint8 else value.long()


def _plain(about: About) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(asdict(about)))
    return plain


def _record(folder: Path) -> dict[str, Any]:
    path = folder / "about.json"
    if not path.is_file():
        raise EvaluationError(f"{folder}: no evaluation; `infogaze evaluate` writes one")
    try:
        record = read_json(path)
        if record["format"] != FORMAT:
            raise EvaluationError(f"{path}: format {record['format']}, and this version reads format {FORMAT}")
        record["files"], record["about"]
        if record.pop("digest") != _digest(record):
            raise EvaluationError(f"{path}: changed since it was written, its digest is another")
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, EvaluationError):
            raise
        raise EvaluationError(f"{path}: not a description of an evaluation") from None
    return dict(record)


def _write_about(folder: Path, record: dict[str, Any]) -> None:
    write_json(folder / "about.json", {**record, "digest": _digest(record)})


def _digest(record: dict[str, Any]) -> str:
    """Of what `about.json` says, by which a change by another hand is noticed."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
