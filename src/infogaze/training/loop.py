"""The training loop: for each phase, restore or prepare, then step, validate, log, checkpoint, stop.

The weights after any step are a function of the plan alone. A run that is killed and started again takes the steps since its last
checkpoint once more, with the same data and random numbers, and ends where it would have ended.
"""

from __future__ import annotations

import time

from infogaze.data.feed import Feed
from infogaze.data.sets import Split
from infogaze.nn.model import GlimpseClassifier
from infogaze.training import checkpoint
from infogaze.training.distributed import rank
from infogaze.training.folder import TrainingFolder
from infogaze.training.phase_run import PhaseRun
from infogaze.training.plan import Callbacks, Plan


class Stopped(Exception):
    """Training was asked to stop; what was learned is saved."""

    signal: int = 0
    """The signal that asked for it, where one did."""


def train(model: GlimpseClassifier, plan: Plan, *, split: Split, folder: TrainingFolder, callbacks: Callbacks) -> None:
    """Train the model in place, from the folder's last checkpoint if it has one."""
    feed = Feed(split, model.device)
    reached = checkpoint.latest(folder.checkpoints, callbacks.on_warning)
    if rank() == 0:
        # Without a checkpoint everything is taken again, and what a run noted that was killed so early is forgotten.
        folder.rewind(*((reached.phase, reached.step) if reached is not None else (0, 0)))
    if reached is not None:
        model.load_state_dict(reached.under("model."))
    for number in plan.phases:
        if reached is not None and number < reached.phase:
            continue
        midway = reached if reached is not None and reached.phase == number and reached.step else None
        run = PhaseRun(number, model, plan=plan, feed=feed, folder=folder, callbacks=callbacks, midway=midway)
        saved = time.monotonic()
        run.tell(fresh=False)
        for images, labels in run.batches():
            run.step(images, labels)
            if run.validation_due:
                run.validate()
            if run.log_due:
                run.log()
            run.tell(fresh=run.log_due)
            if run.should_stop():
                run.save()
                raise Stopped(f"stopped in phase {number} after step {run.state.step} of {run.steps}")
            if time.monotonic() - saved > callbacks.save_every and not run.done:
                run.save()
                saved = time.monotonic()
        run.finish()
    model.eval()
