"""Progress of long work: a bar with rate and time to go on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

_LINE_EVERY = 10.0  # seconds, where no bar can be drawn


class _Rate(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} {self._unit}/s", style="progress.data.speed")


class Bar:
    """One piece of work, counted in units."""

    def __init__(self, name: str, total: int, *, unit: str, bars: Progress | None, begin: int) -> None:
        self._name, self._total, self._unit, self._bars = name, total, unit, bars
        self._done = self._begin = begin
        self._began = self._said = time.monotonic()
        self._task = None if bars is None else bars.add_task(name, total=total, completed=begin, note="")

    def advance(self, units: int, note: str = "") -> None:
        """So many units more are done."""
        if self._done >= self._total:
            return
        self._done = min(self._done + units, self._total)
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, completed=self._done, note=note)
            return
        now = time.monotonic()
        if now - self._said >= _LINE_EVERY or self._done == self._total:
            self._said = now
            rate = (self._done - self._begin) / max(now - self._began, 1e-9)
            left = (self._total - self._done) / max(rate, 1e-9)
            share = 100 * self._done / self._total
            print(f"{self._name}: {share:3.0f} %, {rate:,.0f} {self._unit}/s, {left:.0f} s to go  {note}", flush=True)


class Display:
    """Where bars are shown."""

    def __init__(self, bars: Progress | None) -> None:
        self._bars = bars

    def say(self, line: str) -> None:
        """Print a line without disturbing the bars."""
        if self._bars is not None:
            self._bars.console.print(line, markup=False, highlight=False)
        else:
            print(line, flush=True)

    def bar(self, name: str, total: int, *, unit: str = "scenes", begin: int = 0) -> Bar:
        """A new bar for `total` units of work, of which some may be done already."""
        return Bar(name, total, unit=unit, bars=self._bars, begin=begin)


@contextmanager
def display(unit: str = "scenes", *, quiet: bool = False) -> Iterator[Display]:
    """Show bars while the block runs; where there is no terminal, lines; quiet shows nothing."""
    if quiet:
        with Progress(disable=True, console=Console(quiet=True)) as bars:
            yield Display(bars)
        return
    console = Console()
    if not (console.is_terminal and sys.stdout.isatty()):
        yield Display(None)
        return
    columns = (
        TextColumn("{task.description:<22}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), _Rate(unit),
        TimeElapsedColumn(), TextColumn("to go"), TimeRemainingColumn(), TextColumn("{task.fields[note]}"),
    )  # fmt: skip
    with Progress(*columns, console=console) as bars:
        yield Display(bars)
