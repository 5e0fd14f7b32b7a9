"""An episode as bytes, to be taken up again in another process: tensors and a description in one safetensors file, with a digest of both.

This is the one other place that knows what an `Episode` holds. The model is not stored, only its digest; what cannot be stored, such as a
function that stops an episode, is given again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from inspect import isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.files import read_whole
from infogaze.gaze.captured import CapturedPolicy
from infogaze.gaze.episode import Episode, Look
from infogaze.gaze.failed import FailedLooks
from infogaze.gaze.policies import Choice, DistilledPolicy, GainPolicy, Policy, RandomPolicy, RasterPolicy
from infogaze.gaze.stopping import CalibratedStop, Confident, LittleToGain, LowEntropy, StopRule
from infogaze.gaze.travel import Clock, Stage, Travel
from infogaze.nn.belief import Belief
from infogaze.nn.model import GlimpseClassifier
from infogaze.nn.typicality import Typicality
from infogaze.typed import from_plain, to_plain

if TYPE_CHECKING:
    from infogaze.gaze.agent import Agent

FORMAT = 1
_KNOWN: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (GainPolicy, RandomPolicy, RasterPolicy, Confident, LowEntropy, LittleToGain, CalibratedStop)
}
"""What is made again from its name and fields."""
_OF_A_LOOK = ("location", "probabilities", "entropy", "gain", "hidden")


class StateError(InfogazeError):
    """What is no episode of this agent; the message is one line that says why."""


@dataclass(frozen=True, kw_only=True)
class Chooser:
    """A policy or a stop rule, by name."""

    name: str
    fields: dict[str, Any] | None
    """None for what cannot be stored."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long looks take."""

    seconds: float | None
    """The most that all may take."""
    exposure: float
    start: tuple[float, float] | None
    weighed: bool
    stage: tuple[float | None, float | None, float] | None
    """Speed of the rows and of the columns, None where no way takes time, and the time to settle; None for a matrix, which is a tensor, and
    for a function."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """What an episode holds beside its tensors."""

    format: int
    model: str
    """The digest of all that the agent's answers follow from."""
    budget: int
    looks: int
    """How many there are in its history."""
    policy: Chooser
    first_policy: Chooser
    stop: Chooser | None
    asked: bool
    """Whether a location was handed out that was not looked at yet."""
    next_has_map: bool
    failed_has_map: bool
    masked: bool
    """Whether there are places that may not be looked at."""
    timing: Timing | None
    """None where it is not known how long looks take."""


def state_of(episode: Episode) -> bytes:
    """All that an episode holds, but for its model."""
    tensors: dict[str, Tensor] = {
        "seeds": episode._seeds,
        "stopped": episode.stopped,
        "looks_taken": episode.looks_taken,
        "candidates": episode._candidates,
        "ood": episode._ood,
        "chosen_by": episode._chosen_by,
        **_of_belief("belief", episode._belief),
        **({} if episode._flipped is None else _of_belief("flipped", episode._flipped)),
        **({} if episode._probabilities is None else {"probabilities": episode._probabilities}),
        **_of_choice("next", episode._next),
    }
    if episode._digest is None:  # once: weights take longer to read than a state
        episode._digest = _digest_of(episode._model, episode._temperatures, episode._typicality)
    failed = episode._failed
    if failed is not None:
        tensors |= {**_of_choice("failed", failed.asked), "failed.scenes": failed.scenes}
    for number, look in enumerate(episode.history):
        tensors |= {f"look {number} {name}": getattr(look, name) for name in _OF_A_LOOK}
        if look.seconds is not None:
            tensors[f"look {number} seconds"] = look.seconds
    if episode._clock is not None:
        tensors |= {"clock.spent": episode._clock.spent, "clock.here": episode._clock.here}
        if isinstance(episode._clock.travel.way, Tensor):
            tensors["clock.way"] = episode._clock.travel.way
    description = Description(
        format=FORMAT,
        model=episode._digest,
        budget=episode.budget,
        looks=len(episode.history),
        policy=_described(episode._policy),
        first_policy=_described(episode._first_policy),
        stop=None if episode._stop is None else _described(episode._stop),
        asked=episode._asked is not None,
        next_has_map=episode._next is not None and episode._next.has_map,
        failed_has_map=failed is not None and failed.asked.has_map,
        masked=episode._masked,
        timing=None if episode._clock is None else _timing(episode._clock),
    )
    # Tensors that share memory are not stored by safetensors.
    tensors = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()
    }
    said = json.dumps(to_plain(description), sort_keys=True)
    # One entry, because safetensors puts several in any order: equal episodes are equal bytes.
    return tensors_to_bytes(tensors, {"episode": json.dumps([_digest(said, tensors), said])})


