"""`infogaze train PRESET`: from a data set to a trained model, in a run folder that survives being killed."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Literal

import torch
import tyro

from infogaze.data.options import Options
from infogaze.data.registry import load_set
from infogaze.data.sets import ImageSet
from infogaze.errors import InfogazeError
from infogaze.files import FileError, locked
from infogaze.gaze.agent import Agent
from infogaze.methods.registry import build_for, method
from infogaze.models import load, save
from infogaze.nn.model import Recogniser
from infogaze.presets import Preset, preset
from infogaze.progress import display
from infogaze.runs import DataChoice, RunConfig, RunFolder
from infogaze.tasks.tracking import tracker
from infogaze.tasks.watching import Bars
from infogaze.training.distributed import first_process_first, processes
from infogaze.training.loop import Diverged, Step, Stopped, Surroundings, train
from infogaze.training.recipe import recipe
from infogaze.training.step import Share

PresetName = Literal["svhn", "cifar10", "cifar10-plus", "cinic10", "cifar100", "tinyimagenet", "digits"]
MethodName = Literal[
    "infogaze", "no-hindsight", "gaussian", "gaussian-no-hindsight", "attention",
    "random", "ram", "ram-plus", "discriminative", "oracle", "cnn",
]  # fmt: skip
RecipeName = Literal["paper", "fast", "quickstart", "smoke"]


@dataclass(frozen=True)
class Train:
    """Train a model, phase by phase, and write it to OUT together with its metrics and checkpoints.

    The same command again goes on where the run was stopped or killed. OUT belongs to one configuration; another one is refused. OUT itself
    is then a model folder: `infogaze.load(OUT)` and `infogaze look --model OUT` open it. Under torchrun it trains in several processes.
    """

    preset: Annotated[PresetName, tyro.conf.Positional, tyro.conf.arg(metavar="PRESET")]
    """Sizes of the networks and what belongs to the data set: svhn, cifar10, cifar10-plus, cinic10, cifar100, tinyimagenet or digits."""
    out: Path
    """The run folder."""
    data: str | None = None
    """The image set, see `infogaze data list`; the preset's own if not given. Its sizes and classes go before the preset's."""
    root: Path | None = None
    """Where the set's files are; digits needs none."""
    download: bool = False
    """Fetch the set into the root first, where infogaze knows how."""
    read: Options = Options()
    """How the images are read."""
    recipe: RecipeName = "fast"
    """How long and how hard: paper, fast, quickstart or smoke."""
    length: float = 1.0
    """Train for this many times the recipe's epochs, in every phase: 0.5 is half as long."""
    method: MethodName = "infogaze"
    """Ours, or what it is compared with: infogaze, no-hindsight, gaussian, gaussian-no-hindsight, attention, random, ram, ram-plus,
    discriminative, oracle or cnn."""
    phases: tuple[int, ...] | None = None
    """Which of the method's phases to run; all if not given."""
    start_from: str | None = None
    """A bundled name, or a model or run folder, whose weights to begin with; needed where phase 1 is left out. From another method's
    folder, those of F, R and C are taken."""
    hold_out: float = 0.0
    """Share of the training split kept back. Ten times a phase up to 1000 of these scenes are looked at, and the phase hands on the weights
    that named most of them right after the last look; metrics.jsonl has the shares."""
    seed: int = 0
    """Fixes everything: weights, order, looks, augmentation."""
    device: str = "auto"
    """Where to train: cpu, cuda, cuda:1; auto takes a GPU if there is one."""
    save_every: float = 120.0
    """Seconds between checkpoints."""
    track: bool = False
    """Write TensorBoard's files to OUT/tensorboard as well; needs the extra `track`."""

    def run(self) -> None:
        """Read, train, save."""
        if not 0.0 <= self.save_every < math.inf:
            raise InfogazeError(f"save_every is {self.save_every}; it must be a number of seconds, at least 0")
        with processes(chosen_device(self.device)) as (share, device):
            with first_process_first(share):
                config, images = self._resolved()
                model = self._begin(config).to(device)
                folder = RunFolder(self.out, config)
            if share.world > 1 and device.type == "cuda":
                model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
            with locked(self.out) if share.rank == 0 else nullcontext():
                self._train(model, images, config, folder, share)

    def _resolved(self) -> tuple[RunConfig, ImageSet]:
        name = preset(self.preset).data if self.data is None else self.data
        images = load_set(name, self.root, self.read, download=self.download)
        data = DataChoice(name, None if self.root is None else str(self.root), self.read)
        settings = fitted(preset(self.preset), images)
        settings = replace(settings, model=method(self.method).sizes(settings.model))
        phases = self.phases
        if phases is None:
            phases = tuple(range(1, len(method(self.method).phases) + 1))
        way = recipe(self.recipe).lengthened(self.length)
        config = RunConfig(settings, way, data, self.seed, self.method, phases, self.start_from, self.hold_out)
        return config, images

    def _train(self, model: Recogniser, images: ImageSet, config: RunConfig, folder: RunFolder, share: Share) -> None:
        settings = config.preset
        agent = Agent(
            model,
            images.classes,
            looks=settings.looks,
            samples=settings.samples,
            config=settings.model,
            method=self.method,
            twin=settings.twin,
            fit="crop" if self.read.size is None else self.read.fit,
        )
        with display(quiet=share.rank > 0) as screen, stop_signals() as asked:
            watchers: list[Callable[[Step], None]] = [Bars(screen).notice]
            if self.track and share.rank == 0:
                watchers.append(tracker(self.out))

            def notice(step: Step) -> None:
                for watcher in watchers:
                    watcher(step)

            around = Surroundings(notice, screen.say, lambda: bool(asked), self.save_every, share)
            try:
                train(model, images.train, config, folder, around)
                if share.rank == 0:
                    save(agent, self.out)
                    screen.say(f"model: {self.out}{still_to_train(self.method, config.phases)}")
            except Stopped as stop:
                screen.say(f"{stop}; the same command again goes on from there")
                raise SystemExit(128 + (asked[0] if asked else signal.SIGTERM)) from None
            except Diverged as error:
                screen.say(f"infogaze: {error}")
                raise SystemExit(1) from None
            except FileError as error:
                if not error.disk_full:
                    raise
                raise InfogazeError(f"{error}; the last good checkpoint stands, make room and go on") from None

    def _begin(self, config: RunConfig) -> Recogniser:
        sizes = config.preset.model
        model = build_for(self.method, sizes, self.seed)
        if self.start_from is None:
            return model
        source = load(self.start_from)
        if source.method == self.method and source.config == sizes:
            return source.model
        ours, theirs = model.backbone.state_dict(), source.model.backbone.state_dict()
        same_shapes = {name: value.shape for name, value in ours.items()} == {
            name: value.shape for name, value in theirs.items()
        }
        if not same_shapes or (source.config is not None and source.config.keeping != sizes.keeping):
            raise InfogazeError(
                f"{self.start_from}: a model of other networks than {self.preset} by {self.method} on this data"
            )
        if config.phases[0] > 2:
            raise InfogazeError(
                f"{self.start_from}: a model by {source.method}; phase {config.phases[0]} goes on from one by {self.method}, of the "
                "same sizes"
            )
        model.backbone.load_state_dict(theirs)
        return model


def still_to_train(name: str, phases: Sequence[int]) -> str:
    """Words for the phases that a run of some of a method's phases leaves to another one; none where there are none."""
    left = [str(number) for number in range(phases[-1] + 1, len(method(name).phases) + 1)]
    if not left:
        return ""
    return f"; phase {' and '.join(left)} of {name} not trained yet, see --start-from"


def chosen_device(name: str) -> torch.device:
    """A device by name; refuses one that is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InfogazeError(f"device is {name!r}; auto, cpu, cuda or cuda:N is allowed") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InfogazeError(f"device is {name!r}, and no GPU is to be seen here")
    if device.type not in {"cpu", "cuda"}:
        raise InfogazeError(f"device is {name!r}; auto, cpu, cuda or cuda:N is allowed")
    return device


def fitted(settings: Preset, images: ImageSet) -> Preset:
    """The preset with the image size, channels and classes of the data."""
    _, channels, height, width = images.train.images.shape
    model = replace(settings.model, height=height, width=width, channels=channels, classes=len(images.classes))
    return replace(settings, model=model)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """The signals that asked to stop while the block ran; a second one is not waited for."""
    asked: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    old = {number: signal.signal(number, hear) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
