"""What a user drives: an `Agent` holds a trained model and how it chooses; its episodes classify scenes that are never seen whole."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Int
from PIL import Image
from torch import Tensor, nn

from infogaze.errors import InfogazeError
from infogaze.gaze.classification import Classification, scene_of
from infogaze.gaze.episode import Episode
from infogaze.gaze.looking import take_look
from infogaze.gaze.policies import DistilledPolicy, Policy, RandomPolicy
from infogaze.gaze.sensor import GlimpseFunction, ImageSensor, Sensor
from infogaze.gaze.stopping import CalibratedStop, StopRule
from infogaze.gaze.travel import Clock, Travel
from infogaze.grid import GlimpseGrid, Location
from infogaze.nn.config import ModelConfig
from infogaze.nn.distilled import DistilledGain
from infogaze.nn.model import GlimpseClassifier, Model
from infogaze.nn.question import AskedBackbone, Groups
from infogaze.nn.typicality import Typicality
from infogaze.pictures import Fit
from infogaze.rng import require_seed, scene_seeds

Picture = str | os.PathLike[str] | Image.Image | np.ndarray | Tensor
Mask = np.ndarray | Bool[Tensor, "rows cols"] | Bool[Tensor, "B rows cols"]
"""Locations of the grid that may be chosen."""
Seed = int | np.integer | Sequence[int] | np.ndarray | Int[Tensor, " B"]


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What a model was built from: with its weights, all that it takes to build it again."""

    method: str
    """The name of its method."""
    config: ModelConfig
    """Its sizes."""
    num_samples: int
    """The contents of each location behind a gain map, P samples or M entries, unless its policy is given another number."""


