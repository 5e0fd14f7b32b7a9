"""From run folders to chapters: what was evaluated, whether it can be compared, and which runs are one method's seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, groupby
from pathlib import Path
from typing import TypeVar

from infogaze.evaluation.comparing import incomparable, not_one_curve
from infogaze.evaluation.exact_pass import Records
from infogaze.evaluation.store import About, EvaluationError, R, Record, about, has, read
from infogaze.grid import GlimpseGrid
from infogaze.plots.style import LINE_STYLES
from infogaze.report.summary import Summary, summary

T = TypeVar("T")
OURS = "infogaze"
"""What a reader is told to train where nothing is."""
_STAND_AS_OURS = (OURS, "dictionary", "paper-corrected", "paper", "attention", "gaussian-corrected", "gaussian")
"""Methods that look where they expect to learn most: the first of them among the runs stands as ours."""
BASELINES = ("discriminative", "ram-plus", "ram", "random")
_FLIP_TTA = "flip TTA"


@dataclass(frozen=True)
class Run:
    """A run folder with an evaluation in it."""

    folder: Path
    about: About

    def has(self, kind: type[Record]) -> bool:
        """Whether this was measured."""
        return has(self.folder / "evaluation", kind)

    def read(self, kind: type[R]) -> R:
        """What was measured."""
        return read(self.folder / "evaluation", kind)

    @cached_property
    def summary(self) -> Summary:
        """What figures need of the pass over the test split; it is read once."""
        return summary(self.read(Records))


def once(measure: Callable[[Run], T]) -> Callable[[Run], T]:
    """The same, computed once a run: files are large, and figures read them again and again."""
    found: dict[Path, T] = {}

    def remembered(run: Run) -> T:
        if run.folder not in found:
            found[run.folder] = measure(run)
        return found[run.folder]

    return remembered


@dataclass(frozen=True, kw_only=True)
class Group:
    """The runs of one method with one preset. They differ in their seed."""

    method: str
    preset: str
    name: str
    """As figures and sentences call it; it has a mark for flip TTA where other methods do without."""
    runs: tuple[Run, ...]
    is_ours: bool = False
    """Whether its method stands as ours here, against the baselines."""

    @property
    def flip_tta(self) -> bool:
        """Whether they use horizontal-flip test-time augmentation."""
        return self.runs[0].about.flip_tta

    @property
    def kind(self) -> tuple[str, str]:
        """Method and preset as CSV files have them; flip TTA is always marked there."""
        return f"{self.method} ({_FLIP_TTA})" if self.flip_tta else self.method, self.preset

    def with_measured(self, kind: type[Record]) -> tuple[Run, ...]:
        """Those of its runs where this was measured."""
        return tuple(run for run in self.runs if run.has(kind))

    def only(self, runs: tuple[Run, ...]) -> Group:
        """The same with some of its runs."""
        return replace(self, runs=runs)


@dataclass(frozen=True)
class Chapter:
    """All that was measured on one image set."""

    data: str
    groups: tuple[Group, ...]
    """In the order of the methods."""

    @property
    def about(self) -> About:
        """What all of its runs have in common."""
        return self.groups[0].runs[0].about

    @property
    def grid(self) -> GlimpseGrid:
        """The locations of its scenes."""
        return self.about.grid

    @property
    def classes(self) -> tuple[str, ...]:
        """Their names."""
        return self.about.classes

    @property
    def num_looks(self) -> int:
        """T, the budget."""
        return self.about.num_looks

    @property
    def lookers(self) -> tuple[Group, ...]:
        """The methods that see a scene look by look; the CNN sees it whole."""
        return tuple(group for group in self.groups if not group.runs[0].about.whole)

    @property
    def whole(self) -> tuple[Group, ...]:
        """Those that see the complete image."""
        return tuple(group for group in self.groups if group.runs[0].about.whole)

    def of(self, method: str, preset: str) -> Group | None:
        """The runs of this method with this preset, if there are any."""
        return next((group for group in self.groups if (group.method, group.preset) == (method, preset)), None)

    @property
    def presets(self) -> tuple[str, ...]:
        """Those of its runs, our method's first."""
        ours = [group.preset for group in self.groups if group.is_ours]
        return tuple(dict.fromkeys([*ours, *sorted(group.preset for group in self.groups)]))

    def with_measured(self, kind: type[Record]) -> tuple[Group, ...]:
        """The methods that look, each with those of its runs where this was measured."""
        found = (group.only(group.with_measured(kind)) for group in self.lookers)
        return tuple(group for group in found if group.runs)


def gather(folders: Sequence[Path]) -> tuple[Chapter, ...]:
    """The chapters of these run folders, or folders of run folders; what cannot be compared is refused."""
    runs = [Run(folder, about(folder / "evaluation")) for folder in _evaluated(folders)]
    runs.sort(key=lambda run: (run.about.data, _order(run.about.method), run.about.preset, run.about.seed))
    chapters = []
    for data, found in groupby(runs, key=lambda run: run.about.data):
        members = tuple(found)
        _require_comparable(members)
        chapters.append(Chapter(data, _groups(members)))
    return tuple(chapters)


def _evaluated(folders: Sequence[Path]) -> list[Path]:
    found: dict[Path, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise EvaluationError(f"{folder}: no such folder")
        if (folder / "evaluation" / "about.json").is_file():
            below = [folder]
        else:
            below = sorted(path.parent.parent for path in folder.rglob("evaluation/about.json"))
        if not below:
            raise EvaluationError(f"{folder}: no evaluation in it or below it; `infogaze evaluate` writes one")
        for run in below:
            found.setdefault(run.resolve(), run)
    if not found:
        raise EvaluationError("no runs given; name at least one run folder after --runs")
    return list(found.values())


def _order(method: str) -> tuple[int, str]:
    known = list(LINE_STYLES)
    return (known.index(method) if method in known else len(known), method)


def _require_comparable(runs: tuple[Run, ...]) -> None:
    first = runs[0]
    for run in runs[1:]:
        if why := incomparable(run.about, first.about):
            raise EvaluationError(f"{run.folder} and {first.folder} {why}")


def _groups(runs: tuple[Run, ...]) -> tuple[Group, ...]:
    ours = next((name for name in _STAND_AS_OURS if name in {run.about.method for run in runs}), None)
    several = len({run.about.preset for run in runs}) > 1
    mixed = len({run.about.flip_tta for run in runs if not run.about.whole}) > 1
    groups = []
    for (method, preset), found in groupby(runs, key=lambda run: (run.about.method, run.about.preset)):
        members = tuple(found)
        for run, after in combinations(members, 2):
            if run.about.seed == after.about.seed:
                raise EvaluationError(
                    f"{run.folder} and {after.folder} are both seed {run.about.seed} of {method} with preset {preset}: "
                    "give one of them"
                )
            if why := not_one_curve(run.about, after.about):
                raise EvaluationError(f"{run.folder} and {after.folder} {why}")
        first = members[0].about
        marks = (
            preset if several else "",
            _FLIP_TTA if first.flip_tta and mixed else "",
            "" if first.deployable else "not deployable",
        )
        marked = ", ".join(mark for mark in marks if mark)
        name = f"{method} ({marked})" if marked else method
        groups.append(Group(method=method, preset=preset, name=name, runs=members, is_ours=method == ours))
    return tuple(groups)
