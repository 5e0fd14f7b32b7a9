"""What a figure's function gives: the figure, the sentence to take away and the numbers behind it; or why there is none."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass

from matplotlib.figure import Figure

Cell = str | int | float
Rows = tuple[tuple[Cell, ...], ...]
"""A table; the first row is the head."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure and what is written with it."""

    figure: Figure
    sentence: str
    """What a reader should take away, computed from the numbers."""
    alt_text: str
    """What the picture shows, for those who cannot see it."""
    note: str
    """How to read it."""
    numbers: Rows
    """All numbers behind the figure, for its CSV."""
    table: Rows = ()
    """The numbers in a form to read, for the page."""


@dataclass(frozen=True)
class Missing:
    """A figure that cannot be drawn from the runs at hand."""

    why: str
    remedy: str
    """The command that would produce what is missing."""


Drawn = tuple[Drawing, ...] | Missing


def csv_bytes(numbers: Rows) -> bytes:
    """The table as a CSV file."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(
        [f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row] for row in numbers
    )
    return out.getvalue().encode()
