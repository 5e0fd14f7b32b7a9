"""Sentences from numbers: who is ahead, by how much, and whether that is significant."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from infogaze.evaluation.estimates import Estimate, accuracy_over_runs, lead_over_runs
from infogaze.report.gather import BASELINES, Chapter, Group, Run

Correct = Callable[[Run], Tensor]
"""Whether a run's prediction is correct, for each scene and look, [N, T] bool."""

OURS_MISSING = "No method that looks by expected gain is among these runs; the curves are those of the other methods."


def looks_phrase(look: int) -> str:
    """How many looks were taken after look t, which counts from 0."""
    return "1 look" if look == 0 else f"{look + 1} looks"


def reported_looks(count: int) -> tuple[int, ...]:
    """The looks that sentences report, fixed beforehand: the second, where the paper compares, and the last."""
    return tuple(sorted({min(1, count - 1), count - 1}))


def percent_phrase(estimate: Estimate, index: int) -> str:
    """A share in % with its interval."""
    value, low, high = (100 * float(part[index]) for part in (estimate.value, estimate.low, estimate.high))
    if (estimate.n, estimate.unit) == (1, "seeds"):
        return f"{value:.1f} %"
    return f"{value:.1f} % ({max(low, 0.0):.1f} to {min(high, 100.0):.1f})"


def seeds_phrase(ahead: Estimate) -> str:
    """How many seeds a difference rests on."""
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


def difference(ours: str, other: str, ahead: Estimate, *, look: int) -> str:
    """One comparison: ahead, behind, or not to be told apart."""
    value, low, high = (100 * float(part[look]) for part in (ahead.value, ahead.low, ahead.high))
    interval = f"95 % interval {low:.1f} to {high:.1f}, {seeds_phrase(ahead)}"
    if low > 0:
        return f"{ours} is {value:.1f} points ahead of {other} ({interval})"
    if high < 0:
        return f"{ours} is {-value:.1f} points behind {other} ({interval})"
    side = "ahead" if value >= 0 else "behind"
    return f"{ours} cannot be told apart from {other}: {abs(value):.1f} points {side} ({interval})"


def lead(correct: Correct, ours: Group, other: Group) -> Estimate:
    """How far ahead the first is, from as many seeds on either side."""
    count = min(len(ours.runs), len(other.runs))
    return lead_over_runs([correct(run) for run in ours.runs[:count]], [correct(run) for run in other.runs[:count]])


def against_baselines(chapter: Chapter, groups: Sequence[Group], correct: Correct, *, verb: str = "has") -> str:
    """How our method stands against the best baseline with the same preset, at the reported looks."""

    def reached(group: Group) -> Estimate:
        return accuracy_over_runs([correct(run) for run in group.runs])

    last = chapter.num_looks - 1
    sentences = []
    for preset in chapter.presets:
        ours = next((group for group in groups if group.is_ours and group.preset == preset), None)
        baselines = [group for group in groups if group.method in BASELINES and group.preset == preset]
        if ours is None:
            continue
        if not baselines:
            accuracy = percent_phrase(reached(ours), last)
            begin = f"After {looks_phrase(last)} {ours.name} {verb} accuracy {accuracy}"
            sentences.append(f"{begin}; there is no baseline to compare with.")
            continue
        for look in reported_looks(chapter.num_looks):
            best = max(baselines, key=lambda group: float(reached(group).value[look]))
            other = f"the best baseline, {best.name}" if len(baselines) > 1 else f"the baseline {best.name}"
            compared = difference(ours.name, other, lead(correct, ours, best), look=look)
            sentences.append(f"After {looks_phrase(look)} {compared}.")
    if not sentences:
        best = max(groups, key=lambda group: float(reached(group).value[last]))
        begin = (
            f"After {looks_phrase(last)} {best.name} is highest, with accuracy {percent_phrase(reached(best), last)}"
        )
        sentences.append(f"{begin}; no method that looks by expected gain is among these runs.")
    return " ".join(sentences)


def join_names(names: Sequence[str]) -> str:
    """Names in a row: a, b and c."""
    return "".join(names) if len(names) < 2 else f"{', '.join(names[:-1])} and {names[-1]}"
