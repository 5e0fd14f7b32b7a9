"""ap_gym: an agent that plays its image-classification environments, and sets of infogaze as their images. Needs the extra `gym`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infogaze.data.options import AS_IT_IS, ReadOptions
from infogaze.data.registry import SETS, load_set
from infogaze.errors import InfogazeError
from infogaze.evaluation.estimates import Estimate, accuracy
from infogaze.gaze.agent import Agent
from infogaze.gaze.episode import Episode
from infogaze.rng import scene_seeds
from infogaze.typed import override

try:
    import ap_gym
    import gymnasium
    from ap_gym.envs.image import ImageClassificationDataset, ImagePerceptionConfig
    from ap_gym.envs.image_classification import ImageClassificationVectorEnv
except ImportError as error:
    raise InfogazeError(
        f"infogaze.adapters.ap_gym needs the extra 'gym' ({error}): pip install 'infogaze[gym]'"
    ) from None

AnyEnv = gymnasium.Env[Any, Any] | gymnasium.vector.VectorEnv[Any, Any, Any]
_WHOLE = 1e-3
"""Positions come in float32: what is so near to a whole pixel is one."""


class ScenesDataset(ImageClassificationDataset):
    """A split of a set of infogaze, as ap_gym's own environments read images: for `ImagePerceptionConfig(dataset=...)`."""

    def __init__(
        self,
        *,
        data: str = "digits",
        root: str | Path | None = None,
        split: str = "test",
        options: ReadOptions = AS_IT_IS,
    ) -> None:
        images = load_set(data, root, options)
        splits = {"train": images.train, "test": images.test}
        if split not in splits:
            raise InfogazeError(f"split is {split!r}; {' or '.join(splits)} is allowed")
        self._scenes, self._num_classes = splits[split], len(images.classes)

    def _get_length(self) -> int:
        return len(self._scenes)

    def _get_num_classes(self) -> int:
        return self._num_classes

    def _get_num_channels(self) -> int:
        return self._scenes.images.shape[1]

    def _get_data_point_batch(self, idx: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Images with their channels last, and their labels."""
        index = torch.from_numpy(idx)
        return self._scenes.images[index].movedim(1, -1).numpy(), self._scenes.labels[index].numpy()


class Player:
    """Fills in the actions of one of ap_gym's image-classification environments, single or vector, with wrappers or without.

    It heads for the place where its agent asks to look, keeps to it until it is there, and takes in what it sees on the way. A scene whose
    episode has ended stays where it is and says what it said. `time_step` tells when an environment has begun anew.
    """

    def __init__(self, agent: Agent, env: AnyEnv, *, seed: int = 0) -> None:
        inner = _image_classification(env)
        _require_fit(agent, inner)
        grid = agent.model.grid
        self._agent, self._seed, self._played = agent, seed, 0
        self._budget = int(inner.config.step_limit)
        # Positions are x, y from -1 to 1, and so are moves; locations are row, column in the model's pixels.
        self._half = torch.tensor([grid.height - grid.glimpse_size, grid.width - grid.glimpse_size]).double() / 2
        self._reach = torch.from_numpy(np.broadcast_to(np.asarray(inner.config.max_step_length, float), 2).copy())
        self._episode: Episode | None = None
        self._heading = torch.empty(0, 2).double()

    @property
    def episode(self) -> Episode:
        """The episode that is being played, with its history."""
        if self._episode is None:
            raise RuntimeError("nothing is played yet: act() on an observation first")
        return self._episode

    def act(self, observation: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The action and the prediction that answer an observation."""
        single = np.ndim(observation["time_step"]) == 0
        names = ("glimpse", "glimpse_pos", "time_step")
        values = [np.asarray(observation[name])[None] if single else np.asarray(observation[name]) for name in names]
        glimpse, position, time = map(torch.from_numpy, values)
        if bool((time <= -1.0).all()):
            self._begin(len(time))
        episode, here = self.episode, self._location(position)
        if not episode.done:
            episode.observe(glimpse.movedim(-1, 1).contiguous(), at=here)
        logits = episode.probabilities.clamp(min=torch.finfo(torch.float32).tiny).log()
        answer = {"action": self._move(here).float().numpy(), "prediction": logits.float().cpu().numpy()}
        return {name: values[0] for name, values in answer.items()} if single else answer

    def _begin(self, batch: int) -> None:
        seeds = scene_seeds(self._seed, batch, first=self._played)
        self._episode = self._agent.episode(batch, seeds, budget=self._budget)
        self._heading = torch.full((batch, 2), torch.nan).double()
        self._played += batch

    def _location(self, position: Float[Tensor, "B 2"]) -> Float[Tensor, "B 2"]:
        """Row and column of the glimpses' top-left pixels."""
        location = ((position.double().flip(-1) + 1.0) * self._half).clamp(min=0.0).minimum(2 * self._half)
        return torch.where((location - location.round()).abs() < _WHOLE, location.round(), location)

    def _move(self, here: Float[Tensor, "B 2"]) -> Float[Tensor, "B 2"]:
        """How to move towards where is to be looked, in steps of the environment."""
        episode = self.episode
        if episode.done:
            return torch.zeros_like(here)
        arrived = (here == self._heading).all(1) | self._heading.isnan().any(1)
        if bool(arrived.any()):
            asked = episode.next_location().cpu().double()
            self._heading = torch.where(arrived[:, None], asked, self._heading)
        way = ((self._heading - here) / self._half.clamp(min=0.5)).flip(-1) / self._reach
        way = way / torch.linalg.vector_norm(way, dim=-1, keepdim=True).clamp(min=1.0)
        return way * episode.running.cpu()[:, None]


@dataclass(frozen=True)
class Played:
    """How well an agent did."""

    correct: Bool[Tensor, "N T"]
    """Whether each prediction of each episode was the label, as the environment told it."""
    returns: Float[Tensor, " N"]
    """The sum of rewards of each episode."""

    @property
    def accuracy(self) -> Estimate:
        """The share of correct predictions after each number of looks, with its interval."""
        return accuracy(self.correct)


def environment(
    name: str, agent: Agent, *, root: str | Path | None = None, num_envs: int = 1
) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """So many of ap_gym's environments, by their id; or, by the name of a set of infogaze, ap_gym's over its test images, which are brought
    to the model's size as in its training, with glimpses of the model's size."""
    if name in SETS:
        grid = agent.model.grid
        channels = None if agent.origin is None else agent.origin.config.channels
        options = ReadOptions(size=(grid.height, grid.width), fit=agent.fit)
        if "channels" in SETS[name].options:
            options = override(options, {"channels": channels})
        sensor = (grid.glimpse_size, grid.glimpse_size)
        dataset = ScenesDataset(data=name, root=root, options=options)
        config = ImagePerceptionConfig(dataset=dataset, sensor_size=sensor, prefetch=False)
        return ap_gym.ActiveClassificationVectorLogWrapper(ImageClassificationVectorEnv(num_envs, config))
    if root is not None:
        raise InfogazeError(f"{name} has no root; of the sets of infogaze, {', '.join(SETS)}, most have one")
    try:
        return ap_gym.make_vec(name, num_envs=num_envs)
    except gymnasium.error.Error as error:
        raise InfogazeError(
            f"{name}: no environment of ap_gym and no set of infogaze ({', '.join(SETS)}): {_one_line(error)}"
        ) from None
    except OSError as error:
        raise InfogazeError(f"{name}: ap_gym cannot get its images: {_one_line(error)}") from None


def play(agent: Agent, env: AnyEnv, *, episodes: int, seed: int = 0) -> Played:
    """Play so many episodes, of a vector environment as many at once as it has. The environment is not closed."""
    if episodes < 1:
        raise InfogazeError(f"episodes is {episodes}; it must be at least 1")
    if seed < 0:
        raise InfogazeError(f"seed is {seed}; gymnasium takes numbers of at least 0")
    player = Player(agent, env, seed=seed)
    correct: list[np.ndarray] = []
    returns: list[np.ndarray] = []
    while sum(len(sums) for sums in returns) < episodes:
        observation, _ = env.reset(seed=None if returns else seed)
        rewards, right, done = [], [], False
        while not done:
            action = player.act(observation)
            observation, reward, terminated, truncated, info = env.step(action)
            right.append(np.atleast_1d(action["prediction"].argmax(-1) == info["prediction"]["target"]))
            rewards.append(np.atleast_1d(np.asarray(reward, np.float64)))
            done = bool(np.all(np.logical_or(terminated, truncated)))
        correct.append(np.stack(right, 1))
        returns.append(np.sum(rewards, 0))
    return Played(
        torch.from_numpy(np.concatenate(correct)[:episodes]),
        torch.from_numpy(np.concatenate(returns)[:episodes]),
    )


def _image_classification(env: AnyEnv) -> ImageClassificationVectorEnv:
    """The environment within all wrappers. Of it only sizes are read."""
    inner = env.unwrapped
    inner = getattr(inner, "vector_env", inner).unwrapped
    if not isinstance(inner, ImageClassificationVectorEnv) or inner.config.randomly_invert_labels:
        raise InfogazeError(
            f"{env} is not played: one of ap_gym's image-classification environments with labels as they are is"
        )
    return inner


def _require_fit(agent: Agent, env: ImageClassificationVectorEnv) -> None:
    """Refuse an environment whose glimpses are not those of the model's sensor."""
    grid, config = agent.model.grid, env.config
    side, scale = grid.glimpse_size, config.sensor_scale
    if tuple(config.sensor_size) != (side, side):
        raise InfogazeError(
            f"the environment's glimpses are {'x'.join(map(str, config.sensor_size))} pixels; the model takes {side}x{side}"
        )
    size, wanted = env.image_perception_module.image_size, (grid.height * scale, grid.width * scale)
    if tuple(size) != wanted:
        raise InfogazeError(
            f"the environment's images are {size[0]}x{size[1]} pixels at a sensor_scale of {scale:g}; the model's scenes are then "
            f"{wanted[0]:g}x{wanted[1]:g}"
        )
    channels = env.single_observation_space["glimpse"].shape[-1]
    taken = channels if agent.origin is None else agent.origin.config.channels
    if channels != taken:
        raise InfogazeError(f"the environment's glimpses have {channels} channels; the model takes {taken}")
    classes = config.dataset.num_classes
    if classes != len(agent.classes):
        raise InfogazeError(f"the environment has {classes} classes; the model has {len(agent.classes)}")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
