"""One callable that classifies batches of scenes look by look, dictionary of arrays in and out: `infogaze score` and Ray Data use the same.

A scene's row depends on its id and the settings alone, not on its batch.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from infogaze.devices import device_named
from infogaze.errors import DataError, InfogazeError
from infogaze.gaze.agent import Agent
from infogaze.gaze.classification import scene_of
from infogaze.gaze.sensor import EpisodeSensor
from infogaze.gaze.stopping import Confident, Gain
from infogaze.grid import tensor_of
from infogaze.methods.registry import METHODS
from infogaze.models import load
from infogaze.rng import require_seed, seeds_at

ADDED = (
    "prediction", "probabilities", "looks_taken", "ended_by", "locations", "ood_score", "out_of_distribution", "problem",
)  # fmt: skip
"""The columns that a `Scorer` adds."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Scorer:
    """Classifies batches of scenes look by look. Ray Data's `map_batches` takes it as it is.

    It can be pickled: it holds its settings, and each process loads the model once, at its first batch.
    """

    model: str
    """A bundled model's name, or a folder that `train` or `infogaze.save` wrote, there wherever it is called."""
    image: str = "image"
    """The column with the scenes: arrays as `Agent.classify` takes them, or the paths of picture files."""
    id: str = "id"
    """The column that tells scenes apart, whole numbers or text. What is random about a scene follows from it and the seed."""
    budget: int | None = None
    """The most looks; the model's own budget if None."""
    stop_at: float | None = None
    """Stop a scene as soon as its most likely label has this probability; None leaves it to the model's own rule."""
    stop: bool = True
    """Stop as the model's own rule says, if `infogaze calibrate` gave it one."""
    gain: Gain = "exact"
    """What chooses the places: what the model imagines, or what `infogaze distil` made of it."""
    seed: int = 0
    """Of the first looks and of what is imagined."""
    device: str = "auto"
    """Where: cpu, cuda, cuda:1; auto takes a GPU if there is one."""
    compile: bool = False
    """Compile the model, as `infogaze.load` does."""
    _token: str = field(default_factory=lambda: uuid.uuid4().hex, init=False, repr=False)
    # Copies in other processes keep it, so that each process loads a model once, and a new scorer never gets an old one's.

    def __post_init__(self) -> None:
        require_seed(self.seed)
        if self.budget is not None and self.budget < 1:
            raise InfogazeError(f"budget is {self.budget}; it must be at least 1")
        if self.stop_at is not None:
            Confident(self.stop_at)

    @property
    def agent(self) -> Agent:
        """The model, loaded when it is first asked for."""
        return _loaded(self._token, self.model, (self.device, self.gain, self.compile))

    def __call__(self, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The batch without its scenes and with what they came to, one row a scene.

        `prediction` is a class name, `probabilities` has one number for each of `agent.classes`. `locations` are row and column of
        each look, -1 after the last; `ended_by` is rule, budget or no location left. `ood_score` is NaN where the model cannot tell. A file
        that is no usable picture has a `problem`, and no prediction.
        """
        for name in (self.image, self.id):
            if name not in batch:
                raise InfogazeError(f"the batch has no column {name!r}; it has {', '.join(map(repr, batch))}")
        if clashes := [name for name in ADDED if name in batch]:
            raise InfogazeError(f"the batch has a column {clashes[0]!r} already, which scoring adds; rename it")
        seeds, agent = seeds_of(batch[self.id], self.seed), self.agent
        images, problems = _scenes(batch[self.image], agent)
        usable = np.flatnonzero([not problem for problem in problems])
        found = self._blank(len(problems))
        if len(usable):
            for name, values in self._looked(images, seeds[torch.from_numpy(usable)]).items():
                found[name][usable] = values
        kept = {name: values for name, values in batch.items() if name != self.image}
        return {**kept, **found, "problem": np.array(problems, dtype=str)}

    def _blank(self, count: int) -> dict[str, np.ndarray]:
        """What is said of scenes that were not looked at."""
        agent = self.agent
        return {
            "prediction": np.full(count, "", f"<U{max(map(len, agent.classes))}"),
            "probabilities": np.full((count, len(agent.classes)), np.nan, np.float32),
            "looks_taken": np.zeros(count, np.int64),
            "ended_by": np.full(count, "", "<U16"),
            "locations": np.full((count, self.looks, 2), -1, np.int64),
            "ood_score": np.full(count, np.nan, np.float32),
            "out_of_distribution": np.zeros(count, bool),
        }

    @property
    def looks(self) -> int:
        """The most looks that a scene gets."""
        return self.agent.episode(budget=self.budget).budget

    def _looked(self, images: Tensor, seeds: Tensor) -> dict[str, np.ndarray]:
        """What these scenes came to."""
        agent = self.agent
        if not self.stop:
            agent = agent.with_stop(None)
        sensor = EpisodeSensor(images.to(agent.model.device), agent.model.grid.glimpse_size)
        rule = None if self.stop_at is None else Confident(self.stop_at)
        episode = agent.run(sensor, self.budget, batch=len(images), seed=seeds, stop=rule)
        taken = episode.looks_taken.cpu()
        locations = torch.full((len(images), episode.budget, 2), -1)
        looked = torch.stack([look.location for look in episode.history], 1).cpu()  # [B, T, 2]
        locations[:, : looked.shape[1]] = looked
        locations[torch.arange(episode.budget) >= taken[:, None]] = -1
        probabilities = episode.probabilities.float().cpu()
        score = episode.ood_score
        return {
            "prediction": np.array(agent.classes)[probabilities.argmax(1).numpy()],
            "probabilities": probabilities.numpy(),
            "looks_taken": taken.numpy(),
            "ended_by": np.array(episode.ended_by, dtype=str),
            "locations": locations.numpy(),
            "ood_score": np.full(len(images), np.nan) if score is None else score.float().cpu().numpy(),
            "out_of_distribution": episode.out_of_distribution.cpu().numpy(),
        }


@lru_cache(maxsize=4)
def _loaded(token: str, model: str, how: tuple[str, Gain, bool]) -> Agent:
    device, gain, compile = how
    agent = load(model, device_named(device), gain=gain, compile=compile)
    assert agent.origin is not None
    if METHODS[agent.origin.method].sees != "looks":
        raise InfogazeError(
            f"{model}: a model by {agent.origin.method}, which sees more than its looks; others are scored"
        )
    return agent


def seeds_of(ids: np.ndarray, seed: int) -> Int[Tensor, " B"]:
    """The seeds of scenes by their ids: of whole numbers those of `scene_seeds`, of text by a hash of it."""
    ids = np.asarray(ids)
    if np.issubdtype(ids.dtype, np.integer):
        return seeds_at(seed, torch.from_numpy(ids.astype(np.int64)))
    if not all(isinstance(one, str) for one in ids.tolist()):
        raise InfogazeError(f"ids are {ids.dtype} such as {ids.tolist()[0]!r}; whole numbers or text is allowed")
    numbers = [int.from_bytes(hashlib.sha256(one.encode()).digest()[:8], "big", signed=True) for one in ids.tolist()]
    return seeds_at(seed, torch.tensor(numbers, dtype=torch.int64))


def _scenes(pictures: np.ndarray, agent: Agent) -> tuple[Tensor, list[str]]:
    """The scenes of a column that can be used, uint8 [n, C, H, W], and what is wrong with each; nothing with most."""
    assert agent.origin is not None
    channels, grid, fit = agent.origin.config.channels, agent.model.grid, agent.fit
    shape = (channels, grid.height, grid.width)
    pictures = np.asarray(pictures)
    if pictures.dtype == np.uint8 and pictures.shape[1:] == shape:
        return tensor_of(pictures), [""] * len(pictures)

    def scene(picture: str | np.ndarray) -> Tensor | str:
        if not isinstance(picture, str):
            return scene_of(np.asarray(picture), grid, channels=channels, fit=fit)
        try:
            return scene_of(Path(picture), grid, channels=channels, fit=fit)
        except DataError as error:
            return error.problems[0].what
        except InfogazeError as error:
            return str(error)

    # Pillow leaves the interpreter alone while it decodes, so threads are enough.
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(scene, pictures))
    scenes = [one for one in found if isinstance(one, Tensor)]
    problems = [one if isinstance(one, str) else "" for one in found]
    return torch.stack(scenes) if scenes else torch.empty((0, *shape), dtype=torch.uint8), problems
