"""Random numbers that belong to a scene: a counter-based stream, so that its batch, its neighbours and the device change nothing.

Each number is a hash of (scene seed, look, position), made with the finaliser of SplitMix64 on 64-bit integers.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infogaze.errors import InfogazeError

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)


def require_seed(seed: int) -> None:
    """Refuse what is no whole number of 64 bits."""
    if not -(1 << 63) <= seed < 1 << 63:
        raise InfogazeError(f"seed is {seed}; it must be from {-(1 << 63)} to {(1 << 63) - 1}")


def stream_seed(seed: int, *purpose: str | int) -> int:
    """The seed of a generator that serves this purpose alone: a hash of both, so that no two purposes share a stream."""
    require_seed(seed)
    digest = hashlib.sha256("/".join(map(str, (seed, *purpose))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def scene_seeds(
    seed: int, scenes: int, *, first: int = 0, device: torch.device | str | None = None
) -> Int[Tensor, " B"]:
    """The seeds of scenes `first` to `first + scenes - 1` of a set: scene i has the same one in any batch."""
    return seeds_at(seed, torch.arange(first, first + scenes, device=device))


def seeds_at(seed: int, index: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
    """The seeds of the scenes with these numbers, in any order; any whole numbers of 64 bits will do."""
    return _hash(_hash(torch.tensor(_wrap(seed), device=index.device)) + index)


@dataclass(frozen=True)
class SceneNoise:
    """The random numbers of one look of every scene of a batch."""

    seeds: Int[Tensor, " B"]
    """One a scene."""
    look: int | Int[Tensor, ""]
    """Counted from 0; each look has numbers of its own."""

    def uniform(self, *shape: int) -> Float[Tensor, "B ..."]:
        """Uniform on (0, 1), independent, [B, *shape]."""
        return self._uniform(2 * self.look, shape)

    def normal(self, *shape: int) -> Float[Tensor, "B ..."]:
        """Standard normal, independent, [B, *shape], by the Box-Muller transform."""
        if not all(shape):
            return torch.zeros(len(self.seeds), *shape, device=self.seeds.device)
        radius = torch.sqrt(-2.0 * torch.log(self._uniform(2 * self.look, shape)))
        return radius * torch.cos(2.0 * math.pi * self._uniform(2 * self.look + 1, shape))

    def _uniform(self, stream: int | Tensor, shape: tuple[int, ...]) -> Tensor:
        step = (torch.as_tensor(stream, device=self.seeds.device) + 1) * _GOLDEN
        keys = _hash(self.seeds + step)  # [B]
        position = torch.arange(math.prod(shape), device=self.seeds.device)
        bits = _shift(_hash(keys[:, None] + position * _GOLDEN), 40)  # [B, n], 24 bits: all that float32 can tell apart
        below = 1.0 - 2.0**-24  # the largest number of all is rounded up to one
        return ((bits + 0.5) * 2.0**-24).clamp(max=below).view(len(self.seeds), *shape)


def _hash(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _FIRST
    x = (x ^ _shift(x, 27)) * _SECOND
    return x ^ _shift(x, 31)


def _shift(x: Tensor, by: int) -> Tensor:
    """Logical shift to the right; torch's own keeps the sign."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def _wrap(x: int) -> int:
    """Any whole number as a signed 64-bit one."""
    return (x + (1 << 63)) % (1 << 64) - (1 << 63)
