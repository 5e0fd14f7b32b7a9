"""How much of a scene was seen, and how accuracy depends on it."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infogaze.grid import GlimpseGrid

_SCENES_AT_ONCE = 1000  # a mask of every pixel of every scene would not fit where scenes are large


def observed_share(locations: Int[Tensor, "N T 2"], grid: GlimpseGrid) -> Float[Tensor, "N T"]:
    """The share of the scene's pixels seen up to each look, a pixel seen twice counted once."""
    return torch.cat([_observed_share(part, grid) for part in locations.split(_SCENES_AT_ONCE)])


def _observed_share(locations: Tensor, grid: GlimpseGrid) -> Tensor:
    rows, cols = (torch.arange(n, device=locations.device) for n in (grid.height, grid.width))
    seen = torch.zeros(len(locations), grid.height, grid.width, dtype=torch.bool, device=locations.device)
    shares = []
    for look in locations.unbind(1):
        top, left = look[:, :1], look[:, 1:]
        in_rows = (rows >= top) & (rows < top + grid.glimpse_size)  # [N, H]
        in_cols = (cols >= left) & (cols < left + grid.glimpse_size)  # [N, W]
        seen |= in_rows[:, :, None] & in_cols[:, None, :]
        shares.append(seen.flatten(1).sum(1) / (grid.height * grid.width))
    return torch.stack(shares, 1)


def accuracy_by_area(
    correct: Bool[Tensor, "N T"], share: Float[Tensor, "N T"], edges: Float[Tensor, " edges"]
) -> tuple[Float[Tensor, " edges-1"], Int[Tensor, " edges-1"]]:
    """The accuracy, and the number, of all looks of all scenes whose seen share lies between each two neighbouring edges.

    A share on an edge belongs to the bin that begins there, on the last edge to the last bin. The accuracy of an empty bin is NaN.
    """
    outside = share[(share < edges[0]) | (share > edges[-1])]
    if outside.numel():
        raise ValueError(f"a share of {float(outside[0]):g} is outside the edges, {edges[0]:g} to {edges[-1]:g}")
    bins = len(edges) - 1
    index = torch.bucketize(share.double(), edges.double()[1:-1], right=True).flatten()
    count = index.bincount(minlength=bins)
    return index.bincount(correct.double().flatten(), minlength=bins) / count, count
