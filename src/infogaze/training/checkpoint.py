"""Checkpoints: whole or not there, checked when read, the last two and the best kept. One safetensors file each; nothing is pickled.

A file's name carries the beginning of its digest, so one rename makes it and a damaged one gives itself away.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from infogaze.files import make_folder, read_whole, write_whole

_NAME = re.compile(r"phase(\d)-step(\d{8})(-best)?-([0-9a-f]{16})\.safetensors")
_KEPT = 2


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Where training stood."""

    phase: int
    """Of the method's phases, from 1."""
    step: int
    """Steps of the phase that were taken."""
    tensors: dict[str, Tensor]
    """Of a phase in training, all of `TrainState`; of one that is still to begin, the model alone."""
    facts: dict[str, Any]
    """What is no tensor."""

    def under(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin with this, without it."""
        return {name.removeprefix(prefix): value for name, value in self.tensors.items() if name.startswith(prefix)}


def write(folder: Path, checkpoint: Checkpoint, *, best: bool = False) -> None:
    """Add a checkpoint, and drop those that are no longer kept: all but the last two, or all but the best."""
    facts = json.dumps({"phase": checkpoint.phase, "step": checkpoint.step, **checkpoint.facts})
    data = tensors_to_bytes(
        {name: value.detach().cpu().contiguous() for name, value in checkpoint.tensors.items()}, {"facts": facts}
    )
    make_folder(folder)
    mark = "-best" if best else ""
    digest = hashlib.sha256(data).hexdigest()[:16]
    write_whole(folder / f"phase{checkpoint.phase}-step{checkpoint.step:08d}{mark}-{digest}.safetensors", data)
    for old in _listed(folder, best=best)[1 if best else _KEPT :]:
        old.unlink()
    for partial in folder.glob("*.partial"):
        partial.unlink()


def latest(folder: Path, on_warning: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that is whole; `on_warning` hears of damaged ones."""
    for path in _listed(folder, best=False):
        data = read_whole(path)
        match = _NAME.fullmatch(path.name)
        if match is not None and hashlib.sha256(data).hexdigest().startswith(match[4]):
            try:
                return _read(data)
            except (SafetensorError, KeyError, ValueError):
                pass
        on_warning(f"{path}: damaged, the checkpoint before it is used")
    return None


def _read(data: bytes) -> Checkpoint:
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    facts = json.loads(header["__metadata__"]["facts"])
    return Checkpoint(phase=facts.pop("phase"), step=facts.pop("step"), tensors=tensors_from_bytes(data), facts=facts)


def _listed(folder: Path, *, best: bool) -> list[Path]:
    """The checkpoints of a folder, newest first."""
    found = [(match, path) for path in folder.glob("phase*.safetensors") if (match := _NAME.fullmatch(path.name))]
    kept = [(int(match[1]), int(match[2]), path) for match, path in found if (match[3] is not None) == best]
    return [path for _, _, path in sorted(kept, reverse=True)]
