"""One phase of a run: its steps, and what happens between them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from infogaze.data.feed import Feed
from infogaze.nn.model import GlimpseClassifier
from infogaze.nn.pixels import normalise_pixels
from infogaze.rng import stream_seed
from infogaze.training import checkpoint
from infogaze.training.checkpoint import Checkpoint
from infogaze.training.distributed import any_process, rank, world_size
from infogaze.training.folder import TrainingFolder
from infogaze.training.meters import Reading
from infogaze.training.phases import Batch, draw_noise
from infogaze.training.plan import Callbacks, Plan, Progress
from infogaze.training.schedule import one_cycle
from infogaze.training.statistics import refit_batch_norm
from infogaze.training.step import TrainStep

LOG_EVERY = 50
"""Steps."""
_VALIDATIONS = 10
"""Times a phase, the last step among them."""
_SKIPS_ALLOWED = 20
_COLLAPSED = math.log(2.0)
"""Entropy in nats of the places of a look, below which it hardly depends on the scene."""


class Diverged(RuntimeError):
    """Too many steps in a row had a loss or gradient that is not finite."""


class PhaseRun:
    """A phase that is restored from a checkpoint, or prepared, and then stepped through."""

    def __init__(
        self,
        number: int,
        model: GlimpseClassifier,
        *,
        plan: Plan,
        feed: Feed,
        folder: TrainingFolder,
        callbacks: Callbacks,
        midway: Checkpoint | None,
    ) -> None:
        phase = plan.phases[number]
        budget = phase.budget(plan.recipe)
        self._number, self._phase, self._plan = number, phase, plan
        self._feed, self._folder, self._callbacks = feed.of(phase.scenes), folder, callbacks
        self._batch_size = min(budget.batch_size, len(self._feed))
        self._rate = plan.learning_rates[phase.rate] if budget.learning_rate is None else budget.learning_rate
        self.steps = budget.num_steps(len(self._feed))
        self._reading, self._validated, self._warned = Reading(), False, False
        self._val_accuracy: tuple[float, ...] = ()
        if midway is None and phase.prepare is not None:
            phase.prepare(model, self._plain_batches(model, "prepare"), plan.objective)
        self._take_step = TrainStep(
            model,
            phase,
            objective=plan.objective,
            recipe=plan.recipe,
            augmentation=plan.augmentation,
            batch_size=self._batch_size,
            seed=self._stream("step"),
            teacher=plan.teacher,
        )
        self.state = self._take_step.state
        if midway is not None:
            self.state.restore(midway)

    @property
    def done(self) -> bool:
        """Whether all steps are taken."""
        return self.state.step == self.steps

    @property
    def validation_due(self) -> bool:
        """Ten times a phase, at steps that the plan fixes."""
        if self._callbacks.validate is None:
            return False
        return self.done or self.state.step % max(1, self.steps // _VALIDATIONS) == 0

    @property
    def log_due(self) -> bool:
        """At the end of each epoch too, which the plateau schedule needs to hear of."""
        return self.done or self._epoch_ended or self._validated or self.state.step % LOG_EVERY == 0

    @property
    def _epoch_ended(self) -> bool:
        return self.state.step % self._feed.steps(self._batch_size) == 0

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Those of the steps that are left."""
        while not self.done:
            epoch, start = divmod(self.state.step, self._feed.steps(self._batch_size))
            order = self._stream("order")
            for examples in self._feed.batches(
                epoch, self._batch_size, seed=order, rank=rank(), world_size=world_size(), start=start
            ):
                yield examples
                if self.done:
                    return

    def step(self, images: Tensor, labels: Tensor) -> None:
        """Take one step."""
        self._validated = False
        progress = self.state.step / self.steps
        self._take_step(images, labels, learning_rate=self._learning_rate(), progress=progress)

    def validate(self) -> None:
        """Measure the weights that the phase would end with now, and keep the best if that is asked for."""
        assert self._callbacks.validate is not None
        best = False
        with self.state.ema.applied():
            if rank() == 0:
                self._val_accuracy = self._callbacks.validate(self.state.model, self._phase)
                best = self.state.best_accuracy is None or self._val_accuracy[-1] >= self.state.best_accuracy
            if self._plan.recipe.keep_best and any_process(best, self.state.model.device):
                self.state.keep_best(self._val_accuracy[-1] if rank() == 0 else 0.0)
                self._save_best()
        self._validated = True

    def log(self) -> None:
        """Read the meters, note them, and see whether all is well."""
        state, read = self.state, self.state.meters.read()
        self._reading = read
        total, count = state.epoch_loss[0] + read.loss * read.steps, state.epoch_loss[1] + read.steps
        if self._epoch_ended and count:
            state.plateau = state.plateau.after(total / count)
        state.epoch_loss = (0.0, 0.0) if self._epoch_ended else (total, count)
        if rank() == 0:
            line = {
                "phase": self._number, "name": self._phase.name, "step": state.step, "loss": read.loss,
                "accuracy": read.accuracy, "visit_entropy": read.visit_entropy,
                "learning_rate": self._learning_rate(), "skipped": read.skipped,
            }  # fmt: skip
            self._folder.note({**line, "val_accuracy": self._val_accuracy} if self._validated else line)
        self._warn_of_collapse(read)
        if read.skipped_in_a_row >= _SKIPS_ALLOWED:
            raise Diverged(
                f"phase {self._number}, step {state.step}: {read.skipped_in_a_row} steps in a row had a loss or gradient "
                "that is not finite; the last checkpoint is from before"
            )

    def tell(self, *, fresh: bool) -> None:
        """Say where training stands."""
        self._callbacks.on_step(
            Progress(
                phase=self._number,
                name=self._phase.name,
                step=self.state.step,
                steps=self.steps,
                batch_size=self._batch_size,
                reading=self._reading,
                val_accuracy=self._val_accuracy,
                fresh=fresh,
            )
        )

    def should_stop(self) -> bool:
        """Processes agree on it now and then, so that all stop after the same step."""
        if world_size() > 1 and self.state.step % LOG_EVERY:
            return False
        return any_process(self._callbacks.should_stop(), self.state.model.device)

    def save(self) -> None:
        """Write a checkpoint."""
        if rank() == 0:
            checkpoint.write(self._folder.checkpoints, self.state.checkpoint(self._number))

    def finish(self) -> None:
        """After the last step: the beginning of the next phase is a checkpoint too, with the model and nothing else."""
        self.state.finish()
        model, plan = self.state.model, self._plan
        refit_batch_norm(
            model,
            self._phase,
            objective=plan.objective,
            batches=lambda: self._plain_batches(model, "batch norm"),
            images=plan.recipe.batch_norm_images,
        )
        if self._phase.conclude is not None:
            self._phase.conclude(model, self._plain_batches(model, "conclude"), plan.objective)
        if rank() == 0:
            tensors = {f"model.{name}": value for name, value in self.state.model.state_dict().items()}
            checkpoint.write(
                self._folder.checkpoints, Checkpoint(phase=self._number + 1, step=0, tensors=tensors, facts={})
            )

    def _save_best(self) -> None:
        if rank() == 0:
            weights = {f"model.{name}": value for name, value in self.state.best_weights.items()}
            facts = {"val_accuracy": self._val_accuracy}
            best = Checkpoint(phase=self._number, step=self.state.step, tensors=weights, facts=facts)
            checkpoint.write(self._folder.checkpoints, best, best=True)

    def _learning_rate(self) -> float:
        if self._plan.recipe.schedule == "plateau":
            return self._rate * self.state.plateau.factor
        return self._rate * one_cycle(self.state.step, self.steps)

    def _stream(self, purpose: str) -> int:
        return stream_seed(self._plan.seed, purpose, self._number)

    def _plain_batches(self, model: GlimpseClassifier, purpose: str) -> Iterator[Batch]:
        """One pass over the training images as they are; every process has all of it."""
        generator = torch.Generator(model.device).manual_seed(self._stream(purpose))
        specs, done = self._phase.noise(model, self._plan.objective), torch.ones((), device=model.device)
        for images, labels in self._feed.batches(0, self._batch_size, seed=self._stream("order")):
            noise = draw_noise(specs, self._batch_size, generator)
            progress = torch.zeros_like(done) if purpose == "prepare" else done
            yield Batch(images=normalise_pixels(images), labels=labels, noise=noise, progress=progress)

    def _warn_of_collapse(self, read: Reading) -> None:
        """A policy that looks at the same place in all scenes has learned a path, not where to look."""
        lowest = min(read.visit_entropy, default=math.inf)
        if lowest < _COLLAPSED and not self._warned:
            self._warned = True
            look = read.visit_entropy.index(lowest)
            self._callbacks.on_warning(
                f"phase {self._number}, step {self.state.step}: look {look} falls on {math.exp(lowest):.1f} places in all scenes "
                "together; the policy has collapsed"
            )
