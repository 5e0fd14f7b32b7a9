"""How fast training, testing and a single decision are here, by the code that does them, on images made up."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from infogaze.data.augmentation import Augmentation
from infogaze.data.feed import Examples, Feed
from infogaze.data.sets import Split
from infogaze.errors import InfogazeError
from infogaze.gaze.agent import Agent
from infogaze.gaze.episode import Episode
from infogaze.gaze.sensor import EpisodeSensor
from infogaze.methods.registry import METHODS, build_for
from infogaze.models import compiled
from infogaze.nn.distilled import DistilledGain
from infogaze.presets import Preset
from infogaze.progress import Display
from infogaze.training.phases import Objective
from infogaze.training.recipe import recipe
from infogaze.training.step import TrainStep
from infogaze.version import __version__

ROWS = ("phase 1", "phase 2", "phase 3", "test", "decision", "scene", "distilled decision", "distilled scene")


def rows_of(method: str) -> tuple[str, ...]:
    """Those that a method has: as many phases as it is trained in, looks if it looks by itself, and nothing distilled where nothing is
    imagined."""
    known = METHODS[method]

    def there(row: str) -> bool:
        if row.startswith("phase"):
            return int(row.split()[1]) <= len(known.phases)
        return known.sees == "looks" and (known.imagines or not row.startswith("distilled"))

    return tuple(filter(there, ROWS))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement."""

    row: str
    batch_size: int
    images_per_second: float
    milliseconds: float
    """For one batch."""
    gflop_per_image: float
    """Multiplications and additions of convolutions and matrix products, as executed."""
    share_of_peak: float
    """Of the rate of a large matrix product measured here."""
    peak_memory_gib: float | None
    """On the device; None on the CPU."""


def measure(
    settings: Preset,
    device: torch.device,
    *,
    method: str = "infogaze",
    batch_size: int,
    seconds: float,
    rows: Sequence[str] | None,
    screen: Display,
) -> list[Row]:
    """The rows asked for, in order, or all that the method has."""
    settings = replace(settings, model=METHODS[method].sizes(settings.model))
    there = rows_of(method)
    rows = there if rows is None else rows
    for name in rows:
        if name not in there:
            raise InfogazeError(f"{name} of {method} is not there; it has {', '.join(there)}")
    config = settings.model
    generator = torch.Generator().manual_seed(0)
    size = (max(4 * batch_size, 2048), config.channels, config.height, config.width)
    images = torch.randint(0, 256, size, generator=generator).to(torch.uint8)
    split = Split(images, torch.randint(0, config.num_classes, size[:1], generator=generator))
    peak = peak_rate(device)
    screen.say(f"{machine(device)['device']}: {peak / 1e12:.3g} TFLOP/s in a large matrix product")
    measured = []
    for name in rows:
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
        scenes, work = _WORK[name](method, settings, split, device=device, batch_size=batch_size)
        flops = scenes * flops_per_image(name, method, settings, split=split)
        for _ in range(6 if device.type == "cuda" else 1):
            work()
        each = _time(work, device, seconds)
        memory = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None
        row = Row(
            row=name,
            batch_size=scenes,
            images_per_second=scenes / each,
            milliseconds=1000 * each,
            gflop_per_image=flops / scenes / 1e9,
            share_of_peak=flops / each / peak,
            peak_memory_gib=memory,
        )
        measured.append(row)
        used = "" if memory is None else f", {memory:.1f} GiB"
        screen.say(
            f"{name:<18} batch {scenes:<5} {row.images_per_second:>10,.0f} images/s {row.milliseconds:>9.2f} ms "
            f"{row.gflop_per_image:8.2f} GFLOP/image {100 * row.share_of_peak:5.1f} % of the peak{used}"
        )
    return measured


def machine(device: torch.device) -> dict[str, Any]:
    """What was measured on."""
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


def flops_per_image(row: str, method: str, settings: Preset, *, split: Split) -> float:
    """Operations of convolutions and matrix products that one more image takes, counted while small batches run on the CPU.

    What is done once for a batch of any size, such as what R makes of a dictionary's entries, is none of them.
    """
    (few, fewer), (many, more) = (_flops(row, method, settings, split=split, batch_size=size) for size in (2, 4))
    return (more - fewer) / (many - few) if many > few else fewer / few


