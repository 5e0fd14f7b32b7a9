"""Numbers with their 95 % intervals: of one run or of several seeds, and the difference between two of them on the same scenes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy import stats
from torch import Tensor

_LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number, mostly one for each look, and its 95 % interval."""

    value: Float[Tensor, "*curve"]
    low: Float[Tensor, "*curve"]
    high: Float[Tensor, "*curve"]
    n: int
    """How many scenes or seeds are behind it."""
    unit: str = "scenes"
    """What n counts: "scenes" of one run, or "seeds", the runs."""


def accuracy(correct: Bool[Tensor, "N T"]) -> Estimate:
    """The share of correct predictions at each look, with Wilson's interval."""
    return share_of(correct.sum(0), len(correct))


def share_of(counts: Int[Tensor, " T"], n: int) -> Estimate:
    """So many of n scenes, with Wilson's interval."""
    intervals = [stats.binomtest(int(count), n).proportion_ci(_LEVEL, "wilson") for count in counts.tolist()]
    low, high = (torch.tensor(ends, dtype=torch.float64) for ends in zip(*intervals, strict=True))
    return Estimate(value=counts.double() / n, low=low, high=high, n=n)


def lead(correct: Bool[Tensor, "N T"], other: Bool[Tensor, "N T"]) -> Estimate:
    """How much larger the first accuracy is, scene by scene on the same scenes, with the normal interval of paired differences."""
    n = len(correct)
    difference = correct.double() - other.double()
    mean = difference.mean(0)
    half = float(stats.norm.ppf((1 + _LEVEL) / 2)) * difference.std(0) / n**0.5
    return Estimate(value=mean, low=mean - half, high=mean + half, n=n)


def mean_over_runs(values: Sequence[Float[Tensor, "*curve"]]) -> Estimate:
    """The mean over runs of different seeds, with Student's interval; a single run tells nothing of its spread and has no width."""
    runs = torch.stack(tuple(values)).double()  # [runs, *curve]
    n = len(runs)
    mean = runs.mean(0)
    if n == 1:
        return Estimate(value=mean, low=mean, high=mean, n=n, unit="seeds")
    half = float(stats.t.ppf((1 + _LEVEL) / 2, n - 1)) * runs.std(0) / n**0.5
    return Estimate(value=mean, low=mean - half, high=mean + half, n=n, unit="seeds")


def accuracy_over_runs(correct: Sequence[Bool[Tensor, "N T"]]) -> Estimate:
    """The share of correct predictions at each look: of one run as `accuracy`, of several as their mean."""
    if len(correct) == 1:
        return accuracy(correct[0])
    return mean_over_runs([run.double().mean(0) for run in correct])


def lead_over_runs(correct: Sequence[Bool[Tensor, "N T"]], other: Sequence[Bool[Tensor, "N T"]]) -> Estimate:
    """How much larger the first accuracy is: of one run each as `lead`, of several with Welch's interval of the difference of means."""
    if len(correct) != len(other):
        raise ValueError(f"{len(correct)} runs against {len(other)}: a lead needs as many on either side")
    n = len(correct)
    if n == 1:
        return lead(correct[0], other[0])
    ours, theirs = (np.stack([run.double().mean(0).numpy() for run in runs]) for runs in (correct, other))  # [runs, T]
    difference = torch.from_numpy(ours.mean(0) - theirs.mean(0))
    with warnings.catch_warnings():
        # Where no seed differs from another, the interval has no width, which scipy calls a loss of precision.
        warnings.simplefilter("ignore", RuntimeWarning)
        interval = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(_LEVEL)
    low, high = (torch.from_numpy(np.asarray(end)) for end in (interval.low, interval.high))
    alike = torch.from_numpy((ours.std(0) == 0) & (theirs.std(0) == 0))
    low, high = torch.where(alike, difference, low), torch.where(alike, difference, high)
    return Estimate(value=difference, low=low, high=high, n=n, unit="seeds")


def accuracy_of_mean(by_look: Float[Tensor, " T"], looks: float) -> float:
    """What a fixed budget of so many looks on average gives: the next whole number of them for some scenes, one fewer for the others."""
    low = min(max(int(looks), 1), len(by_look))
    high = min(low + 1, len(by_look))
    share = min(max(looks - low, 0.0), 1.0)
    return (1 - share) * float(by_look[low - 1]) + share * float(by_look[high - 1])
