"""The training loop: the phases of a method, each resumed where its last checkpoint stands.

The weights after any step are a function of the configuration alone. A run that is killed and started again takes the steps since its last
checkpoint once more, with the same data and random numbers, and ends where it would have ended.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from infogaze.data.feed import Feed
from infogaze.data.sets import Split
from infogaze.methods.registry import METHODS
from infogaze.nn.model import Recogniser
from infogaze.nn.pixels import to_pixels
from infogaze.rng import stream_seed
from infogaze.runs import RunConfig, RunFolder
from infogaze.tasks.validation import due, keep_back, named_right
from infogaze.training import checkpoint as checkpoints
from infogaze.training.checkpoint import Checkpoint
from infogaze.training.distributed import any_process
from infogaze.training.phases import Batch, Objective, draw
from infogaze.training.schedule import Plateau, cycle
from infogaze.training.step import Reading, Share, Stepper

_LOG_EVERY = 50
_SKIPS_ALLOWED = 20
_COLLAPSED = math.log(2.0)
"""Entropy in nats of the places of a look, below which it hardly depends on the scene."""


class Stopped(Exception):
    """Training was asked to stop; what was earned is saved."""


class Diverged(RuntimeError):
    """Too many steps in a row had a loss or gradient that is not finite."""


@dataclass(frozen=True)
class Step:
    """Where training stands, for whoever shows or logs it."""

    number: int
    """Of the phase, from 1."""
    phase: str
    step: int
    total: int
    """Scenes that the phase will see."""
    scenes: int
    """Seen since the last notice; at the beginning, those of an earlier run."""
    loss: float
    """As last read."""
    accuracy: tuple[float, ...]
    """At each look, as last read; empty before the first reading."""
    fresh: bool
    """Whether loss and accuracy were read at this step."""


@dataclass(frozen=True)
class Surroundings:
    """What a run needs beside its configuration, and what its outcome does not depend on."""

    notice: Callable[[Step], None] = lambda step: None
    """Hears of the beginning of each phase and of progress."""
    complain: Callable[[str], None] = lambda line: None
    """Hears of what went wrong and was mended."""
    asked_to_stop: Callable[[], bool] = lambda: False
    """Asked after every step."""
    save_every: float = 120.0
    """Seconds between checkpoints."""
    share: Share = Share()
    """This process's part of the work."""


def train(model: Recogniser, train_split: Split, config: RunConfig, folder: RunFolder, around: Surroundings) -> None:
    """Train the model in place, from the folder's last checkpoint if it has one."""
    learning, kept_back = keep_back(train_split, config)
    feed = Feed(learning, model.device)
    reached = checkpoints.latest(folder.checkpoints, around.complain)
    if around.share.rank == 0:
        # Without a checkpoint everything is taken again, and what a run noted that was killed so early is forgotten.
        folder.rewind(*((reached.phase + 1, reached.step) if reached is not None else (0, 0)))
    if reached is not None:
        model.load_state_dict(_under("model.", reached))
    for index in (number - 1 for number in config.phases):
        if reached is not None and index < reached.phase:
            continue
        midway = reached if reached is not None and reached.phase == index and reached.step else None
        _PhaseRun(model, feed, kept_back, config, folder, around, index, midway).go()
    model.eval()