def _flops(row: str, method: str, settings: Preset, *, split: Split, batch_size: int) -> tuple[int, int]:
    """Scenes, and operations for all of them together, once what is kept from one time to the next is there."""
    scenes, work = _WORK[row](method, settings, split, device=torch.device("cpu"), batch_size=batch_size)
    work()
    with FlopCounterMode(display=False) as counter:
        work()
    return scenes, counter.get_total_flops()


Work = tuple[int, Callable[[], object]]
"""Scenes at a time, and what is measured."""


@runtime_checkable
class _Prepare(Protocol):
    def __call__(
        self, method: str, settings: Preset, split: Split, *, device: torch.device, batch_size: int
    ) -> Work: ...


def _phase(index: int) -> _Prepare:
    def prepare(method: str, settings: Preset, split: Split, *, device: torch.device, batch_size: int) -> Work:
        model = build_for(method, settings.model).to(device)
        step = TrainStep(
            model,
            METHODS[method].phases[index],
            objective=Objective(
                num_looks=settings.num_looks,
                num_classes=settings.model.num_classes,
                alpha=settings.alpha,
                beta=settings.beta,
                dropout=settings.dropout,
            ),
            recipe=recipe("fast" if device.type == "cuda" else "quickstart"),
            augmentation=Augmentation(flip=settings.horizontal_flip),
            batch_size=batch_size,
            seed=0,
        )
        batches = _endless(Feed(split, device), batch_size)
        return batch_size, lambda: step(*next(batches), learning_rate=1e-4)

    return prepare


def _endless(feed: Feed, batch_size: int) -> Iterator[Examples]:
    for epoch in count():
        yield from feed.batches(epoch, batch_size, seed=0)


def _agent(method: str, settings: Preset, device: torch.device, *, distilled: bool = False) -> Agent:
    model = build_for(method, settings.model).to(device)
    names = [str(label) for label in range(settings.model.num_classes)]
    agent = Agent(
        model,
        names,
        policy=METHODS[method].policy(settings.num_contents(METHODS[method].imagination)),
        num_looks=settings.num_looks,
        flip_tta=settings.flip_tta,
    )
    if distilled:
        # What it has learned changes no time.
        agent.distilled = DistilledGain(settings.model.belief_size, agent.model.grid.num_locations).to(device)
        agent = agent.with_distilled_gain()
    return compiled(agent) if device.type == "cuda" else agent


def _test(method: str, settings: Preset, split: Split, *, device: torch.device, batch_size: int) -> Work:
    agent = _agent(method, settings, device)
    images = split.images[:batch_size].to(device)

    def look() -> object:
        return agent.run(EpisodeSensor(images, settings.model.glimpse_size), batch=batch_size).probabilities

    return batch_size, look


def _decision(*, distilled: bool) -> _Prepare:
    def prepare(method: str, settings: Preset, split: Split, *, device: torch.device, batch_size: int) -> Work:
        agent, side = _agent(method, settings, device, distilled=distilled), settings.model.glimpse_size
        episodes = _after_one_look(agent, split.images[:1, :, :side, :side])

        def decide() -> object:
            return next(episodes).next_location().tolist()

        return 1, decide

    return prepare


def _scene(*, distilled: bool) -> _Prepare:
    def prepare(method: str, settings: Preset, split: Split, *, device: torch.device, batch_size: int) -> Work:
        agent, image = _agent(method, settings, device, distilled=distilled), split.images[:1].to(device)

        def look() -> object:
            return agent.run(EpisodeSensor(image, settings.model.glimpse_size)).probabilities.tolist()

        return 1, look

    return prepare


def _after_one_look(agent: Agent, glimpse: Tensor) -> Iterator[Episode]:
    """One episode over and over, as it stands after its first look."""
    episode = agent.episode(first=(0, 0), budget=3)
    episode.observe(glimpse, at=(0, 0))
    while True:
        episode._next = None
        yield episode


_WORK: dict[str, _Prepare] = {
    "phase 1": _phase(0), "phase 2": _phase(1), "phase 3": _phase(2), "test": _test,
    "decision": _decision(distilled=False), "scene": _scene(distilled=False),
    "distilled decision": _decision(distilled=True), "distilled scene": _scene(distilled=True),
}  # fmt: skip