class Agent:
    """A trained model, how it chooses its looks, and the budget it was made for."""

    def __init__(
        self,
        model: GlimpseClassifier,
        classes: Sequence[str],
        *,
        policy: Policy,
        num_looks: int = 7,
        precision: Literal["float32", "bfloat16"] = "float32",
        flip_tta: bool = False,
        fit: Fit = "crop",
        temperatures: Sequence[float] | None = None,
        typicality: Typicality | None = None,
        stop: CalibratedStop | None = None,
        distilled: DistilledGain | None = None,
        origin: Origin | None = None,
    ) -> None:
        self.model = model.eval()
        self.policy = policy
        """How looks after the first are chosen, unless an episode is given another way."""
        self.precision = precision
        """Of the networks' products; probabilities and gains come out in float32 always."""
        self.flip_tta = flip_tta
        """Horizontal-flip test-time augmentation: every glimpse is taken in mirrored too, by a second belief, and the class probabilities
        are the mean of both. For scenes whose mirror image has the same label. Looks are chosen by the first belief alone."""
        self.fit: Fit = fit
        """How a picture of another size becomes a scene, as it did in training: stretched, its middle, or with black bars."""
        self.classes = tuple(classes)
        """The names of the labels."""
        self.num_looks = num_looks
        """The budget of an episode that is given no other."""
        self.temperatures = None if temperatures is None else require_temperatures(temperatures)
        """For each number of looks, from one on, what log-probabilities are divided by before they are stated; the last is for more looks
        too. None states them as the networks do. Gains are not changed by it."""
        self.typicality = typicality
        """The glimpses of training, by which scenes unlike any of them are noticed; None where that is not known."""
        self.stop = stop
        """When scenes may stop, as `infogaze calibrate` chose it: the rule of every episode with the budget it was chosen for that is given
        no other rule and no other policy. None looks until the budget is spent."""
        self.distilled = None if distilled is None else distilled.eval()
        """The gain of its policy, distilled by `infogaze distil`; `with_distilled_gain` chooses by it. None where there is none."""
        self.origin = origin
        """What the model was built from; an agent around a model of the user's own has none, and cannot be saved."""
        self.is_derived = False
        """Whether it asks another question, or looks on another grid, than the model it was made from; then it cannot be saved."""
        if origin is not None and len(self.classes) != origin.config.num_classes:
            raise InfogazeError(f"{len(self.classes)} class names for a model of {origin.config.num_classes} classes")

    def with_policy(self, policy: Policy) -> Agent:
        """The same agent, choosing its looks another way; the first look of an episode stays at random.

        A calibrated rule promises nothing for other looks, and is left out.
        """
        other = self.with_stop(None)
        other.policy = policy
        return other

    def with_distilled_gain(self) -> Agent:
        """The same agent, choosing its looks by the gain that `infogaze distil` gave it: nearly the same looks, many times as fast."""
        if self.distilled is None:
            raise InfogazeError("this model has no distilled gain; `infogaze distil` gives it one")
        return self.with_policy(DistilledPolicy(self.distilled))

    def with_stop(self, stop: CalibratedStop | None) -> Agent:
        """The same agent with another rule of its own; None: its episodes look until the budget is spent."""
        other = copy.copy(self)
        other.stop = stop
        return other

    def ask(self, question: Mapping[str, Sequence[str] | None] | nn.Module, answers: Sequence[str] = ()) -> Agent:
        """An agent that looks for another answer with the same belief; nothing is trained again.

        A question is groups of classes, `{"animal": ["cat", "dog"], "other": None}`, where None is all the rest; or a head, a module from
        the belief's hidden state to one number an answer, and the names of its answers. For a model that imagines, because its gain
        follows from what it imagines. What was learned from outcomes belongs to the old question and is left out.
        """
        model = self._imagining()
        if isinstance(question, nn.Module):
            if len(answers) < 2:
                raise InfogazeError(f"answers are {list(answers)}; a head needs the names of at least two")
            backbone = AskedBackbone(model.backbone, head=question.to(model.device))
            names, temperatures = tuple(answers), None
        else:
            names, temperatures = tuple(question), self.temperatures
            backbone = AskedBackbone(model.backbone, groups=Groups(_groups(question, self.classes)).to(model.device))
        other = self._around(Model(model.grid, backbone, imagination=model.imagination))
        other.classes, other.temperatures = names, temperatures
        return other

    def on_grid(self, *, stride: int) -> Agent:
        """An agent that chooses among locations another stride apart: finer than it was trained for, or coarser.

        For a model that imagines. A Partial VAE imagines what lies between its own places from their neighbours; a dictionary is asked for
        every location itself. What was learned from outcomes belongs to the old places and is left out.
        """
        model = self._imagining()
        return self._around(Model(replace(model.grid, stride=stride), model.backbone, imagination=model.imagination))

    def _imagining(self) -> Model:
        if not isinstance(self.model, Model):
            raise InfogazeError("this model imagines nothing, so what it looks for cannot be changed without training")
        if isinstance(self.policy, DistilledPolicy):
            raise InfogazeError(
                "a distilled gain knows one question and one grid; load the model with its exact gain for another"
            )
        return self.model

    def _around(self, model: Model) -> Agent:
        """The same agent around a model made from its own, which no folder could build again."""
        other = self.with_stop(None)
        other.model = model.eval()
        other.distilled = None
        other.is_derived = True
        return other

    def episode(
        self,
        batch: int = 1,
        seed: Seed = 0,
        *,
        budget: int | None = None,
        first: Location | None = None,
        policy: Policy | None = None,
        stop: StopRule | None = None,
        allowed: Mask | None = None,
        travel: Travel | None = None,
        seconds: float | None = None,
    ) -> Episode:
        """Begin to look at `batch` scenes.

        `seed` is one number for the batch, or one a scene: equal seeds and glimpses give equal outcomes in any batch. The first
        look is at random and the others by the agent's own policy; a policy given here chooses the first look too, unless it is
        at `first`. The budget is the model's own, or as many looks as there are locations where these are fewer. `allowed`, [rows, cols]
        or [B, rows, cols] of the grid, are the locations that may be chosen. An agent with a calibrated rule stops by it where budget and
        policy are its own and no other rule is given.

        `travel` says how long looks take; they are then chosen by gain a second, and a calibrated rule, which knows other looks, is not
        asked. With `seconds`, looks at a scene end when no location can be reached in the time left, and `budget` is no limit unless given.
        """
        batch = _at_least_one("batch", batch)
        most = self.model.grid.num_locations
        if budget is None:
            budget = most if seconds is not None else min(self.num_looks, most)
        budget = _at_least_one("budget", budget)
        if travel is None and seconds is not None:
            raise InfogazeError("seconds needs travel, which says how long looks take")
        for name, rule, example in (
            ("policy", policy, "infogaze.RandomPolicy()"),
            ("stop", stop, "infogaze.Confident(0.95)"),
        ):
            if rule is not None and not callable(rule):
                raise InfogazeError(f"{name} is {rule!r}; something to call is needed, such as {example}")
        own_looks = policy is None and travel is None
        if stop is None and own_looks and self.stop is not None and self.stop.budget == budget:
            stop = self.stop
        return Episode(
            self.model,
            seeds=_seeds(seed, batch).to(self.model.device),
            budget=budget,
            policy=self.policy if policy is None else policy,
            first_policy=RandomPolicy() if policy is None else policy,
            first=first,
            stop=stop,
            autocast=torch.autocast(self.model.device.type, torch.bfloat16, enabled=self.precision == "bfloat16"),
            channels=None if self.origin is None else self.origin.config.channels,
            flip_tta=self.flip_tta,
            temperatures=self.temperatures,
            typicality=None if self.typicality is None else self.typicality.to(self.model.device),
            allowed=None if allowed is None else _mask(allowed, self.model.grid, batch).to(self.model.device),
            clock=None
            if travel is None
            else Clock(travel, grid=self.model.grid, scenes=batch, seconds=seconds, device=self.model.device),
        )

    def run(
        self,
        sensor: Sensor | GlimpseFunction,
        budget: int | None = None,
        *,
        batch: int = 1,
        seed: Seed = 0,
        first: Location | None = None,
        policy: Policy | None = None,
        stop: StopRule | None = None,
        allowed: Mask | None = None,
        travel: Travel | None = None,
        seconds: float | None = None,
    ) -> Episode:
        """Look through a sensor until the budget or the time is spent or the stop rule fires; the finished episode tells all.

        A sensor has a method `look`; a plain function of the locations will do too. Where a look fails (`LookFailed`), its place is given
        up for another, and counts for no look.
        """
        look = getattr(sensor, "look", sensor)
        if not callable(look):
            raise InfogazeError(
                f"the sensor is {sensor!r}; it needs a method look(where), or to be a function of where itself"
            )
        episode = self.episode(
            batch,
            seed,
            budget=budget,
            first=first,
            policy=policy,
            stop=stop,
            allowed=allowed,
            travel=travel,
            seconds=seconds,
        )
        while not episode.done:
            take_look(episode, look)
        return episode

    def resume(
        self,
        state: bytes | str | os.PathLike[str],
        *,
        policy: Policy | None = None,
        stop: StopRule | None = None,
        travel: Travel | None = None,
    ) -> Episode:
        """The episode that `Episode.save` wrote to a file, or whose `state()` these bytes are, where it was: its next looks and what it
        says of them are those it would have had.

        For the agent that began it, in any process; episodes of another model and damaged ones are refused. A policy, a stop rule or a
        function of the way of one's own, which cannot be stored, is given again.
        """
        from infogaze.gaze.stored import resumed

        return resumed(self, state, policy=policy, stop=stop, travel=travel)

    def classify(
        self,
        picture: Picture,
        *,
        budget: int | None = None,
        seed: Seed = 0,
        first: Location | None = None,
        policy: Policy | None = None,
        stop: StopRule | None = None,
        allowed: Mask | None = None,
        travel: Travel | None = None,
        seconds: float | None = None,
    ) -> Classification:
        """Look at a picture, a file or an array, as if it were a scene: never whole, one glimpse at a time.

        An array is [H, W], [H, W, C] or [C, H, W], uint8 or float in [0, 1]. What has another size than the model's scenes is brought
        to it as pictures were in training.
        """
        channels = None if self.origin is None else self.origin.config.channels
        scene = scene_of(picture, self.model.grid, channels=channels, fit=self.fit)
        sensor = ImageSensor(scene[None].to(self.model.device), self.model.grid.glimpse_size)
        episode = self.run(
            sensor,
            budget,
            seed=seed,
            first=first,
            policy=policy,
            stop=stop,
            allowed=allowed,
            travel=travel,
            seconds=seconds,
        )
        return Classification(episode=episode, scene=scene, sensor=sensor, classes=self.classes, grid=self.model.grid)


