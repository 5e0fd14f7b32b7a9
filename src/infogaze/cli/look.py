"""`infogaze look IMAGE`: one picture in; the looks, the probabilities and a rollout picture out."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from infogaze.cli.travel import TravelOptions
from infogaze.errors import InfogazeError
from infogaze.gaze.agent import Agent
from infogaze.gaze.classification import Classification, allowed_of, sample_picture
from infogaze.gaze.policies import Policy, RandomPolicy, RasterPolicy
from infogaze.gaze.stopping import Confident
from infogaze.methods.registry import METHODS
from infogaze.models import load


@dataclass(frozen=True, kw_only=True)
class Look:
    """Classify one picture glimpse by glimpse, and draw what was looked at, expected and believed.

    The picture is brought to the size of the model's scenes as in the model's training: scaled and cropped around its middle, stretched
    (the bundled svhn), or given black bars. It may be PNG, JPEG, WebP or anything else that Pillow reads, of any size not smaller than a
    glimpse, in colour or grey of 8 or 16 bits, with a palette or transparent, which counts as white.

    With any of seconds, exposure, speed, settle, way and start the sensor takes time to get to where it looks, and looks are chosen by gain
    a second.
    """

    image: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE")] = None
    """The picture; if not given, the sample that comes with the package."""
    model: str = "cifar10-plus"
    """A bundled model's name, or a folder that `quickstart`, `train` or `infogaze.save` wrote."""
    out: Path = Path("look.png")
    """Where the rollout picture goes: a file that ends in .png, .svg, .pdf, .jpg or .jpeg, and is of that kind."""
    overwrite: bool = False
    """Write over a picture that is there already."""
    budget: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """The most looks; the model's own budget if not given. Of more than eight the picture shows eight, with the first and the last."""
    policy: Literal["own", "gain", "distilled", "random", "raster"] = "own"
    """How the looks are chosen: as the model's method does, or by expected gain, by that gain as `infogaze distil` made it fast, at random,
    row by row."""
    num_samples: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Scenes imagined behind each gain map; the model's own number if not given."""
    stop_at: Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="")] = None
    """Stop as soon as the most likely label has this probability."""
    stop: bool = True
    """Stop as the model's own rule says, if `infogaze calibrate` gave it one and nothing above is another than it was calibrated for."""
    # Read as bool, it is two flags, and None where neither is given.
    flip_tta: Annotated[bool | None, tyro.conf.arg(constructor=bool)] = None
    """Horizontal-flip test-time augmentation, for scenes whose mirror image has the same label, or not; as the model was saved if not
    given."""
    allowed: Annotated[Path | None, tyro.conf.arg(metavar="MASK", help_behavior_hint="")] = None
    """A picture, black where may not be looked and white elsewhere, of the same shape as the picture: no glimpse touches what is black."""
    travel: Annotated[TravelOptions, tyro.conf.arg(name="")] = field(default_factory=TravelOptions)
    """How long looks take with a sensor that has to get there."""
    seed: int = 0
    """Fixes the first look and the imagined scenes."""

    def run(self) -> None:
        """Look, print a line a look, write the picture."""
        from infogaze.plots.files import require_drawable

        require_drawable(self.out)
        if self.out.exists() and not self.overwrite:
            raise InfogazeError(f"{self.out} is there already; --overwrite writes over it, --out names another file")
        agent = load(self.model, gain="distilled" if self.policy == "distilled" else "exact")
        if self.flip_tta not in {None, agent.flip_tta}:
            agent = agent.with_stop(None)
            agent.flip_tta = not agent.flip_tta
        if not self.stop:
            agent = agent.with_stop(None)
        if self.policy == "distilled":
            if self.num_samples is not None:
                raise InfogazeError("policy is 'distilled', which imagines nothing: num_samples is not to be given")
        elif self.policy != "own" or self.num_samples is not None:
            agent = agent.with_policy(self._policy(agent))
        picture = sample_picture() if self.image is None else self.image
        stop = None if self.stop_at is None else Confident(self.stop_at)
        result = agent.classify(
            picture,
            budget=self.budget,
            seed=self.seed,
            stop=stop,
            allowed=None if self.allowed is None else allowed_of(self.allowed, agent.model.grid, fit=agent.fit),
            travel=self.travel.travel(),
            seconds=self.travel.seconds,
        )
        labels = f"{len(agent.classes)} labels of {self.model}: {', '.join(agent.classes)}"
        print(textwrap.fill(labels, 100, subsequent_indent="  "))
        _print_looks(result)
        result.plot(self.out)
        print(f"{result.label}, from {100 * result.seen:.0f} % of the scene; drawn in {self.out}")
        if result.out_of_distribution:
            print("warning: this scene is unlike those that the model was trained on, so its label means little")

    def _policy(self, agent: Agent) -> Policy:
        assert agent.origin is not None
        method = METHODS[agent.origin.method]
        if self.policy == "random":
            return RandomPolicy()
        if self.policy == "raster":
            return RasterPolicy()
        if self.policy == "gain" and not method.imagines:
            raise InfogazeError(
                f"policy is 'gain', and a model by {agent.origin.method} imagines nothing; own, random or raster is allowed"
            )
        return method.policy(agent.origin.num_samples if self.num_samples is None else self.num_samples)


def _print_looks(result: Classification) -> None:
    episode, grid = result.episode, result.grid
    timed = "" if episode.seconds_spent is None else "  seconds"
    print(f"look  row  col  label            probability  entropy, nats{timed}")
    for number, look in enumerate(episode.history):
        row, col = look.location[0].tolist()
        best = int(look.probabilities[0].argmax())
        share = f"{100 * float(look.probabilities[0, best]):.1f} %"
        time = "" if look.seconds is None else f"{float(look.seconds[0]):9.2f}"
        about = f"{result.classes[best]:<16} {share:>11} {float(look.entropy[0]):14.3f}"
        print(f"{number:4d} {row:4d} {col:4d}  {about}{time}")
    taken = f"after {len(episode.history)} of {episode.budget} looks"
    if episode.ended_by == ("no location left",):
        every = (
            f"all {grid.num_locations} locations" if len(episode.history) == grid.num_locations else "all that may be"
        )
        print(f"{every} were looked at, {taken}")
    if episode.ended_by == ("seconds",):
        print(f"no other location can be reached in time, after {len(episode.history)} looks")
    if episode.ended_by == ("rule",):
        print(f"the rule said to stop {taken}")


def read(arguments: Sequence[str]) -> Look:
    """The command with its options."""
    return tyro.cli(Look, prog="infogaze look", args=list(arguments))
