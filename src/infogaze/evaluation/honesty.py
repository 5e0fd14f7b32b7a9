"""Whether the gain that was expected of a look is the gain that then happened."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infogaze.evaluation.accuracy import Z


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
    """Lower end of its 95 % interval."""
    high: Float[Tensor, " b"]
    """Upper end; the interval of a single look has no width."""
    count: Int[Tensor, " b"]
    """Looks in the bin."""


def binned(expected: Float[Tensor, " n"], happened: Float[Tensor, " n"], bins: int = 10) -> Bins:
    """The gain that happened in bins between quantiles of the expected one. Equal values share a bin; a bin left empty is left out."""
    wanted, got = expected.double(), happened.double()
    edges = torch.quantile(wanted, torch.linspace(0, 1, bins + 1, dtype=wanted.dtype, device=wanted.device))
    _, index, count = torch.bucketize(wanted, edges[1:-1], right=True).unique(return_inverse=True, return_counts=True)

    def mean(values: Tensor) -> Tensor:
        return values.new_zeros(len(count)).index_add_(0, index, values) / count

    middle = mean(got)
    variance = mean((got - middle[index]) ** 2) * count / (count - 1).clamp(min=1)
    half = Z * (variance / count).sqrt()
    return Bins(mean(wanted), middle, middle - half, middle + half, count)


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
