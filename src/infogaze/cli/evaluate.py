"""`infogaze evaluate RUN...`: measure trained runs on their test split, once and exactly, into compact records."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import tyro

from infogaze.cli.train import chosen_device, still_to_train
from infogaze.data.options import Options
from infogaze.data.registry import load_set
from infogaze.data.sets import ImageSet, Split
from infogaze.errors import InfogazeError
from infogaze.evaluation import records
from infogaze.evaluation.accuracy import accuracy
from infogaze.evaluation.comparing import trained_by
from infogaze.evaluation.corrupted import PASSES, disturbed
from infogaze.evaluation.exact_pass import exact_pass
from infogaze.evaluation.judged import judged
from infogaze.evaluation.latents import latents
from infogaze.evaluation.many_looks import many_looks
from infogaze.evaluation.measuring import kinds_for
from infogaze.evaluation.records import (
    About,
    Disturbed,
    Judged,
    Latents,
    ManyLooks,
    Measurement,
    Records,
    Samples,
    Showcase,
)
from infogaze.evaluation.sample_counts import COUNTS, sample_counts
from infogaze.evaluation.showcase import showcase
from infogaze.files import read_json
from infogaze.gaze.agent import Agent
from infogaze.methods.registry import METHODS
from infogaze.models import load, weights_digest
from infogaze.progress import Display, display
from infogaze.rng import require_seed

MeasurementName = Literal["records", "judged", "showcase", "latents", "many-looks", "samples", "disturbed"]


@dataclass(frozen=True)
class Evaluate:
    """Measure runs on the test split they belong to, every image once, and keep a record of each in RUN/evaluation.

    All methods get the same first looks. The records hold what every figure of `infogaze report` is made from. What was measured
    before, of the same weights on the same images, is not measured again.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folders that `infogaze train` wrote."""
    measure: tuple[MeasurementName, ...] = (
        "records",
        "judged",
        "showcase",
        "latents",
        "many-looks",
        "samples",
        "disturbed",
    )
    """What: records (the exact pass, always), judged, showcase, latents, many-looks, samples, disturbed."""
    judge: Path | None = None
    """A run of the method cnn, which then judges the looks of the others on masked images; without one nothing is judged."""
    scenes: int = 1000
    """How many test images many-looks, samples and disturbed look at, from the first on."""
    root: Path | None = None
    """Where the set's files are now, if not where they were at training."""
    seed: int = 0
    """Of the first looks and of what is imagined."""
    batch: int | None = None
    """Scenes at a time; 1000 on a GPU and 200 on the CPU if not given."""
    device: str = "auto"
    """Where: cpu, cuda, cuda:1; auto takes a GPU if there is one."""

    def run(self) -> None:
        """Measure one run after the other, and print accuracy by look."""
        if not self.runs:
            raise InfogazeError("no run is named; give at least one folder that `infogaze train` wrote")
        for name, value in (("scenes", self.scenes), ("batch", self.batch)):
            if value is not None and value < 1:
                raise InfogazeError(f"{name} is {value}; it must be at least 1")
        require_seed(self.seed)
        device = chosen_device(self.device)
        judge = None if self.judge is None else _judge(self.judge, device)
        configs = [trained(run) for run in self.runs]
        once = cache(lambda data: _images(json.loads(data), self.root))
        tests = [once(json.dumps(config["data"])) for config in configs]
        # All runs before any is measured: a slip in the last is not to be told after minutes.
        for run, (images, _) in zip(self.runs, tests, strict=True):
            self._require_measurable(run, images, judge)
        with display() as screen:
            for run, config, test in zip(self.runs, configs, tests, strict=True):
                measured = self._measure(run, config, *test, judge, device, screen)
                right = accuracy(measured.right)
                looks = " ".join(f"{100 * value:.1f}" for value in right.value.tolist())
                left = still_to_train(config["method"], config["phases"])
                screen.say(f"{run}: right by look {looks} %, {right.n} scenes{left}")

    def _require_measurable(self, run: Path, images: ImageSet, judge: Agent | None) -> None:
        agent = load(run)
        _require_fit(run, agent, images)
        if judge is not None and self.judge is not None:
            _require_fit(self.judge, judge, images)
            if judge.model.grid != agent.model.grid:
                raise InfogazeError(f"{self.judge}: judges looks on another grid of places than those of {run}")

    def _measure(
        self,
        run: Path,
        config: dict[str, Any],
        images: ImageSet,
        digest: str,
        judge: Agent | None,
        device: torch.device,
        screen: Display,
    ) -> Records:
        agent, folder, test = load(run, device), run / "evaluation", images.test
        records.begin(folder, _about(run, config, agent, test, digest, self.seed, device))
        some = Split(test.images[: self.scenes], test.labels[: self.scenes])
        kinds = kinds_for(agent.method, self.measure)
        batch = self.batch if self.batch is not None else (1000 if device.type == "cuda" else 200)

        def measured(
            kind: type[Measurement],
            total: int,
            work: Callable[[Callable[[int], None]], Measurement],
            source: str = "",
        ) -> None:
            if kind in kinds and not records.has(folder, kind, source):
                bar = screen.bar(f"{agent.method}: {kind.file}", total)
                records.write(folder, work(bar.advance), source)
                bar.advance(total)  # what tells of no progress on the way is done now

        given, first = (agent, some, self.seed, batch), f"the first {len(some)} scenes"
        measured(Records, len(test), partial(exact_pass, agent, test, self.seed, batch))
        found = records.read(folder, Records)
        if judge is not None and self.judge is not None:
            work = partial(judged, judge, test, found.locations, batch)
            measured(Judged, len(test), work, weights_digest(self.judge))
        measured(Showcase, 1, lambda notice: showcase(agent, test, found, self.seed))
        measured(Latents, 1, lambda notice: latents(agent, test, self.seed))
        measured(ManyLooks, len(some), partial(many_looks, *given), first)
        measured(Samples, len(COUNTS) * len(some), partial(sample_counts, *given), first)
        measured(Disturbed, PASSES * len(some), partial(disturbed, *given), first)
        return found


