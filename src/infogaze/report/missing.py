"""What a figure lacks, and which command would produce it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from infogaze.evaluation.records import Disturbed, Judged, Latents, ManyLooks, Measurement, Samples, Showcase
from infogaze.report.drawing import Missing
from infogaze.report.gather import Group, Run
from infogaze.report.words import together

_WHAT: dict[type[Measurement], str] = {
    ManyLooks: "many more looks",
    Samples: "looks with several numbers of imagined scenes",
    Disturbed: "looks at disturbed scenes",
    Judged: "a CNN's judgement of the looks",
    Showcase: "scenes to show",
    Latents: "samples of what is imagined",
}
_EVALUATE = "`infogaze evaluate RUN`"


def not_measured(kind: type[Measurement], *methods: str) -> Missing:
    """There are runs of these methods, but none has this measurement."""
    remedy = "`infogaze evaluate RUN --judge CNN`, CNN a run of that method" if kind is Judged else _EVALUATE
    return Missing(f"no run{' of ' if methods else ''}{together(methods)} has {_WHAT[kind]} measured", remedy)


def not_trained(*methods: str) -> Missing:
    """There is no run of these methods."""
    train = "; ".join(f"`infogaze train PRESET --method {method} --out RUN`" for method in methods)
    return Missing(f"no run of {together(methods)}", f"{train}; {_EVALUATE}")


def unlike(groups: Sequence[Group], value: Callable[[Run], object], what: str) -> Missing | None:
    """Where two runs were measured in ways that do not go into one figure, which and why."""
    runs = [run for group in groups for run in group.runs]
    for run in runs[1:]:
        if value(run) != value(runs[0]):
            return Missing(f"{run.folder} and {runs[0].folder} differ in {what}", f"{_EVALUATE}, for both alike")
    return None


def without(wanted: Sequence[Group], shown: Sequence[Group]) -> str:
    """A sentence on the methods that a figure could show and that were not measured for it; empty where there are none."""
    names = {group.name for group in shown}
    lacking = [group.name for group in wanted if group.name not in names]
    return f" Not measured for {together(lacking)}." if lacking else ""
