"""How our figures look, and how they leave matplotlib."""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import matplotlib as mpl
from matplotlib.figure import Figure
from PIL import Image

INK = "#1c2733"
QUIET = "#8a96a3"
EDGE = "#c5ccd3"
OURS = "#c2410c"
OTHER = "#3b6ea5"
GAIN_COLOURS = "magma"
SHARE_COLOURS = "Blues"

_LARGE = 140_000  # bytes

WIDTH = 9.0
"""Inches; a figure on a printed page then keeps nine tenths of its size, and its letters stay readable."""


@dataclass(frozen=True)
class Hand:
    """How a method is drawn, the same in every figure."""

    colour: str
    marker: str
    dash: Literal["-", "--", "-.", ":"] = "-"
    width: float = 1.5


# Chosen so that each two stay apart for the three kinds of colour blindness; and each has a marker of its own.
HANDS: dict[str, Hand] = {
    "infogaze": Hand(OURS, "o", width=2.6),
    "no-hindsight": Hand("#601800", "p"),
    "gaussian": Hand("#d99a00", "D"),
    "gaussian-no-hindsight": Hand("#9c48fc", "d"),
    "attention": Hand("#b5578f", "P"),
    "discriminative": Hand("#009e73", "^"),
    "ram-plus": Hand("#0b62a3", "v"),
    "ram": Hand("#56b4e9", "<"),
    "random": Hand("#332288", "s"),
    "oracle": Hand("#4a5560", "X", dash="--"),
    "cnn": Hand(INK, "", width=1.2),
}
_OTHER_METHOD = Hand(QUIET, "h")


def hand(method: str) -> Hand:
    """How this method is drawn; grey where it is none that we know."""
    return HANDS.get(method, _OTHER_METHOD)


@contextmanager
def house_style() -> Iterator[None]:
    """Matplotlib's settings for our figures, inside the block only."""
    with mpl.rc_context(
        {
            "font.size": 9, "axes.edgecolor": QUIET, "axes.labelcolor": INK, "text.color": INK,
            "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False,
            "axes.grid": False, "grid.color": "#e3e7eb", "svg.fonttype": "none", "svg.hashsalt": "infogaze",
        }
    ):  # fmt: skip
        yield


def titled(figure: Figure, title: str, foot: str) -> None:
    """Say above a figure what it shows, and below it what stands behind it; it may be seen away from its page."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    if foot:
        wide = int(figure.get_figwidth() * 17.5)  # letters of this size in an inch
        lines = "\n".join(textwrap.fill(line, wide) for line in foot.split("\n"))
        figure.supxlabel(lines, x=0.01, ha="left", fontsize=8, color="#5c6874")


def png(figure: Figure, dpi: int = 150) -> bytes:
    """The figure as a PNG file; one that would be large for a repository is drawn with 256 colours."""
    out = io.BytesIO()
    figure.savefig(
        out, format="png", dpi=dpi, facecolor="white", metadata={"Software": None}, pil_kwargs={"optimize": True}
    )
    if len(out.getvalue()) > _LARGE:
        with Image.open(out) as drawn:
            few = drawn.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        out = io.BytesIO()
        few.save(out, "png", optimize=True)
    return out.getvalue()


def svg(figure: Figure) -> bytes:
    """The figure as an SVG file whose text stays text; the same bytes whenever it is drawn."""
    out = io.BytesIO()
    with house_style():
        figure.savefig(out, format="svg", facecolor="white", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def inline(data: bytes) -> str:
    """A PNG file as an address that a page can hold in itself."""
    return "data:image/png;base64," + base64.b64encode(data).decode()
