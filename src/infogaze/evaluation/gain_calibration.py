"""Whether the gain that was expected of a look is the gain that then happened."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from scipy.special import stdtrit
from torch import Tensor


def happened(log_probabilities: Float[Tensor, "N T classes"]) -> Float[Tensor, "N T"]:
    """The gain of each look as it turned out, KL[p(y | h_t) || p(y | h_t-1)] in nats; zero at the first, which has none before it.

    Its mean over what a look might show is the expected gain of equation 7.
    """
    now, before = log_probabilities[:, 1:], log_probabilities[:, :-1]
    surprise = torch.where(now > -torch.inf, now.exp() * (now - before), 0.0)  # 0 log 0 is 0
    first = torch.zeros_like(log_probabilities[:, :1, 0])
    return torch.cat([first, surprise.sum(-1)], 1)


@dataclass(frozen=True)
class Bins:
    """Looks of similar expected gain, from the least to the greatest."""

    expected: Float[Tensor, " b"]
    """The mean gain expected in the bin, in nats."""
    happened: Float[Tensor, " b"]
    """The mean gain that happened, in nats."""
    low: Float[Tensor, " b"]
    """Lower end of its 95 % interval (Student's)."""
    high: Float[Tensor, " b"]
    """Upper end; the interval has no width where n is 1."""
    n: Int[Tensor, " b"]
    """How many runs, or of one run scenes, have looks in the bin."""
    unit: str
    """What n counts: "seeds", the runs, or "scenes"."""


def binned(expected: Float[Tensor, "R N t"], happened: Float[Tensor, "R N t"], bins: int = 10) -> Bins:
    """The gain that happened in bins between quantiles of the expected one, from R runs of different seeds on the same N scenes.

    Looks at one scene depend on each other, and so do runs on the same scenes. So every run has its mean in a bin, and the interval is over
    runs; of a single run it is over scenes, the looks of one together. Equal values share a bin; a bin left empty is left out.
    """
    runs, scenes, _ = expected.shape
    wanted, got = expected.double(), happened.double()
    edges = torch.quantile(wanted, torch.linspace(0, 1, bins + 1, dtype=wanted.dtype, device=wanted.device))
    kinds, index = torch.bucketize(wanted, edges[1:-1], right=True).unique(return_inverse=True)
    groups = runs if runs > 1 else scenes
    group = torch.arange(groups, device=wanted.device).view(*((-1, 1, 1) if runs > 1 else (1, -1, 1)))
    cell = (group * len(kinds) + index).flatten()

    def summed(values: Tensor) -> Tensor:
        return cell.bincount(values.flatten(), minlength=groups * len(kinds)).view(groups, len(kinds))

    count = summed(torch.ones_like(wanted))
    n = (count > 0).sum(0)
    # A run counts as one, however many of its looks are here; a scene as its looks, so that their mean is that of all looks.
    weight = (count > 0).double() if runs > 1 else count
    weight = weight / weight.sum(0)
    own = summed(got) / count.clamp(min=1)  # [groups, b]
    mean = (weight * own).sum(0)
    error = ((weight * (own - mean)) ** 2).sum(0) * n / (n - 1).clamp(min=1)
    half = torch.from_numpy(stdtrit((n - 1).numpy(), 0.975)).nan_to_num(0.0) * error.sqrt()
    return Bins(
        (weight * summed(wanted) / count.clamp(min=1)).sum(0), mean, mean - half, mean + half, n,
        "seeds" if runs > 1 else "scenes",
    )  # fmt: skip


def rank_correlation(a: Float[Tensor, " n"], b: Float[Tensor, " n"]) -> float:
    """Spearman's rank correlation, equal values sharing their mean rank; zero where one of the two is constant."""
    ranks = torch.stack([_ranks(a), _ranks(b)])
    centred = ranks - ranks.mean(1, keepdim=True)
    scale = centred.square().sum(1).prod().sqrt()
    return float(centred.prod(0).sum() / scale) if scale > 0 else 0.0


def _ranks(values: Tensor) -> Tensor:
    _, index, count = values.unique(return_inverse=True, return_counts=True)
    last = count.cumsum(0)
    return (last - (count - 1) / 2).double()[index]
