"""One optimisation step of a phase.

A step whose loss or gradient is not finite changes nothing but the count of such steps. On a CUDA device the step, from the drawing of
its random numbers to the update of the EMA, is captured once as a graph and replayed: at these sizes launches are the cost.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Int, UInt8
from torch import Tensor, distributed, nn

from infogaze.data.augmentation import Augmentation
from infogaze.nn.compilation import compile_parts
from infogaze.nn.model import GlimpseClassifier
from infogaze.training.distributed import own_part, world_size
from infogaze.training.examples import Examples
from infogaze.training.meters import Meters
from infogaze.training.phases import Batch, Objective, Outcome, Phase
from infogaze.training.recipe import Recipe
from infogaze.training.state import TrainState
from infogaze.training.targets import Teacher

_EAGER_STEPS = 3
"""Real steps before the capture, in which allocators, compilers and libraries settle."""


class PhaseLoss(nn.Module):
    """A phase's loss as a module, which is what DistributedDataParallel wraps."""

    def __init__(self, model: GlimpseClassifier, phase: Phase, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self._phase = phase
        self._objective = objective

    def forward(self, batch: Batch, looks: Any) -> tuple[Tensor, Tensor, Tensor]:
        """The loss, the accuracy at each look, and where the looks fell."""
        outcome: Outcome = self._phase.loss(self.model, batch, objective=self._objective, looks=looks)
        return outcome.loss, outcome.accuracy, outcome.visits


class TrainStep:
    """Takes the steps of a phase. All that they change is in `state`."""

    def __init__(
        self,
        model: GlimpseClassifier,
        phase: Phase,
        *,
        objective: Objective,
        recipe: Recipe,
        augmentation: Augmentation | None,
        batch_size: int,
        seed: int,
        teacher: Teacher | None = None,
    ) -> None:
        device = model.device
        self._phase, self._objective, self._recipe = phase, objective, recipe
        self._batch_size = batch_size
        if device.type == "cuda" and world_size() == 1:
            compile_parts(model)
        meters = Meters(
            num_readings=1 if phase.sees_whole else objective.num_looks,
            num_looks=objective.num_looks,
            num_locations=model.grid.num_locations,
            device=device,
        )
        self.state = TrainState(model, trained=phase.trained(model), recipe=recipe, seed=seed, meters=meters)
        self._examples = Examples(
            recipe=recipe,
            augmentation=augmentation,
            noise=phase.noise(model, objective),
            batch_size=batch_size,
            grid=model.grid,
            num_classes=objective.num_classes,
            mixes=phase.mixes,
            more_looks=0 if phase.sees_whole else objective.more_looks,
            teacher=teacher,
            generator=self.state.generator,
        )
        self._statistics = [value for value in model.buffers() if value.is_floating_point()]
        self._loss: nn.Module = PhaseLoss(model, phase, objective)
        if world_size() > 1:
            # The ranks begin alike and every update is of gradients and statistics they share, so nothing needs to be sent anew.
            self._loss = nn.parallel.DistributedDataParallel(self._loss, broadcast_buffers=False)
        self._progress = torch.zeros((), device=device)
        self._taken = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._images: Tensor | None = None
        self._labels: Tensor | None = None

    def __call__(
        self,
        images: UInt8[Tensor, "b C H W"],
        labels: Int[Tensor, " b"],
        *,
        learning_rate: float,
        progress: float = 0.0,
    ) -> None:
        """Learn from this process's part of a batch, with this share of the phase already done."""
        self.state.learning_rate.fill_(learning_rate)
        self._progress.fill_(progress)
        if images.device.type != "cuda" or world_size() > 1 or self._taken < _EAGER_STEPS:
            self._step(images, labels)
        else:
            self._replay(images, labels)
        self._taken += 1
        self.state.step += 1

    def _step(self, images: Tensor, labels: Tensor) -> None:
        state, part = self.state, own_part(self._batch_size)
        statistics = [value.clone() for value in self._statistics]
        state.optimiser.zero_grad(set_to_none=True)
        fast = images.is_cuda and self._recipe.precision == "bfloat16"
        with torch.autocast(images.device.type, torch.bfloat16, enabled=fast):
            batch = self._examples.batch(images, labels, part, progress=self._progress)
            looks = self._chosen(batch)
            self._phase.set_modes(state.model)
            loss, accuracy, visits = self._loss(batch, looks)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(state.trained, self._recipe.grad_clip or math.inf)
        bad = ~(norm.isfinite() & loss.detach().isfinite())
        if world_size() > 1:
            found = bad.float()
            distributed.all_reduce(found, distributed.ReduceOp.MAX)
            bad = found > 0
        self._update(bad, statistics)
        state.meters.add(loss=loss.detach(), accuracy=accuracy, visits=visits, skipped=bad)

    @torch.no_grad()
    def _chosen(self, batch: Batch) -> Any:
        if self._phase.choose is None:
            return None
        self.state.model.eval()
        return self._phase.choose(self.state.model, batch, self._objective)

    @torch.no_grad()
    def _update(self, bad: Tensor, statistics: list[Tensor]) -> None:
        # torch's fused optimisers leave weights, moments and step counts alone where this is one.
        self.state.optimiser.found_inf = bad.float()  # type: ignore[attr-defined]
        self.state.optimiser.step()
        for value, before in zip(self._statistics, statistics, strict=True):
            value.copy_(torch.where(bad, before, value))
        self.state.ema.update((~bad).float())

    def _replay(self, images: Tensor, labels: Tensor) -> None:
        if self._graph is None or self._images is None or self._labels is None:
            self._images, self._labels = images.clone(), labels.clone()
            self._graph = torch.cuda.CUDAGraph()
            self._graph.register_generator_state(self.state.generator)
            self.state.optimiser.zero_grad(set_to_none=True)
            with torch.cuda.graph(self._graph):
                self._step(self._images, self._labels)
        self._images.copy_(images)
        self._labels.copy_(labels)
        self._graph.replay()