def trained(run: Path) -> dict[str, Any]:
    """The configuration of a run folder."""
    path = run / "config.json"
    if not path.is_file():
        raise InfogazeError(f"{run}: not a run folder, it has no config.json; `infogaze train --out` writes one")
    try:
        config: dict[str, Any] = read_json(path)["config"]
        config["data"], config["preset"]["name"], config["seed"], config["method"], config["phases"]
    except (InfogazeError, KeyError, TypeError):
        raise InfogazeError(f"{path}: not the configuration of a run") from None
    return config


def _images(data: dict[str, Any], root: Path | None) -> tuple[ImageSet, str]:
    """The set that a run was trained on, and the digest of its test split."""
    options = {**data["options"]}
    if options["size"] is not None:
        options["size"] = tuple(options["size"])
    images = load_set(data["name"], data["root"] if root is None else root, Options(**options))
    digest = hashlib.sha256(np.ascontiguousarray(images.test.images.numpy()).data)
    digest.update(np.ascontiguousarray(images.test.labels.numpy()).data)
    return images, digest.hexdigest()


def _judge(run: Path, device: torch.device) -> Agent:
    judge = load(run, device)
    if METHODS[judge.method].sees != "everything":
        raise InfogazeError(f"{run}: a run of {judge.method}; a judge must be one of cnn")
    return judge


def _require_fit(run: Path, agent: Agent, images: ImageSet) -> None:
    config, shape = agent.config, images.test.images.shape[1:]
    if config is not None and shape != (config.channels, config.height, config.width):
        found = "x".join(map(str, shape))
        raise InfogazeError(
            f"{run}: its scenes are {config.channels}x{config.height}x{config.width}, the test images {found}"
        )
    if agent.classes != images.classes:
        raise InfogazeError(
            f"{run}: the {len(agent.classes)} classes it names are not the {len(images.classes)} of the test images"
        )


def _about(
    run: Path, config: dict[str, Any], agent: Agent, test: Split, digest: str, seed: int, device: torch.device
) -> About:
    from infogaze import __version__

    data, method = config["data"], METHODS[agent.method]
    # A set of one's own is known by its file's or folder's name.
    name = Path(data["root"]).stem if data["name"] in {"arrays", "folder"} else data["name"]
    return About(
        method=agent.method,
        preset=config["preset"]["name"],
        seed=config["seed"],
        data=name,
        test=digest,
        scenes=len(test),
        classes=agent.classes,
        looks=min(agent.looks, agent.model.grid.places),
        samples=agent.samples if method.imagines else 0,
        grid=agent.model.grid,
        deployable=method.sees != "the scene when it chooses",
        whole=method.sees == "everything",
        first_looks=seed,
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
        versions={"infogaze": __version__, "python": platform.python_version(), "torch": torch.__version__},
        weights=weights_digest(run),
        twin=agent.twin,
        recipe=trained_by(agent.method, config),
        hold_out=config.get("hold_out", 0.0),
        fit="" if data["options"]["size"] is None else data["options"]["fit"],
    )