class _PhaseRun:
    """One phase of a run."""

    def __init__(
        self,
        model: Recogniser,
        feed: Feed,
        kept_back: Split,
        config: RunConfig,
        folder: RunFolder,
        around: Surroundings,
        index: int,
        checkpoint: Checkpoint | None,
    ) -> None:
        preset, recipe, phase = config.preset, config.recipe, METHODS[config.method].phases[index]
        part = phase.length(recipe)
        self._model, self._feed, self._kept_back, self._config = model, feed, kept_back, config
        self._folder, self._around, self._index = folder, around, index
        self._phase = phase
        self._batch = min(part.batch, len(feed))
        self._steps = max(1, round(part.epochs * len(feed) / self._batch))
        self._rate = preset.learning_rates[phase.rate] if part.learning_rate is None else part.learning_rate
        self._objective = Objective(
            min(preset.looks, model.grid.places),
            preset.alpha,
            preset.beta,
            preset.dropout,
            recipe.samples,
            recipe.warm_up,
        )
        augmentation = recipe.augmentation
        if augmentation is not None:
            augmentation = replace(augmentation, flip=augmentation.flip and preset.mirror)
        self._step = 0
        self._plateau = Plateau()
        self._epoch_loss = [0.0, 0.0]  # sum and count
        self._best: float | None = None
        self._best_weights: dict[str, Tensor] = {}
        self._held_out: tuple[float, ...] = ()
        self._complained = False
        self._read = Reading(0.0, (), 0, 0, 0, ())
        if checkpoint is None:
            self._prepare()
        self._stepper = Stepper(
            model, self._phase, self._objective, recipe, augmentation, self._batch, self._stream("step"), around.share
        )
        if checkpoint is not None:
            self._load(checkpoint)

    def go(self) -> None:
        """Take the steps that are left."""
        self._model.train()
        total = self._steps * self._batch
        self._around.notice(
            Step(self._index + 1, self._phase.name, self._step, total, self._batch * self._step, 0.0, (), fresh=False)
        )
        saved, per_epoch, share = time.monotonic(), self._feed.steps(self._batch), self._around.share
        order = self._stream("order")
        while self._step < self._steps:
            epoch, start = divmod(self._step, per_epoch)
            for images, labels in self._feed.batches(epoch, self._batch, order, share.rank, share.world, start):
                self._stepper.step(images, labels, self._rate * self._share_of_rate(), self._step / self._steps)
                self._step += 1
                done, ended = self._step == self._steps, self._step % per_epoch == 0
                judged = bool(len(self._kept_back)) and due(self._step, self._steps)
                log = done or ended or judged or self._step % _LOG_EVERY == 0
                if judged:
                    self._judge()
                if log:
                    self._log(ended)
                loss, accuracy = self._read.loss, self._read.accuracy
                self._around.notice(
                    Step(self._index + 1, self._phase.name, self._step, total, self._batch, loss, accuracy, fresh=log)
                )
                if self._asked_to_stop():
                    self._save()
                    raise Stopped(f"stopped in phase {self._index + 1} after step {self._step} of {self._steps}")
                if time.monotonic() - saved > self._around.save_every and not done:
                    self._save()
                    saved = time.monotonic()
                if done:
                    break
        self._stepper.hand_on()
        if self._best_weights:
            self._model.load_state_dict(self._best_weights)
        self._finish()

    def _stream(self, purpose: str) -> int:
        return stream_seed(self._config.seed, purpose, self._index)

    def _asked_to_stop(self) -> bool:
        """Processes agree on it now and then, so that all stop after the same step."""
        share = self._around.share
        if share.world > 1 and self._step % _LOG_EVERY:
            return False
        return any_process(self._around.asked_to_stop(), share, self._model.device)

    def _share_of_rate(self) -> float:
        if self._config.recipe.schedule == "plateau":
            return self._plateau.share
        return cycle(self._step, self._steps)

    def _judge(self) -> None:
        """See how the weights that would be handed on now name the scenes kept back; the best are handed on in the end."""
        share, best = self._around.share, self._best
        with self._stepper.handed_on():
            if share.rank == 0:
                self._held_out = named_right(self._model, self._kept_back, self._config, self._phase)
                self._best = max(self._held_out[-1], 0.0 if best is None else best)
            # Of equals the later, which has learned more that the scenes kept back do not show: phase 2 changes no name.
            if any_process(share.rank == 0 and self._best == self._held_out[-1], share, self._model.device):
                self._best_weights = {name: value.clone() for name, value in self._model.state_dict().items()}
                if share.rank == 0:
                    weights = {f"model.{name}": value for name, value in self._best_weights.items()}
                    facts = {"held_out": self._held_out}
                    best_yet = Checkpoint(self._index, self._step, weights, facts)
                    checkpoints.write(self._folder.checkpoints, best_yet, best=True)

    def _log(self, epoch_ended: bool) -> None:
        read = self._read = self._stepper.read_meters()
        self._epoch_loss = [self._epoch_loss[0] + read.loss * read.steps, self._epoch_loss[1] + read.steps]
        if epoch_ended and self._epoch_loss[1]:
            self._plateau = self._plateau.after(self._epoch_loss[0] / self._epoch_loss[1])
        if epoch_ended:
            self._epoch_loss = [0.0, 0.0]
        if self._around.share.rank == 0:
            line = {
                "phase": self._index + 1, "name": self._phase.name, "step": self._step, "loss": read.loss,
                "accuracy": read.accuracy, "visited_entropy": read.visited_entropy,
                "learning_rate": self._rate * self._share_of_rate(), "skipped": read.skipped,
            }  # fmt: skip
            if self._held_out:
                line["held_out"] = self._held_out
            self._folder.note(line)
        self._held_out = ()
        self._complain_of_collapse(read)
        if read.skipped_in_a_row >= _SKIPS_ALLOWED:
            raise Diverged(
                f"phase {self._index + 1}, step {self._step}: {read.skipped_in_a_row} steps in a row had a loss or gradient "
                "that is not finite; the last checkpoint is from before"
            )

    def _complain_of_collapse(self, read: Reading) -> None:
        """A policy that looks at the same place in all scenes has learned a path, not where to look."""
        lowest = min(read.visited_entropy, default=math.inf)
        if lowest < _COLLAPSED and not self._complained:
            self._complained = True
            look = read.visited_entropy.index(lowest)
            self._around.complain(
                f"phase {self._index + 1}, step {self._step}: look {look} falls on {math.exp(lowest):.1f} places in all scenes together; "
                "the policy has collapsed"
            )

    def _tensors(self) -> dict[str, Tensor]:
        stepper = self._stepper
        tensors = {f"model.{name}": value for name, value in self._model.state_dict().items()}
        for position, state in stepper.optimiser.state_dict()["state"].items():
            tensors.update({f"optimiser.{position}.{name}": value for name, value in state.items()})
        tensors.update({f"average.{name}": value for name, value in stepper.average.items()})
        tensors.update({f"best.{name}": value for name, value in self._best_weights.items()})
        tensors.update({f"meters.{name}": value for name, value in stepper.meters.items()})
        return {**tensors, "generator": stepper.generator.get_state()}

    def _save(self) -> None:
        if self._around.share.rank:
            return
        facts = {"plateau": asdict(self._plateau), "epoch_loss": self._epoch_loss, "best": self._best}
        checkpoints.write(self._folder.checkpoints, Checkpoint(self._index, self._step, self._tensors(), facts))

    def _finish(self) -> None:
        """After the last step: the beginning of the next phase is a checkpoint too, with the model and nothing else."""
        if self._around.share.rank == 0:
            tensors = {f"model.{name}": value for name, value in self._model.state_dict().items()}
            checkpoints.write(self._folder.checkpoints, Checkpoint(self._index + 1, 0, tensors, {}))

    def _load(self, checkpoint: Checkpoint) -> None:
        stepper = self._stepper
        states: dict[int, dict[str, Tensor]] = {}
        for name, value in _under("optimiser.", checkpoint).items():
            position, _, part = name.partition(".")
            states.setdefault(int(position), {})[part] = value
        stepper.optimiser.load_state_dict({**stepper.optimiser.state_dict(), "state": states})
        for group in stepper.optimiser.param_groups:
            group["lr"] = stepper.learning_rate
        for parameter, moments in stepper.optimiser.state.items():
            for name, value in moments.items():
                if value.shape == parameter.shape:
                    # The fused optimiser asks that moments lie in memory as their parameter does, which files do not tell.
                    moments[name] = torch.empty_like(parameter).copy_(value)
        for ours, prefix in ((stepper.average, "average."), (stepper.meters, "meters.")):
            for name, value in _under(prefix, checkpoint).items():
                ours[name].copy_(value)
        stepper.generator.set_state(checkpoint.tensors["generator"])
        self._step = checkpoint.step
        self._plateau = Plateau(**checkpoint.facts["plateau"])
        self._epoch_loss = checkpoint.facts["epoch_loss"]
        self._best = checkpoint.facts["best"]
        self._best_weights = {name: value.to(self._model.device) for name, value in _under("best.", checkpoint).items()}

    def _prepare(self) -> None:
        if self._phase.prepare is None:
            return
        generator = torch.Generator(self._model.device).manual_seed(self._stream("prepare"))
        images, labels = next(self._feed.batches(0, self._batch, self._stream("order")))
        numbers = draw(self._phase, self._model, self._batch, self._objective, generator)
        self._phase.prepare(self._model, Batch(to_pixels(images), labels), numbers, self._objective)


def _under(prefix: str, checkpoint: Checkpoint) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in checkpoint.tensors.items() if name.startswith(prefix)}