def resumed(
    agent: Agent,
    state: bytes | str | os.PathLike[str],
    *,
    policy: Policy | None = None,
    stop: StopRule | None = None,
    travel: Travel | None = None,
) -> Episode:
    """The episode of these bytes or this file, going on where it was."""
    name, data = ("the state", state) if isinstance(state, bytes) else (str(Path(state)), read_whole(Path(state)))
    description, tensors = _read(name, data)
    model = agent.model
    temperatures = None if agent.temperatures is None else torch.tensor(agent.temperatures)
    if description.model != _digest_of(model, temperatures, agent.typicality) or agent.flip_tta != (
        "flipped.hidden" in tensors
    ):
        raise StateError(f"{name}: an episode of another model; the agent that began it is needed")
    # In memory of their own, aligned.
    tensors = {key: value.to(model.device, copy=True) for key, value in tensors.items()}
    seeds = tensors["seeds"]
    timing = description.timing
    episode = agent.episode(
        len(seeds),
        seeds,
        budget=description.budget,
        travel=_travel(timing, tensors.get("clock.way"), travel, name=name),
        seconds=None if timing is None else timing.seconds,
    )
    if episode._clock is not None:
        episode._clock.set(spent=tensors["clock.spent"], here=tensors["clock.here"])
    offers = (policy, agent.policy)
    episode._policy = _resolved(description.policy, offers, name=name, what="policy")
    own = description.first_policy == description.policy
    episode._first_policy = (
        episode._policy if own else _resolved(description.first_policy, (None, None), name=name, what="policy")
    )
    episode._stop = None
    if description.stop is not None:
        episode._stop = _resolved(description.stop, (stop, agent.stop), name=name, what="stop")
    elif stop is not None:
        raise StateError(f"{name}: the episode has no stop rule, so none is to be given")
    episode._masked = description.masked
    episode.stopped, episode.looks_taken = tensors["stopped"], tensors["looks_taken"]
    episode._candidates, episode._ood = tensors["candidates"], tensors["ood"]
    episode._chosen_by, episode._probabilities = tensors["chosen_by"], tensors.get("probabilities")
    episode._belief = _belief("belief", tensors)
    episode._flipped = _belief("flipped", tensors) if agent.flip_tta else None
    episode._next = _choice("next", tensors, description.next_has_map)
    episode._asked = episode._next if description.asked else None
    failed = _choice("failed", tensors, description.failed_has_map)
    episode._failed = None if failed is None else FailedLooks(failed, tensors["failed.scenes"])
    episode.history = [
        Look(
            **{part: tensors[f"look {number} {part}"] for part in _OF_A_LOOK},
            seconds=tensors.get(f"look {number} seconds"),
        )
        for number in range(description.looks)
    ]
    return episode


def _timing(clock: Clock) -> Timing:
    travel = clock.travel
    return Timing(
        seconds=clock.seconds,
        exposure=travel.exposure,
        start=travel.start,
        weighed=travel.weighed,
        stage=_stage(travel),
    )


def _travel(timing: Timing | None, way: Tensor | None, given: Travel | None, *, name: str) -> Travel | None:
    """How long looks took: stored, or given again where a function says it."""
    if timing is None:
        if given is not None:
            raise StateError(f"{name}: its looks take no time, so no travel is to be given")
        return None
    if given is not None:
        same = (given.exposure, given.start, given.weighed) == (timing.exposure, timing.start, timing.weighed)
        if not same or _stage(given) != timing.stage or not _same_matrix(given.way, way):
            raise StateError(f"{name}: its travel was another, with an exposure of {timing.exposure:g} seconds")
        return given
    if timing.stage is not None:
        *speeds, settle = timing.stage
        speed = tuple(math.inf if value is None else value for value in speeds)
        return Travel(
            way=Stage(speed=speed, settle=settle), exposure=timing.exposure, start=timing.start, weighed=timing.weighed
        )  # fmt: skip
    if way is not None:
        return Travel(way=way, exposure=timing.exposure, start=timing.start, weighed=timing.weighed)
    raise StateError(
        f"{name}: a function says how long its ways take, which cannot be stored; give it again, travel=..."
    )


def _stage(travel: Travel) -> tuple[float | None, float | None, float] | None:
    if not isinstance(travel.way, Stage):
        return None
    rows, cols = (None if speed == math.inf else speed for speed in travel.way.axes)
    return rows, cols, travel.way.settle


