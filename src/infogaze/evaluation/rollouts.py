"""Every scene of a split, looked at once by the loop that users drive: what all measurements are made from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from infogaze.data.sets import Split
from infogaze.evaluation.measurement import OnProgress
from infogaze.gaze.agent import Agent
from infogaze.gaze.captured import CapturedPolicy
from infogaze.gaze.episode import Episode
from infogaze.gaze.policies import ScenePolicy
from infogaze.gaze.sensor import EpisodeSensor, ImageSensor
from infogaze.gaze.travel import Travel
from infogaze.rng import scene_seeds

SensorOf = Callable[[Tensor, int, Int[Tensor, " B"]], ImageSensor]
"""What looks at a batch of images, made from them, the glimpse size and the scenes' seeds."""
LEAST = -1e4
"""What stands for the logarithm of zero, in nats."""


@dataclass(frozen=True, kw_only=True)
class Rollouts:
    """What happened at each look of each scene."""

    labels: Int[Tensor, " N"]
    locations: Int[Tensor, "N T 2"]
    probabilities: Float[Tensor, "N T classes"]
    gains: Float[Tensor, "N T rows cols"]
    """The map that chose each look, in nats; zeros at the first, which is random."""
    imagined: UInt8[Tensor, "N T C H W"] | None = None
    """What was expected of the scene after each look, where that was asked for and the model imagines pixels."""
    uncertainty: Float[Tensor, "N T rows cols"] | None = None
    """The entropy of what each location then held, in nats."""

    @property
    def log_probabilities(self) -> Tensor:
        """Their logarithm, [N, T, classes], in nats, finite where float32 has a probability of zero."""
        return self.probabilities.log().clamp(min=LEAST)

    @property
    def predictions(self) -> Tensor:
        """The most likely label after each look, [N, T]."""
        return self.probabilities.argmax(-1)

    @property
    def correct(self) -> Tensor:
        """Whether it is the true one, [N, T] bool."""
        return self.predictions == self.labels[:, None]


def clean_sensor(images: Tensor, glimpse_size: int, seeds: Int[Tensor, " B"]) -> ImageSensor:
    """A sensor that shows what is there."""
    return EpisodeSensor(images, glimpse_size)


def episodes(
    agent: Agent,
    split: Split,
    *,
    seed: int | Int[Tensor, " N"] = 0,
    budget: int | None = None,
    batch_size: int = 200,
    sensor_of: SensorOf = clean_sensor,
    travel: Travel | None = None,
    seconds: float | None = None,
) -> Iterator[tuple[Int[Tensor, " B"], Episode]]:
    """The labels and the finished episode of one batch after the other. First looks and noise depend on the seed and the scene alone, not
    on policy or batch.

    `seed` is one number for the split, or one a scene.
    """
    for first in range(0, len(split), batch_size):
        images, labels = split.images[first : first + batch_size], split.labels[first : first + batch_size]
        seeds = (
            scene_seeds(seed, len(labels), first=first) if isinstance(seed, int) else seed[first : first + batch_size]
        )
        sensor = sensor_of(images.to(agent.model.device), agent.model.grid.glimpse_size, seeds)
        policy = agent.policy
        # What stopping early would have cost is reckoned from complete episodes.
        looker = agent.with_stop(None)
        if isinstance(policy, ScenePolicy):
            looker = looker.with_policy(policy.for_scenes(images, labels))
        yield labels, looker.run(sensor, budget, batch=len(labels), seed=seeds, travel=travel, seconds=seconds)


def roll_out(
    agent: Agent,
    split: Split,
    *,
    seed: int | Int[Tensor, " N"] = 0,
    budget: int | None = None,
    batch_size: int = 200,
    imagine: bool = False,
    sensor_of: SensorOf = clean_sensor,
    on_progress: OnProgress = lambda scenes: None,
) -> Rollouts:
    """Look at every scene of the split, as `episodes` does. With `imagine` what was expected of the scenes is kept too, as pictures."""
    parts, count, done = [], len(split), 0
    if isinstance(agent.policy, CapturedPolicy):
        split, seed = _in_whole_batches(split, seed, batch_size)
    every = episodes(agent, split, seed=seed, budget=budget, batch_size=batch_size, sensor_of=sensor_of)
    for labels, episode in every:
        history = episode.history
        drawn = [scene for scene in map(episode.imagined, range(len(history) if imagine else 0)) if scene is not None]
        parts.append(
            Rollouts(
                labels=labels.cpu(),
                locations=torch.stack([look.location for look in history], 1).cpu(),
                probabilities=torch.stack([look.probabilities for look in history], 1).cpu(),
                gains=torch.stack([look.gain for look in history], 1).cpu(),
                imagined=torch.stack([scene.picture for scene in drawn], 1).cpu() if drawn else None,
                uncertainty=torch.stack([scene.uncertainty for scene in drawn], 1).float().cpu() if drawn else None,
            )
        )
        on_progress(min(len(labels), count - done))
        done += len(labels)
    return Rollouts(
        labels=torch.cat([part.labels for part in parts])[:count],
        locations=torch.cat([part.locations for part in parts])[:count],
        probabilities=torch.cat([part.probabilities for part in parts])[:count],
        gains=torch.cat([part.gains for part in parts])[:count],
        imagined=_joined([part.imagined for part in parts], count),
        uncertainty=_joined([part.uncertainty for part in parts], count),
    )


def _joined(parts: Sequence[Tensor | None], count: int) -> Tensor | None:
    found = [part for part in parts if part is not None]
    return torch.cat(found)[:count] if found else None


def _in_whole_batches(
    split: Split, seed: int | Int[Tensor, " N"], batch_size: int
) -> tuple[Split, int | Int[Tensor, " M"]]:
    """The scenes, and the first ones again until the last batch is as large as the others: for another size all would be compiled anew."""
    lacking = -len(split) % batch_size if len(split) > batch_size else 0
    if not lacking:
        return split, seed
    order = torch.cat([torch.arange(len(split)), torch.arange(lacking)])
    return Split(split.images[order], split.labels[order]), seed if isinstance(seed, int) else seed[order]
