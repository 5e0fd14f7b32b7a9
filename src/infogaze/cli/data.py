"""`infogaze data list|check|show`: which image sets there are, whether one can be used, and what is in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from infogaze.data.inspection import check, list_sets, show
from infogaze.data.options import Options
from infogaze.errors import InfogazeError
from infogaze.progress import Bar, display


@dataclass(frozen=True)
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
    read: Options = Options()
    """How the images are read."""
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
            print(show(self.name, self.root, self.out, self.read))
            return
        self._check(self.name)

    def _check(self, name: str) -> None:
        with display() as screen:
            bars: list[Bar] = []
            done = 0

            def progress(now: int, total: int) -> None:
                nonlocal done
                if not bars:
                    bars.append(screen.bar(f"reading {name}", total, "images"))
                bars[0].advance(now - done)
                done = now

            found = check(name, self.root, self.read, progress=progress)
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
