"""The files that scores go into: a Parquet file a part, whole or not there, and a manifest that keeps other scores out of the folder.

A part is a fixed stretch of scenes, whatever the shards: shard K of N has every N-th part. So a folder may be finished by other shards
than it was begun by.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from infogaze.errors import InfogazeError
from infogaze.files import create_whole, make_folder, read_json, write_whole
from infogaze.gaze.agent import Agent
from infogaze.gaze.stopping import Gain
from infogaze.typed import from_plain, to_plain

MANIFEST = "score.json"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """All that the rows of a folder depend on."""

    model: str
    """A digest of weights, classes and how looks are chosen."""
    source: str
    """The name of the set, or `pictures`."""
    scenes: int
    fingerprint: str
    """Of the source."""
    part_size: int
    """Scenes in a file."""
    budget: int
    stop_at: float | None
    rule: str | None
    """The model's own rule, as calibrated, if it is used."""
    seed: int
    compiled: bool
    classes: tuple[str, ...]
    """What the numbers of `probabilities` belong to, in order."""
    gain: Gain = "exact"
    """What chose the places."""


def claim(out: Path, manifest: Manifest) -> None:
    """Make the folder the one of these scores; refuse one that holds others."""
    make_folder(out)
    path, plain = out / MANIFEST, to_plain(manifest)
    if create_whole(path, (json.dumps(plain, indent=1) + "\n").encode()):
        return
    found = from_plain(Manifest, read_json(path))
    for field in fields(Manifest):
        before, now = getattr(found, field.name), getattr(manifest, field.name)
        if before != now:
            raise InfogazeError(f"{out} holds scores of another run: {field.name} is {before} there and {now} here")


def model_digest(agent: Agent, gain: Gain) -> str:
    """Of all that decides what the model says and where it looks, whatever folder it is from."""
    assert agent.origin is not None
    said = [to_plain(agent.origin), agent.classes, agent.flip_tta, agent.fit, agent.temperatures]
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode())
    weights = agent.model.state_dict()
    if gain == "distilled" and agent.distilled is not None:
        weights |= agent.distilled.state_dict(prefix="distilled gain ")
    for name, value in sorted(weights.items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(value.detach().cpu().numpy()).data)
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Part:
    """A stretch of scenes and its file."""

    start: int
    stop: int

    @property
    def file(self) -> str:
        """Parts sort by their names as they do by their scenes."""
        return f"part-{self.start:012d}.parquet"


def parts_of(scenes: int, part_size: int, *, shard: int, shards: int) -> list[Part]:
    """The parts of a shard, counted from 1."""
    return [
        Part(start, min(start + part_size, scenes))
        for start in range((shard - 1) * part_size, scenes, shards * part_size)
    ]


def require_pyarrow() -> Any:
    """What writes and reads Parquet."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise InfogazeError("writing Parquet needs the extra \"score\": pip install 'infogaze[score]'") from None
    return pyarrow


def write_part(path: Path, found: dict[str, np.ndarray], *, ids: Sequence[str], labels: Sequence[str | None]) -> None:
    """The rows of a part, as a `Scorer` gives them. Whoever else writes the same part writes the same rows."""
    pa = require_pyarrow()
    fine = found["problem"] == ""

    def text(name: str) -> Any:
        return pa.array([value or None for value in found[name].tolist()], pa.string())

    looks = [[] if not ok else where[:taken].tolist() for ok, where, taken in _rows(found, fine)]
    unknown = np.isnan(found["ood_score"])
    table = pa.table(
        {
            "id": pa.array(list(ids), pa.string()),
            "label": pa.array(list(labels), pa.string()),
            "prediction": text("prediction"),
            "probabilities": pa.array(
                [row if ok else None for row, ok in zip(found["probabilities"], fine, strict=True)],
                pa.list_(pa.float32()),
            ),
            "looks_taken": pa.array(found["looks_taken"], pa.int32()),
            "ended_by": text("ended_by"),
            "locations": pa.array(looks, pa.list_(pa.list_(pa.int32()))),
            "ood_score": pa.array(found["ood_score"], pa.float32(), mask=unknown),
            "out_of_distribution": pa.array(found["out_of_distribution"], pa.bool_(), mask=unknown),
            "problem": text("problem"),
        }
    )
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(table, sink)
    # A name of its own until it is whole: the same part may be on its way elsewhere too.
    whole = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    write_whole(whole, sink.getvalue().to_pybytes())
    whole.replace(path)


def _rows(found: dict[str, np.ndarray], fine: np.ndarray) -> Any:
    return zip(fine, found["locations"], found["looks_taken"], strict=True)


def read_parts(out: Path, parts: Sequence[Part], columns: Sequence[str]) -> Any:
    """Columns of the parts, in order, as a table."""
    pa = require_pyarrow()
    return pa.concat_tables([pa.parquet.read_table(out / part.file, columns=list(columns)) for part in parts])
