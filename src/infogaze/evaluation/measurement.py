"""What a measurement is: a record, the function that makes it, and for which methods; each is one file and one entry of the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from infogaze.data.sets import Split
from infogaze.evaluation.store import Record
from infogaze.gaze.agent import Agent
from infogaze.methods.method import Method

OnProgress = Callable[[int], None]
"""Hears how many scenes more are done."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is measured, and on what."""

    agent: Agent
    method: Method
    test: Split
    """The complete test split."""
    num_scenes: int
    """How many of its first scenes the longer measurements look at."""
    seed: int
    """Of the first looks and of what is imagined."""
    batch_size: int
    records: Any = None
    """The exact pass, once it is made."""
    judge: Agent | None = None
    """A CNN that sees complete images."""
    judge_digest: str = ""
    """Of its weights."""

    @property
    def some(self) -> Split:
        """The first scenes."""
        return Split(self.test.images[: self.num_scenes], self.test.labels[: self.num_scenes])


def _of_every_looker(method: Method) -> bool:
    return method.sees != "everything"


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """An entry of the registry."""

    record: type[Record]
    """What it leaves."""
    measure: Callable[[Subject, OnProgress], Record]
    lacking: str
    """What figures lack without it, in words."""
    applies: Callable[[Method], bool] = _of_every_looker
    """To which methods it means something."""
    work: Callable[[Subject], int] = lambda subject: 1
    """How many scenes it looks at."""
    source: Callable[[Subject], str] = lambda subject: ""
    """What it depends on beyond what the evaluation is of."""
    needs_judge: bool = False

    @property
    def name(self) -> str:
        """Of its file, and on the command line."""
        return self.record.file


def first_scenes(subject: Subject) -> str:
    """The source of a measurement of the first scenes."""
    return f"the first {len(subject.some)} scenes"
