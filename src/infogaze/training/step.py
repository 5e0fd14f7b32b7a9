"""One optimisation step of a phase, and everything that a step changes: weights, moments, average, meters, random state.

A step whose loss or gradient is not finite changes nothing but the count of such steps. On a CUDA device the step, from the drawing of
its random numbers to the update of the average, is captured once as a graph and replayed: at these sizes launches are the cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, distributed, nn

from infogaze.data.augmentation import NUMBERS, Augmentation, draw_from, transform
from infogaze.nn.compilation import compile_parts
from infogaze.nn.model import Recogniser
from infogaze.nn.pixels import to_pixels
from infogaze.nn.precision import precise
from infogaze.training.phases import Batch, Draw, Objective, Outcome, Phase, draw
from infogaze.training.recipe import Recipe

_EAGER_STEPS = 3
"""Real steps before the capture, in which allocators, compilers and libraries settle."""


@dataclass(frozen=True)
class Share:
    """Which scenes of a global batch are this process's."""

    rank: int = 0
    world: int = 1

    def of(self, scenes: int) -> slice:
        """The slice of a global batch of this many scenes."""
        each = scenes // self.world
        return slice(self.rank * each, (self.rank + 1) * each)


@dataclass(frozen=True)
class Reading:
    """What the meters said."""

    loss: float
    """Mean over the steps that were not skipped."""
    accuracy: tuple[float, ...]
    """Likewise, at each look."""
    steps: int
    """How many these are."""
    skipped: int
    """Steps whose loss or gradient was not finite."""
    skipped_in_a_row: int
    """Up to now."""
    visited_entropy: tuple[float, ...]
    """Of the grid places that the looks fell on, at each look, in nats: 0 where all fell on one; empty where nothing is looked at."""


