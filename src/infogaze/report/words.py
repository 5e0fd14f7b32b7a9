"""Sentences from numbers: who is ahead, by how much, and whether that can be told at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from infogaze.evaluation.accuracy import Estimate, accuracy_over_runs, lead_over_runs
from infogaze.report.gather import BASELINES, OURS, Chapter, Group, Run

Right = Callable[[Run], Tensor]
"""Whether a run names each scene right at each look, [N, T] bool."""


def looks_said(look: int) -> str:
    """How many looks were had after look t, which counts from 0."""
    return "1 look" if look == 0 else f"{look + 1} looks"


def told_looks(count: int) -> tuple[int, ...]:
    """The looks that sentences tell of, fixed beforehand: the second, where the paper compares, and the last."""
    return tuple(sorted({min(1, count - 1), count - 1}))


def share(estimate: Estimate, look: int) -> str:
    """A share in % with its interval."""
    value, low, high = (100 * float(part[look]) for part in (estimate.value, estimate.low, estimate.high))
    if (estimate.n, estimate.unit) == (1, "seeds"):
        return f"{value:.1f} %"
    return f"{value:.1f} % ({max(low, 0.0):.1f} to {min(high, 100.0):.1f})"


def seeds_said(ahead: Estimate) -> str:
    """What stands behind a difference."""
    if ahead.unit == "seeds":
        return f"{ahead.n} seeds each"
    return f"1 seed each, interval over {ahead.n} scenes"


def quoted(name: str) -> str:
    """A class's name in a sentence; it may be a number or several words."""
    return f'"{name}"'


def seed_counts(groups: Sequence[Group]) -> str:
    """How many seeds these have, as in `3 seeds` or `1 or 3 seeds`."""
    counts = sorted({len(group.runs) for group in groups})
    return f"{' or '.join(str(n) for n in counts)} seed{'s' if counts != [1] else ''}"


def difference(ours: str, other: str, ahead: Estimate, look: int) -> str:
    """One comparison: ahead, behind, or not to be told apart."""
    value, low, high = (100 * float(part[look]) for part in (ahead.value, ahead.low, ahead.high))
    interval = f"95 % interval {low:.1f} to {high:.1f}, {seeds_said(ahead)}"
    if low > 0:
        return f"{ours} is {value:.1f} points ahead of {other} ({interval})"
    if high < 0:
        return f"{ours} is {-value:.1f} points behind {other} ({interval})"
    side = "ahead" if value >= 0 else "behind"
    return f"{ours} cannot be told apart from {other}: {abs(value):.1f} points {side} ({interval})"


def lead(right: Right, ours: Group, other: Group) -> Estimate:
    """How far ahead the first is, from as many seeds on either side."""
    count = min(len(ours.runs), len(other.runs))
    return lead_over_runs([right(run) for run in ours.runs[:count]], [right(run) for run in other.runs[:count]])


def against_baselines(chapter: Chapter, groups: Sequence[Group], right: Right, verb: str = "names") -> str:
    """How our method stands against the best baseline with the same preset, at the looks told of."""
    said = []
    for preset in chapter.presets:
        ours = next((group for group in groups if (group.method, group.preset) == (OURS, preset)), None)
        others = [group for group in groups if group.method in BASELINES and group.preset == preset]
        if ours is None:
            continue
        if not others:
            last = chapter.looks - 1
            reached = share(accuracy_over_runs([right(run) for run in ours.runs]), last)
            said.append(
                f"After {looks_said(last)} {ours.name} {verb} {reached} right; there is no baseline to compare with."
            )
            continue
        for look in told_looks(chapter.looks):
            best = max(others, key=lambda group: float(accuracy_over_runs([right(r) for r in group.runs]).value[look]))
            named = f"the best baseline, {best.name}" if len(others) > 1 else f"the baseline {best.name}"
            said.append(f"After {looks_said(look)} {difference(ours.name, named, lead(right, ours, best), look)}.")
    if not said:
        last = chapter.looks - 1
        best = max(groups, key=lambda group: float(accuracy_over_runs([right(r) for r in group.runs]).value[last]))
        reached = share(accuracy_over_runs([right(run) for run in best.runs]), last)
        said.append(
            f"After {looks_said(last)} {best.name} is highest, with {reached} right; {OURS} is not among these runs."
        )
    return " ".join(said)


def together(names: Sequence[str]) -> str:
    """Names in a row: a, b and c."""
    return "".join(names) if len(names) < 2 else f"{', '.join(names[:-1])} and {names[-1]}"
