"""What a user drives: an `Agent` holds a trained model, an `Episode` classifies a batch of scenes it never sees whole.

An episode receives glimpses and nothing else. It has no image, so nothing it says can depend on what was not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor

from infogaze.data.options import Fit
from infogaze.errors import InfogazeError
from infogaze.gaze.policies import Choice, Policy, RandomPolicy
from infogaze.gaze.sensor import Sensor
from infogaze.gaze.stopping import StopRule
from infogaze.grid import Location, require_inside, tensor_of
from infogaze.methods.registry import method as method_named
from infogaze.nn.belief import Belief
from infogaze.nn.model import ModelConfig, Recogniser
from infogaze.nn.pixels import to_pixels
from infogaze.rng import SceneNoise, require_seed, scene_seeds

Glimpses = Callable[[Num[Tensor, "B 2"]], Num[Tensor, "B C g g"]]
"""A sensor as a plain function."""
Seed = int | np.integer | Sequence[int] | np.ndarray | Int[Tensor, " B"]


@dataclass(frozen=True)
class Look:
    """What one look of a batch of scenes left behind."""

    location: Num[Tensor, "B 2"]
    """Row and column of the glimpses' top-left pixels."""
    probabilities: Float[Tensor, "B classes"]
    """Class probabilities after the look."""
    entropy: Float[Tensor, " B"]
    """Their entropy in nats."""
    gain: Float[Tensor, "B rows cols"]
    """The map that chose the location, in nats; zeros where none did."""


class Agent:
    """A trained model with the budget and the samples it was made for."""

    def __init__(
        self,
        model: Recogniser,
        classes: Sequence[str],
        *,
        looks: int = 7,
        samples: int = 20,
        config: ModelConfig | None = None,
        method: str = "infogaze",
        precision: Literal["float32", "bfloat16"] = "float32",
        twin: bool = False,
        fit: Fit = "crop",
    ) -> None:
        self.model = model.eval()
        self.method = method
        """What the model was trained as, and how it chooses: a name of `infogaze.METHODS`."""
        self.precision = precision
        """Of the networks' products; probabilities and gains come out in float32 always."""
        self.twin = twin
        """Whether every look is taken in mirrored too, by a second belief, and both say together what the scene is: the mean of their
        probabilities. For scenes whose mirror image has the same label. Looks are chosen by the first belief alone."""
        self.fit: Fit = fit
        """How a picture of another size becomes a scene, as it did in training: stretched, its middle, or with black bars."""
        self.classes = tuple(classes)
        self.looks = looks
        """The budget of an episode that is given no other."""
        self.samples = samples
        """P: how many scenes are imagined behind a gain map."""
        self.config = config
        """The sizes the model was built from; an agent around a model of the user's own has none, and cannot be saved."""
        if config is not None and len(self.classes) != config.classes:
            raise InfogazeError(f"{len(self.classes)} class names for a model of {config.classes} classes")

    @property
    def policy(self) -> Policy:
        """How looks are chosen unless an episode is given another way."""
        return method_named(self.method).policy(self.samples)

    def episode(
        self,
        batch: int = 1,
        seed: Seed = 0,
        *,
        budget: int | None = None,
        first: Location | None = None,
        policy: Policy | None = None,
        stop: StopRule | None = None,
    ) -> Episode:
        """Begin to look at `batch` scenes.

        `seed` is one number for the batch, or one a scene: equal seeds and glimpses give equal outcomes in any batch. The first
        look is at random, or at `first`. The policy is the method's own unless another is given; the budget is the model's own, or
        as many looks as there are places where these are fewer.
        """
        batch = _at_least_one("batch", batch)
        budget = min(self.looks, self.model.grid.places) if budget is None else _at_least_one("budget", budget)
        seeds = _seeds(seed, batch)
        policy = self.policy if policy is None else policy
        for name, rule, example in (
            ("policy", policy, "infogaze.RandomPolicy()"),
            ("stop", stop, "infogaze.Confident(0.95)"),
        ):
            if rule is not None and not callable(rule):
                raise InfogazeError(f"{name} is {rule!r}; something to call is needed, such as {example}")
        cast = torch.autocast(self.model.device.type, torch.bfloat16, enabled=self.precision == "bfloat16")
        channels = None if self.config is None else self.config.channels
        seeds = seeds.to(self.model.device)
        return Episode(self.model, seeds, budget, policy, stop, first, cast, channels, self.twin)

    def run(
        self,
        sensor: Sensor | Glimpses,
        budget: int | None = None,
        *,
        batch: int = 1,
        seed: Seed = 0,
        first: Location | None = None,
        policy: Policy | None = None,
        stop: StopRule | None = None,
    ) -> Episode:
        """Look through a sensor until the budget is spent or the stop rule fires; the finished episode tells all.

        A sensor has a method `look`; a plain function of the locations will do too.
        """
        look = getattr(sensor, "look", sensor)
        if not callable(look):
            raise InfogazeError(
                f"the sensor is {sensor!r}; it needs a method look(where), or to be a function of where itself"
            )
        episode = self.episode(batch, seed, budget=budget, first=first, policy=policy, stop=stop)
        while not episode.done:
            episode.observe(look(episode.next_location()))
        return episode


