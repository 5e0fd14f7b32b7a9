"""`infogaze data list|check|show`: which image sets there are, whether one can be used, and what is in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from infogaze.cli.settings import RunFile, read_changes_of, resolved_options, with_read
from infogaze.data.inspection import check, list_sets
from infogaze.data.options import ReadOptions
from infogaze.errors import InfogazeError
from infogaze.progress import Bar, display


@dataclass(frozen=True, kw_only=True)
class Data:
    """List the image sets, check one file by file, or draw a sheet of its images.

    list: name, images, size, where it comes from and how to get it. check NAME: reads every image and lists all that is wrong at once.
    show NAME: writes a contact sheet.
    """

    action: Annotated[Literal["list", "check", "show"], tyro.conf.Positional]
    """What to do: list, check or show."""
    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = None
    """The set, for check and show."""
    root: Path | None = None
    """Where the set's files are; digits needs none."""
    out: Path = Path("images.png")
    """Where the sheet goes, for show."""

    def run(self) -> None:
        """Do it."""
        if self.action == "list":
            for row in list_sets():
                print(f"{row.name:<13} {row.images:<17} {row.size:<9} {row.origin}\n{'':<13} {row.get}")
            return
        if self.name is None:
            raise InfogazeError(
                f"data {self.action} needs the name of a set: {', '.join(row.name for row in list_sets())}"
            )
        if self.action == "show":
            from infogaze.data.contact_sheet import draw_contact_sheet  # drawing takes long to import

            print(draw_contact_sheet(self.name, self.root, out=self.out, options=self._options()))
            return
        self._check(self.name)

    def _check(self, name: str) -> None:
        with display() as screen:
            bars: list[Bar] = []
            done = 0

            def progress(now: int, total: int) -> None:
                nonlocal done
                if not bars:
                    bars.append(screen.bar(f"reading {name}", total, unit="images"))
                bars[0].advance(now - done)
                done = now

            found = check(name, self.root, self._options(), progress=progress)
        for problem in found.problems:
            print(f"{problem.path}: {problem.what}")
        for split, counts in found.counts.items():
            print(
                f"{split}: {sum(counts.values())} images in {len(counts)} classes, {min(counts.values())} to {max(counts.values())} a class"
            )
        if found.shape is not None:
            print("each {}x{} with {} channels".format(*found.shape[1:], found.shape[0]))
        if found.problems:
            raise InfogazeError(f"{name}: {len(found.problems)} problem{'s' if len(found.problems) > 1 else ''}")
        print(f"{name}: can be used")

    def _options(self) -> ReadOptions:
        return resolved_options(RunFile(), read_changes_of(self))


def read(arguments: Sequence[str]) -> Data:
    """The command with its options."""
    return tyro.cli(with_read(Data), prog="infogaze data", args=list(arguments))
