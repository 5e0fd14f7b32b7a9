"""Give a model a gain that is read from the belief in one pass, and try it on scenes that taught it nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float64, UInt8
from torch import Tensor

from infogaze.data.registry import load_set
from infogaze.data.sets import ImageSet, Split
from infogaze.devices import device_named
from infogaze.errors import InfogazeError
from infogaze.evaluation.estimates import Estimate, accuracy, lead
from infogaze.evaluation.measurement import OnProgress
from infogaze.evaluation.rollouts import roll_out
from infogaze.gaze.agent import Agent
from infogaze.gaze.policies import DistilledPolicy
from infogaze.models import bundled, load, save, store_distilled
from infogaze.nn.distilled import DistilledGain
from infogaze.nn.model import Model
from infogaze.progress import display
from infogaze.rng import require_seed, stream_seed
from infogaze.runs import read_config
from infogaze.tasks.requirements import require_fit, require_place
from infogaze.training.distillation import distilled_from, maps_along_looks, regret


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What a distilled gain does on scenes that taught it nothing."""

    regret: Float64[Tensor, " looks"]
    """At each look but the first: how much less exact gain, in nats, the place has that it chooses than the best; the mean."""
    at_random: Float64[Tensor, " looks"]
    """The same for a place at random."""
    exact: Estimate
    """Accuracy by look with the exact gain."""
    distilled: Estimate
    """With the distilled one."""
    cost: Estimate
    """The difference of the two, scene by scene."""


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """A gain, and how it does."""

    gain: DistilledGain
    trial: Trial | None
    """None where there were no scenes to try it on."""


def distil(
    model: str | os.PathLike[str],
    *,
    num_scenes: int = 10_000,
    epochs: int = 30,
    num_trials: int = 1000,
    images: UInt8[Tensor, "N C H W"] | None = None,
    root: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    device: str = "auto",
    quiet: bool = False,
) -> Distillation:
    """Give a model a gain that needs no imagination, as `infogaze distil` does.

    It learns from the training split of the run, or from `images` of one's own, whose labels nobody needs; it is tried on the test split
    of the run.
    """
    require_seed(seed)
    for name, value, least in (("num_scenes", num_scenes, 1), ("epochs", epochs, 1), ("num_trials", num_trials, 0)):
        if value < least:
            raise InfogazeError(f"{name} is {value}; it must be at least {least}")
    require_place(model, out)
    where = device_named(device)
    agent = load(model, where)
    _require_imagination(model, agent)
    run = None if images is not None else _images_of(model, agent, root)
    scenes = run.train.images if run is not None else images
    assert scenes is not None
    at_once = batch_size if batch_size is not None else (1000 if where.type == "cuda" else 200)
    order = torch.randperm(len(scenes), generator=torch.Generator().manual_seed(stream_seed(seed, "distilled scenes")))
    chosen = scenes[order[:num_scenes]]
    with display(quiet=quiet) as screen:
        bar = screen.bar("looking", len(chosen))
        taught = maps_along_looks(agent, chosen, seed=seed, batch_size=at_once, on_progress=bar.advance)
        gain = distilled_from(taught, epochs=epochs, seed=seed, on_progress=screen.bar("learning", epochs).advance)
        agent.distilled = gain
        if out is None:
            store_distilled(Path(model), gain)
        else:
            save(agent, out)
        trial = None
        if run is not None and num_trials:
            generator = torch.Generator().manual_seed(stream_seed(seed, "trial"))
            some = torch.randperm(len(run.test), generator=generator)[:num_trials]
            scenes_left = Split(run.test.images[some], run.test.labels[some])
            progress = screen.bar("trying", 3 * len(some)).advance
            trial = tried(agent, scenes_left, seed=seed, batch_size=at_once, on_progress=progress)
    return Distillation(gain=gain, trial=trial)


def _require_imagination(model: str | os.PathLike[str], agent: Agent) -> None:
    assert agent.origin is not None
    if not isinstance(agent.model, Model):
        raise InfogazeError(
            f"{model}: a model by {agent.origin.method}, which imagines nothing; there is no gain to be distilled"
        )
    if agent.num_looks < 2:
        raise InfogazeError(f"{model}: takes {agent.num_looks} look, which no gain chooses")


def _images_of(model: str | os.PathLike[str], agent: Agent, root: str | os.PathLike[str] | None) -> ImageSet:
    if str(model) in bundled():
        raise InfogazeError(f"{model} is a bundled model, and no training split belongs to it; images are needed")
    data = read_config(Path(model)).data
    found = load_set(data.name, data.root if root is None else str(root), data.options)
    require_fit(model, agent, found, split="training")
    return found


def tried(
    agent: Agent, scenes: Split, *, seed: int, batch_size: int, on_progress: OnProgress = lambda scenes: None
) -> Trial:
    """How an agent's distilled gain does on these scenes."""
    assert agent.distilled is not None
    exact, distilled = (
        roll_out(looker, scenes, seed=seed, batch_size=batch_size, on_progress=on_progress).correct
        for looker in (agent, agent.with_distilled_gain())
    )
    along = maps_along_looks(
        agent,
        scenes.images,
        seed=seed,
        batch_size=batch_size,
        astray=0.0,
        follow=DistilledPolicy(agent.distilled),
        on_progress=on_progress,
    )
    lost, all_gains = regret(agent.distilled, along).double(), along.gain.masked_fill(~along.candidates, 0.0).double()
    best = along.gain.masked_fill(~along.candidates, -torch.inf).amax(1).double()
    random = best - all_gains.sum(1) / along.candidates.sum(1)
    looks = along.looks.unique().tolist()
    return Trial(
        regret=torch.stack([lost[along.looks == number].mean() for number in looks]).cpu(),
        at_random=torch.stack([random[along.looks == number].mean() for number in looks]).cpu(),
        exact=accuracy(exact),
        distilled=accuracy(distilled),
        cost=lead(exact, distilled),
    )
