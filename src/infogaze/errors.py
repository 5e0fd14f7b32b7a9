"""The one kind of error that a user can mend; on the command line it is one line and exit code 2. Any other is a bug of ours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path


class InfogazeError(ValueError):
    """A wrong value, or a file that is missing or damaged. The message is one line: what is wrong, and what is allowed."""


@dataclass(frozen=True)
class Problem:
    """A file or folder and what is wrong with it."""

    path: Path
    what: str
    kind: str = ""
    """Problems of one kind are told together; those without one each for itself."""

    def __str__(self) -> str:
        # Parts of `what` may come from other libraries, which like to break lines.
        return f"{self.path}: {' '.join(self.what.split())}"


def collapsed(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """The problems, those of one kind as one, which says how many they are."""
    kinds: dict[object, list[Problem]] = {}
    for problem in problems:
        kinds.setdefault(problem.kind or problem, []).append(problem)
    return tuple(
        same[0] if len(same) == 1 else replace(same[0], what=f"{same[0].what} ({len(same)} files are such)")
        for same in kinds.values()
    )


class DataError(InfogazeError):
    """A set that cannot be used. The message is the first problem and the number of others; `problems` holds all."""

    def __init__(self, first: Problem, *others: Problem) -> None:
        super().__init__(first, *others)
        self.problems = collapsed((first, *others))

    def __str__(self) -> str:
        first, *others = self.problems
        return f"{first} (+{len(others)} more)" if others else str(first)
