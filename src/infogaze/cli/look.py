"""`infogaze look IMAGE`: one picture in; the looks, the probabilities and a rollout picture out."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro
from matplotlib.figure import Figure

from infogaze.errors import InfogazeError
from infogaze.files import make_folder, write_whole
from infogaze.gaze.agent import Agent
from infogaze.gaze.policies import Policy, RandomPolicy, RasterPolicy
from infogaze.gaze.scene import read_scene, sample_picture
from infogaze.gaze.sensor import ImageSensor
from infogaze.gaze.stopping import Confident
from infogaze.methods.registry import METHODS
from infogaze.models import load
from infogaze.plots.rollout import rollout_figure
from infogaze.plots.style import png, svg

_ENDINGS = (".png", ".svg", ".pdf", ".jpg", ".jpeg")


@dataclass(frozen=True)
class LookAt:
    """Classify one picture glimpse by glimpse, and draw what was looked at, expected and believed.

    The picture is brought to the size of the model's scenes as in the model's training: scaled and cropped around its middle, stretched
    (the bundled svhn), or given black bars. It may be PNG, JPEG, WebP or anything else that
    Pillow reads, of any size not smaller than a glimpse, in colour or grey of 8 or 16 bits, with a palette or transparent, which
    counts as white.
    """

    image: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE")] = None
    """The picture; if not given, the sample that comes with the package."""
    model: str = "cifar10-plus"
    """A bundled model's name, or a folder that `quickstart`, `train` or `infogaze.save` wrote."""
    out: Path = Path("look.png")
    """Where the rollout picture goes: a file that ends in .png, .svg, .pdf, .jpg or .jpeg, and is of that kind."""
    budget: int | None = None
    """The most looks; the model's own budget if not given. Of more than eight the picture shows eight, with the first and the last."""
    policy: Literal["own", "gain", "random", "raster"] = "own"
    """How the looks are chosen: as the model's method does, or by expected gain, at random, row by row."""
    samples: int | None = None
    """Scenes imagined behind each gain map; the model's own number if not given."""
    stop_at: float | None = None
    """Stop as soon as the most likely label has this probability."""
    # Read as bool, it is two flags, and None where neither is given.
    twin: Annotated[bool | None, tyro.conf.arg(constructor=bool)] = None
    """Take in every look mirrored too, for scenes whose mirror image has the same label, or not; as the model was saved if not given."""
    seed: int = 0
    """Fixes the first look and the imagined scenes."""

    def run(self) -> None:
        """Look, print a line a look, write the picture."""
        self._refuse_out()
        agent = load(self.model)
        if self.twin is not None:
            agent.twin = self.twin
        scene = read_scene(sample_picture() if self.image is None else self.image, agent)
        stop = None if self.stop_at is None else Confident(self.stop_at)
        sensor = ImageSensor(scene[None], agent.model.grid.glimpse)
        episode = agent.run(sensor, self.budget, seed=self.seed, policy=self._policy(agent), stop=stop)
        print("look  row  col  label            probability  entropy, nats")
        for number, look in enumerate(episode.history):
            row, col = look.location[0].tolist()
            best = int(look.probabilities[0].argmax())
            share = f"{100 * float(look.probabilities[0, best]):.1f} %"
            print(
                f"{number:4d} {row:4d} {col:4d}  {agent.classes[best]:<16} {share:>11} {float(look.entropy[0]):14.3f}"
            )
        grid = agent.model.grid
        if len(episode.history) < episode.budget and not bool(episode.candidates.any()):
            print(f"all {grid.places} places were looked at, after {len(episode.history)} of {episode.budget} looks")
        seen = 100 * int(sensor.pixels_read[0]) / (grid.height * grid.width)
        figure = rollout_figure(
            scene,
            torch.cat([look.location for look in episode.history]),
            torch.cat([look.gain for look in episode.history]),
            torch.cat([look.probabilities for look in episode.history]),
            grid,
            agent.classes,
        )
        make_folder(self.out.parent)
        write_whole(self.out, _file(figure, self.out.suffix.lower()))
        print(
            f"{agent.classes[int(episode.probabilities[0].argmax())]}, from {seen:.0f} % of the scene; drawn in {self.out}"
        )

    def _refuse_out(self) -> None:
        """Refuse, before anything is looked at, what no picture can be written as."""
        allowed = f"a file that ends in {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]} is allowed"
        if self.out.is_dir():
            raise InfogazeError(f"out is {self.out}, a folder; {allowed}")
        if self.out.suffix.lower() not in _ENDINGS:
            raise InfogazeError(f"out is {self.out}; {allowed}")

    def _policy(self, agent: Agent) -> Policy:
        samples = agent.samples if self.samples is None else self.samples
        if self.policy == "random":
            return RandomPolicy()
        if self.policy == "raster":
            return RasterPolicy()
        if self.policy == "gain" and not METHODS[agent.method].imagines:
            raise InfogazeError(
                f"policy is 'gain', and a model by {agent.method} imagines nothing; own, random or raster is allowed"
            )
        return METHODS[agent.method].policy(samples)


def _file(figure: Figure, ending: str) -> bytes:
    """The figure as a file of the kind that has this ending."""
    if ending == ".png":
        return png(figure)
    if ending == ".svg":
        return svg(figure)
    out = io.BytesIO()
    metadata = {"CreationDate": None} if ending == ".pdf" else None
    figure.savefig(out, format=ending[1:], dpi=150, facecolor="white", metadata=metadata)
    return out.getvalue()