def _groups(question: Mapping[str, Sequence[str] | None], classes: Sequence[str]) -> list[int]:
    """The group of each class."""
    if len(question) < 2:
        raise InfogazeError(f"a question has at least two answers, not {list(question)}")
    group_of: dict[str, int] = {}
    for number, (name, members) in enumerate(question.items()):
        for member in members or ():
            if member not in classes:
                raise InfogazeError(f"{name}: {member!r} is no class; there are {', '.join(classes)}")
            if member in group_of:
                raise InfogazeError(
                    f"{member!r} is in {list(question)[group_of[member]]} and in {name}; one answer is allowed"
                )
            group_of[member] = number
    rest = [number for number, members in enumerate(question.values()) if members is None]
    if len(rest) > 1:
        raise InfogazeError("None stands for all the rest, and can be given once")
    lacking = [name for name in classes if name not in group_of]
    if lacking and not rest:
        raise InfogazeError(f"{', '.join(lacking)}: in no answer; one with None takes all the rest")
    found = [group_of.get(name, rest[0] if rest else 0) for name in classes]
    for number, name in enumerate(question):
        if number not in found:
            raise InfogazeError(f"{name} has no class")
    return found


def _mask(allowed: Mask, grid: GlimpseGrid, batch: int) -> Bool[Tensor, "B L"]:
    mask = torch.as_tensor(np.asarray(allowed.cpu() if isinstance(allowed, Tensor) else allowed))
    if mask.dtype != torch.bool or mask.shape not in {(grid.rows, grid.cols), (batch, grid.rows, grid.cols)}:
        raise InfogazeError(
            f"allowed is {mask.dtype} of shape {tuple(mask.shape)}; bool of shape ({grid.rows}, {grid.cols}) or "
            f"({batch}, {grid.rows}, {grid.cols}) is needed"
        )
    mask = mask.expand(batch, grid.rows, grid.cols).flatten(1)
    if not bool(mask.any(1).all()):
        raise InfogazeError("allowed leaves a scene without a location")
    return mask.clone()


def require_temperatures(temperatures: Sequence[float]) -> tuple[float, ...]:
    """Refuses what is no temperature for each number of looks."""
    if not temperatures or not all(0.0 < value < float("inf") for value in temperatures):
        raise InfogazeError(
            f"temperatures are {list(temperatures)}; numbers above 0 are needed, one for each number of looks"
        )
    return tuple(float(value) for value in temperatures)


def _at_least_one(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InfogazeError(f"{name} is {value!r}; it must be a whole number of at least 1")
    return int(value)


def _seeds(seed: Seed, batch: int) -> Int[Tensor, " B"]:
    if isinstance(seed, int | np.integer):
        require_seed(int(seed))
        return scene_seeds(int(seed), batch)
    given = np.asarray(seed.cpu() if isinstance(seed, Tensor) else seed)
    if not np.issubdtype(given.dtype, np.integer) or given.shape != (batch,):
        raise InfogazeError(
            f"seeds are {given.dtype} of shape {given.shape}; whole numbers of 64 bits are needed, one a scene ({batch}) or one for all"
        )
    return torch.tensor(given.astype(np.int64))