class Episode:
    """The blind loop over a batch of scenes: ask where to look, look, tell what was seen."""

    def __init__(
        self,
        model: Recogniser,
        seeds: Int[Tensor, " B"],
        budget: int,
        policy: Policy,
        stop: StopRule | None,
        first: Location | None,
        cast: torch.autocast,
        channels: int | None,
        twin: bool,
    ) -> None:
        self._model = model
        self._cast = cast
        self._channels = channels
        self._seeds = seeds
        self._policy = policy
        self._stop = stop
        self.batch = len(seeds)
        """Number of scenes."""
        self.budget = budget
        """The most looks a scene gets."""
        self.history: list[Look] = []
        """One record a look."""
        self.stopped: Bool[Tensor, " B"] = torch.zeros_like(seeds, dtype=torch.bool)
        """The scenes that the stop rule has ended. What is observed of them afterwards is not used, nor of those with no place left."""
        self.looks: Int[Tensor, " B"] = torch.zeros_like(seeds)
        """How many looks each scene has taken in."""
        with torch.no_grad():
            self._belief = model.backbone.start(self.batch)
            self._mirrored = model.backbone.start(self.batch) if twin else None
        self._candidates = torch.ones(self.batch, model.grid.places, dtype=torch.bool, device=seeds.device)
        self._probabilities: Tensor | None = None
        self._chosen_by = self._no_gain()
        self._next: Choice | None = None
        self._told: Choice | None = None  # what the user was told of it
        if first is not None:
            self._next = self._told = Choice(self._locations(first), self._no_gain(), has_map=False)

    @property
    def done(self) -> bool:
        """Whether the budget is spent, or every scene has stopped or has no place left."""
        if len(self.history) >= self.budget:
            return True
        return not bool(self.running.any())

    @property
    def running(self) -> Bool[Tensor, " B"]:
        """The scenes that go on within the budget: not stopped, and with a place left that was not looked at."""
        return ~self.stopped & self._candidates.any(1)

    @property
    def belief(self) -> Belief:
        """What is held of the scenes now."""
        return self._belief

    @property
    def probabilities(self) -> Float[Tensor, "B classes"]:
        """The class probabilities after the looks so far; before the first look, all labels are equally likely."""
        if self._probabilities is None:
            with torch.no_grad():
                classes = self._model.backbone.classify(self._belief).shape[-1]
            return torch.full((self.batch, classes), 1.0 / classes, device=self._seeds.device)
        return self._probabilities.clone()

    @property
    def gain(self) -> Float[Tensor, "B rows cols"]:
        """The map that chose the last location, in nats, finite everywhere; zeros where no map chose it."""
        return self._grid_map(self._chosen_by)

    @property
    def has_map(self) -> bool:
        """Whether the next location is chosen by a map; where not, `next_gain` is zeros."""
        return self._plan().has_map

    @property
    def next_gain(self) -> Float[Tensor, "B rows cols"]:
        """The map that will choose the next location."""
        return self._grid_map(self._plan().gain)

    @property
    def candidates(self) -> Bool[Tensor, "B rows cols"]:
        """The places that may still be chosen."""
        return self._grid_map(self._candidates)

    def next_location(self) -> Num[Tensor, "B 2"]:
        """Where to look next: row and column of the glimpse's top-left pixel. The same until something is observed.

        Scenes that are not `running` have one too, and need not be looked at: any glimpse will do for them.
        """
        if self.done:
            raise RuntimeError(f"the episode is done after {len(self.history)} looks; begin another")
        self._told = self._plan()
        self._chosen_by = self._told.gain
        return self._told.location.clone()

    @torch.no_grad()
    def observe(self, glimpse: Tensor | np.ndarray, at: Location | None = None) -> None:
        """Take in the glimpses [B, C, g, g] seen at `next_location()`, or `at` any other place, fractions of a pixel too."""
        if self.done:
            raise RuntimeError(f"the episode is done after {len(self.history)} looks; begin another")
        told, running = self._told, self.running
        if at is not None:
            location = self._locations(at)
        elif told is not None:
            location = told.location
        else:
            raise RuntimeError("observe() needs a location: call next_location() first, or give at=")
        pixels, chosen_by = self._pixels(tensor_of(glimpse)), self._no_gain()
        if told is not None:
            chosen_by = torch.where((location == told.location).all(1, keepdim=True), told.gain, chosen_by)
        updated, probabilities = self._taken_in(self._belief, pixels, location)
        if self._mirrored is not None:
            twin, says = self._taken_in(self._mirrored, pixels.flip(-1), self._model.grid.mirrored(location))
            self._mirrored = twin.where(running, self._mirrored)
            probabilities = (probabilities + says) / 2
        self._probabilities = torch.where(running[:, None], probabilities, self.probabilities)
        self._belief = updated.where(running, self._belief)
        self.looks = self.looks + running
        self._candidates = self._candidates & ~(self._model.grid.at(location) & running[:, None])
        self._chosen_by, self._next, self._told = chosen_by, None, None
        entropy = torch.special.entr(self._probabilities).sum(1)
        self.history.append(Look(location, self._probabilities, entropy, self._grid_map(chosen_by)))
        if self._stop is not None and not self.done:
            self.stopped = self.stopped | self._stop(self)

    def _taken_in(self, belief: Belief, pixels: Tensor, location: Tensor) -> tuple[Belief, Tensor]:
        """The belief with these glimpses, and the class probabilities it holds."""
        backbone = self._model.backbone
        with self._cast:
            updated = backbone.update(belief, backbone.features(pixels), location)
            return updated, backbone.classify(updated).exp()

    @torch.no_grad()
    def _plan(self) -> Choice:
        if self._next is None:
            policy: Policy = self._policy if self.history else RandomPolicy()
            noise = SceneNoise(self._seeds, len(self.history))
            with self._cast:
                self._next = policy(self._model, self._belief, self._candidates, noise)
        return self._next

    def _no_gain(self) -> Tensor:
        return torch.zeros(self._candidates.shape, device=self._candidates.device)

    def _grid_map(self, values: Tensor) -> Tensor:
        return values.view(self.batch, self._model.grid.rows, self._model.grid.cols)

    def _locations(self, at: Location) -> Tensor:
        locations = tensor_of(at).to(self._seeds.device)
        if locations.shape not in {(2,), (self.batch, 2)}:
            raise InfogazeError(
                f"a location has shape {tuple(locations.shape)}; (2,) or ({self.batch}, 2) is allowed: row, column"
            )
        grid = self._model.grid
        require_inside(locations, grid.height - grid.glimpse, grid.width - grid.glimpse)
        return locations.expand(self.batch, 2)

    def _pixels(self, glimpse: Tensor) -> Tensor:
        side = self._model.grid.glimpse
        shape = tuple(glimpse.shape)
        channels = self._channels if self._channels is not None or len(shape) != 4 else shape[1]
        if shape != (self.batch, channels, side, side):
            expected = f"({self.batch}, {'channels' if channels is None else channels}, {side}, {side})"
            raise InfogazeError(f"glimpses have shape {shape}; {expected} is expected")
        glimpse = glimpse.to(self._seeds.device)
        if glimpse.dtype == torch.uint8:
            return to_pixels(glimpse)
        if not glimpse.is_floating_point():
            raise InfogazeError(f"glimpses are {glimpse.dtype}; uint8, or float in [0, 1], is expected")
        if not bool(((glimpse >= 0) & (glimpse <= 1)).all()):
            raise InfogazeError("float glimpses must lie in [0, 1] with no NaN; give uint8 for 0 to 255")
        return to_pixels(glimpse.float())


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