def _same_matrix(way: object, stored: Tensor | None) -> bool:
    if not isinstance(way, Tensor) or stored is None:
        return not isinstance(way, Tensor) and stored is None
    return torch.equal(way.cpu(), stored.cpu())


def _of_belief(name: str, belief: Belief) -> dict[str, Tensor]:
    return {f"{name}.hidden": belief.hidden, f"{name}.memory": belief.memory}


def _belief(name: str, tensors: Mapping[str, Tensor]) -> Belief:
    return Belief(tensors[f"{name}.hidden"], tensors[f"{name}.memory"])


def _of_choice(name: str, choice: Choice | None) -> dict[str, Tensor]:
    return {} if choice is None else {f"{name}.location": choice.location, f"{name}.gain": choice.gain}


def _choice(name: str, tensors: Mapping[str, Tensor], has_map: bool) -> Choice | None:
    if f"{name}.location" not in tensors:
        return None
    return Choice(tensors[f"{name}.location"], tensors[f"{name}.gain"], has_map=has_map)


def _read(name: str, data: bytes) -> tuple[Description, dict[str, Tensor]]:
    """Description and tensors of a state that is whole."""
    try:
        (length,) = struct.unpack_from("<Q", data)
        digest, said = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["episode"])
        tensors = tensors_from_bytes(data)
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError, struct.error):
        raise StateError(f"{name}: no stored episode, or a damaged one") from None
    if _digest(said, tensors) != digest:
        raise StateError(f"{name}: damaged, its digest is not that of what it holds")
    plain = json.loads(said)
    if plain.get("format") != FORMAT:
        raise StateError(f"{name}: format {plain.get('format')}, and this version of infogaze reads format {FORMAT}")
    return from_plain(Description, plain), tensors


def _described(chooser: Policy | StopRule) -> Chooser:
    """What is called by its name alone, with its fields if it is a record of plain values."""
    if isinstance(chooser, CapturedPolicy):
        return _described(chooser.policy)
    if isinstance(chooser, DistilledPolicy):  # its weights are the agent's
        return Chooser(name="DistilledPolicy", fields={"weights": _digest("", chooser.distilled.state_dict())})
    kind = type(chooser)
    of = chooser if hasattr(chooser, "__qualname__") else kind  # functions have names of their own
    name = kind.__name__ if _KNOWN.get(kind.__name__) is kind else f"{of.__module__}.{of.__qualname__}"
    fields: Any = None
    if is_dataclass(chooser):
        fields = to_plain(chooser)
    elif isfunction(kind.__call__) and not getattr(chooser, "__dict__", True):
        fields = {}  # an object of a class of its own that holds nothing: as good as any other of them
    try:
        return Chooser(name=name, fields=json.loads(json.dumps(fields)))
    except (TypeError, ValueError):
        return Chooser(name=name, fields=None)


def _resolved(stored: Chooser, offers: tuple[Any, Any], *, name: str, what: str) -> Any:
    """The stored policy or rule: the one that is given, the agent's own, or one made again."""
    given = offers[0]
    for offered in offers:
        if offered is not None and stored.fields is not None and _described(offered) == stored:
            return offered
    if stored.fields is None:
        if given is None:
            raise StateError(
                f"{name}: its {what} was a {stored.name}, which cannot be stored; give it again, {what}=..."
            )
        return given
    if given is not None:
        raise StateError(f"{name}: its {what} was another, {stored.name} with {json.dumps(stored.fields)}")
    if stored.name not in _KNOWN:
        raise StateError(f"{name}: its {what} was a {stored.name}; give it again, {what}=...")
    return from_plain(_KNOWN[stored.name], stored.fields)


def _digest(said: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(said.encode())
    for name in sorted(tensors):
        _add(digest.update, name, tensors[name])
    return digest.hexdigest()


def _add(update: Callable[[Any], None], name: str, value: Tensor) -> None:
    value = value.detach().cpu().contiguous()
    update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
    update(value.flatten().view(torch.uint8).numpy())


def _digest_of(model: GlimpseClassifier, temperatures: Tensor | None, typicality: Typicality | None) -> str:
    """One digest for all that answers follow from: the weights, the grid, temperatures and what is known of training's glimpses."""
    others: dict[str, Tensor] = {} if temperatures is None else {"temperatures": temperatures}
    if typicality is not None:
        threshold = torch.tensor(typicality.threshold, dtype=torch.float64)
        others |= {"mean": typicality.mean, "whitening": typicality.whitening, "threshold": threshold}
    weights = dict((*model.named_parameters(), *model.named_buffers()))
    return _digest(f"{type(model).__name__} {model.grid}", {**weights, **others})
