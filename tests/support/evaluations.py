"""Evaluations made up so that their numbers are known: the first so many of 60 scenes are named right, one more with each seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from infogaze.evaluation.corruptions import DISTURBANCES
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
    begin,
    write,
)
from infogaze.grid import GlimpseGrid
from infogaze.methods.registry import METHODS
from infogaze.report.gather import Chapter, gather

SCENES, LOOKS, CLASSES, PLACES = 60, 7, 3, 9
GRID = GlimpseGrid(16, 16, 8, 4)
LABELS = torch.arange(SCENES) % CLASSES
COUNTS = {
    "infogaze": (20, 40, 44, 46, 48, 50, 52),
    "gaussian": (20, 34, 40, 43, 45, 47, 48),
    "random": (20, 28, 33, 37, 40, 42, 44),
    "ram": (19, 26, 32, 36, 39, 41, 42),
    "oracle": (20, 50, 55, 56, 57, 57, 57),
    "cnn": (57,),
}
IMAGINING = tuple(name for name, method in METHODS.items() if method.imagines)
EXPECTING = (*IMAGINING, "discriminative", "oracle")
"""Whose maps are in nats."""
PARTS = (ManyLooks, Samples, Disturbed, Judged, Showcase, Latents)


@dataclass(frozen=True)
class MadeUp:
    """A run to write."""

    method: str
    seed: int = 0
    counts: tuple[int, ...] | None = None
    """How many scenes are right after each look, for seed 0; by default those of the method."""
    parts: tuple[type[Measurement], ...] = PARTS
    """What is measured besides the pass over the test split."""

    def about(self) -> About:
        """What its evaluation says of itself."""
        return About(
            self.method, "small", self.seed, "shapes", "d1ge57", SCENES, ("ring", "bar", "dot"), LOOKS,
            20 if self.method in IMAGINING else 0, GRID, self.method != "oracle", self.method == "cnn", 0, "cpu",
            {"infogaze": "0.1.0", "torch": "2.11.0"},
        )  # fmt: skip


def named(counts: tuple[int, ...], scenes: int = SCENES) -> Tensor:
    """What the scenes are named after each look, [scenes, len(counts)]: the first so many right, the others one class further."""
    right = torch.arange(scenes)[:, None] < torch.tensor(counts)
    return torch.where(right, LABELS[:scenes, None], (LABELS[:scenes, None] + 1) % CLASSES)


def write_run(root: Path, run: MadeUp, **changes: Any) -> Path:
    """Write its run folder; `changes` are to what its evaluation says of itself."""
    about = replace(run.about(), **changes)
    folder = root / f"{about.data}-{about.preset}-{run.method}-{run.seed}"
    begin(folder / "evaluation", about)
    for part in (Records, *run.parts):
        made = _MAKE[part](run)
        if made is not None:
            write(folder / "evaluation", made)
    return folder


def sweep(root: Path) -> Path:
    """Two seeds of four methods, and one of the oracle and of the CNN."""
    for method in ("infogaze", "gaussian", "random", "ram"):
        for seed in (0, 1):
            write_run(root, MadeUp(method, seed))
    write_run(root, MadeUp("oracle"))
    write_run(root, MadeUp("cnn", parts=()))
    return root


def one_chapter(root: Path, *runs: MadeUp) -> Chapter:
    """The chapter that these runs make."""
    (chapter,) = gather([write_run(root, run) for run in runs])
    return chapter


def _counts(run: MadeUp) -> tuple[int, ...]:
    counts = COUNTS.get(run.method, COUNTS["infogaze"]) if run.counts is None else run.counts
    return tuple(count + run.seed for count in counts)


def _random(run: MadeUp) -> torch.Generator:
    return torch.Generator().manual_seed(100 * len(run.method) + run.seed)


def _locations(run: MadeUp) -> Tensor:
    """Different places of the grid for each scene: in order, the start shifted by the scene; for `ram` the same for all."""
    shift = torch.zeros(SCENES, 1, dtype=torch.long) if run.method == "ram" else torch.arange(SCENES)[:, None]
    place = (torch.arange(LOOKS) + shift) % PLACES
    return torch.stack([place // GRID.cols, place % GRID.cols], -1) * GRID.stride


def _log_probabilities(names: Tensor, run: MadeUp) -> Tensor:
    """Most likely the label named, more so with each look, with a little noise."""
    noise = 0.3 * torch.rand(*names.shape, CLASSES, generator=_random(run))
    sure = 0.5 + 0.4 * torch.arange(names.shape[1])[:, None]
    return (noise + sure * torch.nn.functional.one_hot(names, CLASSES)).log_softmax(-1)


def _records(run: MadeUp) -> Records:
    names = named(_counts(run))
    expected = (
        torch.rand(SCENES, LOOKS, generator=_random(run)) if run.method in EXPECTING else torch.zeros(SCENES, LOOKS)
    )
    expected[:, 0] = 0
    looks = names.shape[1]  # the CNN has one, at all
    return Records(LABELS, _locations(run)[:, :looks], names, _log_probabilities(names, run), expected[:, :looks])


def _many_looks(run: MadeUp) -> ManyLooks:
    """Best after eight looks of nine."""
    counts = _counts(run)
    return ManyLooks(LABELS, named((*counts, counts[-1] + 2, counts[-1] - 1)))


def _samples(run: MadeUp) -> Samples | None:
    if run.method not in IMAGINING:
        return None
    tried = torch.tensor([1, 5, 20])
    names = torch.stack([named(tuple(count - lost for count in _counts(run)), 30) for lost in (6, 2, 0)])
    log_probabilities = torch.stack([_log_probabilities(part, run) for part in names])
    expected = torch.rand(3, 30, LOOKS, generator=_random(run))
    return Samples(tried, LABELS[:30], names, log_probabilities, expected, torch.tensor([0.3, 0.6, 1.5]) + run.seed)


def _disturbed(run: MadeUp) -> Disturbed:
    strengths = torch.tensor([disturbance.strengths for disturbance in DISTURBANCES.values()])
    kinds, levels = strengths.shape
    names = [
        torch.stack([named(tuple(count - (kind + 1) * level for count in _counts(run)), 50) for level in range(levels)])
        for kind in range(kinds)
    ]
    return Disturbed(LABELS[:50], strengths, torch.stack(names))


def _judged(run: MadeUp) -> Judged:
    return Judged(named(tuple(count - 5 for count in _counts(run))), torch.arange(32, dtype=torch.uint8))


def _showcase(run: MadeUp) -> Showcase:
    """Two common scenes, then the last two named wrong and the first two named right at the last look."""
    scenes = torch.tensor([4, 7, 58, 59, 0, 1])
    generator = torch.Generator().manual_seed(5)
    images = torch.randint(0, 200, (len(scenes), 1, GRID.height, GRID.width), generator=generator).to(torch.uint8)
    records = _records(run)
    gains = torch.rand(len(scenes), LOOKS, GRID.rows, GRID.cols, generator=_random(run))
    gains[:, 0] = 0
    means = torch.arange(CLASSES)[:, None, None, None].mul(60).expand(-1, 1, GRID.height, GRID.width)
    return Showcase(
        scenes, torch.tensor(2), images, LABELS[scenes], records.locations[scenes], gains if run.method in IMAGINING else gains * 0,
        records.log_probabilities[scenes].exp(), means.to(torch.uint8),
    )  # fmt: skip


def _latents(run: MadeUp) -> Latents | None:
    if run.method not in IMAGINING:
        return None
    return Latents(torch.tensor(4), torch.randn(LOOKS, 12, 3, generator=_random(run)))


_MAKE: dict[type[Measurement], Callable[[MadeUp], Measurement | None]] = {
    Records: _records,
    ManyLooks: _many_looks,
    Samples: _samples,
    Disturbed: _disturbed,
    Judged: _judged,
    Showcase: _showcase,
    Latents: _latents,
}
