"""Teach a small network the gain of an agent: beliefs along its looks, what its maps say of them, and a regression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from infogaze.gaze.agent import Agent
from infogaze.gaze.policies import Policy
from infogaze.gaze.sensor import ImageSensor
from infogaze.nn.distilled import DistilledGain
from infogaze.nn.gain import class_entropy
from infogaze.rng import SceneNoise, scene_seeds, stream_seed

_ASTRAY = 0.3
"""The share of looks at random, so that it knows beliefs that its own looks never lead to."""
_BATCH, _RATE, _DECAY = 512, 2e-3, 0.01
_LEAST = 1e-3
"""Nats; beliefs of less entropy weigh no more."""


@dataclass(frozen=True, kw_only=True)
class Taught:
    """Beliefs, and the maps that were drawn from them."""

    hidden: Float[Tensor, "N h"]
    """Of the beliefs."""
    entropy: Float[Tensor, " N"]
    """Of p(y | h), in nats."""
    gain: Float[Tensor, "N L"]
    """The map, in nats."""
    candidates: Bool[Tensor, "N L"]
    """The locations that could be chosen."""
    looks: Int[Tensor, " N"]
    """How many each belief holds."""


@torch.no_grad()
def maps_along_looks(
    agent: Agent,
    images: UInt8[Tensor, "N C H W"],
    *,
    seed: int,
    batch_size: int,
    astray: float = _ASTRAY,
    follow: Policy | None = None,
    on_progress: Callable[[int], None] = lambda scenes: None,
) -> Taught:
    """The beliefs of an agent along looks by its own maps, or by those of a policy that it follows, and what its own maps say of them.

    `astray` of the looks are at random places instead.
    """
    parts: list[Taught] = []
    generator = torch.Generator().manual_seed(stream_seed(seed, "astray"))
    classify = agent.model.backbone.classify
    for first in range(0, len(images), batch_size):
        some = images[first : first + batch_size].to(agent.model.device)
        sensor = ImageSensor(some, agent.model.grid.glimpse_size)
        seeds = scene_seeds(seed, len(some), first=first).to(some.device)
        # With no rule: a scene that has stopped believes what it believed.
        episode = agent.with_stop(None).episode(len(some), seed=seeds)
        while not episode.done:
            where, candidates = episode.next_location(), episode.candidates.flatten(1)
            if episode.history:
                belief = episode.belief
                if follow is not None:
                    noise = SceneNoise(seeds, len(episode.history))
                    where = follow(agent.model, belief, candidates=candidates, noise=noise).location
                parts.append(
                    Taught(
                        hidden=belief.hidden,
                        entropy=class_entropy(classify(belief)),
                        gain=episode.gain.flatten(1),
                        candidates=candidates,
                        looks=torch.full((len(some),), len(episode.history), device=where.device),
                    )
                )
            draws = torch.rand(candidates.shape, generator=generator).to(candidates.device)
            elsewhere = agent.model.grid.locations(where.device)[draws.masked_fill(~candidates, -1.0).argmax(1)]
            strays = torch.rand(len(some), 1, generator=generator).to(where.device) < astray
            where = torch.where(strays, elsewhere, where)
            episode.observe(sensor.look(where), at=where)
        on_progress(len(some))
    return Taught(**{part.name: torch.cat([getattr(one, part.name) for one in parts]) for part in fields(Taught)})


def distilled_from(
    taught: Taught, *, epochs: int, seed: int, on_progress: Callable[[int], None] = lambda epochs: None
) -> DistilledGain:
    """A network that says of these beliefs what these maps say, by least squares."""
    count, belief_size = taught.hidden.shape
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(seed, "distilled"))
        distilled = DistilledGain(belief_size, taught.gain.shape[1]).to(taught.hidden.device)
    optimizer = torch.optim.AdamW(distilled.parameters(), lr=_RATE, weight_decay=_DECAY)
    batch = min(_BATCH, count)
    steps = count // batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=epochs * steps)
    # Least squares of shares of the entropy: late looks, at which little is left to gain, count as much as early ones.
    weight = taught.entropy.clamp(min=_LEAST) ** -2
    generator = torch.Generator().manual_seed(stream_seed(seed, "order"))
    for _ in range(epochs):
        order = torch.randperm(count, generator=generator).to(taught.hidden.device)
        for some in order[: steps * batch].view(steps, batch):
            said = distilled(taught.hidden[some], taught.entropy[some])
            loss = (weight[some, None] * (said - taught.gain[some]).square()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        on_progress(1)
    return distilled.eval()


@torch.no_grad()
def regret(distilled: DistilledGain, taught: Taught) -> Float[Tensor, " N"]:
    """How much less gain, in nats, the maps give the locations that it would choose than those that they would."""
    exact = taught.gain.masked_fill(~taught.candidates, -torch.inf)
    said = distilled(taught.hidden, taught.entropy).masked_fill(~taught.candidates, -torch.inf)
    return exact.amax(1) - exact.gather(1, said.argmax(1, keepdim=True)).squeeze(1)
