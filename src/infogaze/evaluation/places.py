"""Where a policy looks, and how much that depends on what was seen."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infogaze.grid import GlimpseGrid
from infogaze.nn.gain import entropy


def density(locations: Int[Tensor, "N T 2"], grid: GlimpseGrid) -> Float[Tensor, "T rows cols"]:
    """The share of scenes that looked at each place at each look. A location off the grid counts to its nearest place."""
    count = _count(grid.nearest(locations), grid.num_locations)  # [T, places]
    return (count.double() / len(locations)).unflatten(1, (grid.rows, grid.cols))


def visit_entropy(locations: Int[Tensor, "N T 2"], grid: GlimpseGrid) -> Float[Tensor, " T"]:
    """The entropy of that density at each look, in nats: 0 where all scenes are looked at alike, log of the places where evenly."""
    return entropy(density(locations, grid).flatten(1))


def dependence(
    locations: Int[Tensor, "N T 2"], labels: Int[Tensor, " N"], grid: GlimpseGrid, *, shuffles: int = 20, seed: int = 0
) -> Float[Tensor, " T"]:
    """The mutual information between the place of each look and the scene's label, in nats.

    Its mean under shuffled labels is taken off: that is what finite counts show where nothing depends on anything.
    """
    places = grid.nearest(locations)
    generator = torch.Generator().manual_seed(seed)
    chance = torch.stack(
        [
            _joint_entropy(places, labels[torch.randperm(len(labels), generator=generator)], grid)
            for _ in range(shuffles)
        ]
    )
    # I(place; label) = H(place) + H(label) - H(place, label), and shuffling leaves the first two as they are.
    return chance.mean(0) - _joint_entropy(places, labels, grid)


def _count(values: Int[Tensor, "N T"], kinds: int) -> Int[Tensor, "T kinds"]:
    """How many scenes have each value at each look."""
    looks = values.shape[1]
    own = values + torch.arange(looks, device=values.device) * kinds  # each look counts in cells of its own
    return own.flatten().bincount(minlength=looks * kinds).view(looks, kinds)


def _joint_entropy(places: Tensor, labels: Tensor, grid: GlimpseGrid) -> Tensor:
    """H(place, label) at each look, [T], in nats."""
    count = _count(labels[:, None] * grid.num_locations + places, (int(labels.max()) + 1) * grid.num_locations)
    return entropy(count.double() / len(labels))
