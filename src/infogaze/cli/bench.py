"""`infogaze bench`: how fast training, testing and a single decision are here, by the code that does them."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from torch.utils.flop_counter import FlopCounterMode

from infogaze.cli.train import PresetName, chosen_device
from infogaze.data.augmentation import Augmentation
from infogaze.data.feed import Examples, Feed
from infogaze.data.sets import Split
from infogaze.errors import InfogazeError
from infogaze.files import make_folder, write_json
from infogaze.gaze.agent import Agent
from infogaze.gaze.captured import CapturedPolicy
from infogaze.gaze.policies import GainPolicy, Policy
from infogaze.gaze.sensor import ImageSensor
from infogaze.methods.three_phases import PHASES
from infogaze.nn.compilation import compile_parts
from infogaze.nn.model import build
from infogaze.presets import Preset, preset
from infogaze.progress import Display, display
from infogaze.training.phases import Objective
from infogaze.training.recipe import recipe
from infogaze.training.step import Stepper

_ROWS = ("phase 1", "phase 2", "phase 3", "test", "decision")


@dataclass(frozen=True)
class Row:
    """One measurement."""

    row: str
    batch: int
    images_per_second: float
    milliseconds: float
    """For one batch."""
    gflop_per_image: float
    """Multiplications and additions of convolutions and matrix products, as executed."""
    share_of_peak: float
    """Of the rate of a large matrix product measured here."""
    peak_memory_gib: float | None
    """On the device; None on the CPU."""


@dataclass(frozen=True)
class Bench:
    """Measure images a second of each phase and of the test procedure, and the time of one decision, on images made up.

    The whole data path is in it: gathering from the set, augmentation, random numbers, optimiser, averaging. On a GPU in bfloat16, on the
    CPU in float32.
    """

    preset: Annotated[PresetName, tyro.conf.Positional, tyro.conf.arg(metavar="PRESET")] = "cifar10"
    """Whose sizes to measure: svhn, cifar10, cifar10-plus, cinic10, cifar100, tinyimagenet or digits."""
    device: str = "auto"
    """Where: cpu, cuda, cuda:1; auto takes a GPU if there is one."""
    rows: tuple[str, ...] = _ROWS
    """Which measurements: 'phase 1', 'phase 2', 'phase 3', 'test', 'decision'."""
    batch: int | None = None
    """Scenes a step; 1024 on a GPU and 64 on the CPU if not given. A decision is for one scene always."""
    seconds: float = 5.0
    """How long each is measured, after warming up."""
    out: Path | None = None
    """A JSON file for the numbers."""

    def run(self) -> None:
        """Measure, print, write."""
        for row in self.rows:
            if row not in _ROWS:
                raise InfogazeError(f"no row is called {row!r}; there are {', '.join(_ROWS)}")
        device = chosen_device(self.device)
        batch = self.batch if self.batch is not None else (1024 if device.type == "cuda" else 64)
        with display() as screen:
            measured = measure(preset(self.preset), device, batch, self.seconds, self.rows, screen)
        record = {"preset": self.preset, **machine(device), "rows": [asdict(row) for row in measured]}
        if self.out is not None:
            make_folder(self.out.parent)
            write_json(self.out, record)
            print(f"numbers: {self.out}")


def measure(
    settings: Preset, device: torch.device, batch: int, seconds: float, rows: tuple[str, ...], screen: Display
) -> list[Row]:
    """The rows asked for, in order."""
    config = settings.model
    generator = torch.Generator().manual_seed(0)
    size = (max(4 * batch, 2048), config.channels, config.height, config.width)
    images = torch.randint(0, 256, size, generator=generator).to(torch.uint8)
    split = Split(images, torch.randint(0, config.classes, size[:1], generator=generator))
    peak = peak_rate(device)
    screen.say(f"{machine(device)['device']}: {peak / 1e12:.3g} TFLOP/s in a large matrix product")
    measured = []
    for name in rows:
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
        scenes, work = _WORK[name](settings, split, device, batch)
        flops = scenes * flops_per_image(name, settings, split)
        for _ in range(6 if device.type == "cuda" else 1):
            work()
        each = _time(work, device, seconds)
        memory = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None
        row = Row(name, scenes, scenes / each, 1000 * each, flops / scenes / 1e9, flops / each / peak, memory)
        measured.append(row)
        used = "" if memory is None else f", {memory:.1f} GiB"
        screen.say(
            f"{name:<9} batch {scenes:<5} {row.images_per_second:>10,.0f} images/s {row.milliseconds:>9.2f} ms "
            f"{row.gflop_per_image:8.2f} GFLOP/image {100 * row.share_of_peak:5.1f} % of the peak{used}"
        )
    return measured


def machine(device: torch.device) -> dict[str, Any]:
    """What was measured on."""
    from infogaze import __version__

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    return {"device": name, "torch": torch.__version__, "python": platform.python_version(), "infogaze": __version__}


def peak_rate(device: torch.device) -> float:
    """Operations a second of a large product: bfloat16 on a GPU, float32 on the CPU."""
    cuda = device.type == "cuda"
    side, kind = (8192, torch.bfloat16) if cuda else (1024, torch.float32)
    a, b = (torch.randn(side, side, device=device, dtype=kind) for _ in range(2))
    return 2 * side**3 / _time(lambda: a @ b, device, 0.5)


def _time(work: Callable[[], object], device: torch.device, seconds: float) -> float:
    """Seconds for one call: the mean of as many as fit, ended by waiting for the device."""
    work()
    _wait(device)
    began, calls = time.perf_counter(), 0
    while True:
        work()
        calls += 1
        if calls % 10 == 0 or device.type != "cuda":
            _wait(device)
            if time.perf_counter() - began > seconds:
                return (time.perf_counter() - began) / calls


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def flops_per_image(row: str, settings: Preset, split: Split) -> float:
    """Operations of convolutions and matrix products, counted while a small batch runs on the CPU."""
    scenes, work = _WORK[row](settings, split, torch.device("cpu"), 2)
    with FlopCounterMode(display=False) as counter:
        work()
    return float(counter.get_total_flops()) / scenes


def _phase(index: int) -> Callable[[Preset, Split, torch.device, int], tuple[int, Callable[[], object]]]:
    def prepare(settings: Preset, split: Split, device: torch.device, batch: int) -> tuple[int, Callable[[], object]]:
        model = build(settings.model).to(device)
        objective = Objective(settings.looks, settings.alpha, settings.beta, settings.dropout)
        way = recipe("fast" if device.type == "cuda" else "quickstart")
        stepper = Stepper(model, PHASES[index], objective, way, Augmentation(flip=settings.mirror), batch, seed=0)
        batches = _endless(Feed(split, device), batch)
        model.train()
        return batch, lambda: stepper.step(*next(batches), 1e-4)

    return prepare


def _endless(feed: Feed, batch: int) -> Iterator[Examples]:
    for epoch in count():
        yield from feed.batches(epoch, batch, seed=0)


def _agent(settings: Preset, device: torch.device) -> tuple[Agent, Policy]:
    model = build(settings.model).to(device)
    policy: Policy = GainPolicy(settings.samples)
    if device.type == "cuda":
        compile_parts(model)
        policy = CapturedPolicy(policy)
    names = [str(label) for label in range(settings.model.classes)]
    agent = Agent(
        model,
        names,
        looks=settings.looks,
        samples=settings.samples,
        precision="bfloat16" if device.type == "cuda" else "float32",
        twin=settings.twin,
    )
    return agent, policy


def _test(settings: Preset, split: Split, device: torch.device, batch: int) -> tuple[int, Callable[[], object]]:
    agent, policy = _agent(settings, device)
    images = split.images[:batch].to(device)

    def look() -> object:
        return agent.run(ImageSensor(images, settings.model.glimpse), batch=batch, policy=policy).probabilities

    return batch, look


def _decision(settings: Preset, split: Split, device: torch.device, batch: int) -> tuple[int, Callable[[], object]]:
    agent, policy = _agent(settings, device)
    glimpse = split.images[:1, :, : settings.model.glimpse, : settings.model.glimpse]
    episodes = _after_one_look(agent, policy, glimpse)

    def decide() -> object:
        return next(episodes).next_location().tolist()

    return 1, decide


def _after_one_look(agent: Agent, policy: Policy, glimpse: torch.Tensor) -> Iterator[Any]:
    """One episode over and over, as it stands after its first look."""
    episode = agent.episode(policy=policy, first=(0, 0), budget=3)
    episode.observe(glimpse, at=(0, 0))
    while True:
        episode._next = None
        yield episode


_WORK = {"phase 1": _phase(0), "phase 2": _phase(1), "phase 3": _phase(2), "test": _test, "decision": _decision}
