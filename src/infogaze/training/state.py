"""The state of a phase in training: everything that a step changes, written to a checkpoint and read back by itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

import torch
from torch import Tensor, nn

from infogaze.nn.model import GlimpseClassifier
from infogaze.training.checkpoint import Checkpoint
from infogaze.training.ema import EMA
from infogaze.training.meters import Meters
from infogaze.training.recipe import Recipe
from infogaze.training.schedule import Plateau


class TrainState:
    """Model, optimiser, EMA, generator and meters, where the phase stands, and the best weights so far."""

    def __init__(
        self,
        model: GlimpseClassifier,
        *,
        trained: Iterable[nn.Parameter],
        recipe: Recipe,
        seed: int,
        meters: Meters,
    ) -> None:
        device = model.device
        model.requires_grad_(False)
        self.model = model
        self.trained = [parameter.requires_grad_() for parameter in trained]
        self.learning_rate = torch.zeros((), device=device)
        self.optimiser = torch.optim.AdamW(
            self.trained, self.learning_rate, betas=recipe.betas, weight_decay=recipe.weight_decay,
            fused=True, capturable=device.type == "cuda",
        )  # fmt: skip
        self.ema = EMA(model, recipe.ema_decay)
        self.generator = torch.Generator(device).manual_seed(seed)
        self.meters = meters
        self.step = 0
        """Steps taken."""
        self.plateau = Plateau()
        self.epoch_loss = (0.0, 0.0)
        """Sum and count of the losses since the epoch began."""
        self.best_accuracy: float | None = None
        """On the validation split, after the last look."""
        self.best_weights: dict[str, Tensor] = {}

    def checkpoint(self, phase: int) -> Checkpoint:
        """All of it."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for position, state in self.optimiser.state_dict()["state"].items():
            tensors.update({f"optimiser.{position}.{name}": value for name, value in state.items()})
        tensors.update({f"ema.{name}": value for name, value in self.ema.values.items()})
        tensors.update({f"best.{name}": value for name, value in self.best_weights.items()})
        tensors.update({f"meters.{name}": value for name, value in self.meters.values.items()})
        tensors.update({"ema_steps": self.ema.steps, "generator": self.generator.get_state()})
        facts = {"plateau": asdict(self.plateau), "epoch_loss": self.epoch_loss, "best_accuracy": self.best_accuracy}
        return Checkpoint(phase=phase, step=self.step, tensors=tensors, facts=facts)

    def restore(self, saved: Checkpoint) -> None:
        """Everything as it was when the checkpoint was made."""
        self.model.load_state_dict(saved.under("model."))
        states: dict[int, dict[str, Tensor]] = {}
        for name, value in saved.under("optimiser.").items():
            position, _, part = name.partition(".")
            states.setdefault(int(position), {})[part] = value
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": states})
        for group in self.optimiser.param_groups:
            group["lr"] = self.learning_rate
        for parameter, moments in self.optimiser.state.items():
            for name, value in moments.items():
                # The fused optimiser asks that moments lie in memory as their parameter does, which files do not tell.
                own = torch.empty_like(parameter).copy_(value) if value.shape == parameter.shape else value.clone()
                moments[name] = own
        for ours, prefix in ((self.ema.values, "ema."), (self.meters.values, "meters.")):
            for name, value in saved.under(prefix).items():
                ours[name].copy_(value)
        self.ema.steps.copy_(saved.tensors["ema_steps"])
        self.generator.set_state(saved.tensors["generator"])
        self.step = saved.step
        self.plateau = Plateau(**saved.facts["plateau"])
        self.epoch_loss = tuple(saved.facts["epoch_loss"])
        self.best_accuracy = saved.facts["best_accuracy"]
        self.best_weights = {name: value.to(self.model.device) for name, value in saved.under("best.").items()}

    def keep_best(self, accuracy: float) -> bool:
        """Remember the model's weights if this accuracy is the best so far; whether it is.

        Of equals the later is the better, which has learned more that the validation split does not show: phase 2 changes no prediction.
        """
        if self.best_accuracy is not None and accuracy < self.best_accuracy:
            return False
        self.best_accuracy = accuracy
        self.best_weights = {name: value.clone() for name, value in self.model.state_dict().items()}
        return True

    def finish(self) -> None:
        """Give the model the weights that the phase ends with: the best on the validation split, else the EMA."""
        self.ema.copy_to_model()
        if self.best_weights:
            self.model.load_state_dict(self.best_weights)
