"""The blind loop over a batch of scenes: ask where to look, look, tell what was seen.

An episode receives glimpses and nothing else. It has no image, so nothing it says can depend on what was not looked at.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int, Num
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.files import write_whole
from infogaze.gaze.failed import FailedLooks, scenes_of, within
from infogaze.gaze.policies import Choice, Policy, moved
from infogaze.gaze.stopping import StopRule
from infogaze.gaze.travel import Clock
from infogaze.grid import Location, require_inside, tensor_of
from infogaze.nn.belief import Belief
from infogaze.nn.gain import entropy
from infogaze.nn.imagination import ImaginedScene
from infogaze.nn.model import GlimpseClassifier, Model
from infogaze.nn.pixels import normalise_pixels
from infogaze.nn.temperature import tempered
from infogaze.nn.typicality import Typicality
from infogaze.rng import SceneNoise

EndedBy = Literal["rule", "no location left", "seconds", "budget"]
"""Why a scene gets no more looks."""


@dataclass(frozen=True, kw_only=True)
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
    hidden: Float[Tensor, "B h"]
    """Of the belief after the look: all that a classifier and an imagination read of it. What else it holds is in `Episode.belief`."""
    seconds: Float64[Tensor, " B"] | None = None
    """What the looks at each scene took up to this one, with it; None where it is not known how long they take."""


class Episode:
    """A batch of scenes, looked at one glimpse at a time. `Agent.episode` begins one."""

    def __init__(
        self,
        model: GlimpseClassifier,
        *,
        seeds: Int[Tensor, " B"],
        budget: int,
        policy: Policy,
        first_policy: Policy,
        first: Location | None = None,
        stop: StopRule | None = None,
        autocast: torch.autocast,
        channels: int | None = None,
        flip_tta: bool = False,
        temperatures: Sequence[float] | None = None,
        typicality: Typicality | None = None,
        allowed: Bool[Tensor, "B L"] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._model = model
        self._autocast = autocast
        self._channels = channels
        self._seeds = seeds
        self._policy, self._first_policy = policy, first_policy
        self._stop = stop
        self._temperatures = None if temperatures is None else torch.tensor(temperatures, device=seeds.device)
        self._typicality = typicality
        self.batch = len(seeds)
        """Number of scenes."""
        self.budget = budget
        """The most looks a scene gets."""
        self.history: list[Look] = []
        """One record a look."""
        self.stopped: Bool[Tensor, " B"] = torch.zeros_like(seeds, dtype=torch.bool)
        """The scenes that the stop rule has ended. What is observed of them afterwards is not used, nor of those with no location left."""
        self.looks_taken: Int[Tensor, " B"] = torch.zeros_like(seeds)
        """How many looks each scene has taken in."""
        with torch.no_grad():
            self._belief = model.backbone.start(self.batch)
            self._flipped = model.backbone.start(self.batch) if flip_tta else None
        everywhere = torch.ones(self.batch, model.grid.num_locations, dtype=torch.bool, device=seeds.device)
        self._candidates = everywhere if allowed is None else allowed
        self._masked = allowed is not None  # or some places failed
        self._clock = clock
        self._probabilities: Tensor | None = None
        self._over: bool | None = None
        self._ood = torch.zeros(self.batch, device=seeds.device)
        self._chosen_by = self._no_gain()
        self._next: Choice | None = None
        self._asked: Choice | None = None  # what the user was told of it
        self._digest: str | None = None  # of the model
        self._failed: FailedLooks | None = None  # since the last look that did not
        if first is not None:
            self._next = self._asked = Choice(self._locations(first), self._no_gain(), has_map=False)
        if clock is not None:
            clock.require_time(self._candidates, None if self._next is None else self._next.location)

    @property
    def done(self) -> bool:
        """Whether the budget is spent, or every scene has stopped or has no location left, or none that can be reached in time."""
        if len(self.history) >= self.budget:
            return True
        if self._over is None:
            # On a GPU this waits for all that was asked of it, so it is asked where it must be, and once.
            self._over = not self._surely_goes_on and not bool(self.running.any())
        return self._over

    @property
    def _surely_goes_on(self) -> bool:
        """Whether all scenes do within the budget, as far as that can be told without asking the device."""
        # A look leaves out at most the place that was asked for and the one that was reached.
        some_left = 2 * len(self.history) < self._model.grid.num_locations
        return some_left and self._stop is None and self._clock is None and not self._masked

    @property
    def running(self) -> Bool[Tensor, " B"]:
        """The scenes that go on within the budget: not stopped, and with a location left that was not looked at and can be reached."""
        return ~self.stopped & self._open.any(1)

    @property
    def ended_by(self) -> tuple[EndedBy | None, ...]:
        """Why each scene gets no more looks; None for those that go on."""
        spent = len(self.history) >= self.budget

        def reason(stopped: bool, left: bool, in_time: bool) -> EndedBy | None:
            if stopped:
                return "rule"
            if not left:
                return "no location left"
            if not in_time:
                return "seconds"
            return "budget" if spent else None

        left, in_time = self._candidates.any(1), self._open.any(1)
        return tuple(map(reason, self.stopped.tolist(), left.tolist(), in_time.tolist()))

    @property
    def belief(self) -> Belief:
        """What is held of the scenes now."""
        return self._belief

    @torch.no_grad()
    def imagined(self, look: int = -1) -> ImaginedScene | None:
        """What was expected of the whole scenes after a look, of `history`; None for a model that imagines no pixels."""
        if not isinstance(self._model, Model):
            return None
        with self._autocast:
            hidden = self.history[look].hidden
            return self._model.imagination.draw(Belief(hidden, hidden[:, :0]), self._model.grid)

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
        """The locations that may still be chosen."""
        return self._grid_map(self._open)

    @property
    def seconds_spent(self) -> Float64[Tensor, " B"] | None:
        """What the looks at each scene took so far; None where it is not known how long they take."""
        return None if self._clock is None else self._clock.spent.clone()

    @property
    def next_seconds(self) -> Float64[Tensor, "B rows cols"] | None:
        """What the way to each location and a look there would take now; None where it is not known how long looks take."""
        return None if self._clock is None else self._grid_map(self._clock.needed).clone()

    @property
    def ood_score(self) -> Float[Tensor, " B"] | None:
        """How unusual the glimpses so far are, their mean: about 1 for scenes like those of training. None where the model cannot tell."""
        if self._typicality is None:
            return None
        return self._ood / self.looks_taken.clamp(min=1)

    @property
    def out_of_distribution(self) -> Bool[Tensor, " B"]:
        """The scenes whose glimpses are unlike those of nearly all training scenes; none where the model cannot tell."""
        if self._typicality is None:
            return torch.zeros_like(self.stopped)
        return self._ood > self._typicality.threshold * self.looks_taken

    def next_location(self) -> Num[Tensor, "B 2"]:
        """Where to look next: row and column of the glimpse's top-left pixel. The same until something is observed.

        Scenes that are not `running` have one too, and need not be looked at: any glimpse will do for them.
        """
        if self.done:
            raise RuntimeError(f"the episode is done after {len(self.history)} looks; begin another")
        self._asked = self._plan()
        self._chosen_by = self._asked.gain
        return self._asked.location.clone()

    @torch.no_grad()
    def skip(self, scenes: Bool[Tensor, " B"] | Sequence[bool] | None = None) -> None:
        """Say that the looks at `next_location()` failed, of all scenes or of these: nothing is learned, and no look is counted.

        Their places are not candidates any more, and `next_location()` gives them others; the other scenes keep theirs. Where looks take
        time, the sensor was there and its time is spent.
        """
        if self.done:
            raise RuntimeError(f"the episode is done after {len(self.history)} looks; begin another")
        if self._asked is None:
            raise RuntimeError("skip() needs a look that failed: call next_location() first")
        failed = FailedLooks(self._asked, scenes_of(scenes, self.running))
        self._candidates = self._candidates & ~failed.places(self._model.grid, self._candidates)
        self._masked = True
        if self._clock is not None:
            self._clock.advance(self._asked.location, failed.scenes)
        self._failed, self._next, self._asked, self._over = failed, None, None, None

    @torch.no_grad()
    def observe(
        self, glimpse: Tensor | np.ndarray, at: Location | None = None, *, reached: Location | None = None
    ) -> None:
        """Take in the glimpses [B, C, g, g] seen at `next_location()`, or `at` any other location, fractions of a pixel too.

        `reached` is where a sensor that was sent to `next_location()` really was: the glimpses are taken in as seen there (at the edge,
        where that is outside the scene), and the places that were asked for are not asked for again.
        """
        if self.done:
            raise RuntimeError(f"the episode is done after {len(self.history)} looks; begin another")
        asked, running = self._asked, self.running
        if reached is not None:
            if asked is None or at is not None:
                raise RuntimeError("reached= says where next_location() led to: call that first, and give no at=")
            location = self._locations(within(reached, self._model.grid))
        elif at is not None:
            location = self._locations(at)
        elif asked is not None:
            location = asked.location
        else:
            raise RuntimeError("observe() needs a location: call next_location() first, or give at=")
        pixels, chosen_by = self._pixels(tensor_of(glimpse)), self._no_gain()
        if asked is not None:
            as_asked = (location == asked.location).all(1, keepdim=True) | (reached is not None)
            chosen_by = torch.where(as_asked, asked.gain, chosen_by)
        with self._autocast:
            content = self._model.backbone.features(pixels)
        updated, classes = self._updated(self._belief, content, location)
        if self._flipped is not None:
            with self._autocast:
                mirrored = self._model.backbone.features(pixels.flip(-1))
            flipped, also = self._updated(self._flipped, mirrored, self._model.grid.mirrored(location))
            self._flipped = flipped.where(running, self._flipped)
            classes = torch.logaddexp(classes, also) - math.log(2.0)
        self.looks_taken = self.looks_taken + running
        if self._clock is not None:
            self._clock.advance(location, running)
        if self._temperatures is not None:
            number = self.looks_taken.clamp(1, len(self._temperatures)) - 1
            classes = tempered(classes, self._temperatures[number])
        probabilities = self._model.backbone.answers(classes).exp()
        self._probabilities = torch.where(running[:, None], probabilities, self.probabilities)
        self._belief = updated.where(running, self._belief)
        if self._typicality is not None:
            self._ood = self._ood + running * self._typicality.score(content)
        self._candidates = self._candidates & ~(self._model.grid.at(location) & running[:, None])
        if reached is not None and asked is not None:
            self._candidates = self._candidates & ~(self._model.grid.at(asked.location) & running[:, None])
        self._chosen_by, self._next, self._asked, self._over = chosen_by, None, None, None
        self._failed = None
        self.history.append(
            Look(
                location=location,
                probabilities=self._probabilities,
                entropy=entropy(self._probabilities),
                gain=self._grid_map(chosen_by),
                hidden=self._belief.hidden,
                seconds=self.seconds_spent,
            )
        )
        if self._stop is not None and not self.done:
            self.stopped, self._over = self.stopped | self._stop(self), None

    def state(self) -> bytes:
        """All that it holds but its model, for `Agent.resume` in another process; safetensors, with a digest. No glimpse is in it."""
        from infogaze.gaze.stored import state_of

        return state_of(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write its state to a file, which is the old one or the new one whole: after every look, and nothing is lost by a crash."""
        write_whole(Path(path), self.state())

    def _updated(self, belief: Belief, content: Tensor, location: Tensor) -> tuple[Belief, Tensor]:
        """The belief with these glimpses, and the log-probability of each class that it holds."""
        backbone = self._model.backbone
        with self._autocast:
            updated = backbone.update(belief, content, location)
            return updated, backbone.classes(updated)

    @torch.no_grad()
    def _plan(self) -> Choice:
        if self._next is None:
            policy = self._policy if self.history else self._first_policy
            noise = SceneNoise(self._seeds, len(self.history))
            candidates = self._open
            with self._autocast:
                choice = policy(self._model, self._belief, candidates=candidates, noise=noise)
            if self._masked:
                # RAM, say, looks where it likes.
                elsewhere = ~(self._model.grid.at(choice.location) & candidates).any(1)
                choice = moved(choice, self._model.grid, candidates=candidates, where=elsewhere)
            if self._clock is not None:
                choice = self._clock.chosen(choice, candidates)
            self._next = choice if self._failed is None else self._failed.replaced_by(choice)
        return self._next

    @property
    def _open(self) -> Tensor:
        """The locations that were not looked at, [B, L], less those that cannot be reached in the time left."""
        return self._candidates if self._clock is None else self._candidates & self._clock.reachable

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
        require_inside(locations, grid.height - grid.glimpse_size, grid.width - grid.glimpse_size)
        return locations.expand(self.batch, 2)

    def _pixels(self, glimpse: Tensor) -> Tensor:
        side = self._model.grid.glimpse_size
        shape = tuple(glimpse.shape)
        channels = self._channels if self._channels is not None or len(shape) != 4 else shape[1]
        if shape != (self.batch, channels, side, side):
            expected = f"({self.batch}, {'channels' if channels is None else channels}, {side}, {side})"
            raise InfogazeError(f"glimpses have shape {shape}; {expected} is expected")
        glimpse = glimpse.to(self._seeds.device)
        precision = next(self._model.parameters()).dtype
        if glimpse.dtype == torch.uint8:
            return normalise_pixels(glimpse, precision)
        if not glimpse.is_floating_point():
            raise InfogazeError(f"glimpses are {glimpse.dtype}; uint8, or float in [0, 1], is expected")
        if not bool(((glimpse >= 0) & (glimpse <= 1)).all()):
            raise InfogazeError("float glimpses must lie in [0, 1] with no NaN; give uint8 for 0 to 255")
        return normalise_pixels(glimpse, precision)
