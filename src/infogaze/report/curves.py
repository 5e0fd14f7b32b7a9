"""Curves with intervals, one a method, and what their intervals are over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from infogaze.evaluation.estimates import Estimate, mean_over_runs
from infogaze.plots.style import INK, QUIET, LineStyle
from infogaze.report.gather import BASELINES, Group

REFERENCE = LineStyle(colour=QUIET, marker="", dash=":", width=1.2)
"""How a line is drawn that no method reached: chance, or the most that is possible."""
_WHOLE_SCENE = LineStyle(colour=INK, marker="", dash="-.", width=1.1)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One method's numbers over something."""

    group: Group
    x: tuple[float, ...]
    estimate: Estimate
    counts: tuple[int, ...] = ()
    """How many are behind each point, where that is not the same for all."""


@dataclass(frozen=True)
class Level:
    """A horizontal line to compare with."""

    name: str
    value: float
    style: LineStyle = REFERENCE


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Axes with curves in them."""

    measure: str
    """What the curves are of, with its unit: the vertical axis."""
    against: str
    """What they are over, with its unit: the horizontal axis."""
    curves: tuple[Curve, ...]
    levels: tuple[Level, ...] = ()
    scale: float = 1.0
    """From the numbers to the axis: 100 for shares shown in %."""
    title: str = ""
    read_at: float | None = None
    """Where the values beside the names are read, if the curves do not all end at the same place."""
    log_x: bool = False
    log_y: bool = False


def look_numbers(count: int) -> tuple[float, ...]:
    """The numbers of so many looks, from 0."""
    return tuple(float(look) for look in range(count))


def mean_over_scenes(runs: Sequence[Float[Tensor, " N *curve"]]) -> Estimate:
    """The mean over runs of the mean over scenes; with one run the interval is over its scenes."""
    if len(runs) > 1:
        return mean_over_runs([values.double().mean(0) for values in runs])
    return replace(mean_over_runs(list(runs[0].double())), unit="scenes")


def chance(num_classes: int) -> Level:
    """The accuracy of guessing."""
    return Level("chance", 1 / num_classes)


def whole_scene(name: str, value: float) -> Level:
    """What a method reaches that sees the complete image."""
    return Level(name, value, _WHOLE_SCENE)


def baselines_of(group: Group, curves: Sequence[Curve]) -> list[Curve]:
    """The curves of the baselines that have the same preset."""
    return [curve for curve in curves if curve.group.method in BASELINES and curve.group.preset == group.preset]


def interval_note(curves: Sequence[Curve]) -> str:
    """How many seeds the curves have and what their intervals are over, in a line under a figure."""
    kinds: dict[str, list[str]] = {}
    for curve in curves:
        estimate = curve.estimate
        if estimate.unit != "seeds":
            how_many = f"the {estimate.unit} at each point" if curve.counts else f"{estimate.n} {estimate.unit}"
            kind = f"1 seed, 95 % interval over {how_many}"
        elif estimate.n > 1:
            by_chance = ", which of two is wide or narrow by chance" if estimate.n == 2 else ""
            kind = f"mean of {estimate.n} seeds, 95 % interval over seeds{by_chance}"
        else:
            kind = "1 seed, no interval"
        kinds.setdefault(kind, []).append(curve.group.name)
    if len(kinds) == 1:
        return f"Each curve: {next(iter(kinds))}."
    return "; ".join(f"{', '.join(names)}: {kind}" for kind, names in kinds.items()) + "."
