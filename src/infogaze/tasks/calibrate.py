"""Choose when a model may stop early, on scenes that chose nothing else, and try the rule on others."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from infogaze.data.folder import read_labelled
from infogaze.data.registry import load_set
from infogaze.data.sets import Split
from infogaze.devices import device_named
from infogaze.errors import InfogazeError
from infogaze.evaluation import store
from infogaze.evaluation.estimates import Estimate, accuracy, accuracy_of_mean, lead
from infogaze.evaluation.exact_pass import Records, exact_pass
from infogaze.evaluation.measurement import Subject
from infogaze.evaluation.risk_control import calibrated, looks_by, outcomes, require_enough
from infogaze.gaze.agent import Agent
from infogaze.gaze.stopping import CalibratedStop, Gain, RuleName
from infogaze.methods.registry import METHODS
from infogaze.models import bundled, load, save, store_stop
from infogaze.pictures import Form
from infogaze.progress import display
from infogaze.rng import require_seed, stream_seed
from infogaze.runs import read_config
from infogaze.tasks.evaluate import evaluate
from infogaze.tasks.requirements import require_place

_BATCH_SIZE = 200


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What a calibrated rule does on scenes that it was not calibrated on."""

    looks: float
    """Mean number of looks."""
    accuracy: Estimate
    """Each scene stopped by the rule."""
    full: Estimate
    """After the whole budget."""
    cost: Estimate
    """The difference of the two, scene by scene."""
    fixed: float
    """Accuracy of a fixed number of looks with the same mean: for so many scenes one look more than for the others."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A rule, and how it does."""

    stop: CalibratedStop
    trial: Trial | None
    """None where no scene was left to try it on."""


def calibrate(
    model: str | os.PathLike[str],
    *,
    gap: float = 0.01,
    delta: float = 0.05,
    rule: RuleName = "confidence",
    by_look: bool = False,
    gain: Gain = "exact",
    images: str | os.PathLike[str] | None = None,
    share: float = 0.5,
    root: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    seed: int = 0,
    device: str = "auto",
    quiet: bool = False,
) -> Calibration:
    """Give a model the rule that stops earliest for a promised cost, as `infogaze calibrate` does.

    The scenes are the labelled pictures in `images`, or else the test split of the run. `share` of them, drawn by the seed, calibrate, the
    others try the rule.
    """
    require_seed(seed)
    for name, value in (("gap", gap), ("delta", delta)):
        if not 0.0 < value < 1.0:
            raise InfogazeError(f"{name} is {value}; it must be above 0 and below 1")
    if not 0.0 < share <= 1.0:
        raise InfogazeError(f"share is {share}; it must be above 0 and at most 1")
    require_place(model, out)
    agent = load(model, device_named(device), gain=gain)
    _require_looks(model, agent)
    split = _test_split(model, root) if images is None else _pictures(agent, Path(images))
    count = round(share * len(split))
    require_enough(count, gap=gap, delta=delta, by_look=by_look)
    if images is None and gain == "exact":
        evaluate(model, measure=("records",), root=root, device=device, quiet=quiet)
        records = store.read(Path(model) / "evaluation", Records)
    else:
        records = _looked_at(agent, split, seed=seed, quiet=quiet)
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(stream_seed(seed, "calibration")))
    found = calibrated(_some(records, order[:count]), rule, gap=gap, delta=delta, by_look=by_look)
    stop = replace(found, gain=gain)
    if out is None:
        store_stop(Path(model), stop)
    else:
        save(agent.with_stop(stop), out)
    rest = order[count:]
    return Calibration(stop=stop, trial=_trial(stop, _some(records, rest)) if len(rest) else None)


def _require_looks(model: str | os.PathLike[str], agent: Agent) -> None:
    assert agent.origin is not None
    if METHODS[agent.origin.method].sees != "looks":
        raise InfogazeError(f"{model}: a model by {agent.origin.method}; only one that looks for itself can stop early")
    if agent.num_looks < 2:
        raise InfogazeError(f"{model}: takes {agent.num_looks} look, which leaves nothing to stop before")


def _test_split(model: str | os.PathLike[str], root: str | os.PathLike[str] | None) -> Split:
    if str(model) in bundled():
        raise InfogazeError(f"{model} is a bundled model, and no test split belongs to it; images must name a folder")
    data = read_config(Path(model)).data
    return load_set(data.name, data.root if root is None else str(root), data.options).test


def _pictures(agent: Agent, folder: Path) -> Split:
    assert agent.origin is not None
    config = agent.origin.config
    size = (config.height, config.width)
    form = Form(channels=config.channels, convert=True, native=None, size=size, fit=agent.fit)
    return read_labelled(folder, agent.classes, form)


def _looked_at(agent: Agent, split: Split, *, seed: int, quiet: bool) -> Records:
    assert agent.origin is not None
    method, scenes = METHODS[agent.origin.method], len(split)
    subject = Subject(agent=agent, method=method, test=split, num_scenes=scenes, seed=seed, batch_size=_BATCH_SIZE)
    with display(quiet=quiet) as screen:
        return exact_pass(subject, screen.bar("looking", scenes).advance)


def _some(records: Records, scenes: torch.Tensor) -> Records:
    return Records(
        labels=records.labels[scenes],
        locations=records.locations[scenes],
        predictions=records.predictions[scenes],
        log_probabilities=records.log_probabilities[scenes],
        expected=records.expected[scenes],
    )


def _trial(stop: CalibratedStop, records: Records) -> Trial:
    used = looks_by(stop, records)
    early = outcomes(records, stop.rule).correct_after(used)[:, None]
    full = records.correct[:, -1:]
    looks = float(used.double().mean())
    return Trial(
        looks=looks,
        accuracy=accuracy(early),
        full=accuracy(full),
        cost=lead(full, early),
        fixed=accuracy_of_mean(records.correct.double().mean(0), looks),
    )
