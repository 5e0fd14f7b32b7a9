"""Measure trained runs on their test split, once and exactly, into compact records."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from infogaze.data.registry import OWN_DATA, load_set
from infogaze.data.sets import ImageSet
from infogaze.devices import device_named
from infogaze.errors import InfogazeError
from infogaze.evaluation import store
from infogaze.evaluation.comparing import recipe_digest
from infogaze.evaluation.estimates import Estimate, accuracy
from infogaze.evaluation.exact_pass import Records
from infogaze.evaluation.measurement import Subject
from infogaze.evaluation.registry import MEASUREMENTS, measurements_for
from infogaze.evaluation.store import About
from infogaze.gaze.agent import Agent
from infogaze.methods.registry import METHODS
from infogaze.models import load, require_cuda, weights_digest
from infogaze.progress import Display, display
from infogaze.rng import require_seed
from infogaze.runs import DataChoice, RunConfig, read_config, versions
from infogaze.tasks.requirements import require_fit, require_sees_whole
from infogaze.tasks.train import phases_left


@dataclass(frozen=True)
class _Run:
    """A run to be measured."""

    folder: Path
    config: RunConfig
    images: ImageSet


def evaluate(
    *runs: str | os.PathLike[str],
    measure: Sequence[str] = tuple(MEASUREMENTS),
    judge: str | os.PathLike[str] | None = None,
    num_scenes: int = 1000,
    root: str | os.PathLike[str] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    device: str = "auto",
    compile: bool = False,
    quiet: bool = False,
) -> dict[str, Estimate]:
    """Measure runs on the test split they belong to, as `infogaze evaluate` does; the accuracy by look of each folder, with its interval.

    What was measured before, of the same weights on the same images, is not measured again.
    """
    if not runs:
        raise InfogazeError("no run is named; give at least one folder that `infogaze train` wrote")
    for name, value in (("num_scenes", num_scenes), ("batch_size", batch_size)):
        if value is not None and value < 1:
            raise InfogazeError(f"{name} is {value}; it must be at least 1")
    for name in measure:
        if name not in MEASUREMENTS:
            raise InfogazeError(f"no measurement is called {name!r}; there are {', '.join(MEASUREMENTS)}")
    require_seed(seed)
    where = device_named(device)
    if compile:
        require_cuda(where)
    judging = None if judge is None else _judge(Path(judge), where)
    found = _runs([Path(run) for run in runs], None if root is None else Path(root))
    # All runs before any is measured: a slip in the last is not to be told after minutes.
    for run in found:
        _require_measurable(run, judge, judging)
    results = {}
    with display(quiet=quiet) as screen:
        for run in found:
            agent = load(run.folder, where)
            assert agent.origin is not None
            subject = Subject(
                agent=agent,
                method=METHODS[agent.origin.method],
                test=run.images.test,
                num_scenes=num_scenes,
                seed=seed,
                batch_size=batch_size if batch_size is not None else (1000 if where.type == "cuda" else 200),
                judge=judging,
                judge_digest="" if judge is None else weights_digest(Path(judge)),
            )
            records = _measure(run, subject, measure=measure, compile=compile, screen=screen)
            curve = results[str(run.folder)] = accuracy(records.correct)
            looks = " ".join(f"{100 * value:.1f}" for value in curve.value.tolist())
            left = phases_left(run.config.method, run.config.phases)
            screen.say(f"{run.folder}: accuracy by look {looks} %, {curve.n} scenes{left}")
    return results


def _measure(run: _Run, subject: Subject, *, measure: Sequence[str], compile: bool, screen: Display) -> Records:
    folder = run.folder / "evaluation"
    store.begin(folder, _about(run, subject, compile=compile))
    for entry in measurements_for(subject.method, measure):
        if entry.needs_judge and subject.judge is None:
            continue
        if not store.has(folder, entry.record, entry.source(subject)):
            total = entry.work(subject)
            bar = screen.bar(f"{run.config.method}: {entry.name}", total)
            looks = entry.record is Records and subject.method.sees == "looks"
            # A model of its own: compiling changes a model, and what else is measured is in float32.
            fast = (
                replace(subject, agent=load(run.folder, subject.agent.model.device, compile=True))
                if compile and looks
                else subject
            )
            store.write(folder, entry.measure(fast, bar.advance), entry.source(subject))
            bar.advance(total)  # what tells of no progress on the way is done now
        if entry.record is Records:
            subject = replace(subject, records=store.read(folder, Records))
    return store.read(folder, Records)


def _runs(folders: Sequence[Path], root: Path | None) -> list[_Run]:
    """The runs with their images; those of one set share them."""
    loaded: dict[DataChoice, ImageSet] = {}
    found = []
    for folder in folders:
        config = read_config(folder)
        if config.data not in loaded:
            source = config.data.root if root is None else str(root)
            loaded[config.data] = load_set(config.data.name, source, config.data.options)
        found.append(_Run(folder, config, loaded[config.data]))
    return found


def _judge(run: Path, device: torch.device) -> Agent:
    judge = load(run, device)
    require_sees_whole(run, judge, "judge")
    return judge


def _require_measurable(run: _Run, judge: str | os.PathLike[str] | None, judging: Agent | None) -> None:
    agent = load(run.folder)
    require_fit(run.folder, agent, run.images, split="test")
    if judge is not None and judging is not None:
        require_fit(judge, judging, run.images, split="test")
        if judging.model.grid != agent.model.grid:
            raise InfogazeError(f"{judge}: judges looks on another grid than that of {run.folder}")


def _about(run: _Run, subject: Subject, *, compile: bool) -> About:
    config, agent, method, test = run.config, subject.agent, subject.method, run.images.test
    assert agent.origin is not None
    # Its name of today: a run from before may have written another into its configuration.
    name = agent.origin.method
    device = agent.model.device
    machine = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    digest = hashlib.sha256(np.ascontiguousarray(test.images.numpy()).data)
    digest.update(np.ascontiguousarray(test.labels.numpy()).data)
    data, root = config.data.name, config.data.root
    return About(
        method=name,
        preset=config.preset.name,
        seed=config.seed,
        # A set of one's own is known by its file's or folder's name.
        data=Path(root).stem if data in OWN_DATA and root is not None else data,
        test=digest.hexdigest(),
        scenes=len(test),
        classes=agent.classes,
        num_looks=min(agent.num_looks, agent.model.grid.num_locations),
        num_samples=agent.origin.num_samples if method.imagines else 0,
        grid=agent.model.grid,
        deployable=method.sees != "scene",
        whole=method.sees == "everything",
        first_looks=subject.seed,
        device=f"{machine}, records compiled in bfloat16" if compile and method.sees == "looks" else machine,
        versions={name: value for name, value in versions().items() if name in {"infogaze", "python", "torch"}},
        weights=weights_digest(run.folder),
        flip_tta=agent.flip_tta,
        recipe=recipe_digest(name, config.recipe),
        val_fraction=config.val_fraction,
        num_labels=config.num_labels,
        teacher=None if config.teacher is None else weights_digest(Path(config.teacher)),
        fit="" if config.data.options.size is None else config.data.options.fit,
    )