class PhaseLoss(nn.Module):
    """A phase's loss as a module, which is what DistributedDataParallel wraps."""

    def __init__(self, model: Recogniser, phase: Phase, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self._phase = phase
        self._objective = objective

    def forward(self, images: Tensor, labels: Tensor, progress: Tensor, numbers: Draw) -> tuple[Tensor, Tensor, Tensor]:
        """The loss, the accuracy at each look, and where the looks fell."""
        outcome: Outcome = self._phase.loss(self.model, Batch(images, labels, progress), numbers, self._objective)
        return outcome.loss, outcome.accuracy, outcome.visited


class Stepper:
    """The state of a phase in training, moved on by `step`."""

    def __init__(
        self,
        model: Recogniser,
        phase: Phase,
        objective: Objective,
        recipe: Recipe,
        augmentation: Augmentation | None,
        batch: int,
        seed: int,
        share: Share = Share(),
    ) -> None:
        device = model.device
        self._model, self._phase, self._objective, self._recipe = model, phase, objective, recipe
        self._augmentation, self._batch, self._share = augmentation, batch, share
        if device.type == "cuda" and share.world == 1:
            compile_parts(model)
        model.requires_grad_(False)
        self._trained = [parameter.requires_grad_() for parameter in phase.trained(model)]
        self._statistics = [value for value in model.buffers() if value.is_floating_point()]
        self._loss: nn.Module = PhaseLoss(model, phase, objective)
        if share.world > 1:
            # The ranks begin alike and every update is of gradients and statistics they share, so nothing needs to be sent anew.
            self._loss = nn.parallel.DistributedDataParallel(self._loss, broadcast_buffers=False)
        self.learning_rate, self._progress = torch.zeros((), device=device), torch.zeros((), device=device)
        self.optimiser = torch.optim.AdamW(
            self._trained, self.learning_rate, betas=recipe.betas, weight_decay=recipe.weight_decay,
            fused=True, capturable=device.type == "cuda",
        )  # fmt: skip
        self.average: dict[str, Tensor] = {}
        """The running average of every weight and statistic, by name; empty where the recipe has none."""
        if recipe.average:
            self.average = {name: value.detach().clone() for name, value in _floats(model).items()}
        self.generator = torch.Generator(device).manual_seed(seed)
        zeros = {
            "loss": (),
            "accuracy": (objective.looks if phase.looks else 1,),
            "visited": (objective.looks, model.grid.places),
            "steps": (),
            "skipped": (),
            "skipped_in_a_row": (),
            "averaged": (),
        }
        self.meters = {name: torch.zeros(shape, device=device) for name, shape in zeros.items()}
        """Sums since they were last read, how many steps in a row were skipped, and how many the average is over."""
        self.taken = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._images: Tensor | None = None
        self._labels: Tensor | None = None

    def step(
        self, images: UInt8[Tensor, "b C H W"], labels: Int[Tensor, " b"], learning_rate: float, progress: float = 0.0
    ) -> None:
        """Learn from this process's share of a batch, with this share of the phase already done."""
        self.learning_rate.fill_(learning_rate)
        self._progress.fill_(progress)
        if self.learning_rate.device.type != "cuda" or self._share.world > 1 or self.taken < _EAGER_STEPS:
            self._step(images, labels)
        else:
            self._replay(images, labels)
        self.taken += 1

    def read_meters(self) -> Reading:
        """The means since the last reading and the counts of skipped steps; the sums begin anew. Waits for the device."""
        if self._share.world > 1:
            for name in ("loss", "accuracy", "visited"):
                distributed.all_reduce(self.meters[name])
                self.meters[name] /= self._share.world
        sums = {name: value.flatten().tolist() for name, value in self.meters.items() if name != "visited"}
        visited = self.meters["visited"].double()
        entropy = (
            torch.special.entr(visited / visited.sum(1, keepdim=True)).sum(1) if bool(visited.any()) else visited[:0, 0]
        )
        finite = max(sums["steps"][0], 1.0)
        for name in ("loss", "accuracy", "visited", "steps", "skipped"):
            self.meters[name].zero_()
        return Reading(
            loss=sums["loss"][0] / finite,
            accuracy=tuple(value / finite for value in sums["accuracy"]),
            steps=round(sums["steps"][0]),
            skipped=round(sums["skipped"][0]),
            skipped_in_a_row=round(sums["skipped_in_a_row"][0]),
            visited_entropy=tuple(entropy.tolist()),
        )

    @torch.no_grad()
    def hand_on(self) -> None:
        """Give the model the averaged weights, where there are any."""
        for name, value in _floats(self._model).items():
            if name in self.average:
                value.copy_(self.average[name])

    @contextmanager
    def handed_on(self) -> Iterator[None]:
        """Within the block the model has the weights that it would be handed on with."""
        own = {name: value.clone() for name, value in _floats(self._model).items() if name in self.average}
        self.hand_on()
        try:
            yield
        finally:
            with torch.no_grad():
                for name, value in _floats(self._model).items():
                    if name in own:
                        value.copy_(own[name])

    def _step(self, images: Tensor, labels: Tensor) -> None:
        mine = self._share.of(self._batch)
        numbers = draw(self._phase, self._model, self._batch, self._objective, self.generator)[mine]
        pixels = self._pixels(images, mine)
        before = [value.clone() for value in self._statistics]
        self.optimiser.zero_grad(set_to_none=True)
        fast = images.is_cuda and self._recipe.precision == "bfloat16"
        with torch.autocast(images.device.type, torch.bfloat16, enabled=fast):
            loss, accuracy, visited = self._loss(pixels, labels, self._progress, numbers)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self._trained, self._recipe.clip)
        bad = ~(norm.isfinite() & loss.detach().isfinite())
        if self._share.world > 1:
            told = bad.float()
            distributed.all_reduce(told, distributed.ReduceOp.MAX)
            bad = told > 0
        self._update(before, loss.detach(), accuracy, visited, bad)

    @torch.no_grad()
    def _update(self, before: list[Tensor], loss: Tensor, accuracy: Tensor, visited: Tensor, bad: Tensor) -> None:
        # torch's fused optimisers leave weights, moments and step counts alone where this is one.
        self.optimiser.found_inf = bad.float()  # type: ignore[attr-defined]
        self.optimiser.step()
        for value, old in zip(self._statistics, before, strict=True):
            value.copy_(torch.where(bad, old, value))
        good = (~bad).float()
        if self.average:
            current, averages = _floats(self._model), list(self.average.values())
            change = torch._foreach_sub([current[name] for name in self.average], averages)
            # Over few steps a long average would be mostly of the weights it began with, so it begins short.
            steps = self.meters["averaged"]
            decay = torch.clamp((1.0 + steps) / (10.0 + steps), max=self._recipe.average)
            torch._foreach_mul_(change, (1.0 - decay) * good)
            torch._foreach_add_(averages, change)
            steps += good
        self.meters["loss"] += torch.where(bad, 0.0, precise(loss))
        self.meters["accuracy"] += torch.where(bad, 0.0, accuracy)
        self.meters["visited"] += torch.where(bad, 0.0, visited)
        self.meters["steps"] += good
        self.meters["skipped"] += bad
        self.meters["skipped_in_a_row"].copy_(torch.where(bad, self.meters["skipped_in_a_row"] + 1, 0.0))

    def _pixels(self, images: Tensor, mine: slice) -> Float[Tensor, "b C H W"]:
        if self._augmentation is None:
            return to_pixels(images)
        uniform = torch.rand(self._batch, NUMBERS, generator=self.generator, device=images.device)[mine]
        drawn = draw_from(uniform, self._augmentation, images.shape[2], images.shape[3])
        return to_pixels(transform(images / 255.0, drawn))

    def _replay(self, images: Tensor, labels: Tensor) -> None:
        if self._graph is None or self._images is None or self._labels is None:
            self._images, self._labels = images.clone(), labels.clone()
            self._graph = torch.cuda.CUDAGraph()
            self._graph.register_generator_state(self.generator)
            self.optimiser.zero_grad(set_to_none=True)
            with torch.cuda.graph(self._graph):
                self._step(self._images, self._labels)
        self._images.copy_(images)
        self._labels.copy_(labels)
        self._graph.replay()


def _floats(model: Recogniser) -> dict[str, Tensor]:
    return {name: value for name, value in model.state_dict().items() if value.is_floating_point()}
