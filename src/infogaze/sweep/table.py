"""The table of a sweep as it fills: accuracy by look with intervals, a row a method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from infogaze.evaluation import store
from infogaze.evaluation.comparing import incomparable, not_one_curve
from infogaze.evaluation.estimates import accuracy_over_runs
from infogaze.evaluation.exact_pass import Records
from infogaze.evaluation.store import About, EvaluationError

_WIDTH = 28  # of a method's name and what is to be known of it


@dataclass(frozen=True)
class _Found:
    """An evaluation that was read."""

    run: Path
    about: About
    correct: Tensor


def table(out: Path, names: Sequence[str], seeds: int) -> str:
    """Accuracy by look of what is there, in %, with the half width of its 95 % interval and the seeds behind it.

    What cannot be read, or not be set against the first, is left out and named in a line below.
    """
    rows, left_out = _rows(out, names, seeds)
    lines = []
    for name, found in rows.items():
        estimate = accuracy_over_runs([one.correct for one in found])
        half = (estimate.high - estimate.low) / 2
        cells = [f"{100 * m:5.1f} ±{100 * h:4.1f}" for m, h in zip(estimate.value.tolist(), half.tolist(), strict=True)]
        lines.append(f"{name + _marks(found[0].about):<{_WIDTH}}{'  '.join(cells)}   {len(found)} of {seeds} seeds")
    looks = max(line.count("±") for line in lines) if lines else 0
    head = f"{'accuracy by look, %':<{_WIDTH}}" + "  ".join(f"{look:>5}      " for look in range(looks))
    return "\n".join([head, *lines, *(f"left out: {why}" for why in left_out)])


def _marks(about: About) -> str:
    marks = (
        "" if about.deployable else "not deployable",
        "sees all" if about.whole else "",
        "flip TTA" if about.flip_tta else "",
    )
    return "".join(f", {mark}" for mark in marks if mark)


def _rows(out: Path, names: Sequence[str], seeds: int) -> tuple[dict[str, list[_Found]], list[str]]:
    """What goes into one table, by method, and why the rest does not."""
    rows: dict[str, list[_Found]] = {}
    left_out = []
    for name in names:
        for run in (out / name / f"seed-{seed}" for seed in range(seeds)):
            folder = run / "evaluation"
            try:
                if not store.has(folder, Records):
                    continue
                found = _Found(run, store.about(folder), store.read(folder, Records).correct)
            except EvaluationError as error:
                left_out.append(str(error))
                continue
            first = next(iter(rows.values()), [found])[0]
            clashes = [(first, incomparable(found.about, first.about))]
            clashes += [(other, _not_one_row(found, other)) for other in rows.get(name, [])]
            reasons = [f"{run} and {other.run} {why}" for other, why in clashes if why]
            if reasons:
                left_out.append(reasons[0])
            else:
                rows.setdefault(name, []).append(found)
    return rows, left_out


def _not_one_row(found: _Found, other: _Found) -> str:
    if found.correct.shape != other.correct.shape:
        return "cannot be one curve: another number of scenes or looks in the records"
    return not_one_curve(found.about, other.about)
