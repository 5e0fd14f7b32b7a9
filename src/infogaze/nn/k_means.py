"""k-means of glimpse contents, on whatever device they are."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infogaze.nn.precision import precise

_ROWS_AT_ONCE = 1 << 14


@torch.no_grad()
def nearest(content: Float[Tensor, "*batch f"], entries: Float[Tensor, "K f"]) -> Int[Tensor, "*batch"]:
    """The index of the entry nearest to each content, in Euclidean distance."""
    flat, known = precise(content.reshape(-1, content.shape[-1])), precise(entries)
    # In bfloat16 the differences between distances would drown.
    with torch.autocast(content.device.type, enabled=False):
        offset = known.square().sum(1) / 2
        # |x - e|^2 / 2 without |x|^2 / 2, which is the same for all entries.
        found = [(offset - rows @ known.T).argmin(1) for rows in flat.split(_ROWS_AT_ONCE)]
    return torch.cat(found).view(content.shape[:-1])


@torch.no_grad()
def k_means(
    content: Float[Tensor, "N f"],
    entries: Float[Tensor, "K f"],
    *,
    iterations: int,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "K f"]:
    """Lloyd's iterations from these entries on: each becomes the mean of the contents that are nearest to it.

    With a generator, an entry that nothing is near begins anew at some content; without, it stays where it is.
    """
    for _ in range(iterations):
        own = nearest(content, entries)
        sums = torch.zeros_like(entries).index_add_(0, own, content.to(entries.dtype))
        counts = torch.bincount(own, minlength=len(entries)).to(entries.dtype)
        anew = entries
        if generator is not None:
            drawn = torch.randint(len(content), (len(entries),), generator=generator, device=generator.device)
            anew = content[drawn.to(content.device)].to(entries.dtype)
        entries = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1.0)[:, None], anew)
    return entries
