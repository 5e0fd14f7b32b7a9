"""`infogaze report OUT --runs RUN...`: every figure that can be drawn from these runs, on one page and as files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from infogaze.progress import display
from infogaze.report.contents import ENTRIES
from infogaze.report.gather import gather
from infogaze.report.write import write_report


@dataclass(frozen=True)
class Report:
    """Turn evaluated runs into one page with all figures: accuracy, policies, calibration, rollouts and more.

    Needs no model and no data set: all comes from what `infogaze evaluate` left in each run. Writes OUT/index.html, which needs no
    other file, and OUT/figures with each figure as PNG and SVG and its numbers as CSV. Runs of one method that differ in their seed
    become one curve; each image set becomes a chapter. Runs that cannot be compared are refused.
    """

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """Folder to write to; it is made if need be."""
    runs: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN [RUN ...]")]
    """Evaluated run folders, or folders with such below them."""

    def run(self) -> None:
        """Gather, draw, write."""
        chapters = gather(self.runs)
        with display("figures") as screen:
            bar = screen.bar("drawing", len(ENTRIES) * len(chapters), unit="figures")
            write_report(self.out, chapters, lambda: bar.advance(1))
        print(f"page:     {self.out / 'index.html'}\nfigures:  {self.out / 'figures'}")


def read(arguments: Sequence[str]) -> Report:
    """The command with its options."""
    return tyro.cli(Report, prog="infogaze report", args=list(arguments))
