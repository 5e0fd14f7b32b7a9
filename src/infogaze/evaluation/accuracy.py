"""Accuracy by look with its interval, of one run or of several seeds, and the difference between two of them on the same scenes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from scipy.special import stdtrit
from torch import Tensor

Z = 1.959963984540054
"""The 97.5 % point of the standard normal: half a 95 % interval is so many standard deviations."""


@dataclass(frozen=True)
class Estimate:
    """A number, mostly one for each look, and its 95 % interval."""

    value: Float[Tensor, "*curve"]
    low: Float[Tensor, "*curve"]
    high: Float[Tensor, "*curve"]
    n: int
    """How many scenes or seeds are behind it."""
    unit: str = "scenes"
    """What n counts: "scenes" of one run, or "seeds", the runs."""


def accuracy(right: Bool[Tensor, "N T"]) -> Estimate:
    """The share of scenes named right at each look, with Wilson's interval."""
    n = len(right)
    p = right.double().mean(0)
    middle = (p + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * torch.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    return Estimate(p, middle - half, middle + half, n)


def lead(right: Bool[Tensor, "N T"], other: Bool[Tensor, "N T"]) -> Estimate:
    """How much larger the first share is, scene by scene on the same scenes, with the normal interval of paired differences."""
    n = len(right)
    difference = right.double() - other.double()
    mean = difference.mean(0)
    half = Z * difference.std(0) / n**0.5
    return Estimate(mean, mean - half, mean + half, n)


def mean_over_runs(values: Sequence[Float[Tensor, "*curve"]]) -> Estimate:
    """The mean over runs of different seeds, with Student's interval; a single run tells nothing of its spread and has no width."""
    runs = torch.stack(tuple(values)).double()  # [runs, *curve]
    n = len(runs)
    mean = runs.mean(0)
    if n == 1:
        return Estimate(mean, mean, mean, n, "seeds")
    half = float(stdtrit(n - 1, 0.975)) * runs.std(0) / n**0.5
    return Estimate(mean, mean - half, mean + half, n, "seeds")


def accuracy_over_runs(right: Sequence[Bool[Tensor, "N T"]]) -> Estimate:
    """The share of scenes named right at each look: of one run as `accuracy`, of several as their mean."""
    if len(right) == 1:
        return accuracy(right[0])
    return mean_over_runs([run.double().mean(0) for run in right])


def lead_over_runs(right: Sequence[Bool[Tensor, "N T"]], other: Sequence[Bool[Tensor, "N T"]]) -> Estimate:
    """How much larger the first share is: of one run each as `lead`, of several with Welch's interval of the difference of means."""
    if len(right) != len(other):
        raise ValueError(f"{len(right)} runs against {len(other)}: a lead needs as many on either side")
    n = len(right)
    if n == 1:
        return lead(right[0], other[0])
    ours, theirs = (torch.stack([run.double().mean(0) for run in runs]) for runs in (right, other))  # [runs, T]
    difference = ours.mean(0) - theirs.mean(0)
    first, second = ours.var(0) / n, theirs.var(0) / n
    # Where no seed differs from another the freedom is 0 / 0, and the interval has no width whatever it is.
    freedom = ((first + second) ** 2 * (n - 1) / (first**2 + second**2)).nan_to_num(1.0)
    half = torch.from_numpy(stdtrit(freedom.numpy(), 0.975)) * (first + second).sqrt()
    return Estimate(difference, difference - half, difference + half, n, "seeds")


def balanced_accuracy(labels: Int[Tensor, " N"], named: Int[Tensor, "N T"]) -> Float[Tensor, " T"]:
    """The share named right of each class, averaged over the classes that occur: common ones count no more than rare ones."""
    _, index, count = labels.unique(return_inverse=True, return_counts=True)
    right = (named == labels[:, None]).double()
    recall = right.new_zeros(len(count), named.shape[1]).index_add_(0, index, right) / count[:, None]
    return recall.mean(0)
