"""What is wrong with a set's files: one line a problem, which names the file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from infogaze.errors import InfogazeError


@dataclass(frozen=True)
class Problem:
    """A file or folder and what is wrong with it."""

    path: Path
    what: str

    def __str__(self) -> str:
        # Parts of `what` may come from other libraries, which like to break lines.
        return f"{self.path}: {' '.join(self.what.split())}"


class DataError(InfogazeError):
    """A set that cannot be used. The message is the first problem and the number of others; `problems` holds all."""

    def __init__(self, first: Problem, *others: Problem) -> None:
        super().__init__(first, *others)
        self.problems = (first, *others)

    def __str__(self) -> str:
        first, *others = self.problems
        return f"{first} (+{len(others)} more)" if others else str(first)
