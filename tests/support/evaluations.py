"""Evaluations made up so that their numbers are known: the first so many of 60 scenes are correct, one more with each seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from infogaze.evaluation.coherence import Coherence
from infogaze.evaluation.corrupted import Corrupted
from infogaze.evaluation.corruptions import CORRUPTIONS
from infogaze.evaluation.early_stopping import EarlyStopping, early_stopping
from infogaze.evaluation.exact_pass import Records
from infogaze.evaluation.imagined import ImaginedScenes
from infogaze.evaluation.judged import Judged
from infogaze.evaluation.latents import Latents
from infogaze.evaluation.many_looks import ManyLooks
from infogaze.evaluation.sample_counts import SampleCounts
from infogaze.evaluation.showcase import Showcase
from infogaze.evaluation.store import About, Record, begin, write
from infogaze.evaluation.travelled import Travelled
from infogaze.grid import GlimpseGrid
from infogaze.methods.registry import METHODS
from infogaze.report.gather import Chapter, gather

SCENES, LOOKS, CLASSES, PLACES = 60, 7, 3, 9
GRID = GlimpseGrid(height=16, width=16, glimpse_size=8, stride=4)
LABELS = torch.arange(SCENES) % CLASSES
COUNTS = {
    "infogaze": (20, 40, 44, 46, 48, 50, 52),
    "paper-corrected": (20, 39, 43, 45, 47, 49, 51),
    "gaussian-corrected": (20, 34, 40, 43, 45, 47, 48),
    "random": (20, 28, 33, 37, 40, 42, 44),
    "ram": (19, 26, 32, 36, 39, 41, 42),
    "oracle": (20, 50, 55, 56, 57, 57, 57),
    "cnn": (57,),
}
IMAGINING = tuple(name for name, method in METHODS.items() if method.imagines)
EXPECTING = (*IMAGINING, "discriminative", "oracle")
"""Whose maps are in nats."""
PARTS = (
    ManyLooks,
    SampleCounts,
    Coherence,
    Corrupted,
    EarlyStopping,
    Judged,
    Showcase,
    ImaginedScenes,
    Latents,
    Travelled,
)


@dataclass(frozen=True)
class MadeUp:
    """A run to write."""

    method: str
    seed: int = 0
    counts: tuple[int, ...] | None = None
    """How many scenes are correct after each look, for seed 0; by default those of the method."""
    _: KW_ONLY
    parts: tuple[type[Record], ...] = PARTS
    """What is measured besides the pass over the test split."""

    def about(self) -> About:
        """What its evaluation is of."""
        return About(
            method=self.method,
            preset="small",
            seed=self.seed,
            data="shapes",
            test="d1ge57",
            scenes=SCENES,
            classes=("ring", "bar", "dot"),
            num_looks=LOOKS,
            num_samples=20 if self.method in IMAGINING else 0,
            grid=GRID,
            deployable=self.method != "oracle",
            whole=self.method == "cnn",
            first_looks=0,
            device="cpu",
            versions={"infogaze": "0.1.0", "torch": "2.11.0"},
            weights="",
            flip_tta=False,
            recipe="c0ffee",
            val_fraction=0.0,
            fit="",
        )


def predicted(counts: tuple[int, ...], scenes: int = SCENES) -> Tensor:
    """Predictions after each look, [scenes, len(counts)]: the first so many are correct, the others one class further."""
    correct = torch.arange(scenes)[:, None] < torch.tensor(counts)
    return torch.where(correct, LABELS[:scenes, None], (LABELS[:scenes, None] + 1) % CLASSES)


def write_run(root: Path, run: MadeUp, **changes: Any) -> Path:
    """Write its run folder; `changes` are to what its evaluation is of."""
    about = replace(run.about(), **changes)
    folder = root / f"{about.data}-{about.preset}-{run.method}-{run.seed}"
    begin(folder / "evaluation", about)
    parts: tuple[type[Record], ...] = (Records, *run.parts)
    for part in parts:
        made = _MAKE[part](run)
        if made is not None:
            write(folder / "evaluation", made)
    return folder


def sweep(root: Path) -> Path:
    """Two seeds of five methods, and one of the oracle and of the CNN."""
    for method in ("infogaze", "paper-corrected", "gaussian-corrected", "random", "ram"):
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


def _log_probabilities(predictions: Tensor, run: MadeUp) -> Tensor:
    """The prediction is most likely, more so with each look, with a little noise."""
    noise = 0.3 * torch.rand(*predictions.shape, CLASSES, generator=_random(run))
    sure = 0.5 + 0.4 * torch.arange(predictions.shape[1])[:, None]
    return (noise + sure * torch.nn.functional.one_hot(predictions, CLASSES)).log_softmax(-1)


def _records(run: MadeUp) -> Records:
    predictions = predicted(_counts(run))
    expected = (
        torch.rand(SCENES, LOOKS, generator=_random(run)) if run.method in EXPECTING else torch.zeros(SCENES, LOOKS)
    )
    expected[:, 0] = 0
    looks = predictions.shape[1]  # the CNN has one, at all
    return Records(
        labels=LABELS,
        locations=_locations(run)[:, :looks],
        predictions=predictions,
        log_probabilities=_log_probabilities(predictions, run),
        expected=expected[:, :looks],
    )


def _many_looks(run: MadeUp) -> ManyLooks:
    """Best after eight looks of nine."""
    counts = _counts(run)
    return ManyLooks(LABELS, predicted((*counts, counts[-1] + 2, counts[-1] - 1)))


def _sample_counts(run: MadeUp) -> SampleCounts | None:
    if run.method not in IMAGINING:
        return None
    predictions = torch.stack([predicted(tuple(count - lost for count in _counts(run)), 30) for lost in (6, 2, 0)])
    return SampleCounts(
        num_samples=torch.tensor([1, 5, 20]),
        labels=LABELS[:30],
        predictions=predictions,
        log_probabilities=torch.stack([_log_probabilities(part, run) for part in predictions]),
        expected=torch.rand(3, 30, LOOKS, generator=_random(run)),
        seconds=torch.tensor([0.3, 0.6, 1.5]) + run.seed,
    )


def _corrupted(run: MadeUp) -> Corrupted:
    severities = torch.tensor([corruption.severities for corruption in CORRUPTIONS.values()])
    kinds, levels = severities.shape

    def predictions(kind: int, level: int) -> Tensor:
        return predicted(tuple(count - (kind + 1) * level for count in _counts(run)), 50)

    by_kind = [torch.stack([predictions(kind, level) for level in range(levels)]) for kind in range(kinds)]
    return Corrupted(LABELS[:50], severities, torch.stack(by_kind))


def _judged(run: MadeUp) -> Judged:
    return Judged(predicted(tuple(count - 5 for count in _counts(run))), torch.arange(32, dtype=torch.uint8))


def _showcase(run: MadeUp) -> Showcase:
    """Two common scenes, then the last two, which are wrong, and the first two, which are correct at the last look."""
    scenes = torch.tensor([4, 7, 58, 59, 0, 1])
    generator = torch.Generator().manual_seed(5)
    images = torch.randint(0, 200, (len(scenes), 1, GRID.height, GRID.width), generator=generator).to(torch.uint8)
    records = _records(run)
    gains = torch.rand(len(scenes), LOOKS, GRID.rows, GRID.cols, generator=_random(run))
    gains[:, 0] = 0
    means = torch.arange(CLASSES)[:, None, None, None].mul(60).expand(-1, 1, GRID.height, GRID.width)
    return Showcase(
        scenes=scenes,
        common=torch.tensor(2),
        images=images,
        labels=LABELS[scenes],
        locations=records.locations[scenes],
        gains=gains if run.method in IMAGINING else gains * 0,
        probabilities=records.log_probabilities[scenes].exp(),
        class_means=means.to(torch.uint8),
    )


def _imagined(run: MadeUp) -> ImaginedScenes | None:
    if METHODS[run.method].imagination != "dictionary":
        return None
    shown, generator = _showcase(run), _random(run)
    shape = (len(shown.scenes), LOOKS, 1, GRID.height, GRID.width)
    return ImaginedScenes(
        scenes=shown.scenes,
        pictures=torch.randint(0, 256, shape, generator=generator).to(torch.uint8),
        uncertainty=3.0 * torch.rand(*shape[:2], GRID.rows, GRID.cols, generator=generator),
    )


def _latents(run: MadeUp) -> Latents | None:
    if METHODS[run.method].imagination != "vae":
        return None
    return Latents(torch.tensor(4), GRID.locations()[:LOOKS], torch.randn(LOOKS, 12, 3, generator=_random(run)))


def _coherence(run: MadeUp) -> Coherence | None:
    if run.method not in IMAGINING:
        return None
    parts = torch.rand(2, SCENES, LOOKS - 1, generator=_random(run))
    return Coherence(mutual_information=0.2 * parts[0], incoherence=0.05 * parts[1])


def _early_stopping(run: MadeUp) -> EarlyStopping | None:
    return early_stopping(_records(run), splits=5) if METHODS[run.method].sees == "looks" else None


def _travelled(run: MadeUp) -> Travelled:
    """Four times, in which looks by gain a second are two scenes ahead of gain alone and four of random looks."""
    counts = _counts(run)[:4]
    predictions = torch.stack([predicted(tuple(count - lost for count in counts)) for lost in (0, 2, 4)])
    return Travelled(
        labels=LABELS,
        seconds=torch.tensor([1.0, 3.0, 5.0, 7.0], dtype=torch.float64),
        predictions=predictions,
        looks=torch.tensor([9, 6, 5])[:, None].expand(3, SCENES),
        clock=torch.tensor([1.0, 0.5, 4.0], dtype=torch.float64),
    )


_MAKE: dict[type[Record], Callable[[MadeUp], Record | None]] = {
    Records: _records,
    ManyLooks: _many_looks,
    SampleCounts: _sample_counts,
    Coherence: _coherence,
    Corrupted: _corrupted,
    EarlyStopping: _early_stopping,
    Judged: _judged,
    Showcase: _showcase,
    ImaginedScenes: _imagined,
    Latents: _latents,
    Travelled: _travelled,
}
