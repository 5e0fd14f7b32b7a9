"""How our figures look, and how they leave matplotlib."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from PIL import Image

INK = "#1c2733"
QUIET = "#8a96a3"
EDGE = "#c5ccd3"
OURS = "#c2410c"
OTHER = "#3b6ea5"
GAIN_COLOURS = "magma"
UNCERTAINTY_COLOURS = "Greys"
SHARE_COLOURS = "Blues"

_LARGE = 140_000  # bytes
_FOOT_SIZE = 8

WIDTH = 9.0
"""Inches; a figure on a printed page then keeps nine tenths of its size, and its letters stay readable."""


@dataclass(frozen=True, kw_only=True)
class LineStyle:
    """How a method is drawn, the same in every figure."""

    colour: str
    marker: str
    dash: Literal["-", "--", "-.", ":"] = "-"
    width: float = 1.5


# Any two stay apart for the three kinds of colour blindness, and each has a marker of its own.
LINE_STYLES: dict[str, LineStyle] = {
    "infogaze": LineStyle(colour=OURS, marker="o", width=2.6),
    "dictionary": LineStyle(colour="#3311ff", marker=">"),
    "paper": LineStyle(colour="#601800", marker="p"),
    "gaussian": LineStyle(colour="#9c48fc", marker="d"),
    "paper-corrected": LineStyle(colour="#a84830", marker="*"),
    "gaussian-corrected": LineStyle(colour="#d99a00", marker="D"),
    "attention": LineStyle(colour="#b5578f", marker="P"),
    "discriminative": LineStyle(colour="#009e73", marker="^"),
    "ram-plus": LineStyle(colour="#0b62a3", marker="v"),
    "ram": LineStyle(colour="#56b4e9", marker="<"),
    "random": LineStyle(colour="#332288", marker="s"),
    "oracle": LineStyle(colour="#4a5560", marker="X", dash="--"),
    "cnn": LineStyle(colour=INK, marker="", width=1.2),
}
"""By method, in the order in which figures list them."""

_OTHER_METHOD = LineStyle(colour=QUIET, marker="h")


def line_style(method: str) -> LineStyle:
    """How this method is drawn; grey where it is not one of ours."""
    return LINE_STYLES.get(method, _OTHER_METHOD)


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
    """Write above a figure what it shows, and below it what the numbers rest on; it may be seen away from its page."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    if foot:
        # Letters drawn in few pixels are some hundredths wider than their outlines.
        lines = _wrapped(foot, 0.95 * 72 * figure.get_figwidth(), _FOOT_SIZE)
        figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=_FOOT_SIZE, color="#5c6874")


def text_width(text: str, size: float) -> float:
    """How wide this text is drawn in letters of this size, in points."""
    return text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)[0]


def _wrapped(text: str, room: float, size: float) -> list[str]:
    """The text in lines that fit into `room` points."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


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
