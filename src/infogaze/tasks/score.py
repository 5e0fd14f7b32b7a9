"""Classify every scene of a source look by look into Parquet files, a shard at a time; what is there already is not done again."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from infogaze.data.options import ReadOptions
from infogaze.data.registry import SETS
from infogaze.devices import device_named
from infogaze.errors import InfogazeError
from infogaze.gaze.stopping import Gain
from infogaze.progress import Bar, display
from infogaze.scoring.parts import Manifest, claim, model_digest, parts_of, read_parts, require_pyarrow, write_part
from infogaze.scoring.parts import Part as Stretch
from infogaze.scoring.scenes import Part, Scenes, scenes_of
from infogaze.scoring.scorer import Scorer


@dataclass(frozen=True, kw_only=True)
class Scored:
    """What the files of a shard hold."""

    scenes: int
    added: int
    """How many of them this call has looked at."""
    problems: int
    """How many could not be read."""
    mean_looks: float
    """Of those that were looked at."""
    accuracy: float | None
    """Of those with a label; None where there are none."""


def score(
    source: str | os.PathLike[str],
    *,
    model: str | os.PathLike[str],
    out: str | os.PathLike[str],
    shard: str = "1/1",
    root: str | os.PathLike[str] | None = None,
    split: Part = "all",
    options: ReadOptions | None = None,
    budget: int | None = None,
    stop_at: float | None = None,
    stop: bool = True,
    gain: Gain = "exact",
    seed: int = 0,
    batch_size: int | None = None,
    part_size: int = 1000,
    device: str = "auto",
    compile: bool = False,
    quiet: bool = False,
) -> Scored:
    """Classify every scene of a set, or of a folder of pictures, as `infogaze score` does; one row a scene in `out/part-*.parquet`.

    `shard` is K/N: every N-th part from the K-th on, of `part_size` scenes each. A part appears whole; those that are there are not made
    again. A row depends on none of shard, batch size and device, but for the last bits of its numbers.
    """
    for name, value in (("batch_size", batch_size), ("part_size", part_size)):
        if value is not None and value < 1:
            raise InfogazeError(f"{name} is {value}; it must be at least 1")
    number, shards = _shard(shard)
    require_pyarrow()
    where = device_named(device)
    scorer = Scorer(
        model=str(model),
        budget=budget,
        stop_at=stop_at,
        stop=stop,
        gain=gain,
        seed=seed,
        device=device,
        compile=compile,
    )
    agent, out = scorer.agent, Path(out)
    scenes = scenes_of(str(source), agent, root=None if root is None else Path(root), part=split, options=options)
    own_rule = agent.stop if stop and stop_at is None and agent.stop is not None else None
    claim(
        out,
        Manifest(
            model=model_digest(agent, gain),
            source=str(source) if source in SETS else "pictures",
            scenes=scenes.count,
            fingerprint=scenes.fingerprint,
            part_size=part_size,
            budget=scorer.looks,
            stop_at=stop_at,
            gain=gain,
            rule=None if own_rule is None else str(own_rule),
            seed=seed,
            compiled=compile,
            classes=agent.classes,
        ),
    )
    at_once = batch_size if batch_size is not None else (1000 if where.type == "cuda" else 200)
    parts = parts_of(scenes.count, part_size, shard=number, shards=shards)
    missing = [part for part in parts if not (out / part.file).exists()]
    total, added = sum(part.stop - part.start for part in parts), sum(part.stop - part.start for part in missing)
    with display(quiet=quiet) as screen:
        bar = screen.bar(f"scoring {shard}", total, begin=total - added)
        for part in missing:
            found = _looked(scorer, scenes, part, at_once=at_once, bar=bar)
            ids, labels = scenes.ids(part.start, part.stop), scenes.labels(part.start, part.stop)
            write_part(out / part.file, found, ids=ids, labels=labels)
    return _summary(out, parts, added)


def _shard(shard: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", shard)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise InfogazeError(f"shard is {shard!r}; K/N with K from 1 to N is allowed, such as 3/16")
    return int(match[1]), int(match[2])


def _looked(scorer: Scorer, scenes: Scenes, part: Stretch, *, at_once: int, bar: Bar) -> dict[str, np.ndarray]:
    """What the scenes of a part came to, so many at a time."""
    found = []
    for start in range(part.start, part.stop, at_once):
        stop = min(start + at_once, part.stop)
        found.append(scorer(scenes.batch(start, stop)))
        bar.advance(stop - start)
    return {name: np.concatenate([one[name] for one in found]) for name in found[0]}


def _summary(out: Path, parts: list[Stretch], added: int) -> Scored:
    if not parts:
        return Scored(scenes=0, added=0, problems=0, mean_looks=0.0, accuracy=None)
    columns = ("label", "prediction", "looks_taken")
    label, prediction, looks = (
        np.array(column.to_pylist(), dtype=object) for column in read_parts(out, parts, columns).itercolumns()
    )
    seen = prediction != None  # noqa: E711
    known = seen & (label != None)  # noqa: E711
    return Scored(
        scenes=len(seen),
        added=added,
        problems=int((~seen).sum()),
        mean_looks=float(looks[seen].mean()) if seen.any() else 0.0,
        accuracy=float((label == prediction)[known].mean()) if known.any() else None,
    )
