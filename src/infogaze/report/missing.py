"""What a figure lacks, and which command would produce it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from infogaze.evaluation.registry import measurement_of
from infogaze.evaluation.store import Record
from infogaze.report.drawing import Missing
from infogaze.report.gather import Group, Run
from infogaze.report.words import join_names

_EVALUATE = "`infogaze evaluate RUN`"
_EVALUATE_WITH_JUDGE = "`infogaze evaluate RUN --judge CNN`, CNN a run of the method cnn"


def not_measured(kind: type[Record], *methods: str) -> Missing:
    """There are runs of these methods, but none has this measurement."""
    measurement = measurement_of(kind)
    of_methods = f" of {join_names(methods)}" if methods else ""
    remedy = _EVALUATE_WITH_JUDGE if measurement.needs_judge else _EVALUATE
    return Missing(f"no run{of_methods} has {measurement.lacking} measured", remedy)


def not_trained(*methods: str) -> Missing:
    """There is no run of these methods."""
    train = "; ".join(f"`infogaze train PRESET --method {method} --out RUN`" for method in methods)
    return Missing(f"no run of {join_names(methods)}", f"{train}; {_EVALUATE}")


def measured_differently(groups: Sequence[Group], value: Callable[[Run], object], what: str) -> Missing | None:
    """Where two runs were measured in ways that do not go into one figure, which and why."""
    runs = [run for group in groups for run in group.runs]
    for run in runs[1:]:
        if value(run) != value(runs[0]):
            return Missing(f"{run.folder} and {runs[0].folder} differ in {what}", f"{_EVALUATE}, for both alike")
    return None


def left_out_note(possible: Sequence[Group], shown: Sequence[Group]) -> str:
    """A sentence on the methods that a figure could show and that were not measured for it; empty where there are none."""
    names = {group.name for group in shown}
    lacking = [group.name for group in possible if group.name not in names]
    return f" Not measured for {join_names(lacking)}." if lacking else ""
