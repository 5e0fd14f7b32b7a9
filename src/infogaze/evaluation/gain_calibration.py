"""Gain calibration: whether the gain that was expected of a look is the gain that it then brought."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from scipy.stats import spearmanr, t
from torch import Tensor


def realised_gain(log_probabilities: Float[Tensor, "N T classes"]) -> Float[Tensor, "N T"]:
    """The realised gain of each look, KL[p(y | h_t) || p(y | h_t-1)] in nats; zero at the first, which has none before it.

    Its mean over what a look might show is the expected gain of equation 7.
    """
    now, before = log_probabilities[:, 1:], log_probabilities[:, :-1]
    surprise = torch.where(now > -torch.inf, now.exp() * (now - before), 0.0)  # 0 log 0 is 0
    first = torch.zeros_like(log_probabilities[:, :1, 0])
    return torch.cat([first, surprise.sum(-1)], 1)


@dataclass(frozen=True, kw_only=True)
class Bins:
    """Looks of similar expected gain, from the least to the greatest."""

    expected: Float[Tensor, " b"]
    """The mean gain expected in the bin, in nats."""
    realised: Float[Tensor, " b"]
    """The mean realised gain, in nats."""
    low: Float[Tensor, " b"]
    """Lower end of its 95 % interval (Student's)."""
    high: Float[Tensor, " b"]
    """Upper end; the interval has no width where n is 1."""
    n: Int[Tensor, " b"]
    """How many runs, or of one run scenes, have looks in the bin."""
    unit: str
    """What n counts: "seeds", the runs, or "scenes"."""


def binned(expected: Float[Tensor, "R N t"], realised: Float[Tensor, "R N t"], bins: int = 10) -> Bins:
    """The realised gain in bins between quantiles of the expected one, from R runs of different seeds on the same N scenes.

    Looks at one scene depend on each other, and so do runs on the same scenes. So every run has its mean in a bin, and the interval is over
    runs; of a single run it is over scenes, the looks of one together. Equal values share a bin; a bin left empty is left out.
    """
    runs, scenes, _ = expected.shape
    wanted, got = expected.double(), realised.double()
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
    half = torch.from_numpy(t.ppf(0.975, (n - 1).numpy())).nan_to_num(0.0) * error.sqrt()
    return Bins(
        expected=(weight * summed(wanted) / count.clamp(min=1)).sum(0), realised=mean, low=mean - half, high=mean + half, n=n,
        unit="seeds" if runs > 1 else "scenes",
    )  # fmt: skip


def rank_correlation(a: Float[Tensor, " n"], b: Float[Tensor, " n"]) -> float:
    """Spearman's; zero where one of the two is constant."""
    if bool((a == a[0]).all()) or bool((b == b[0]).all()):
        return 0.0
    return float(spearmanr(a.double().numpy(), b.double().numpy()).statistic)
