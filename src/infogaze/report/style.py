"""How our figures look, and how they leave matplotlib."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib as mpl
from matplotlib.figure import Figure

INK = "#1c2733"
QUIET = "#8a96a3"
OURS = "#c2410c"
OTHER = "#3b6ea5"
GAIN_COLOURS = "magma"


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


def png(figure: Figure, dpi: int = 150) -> bytes:
    """The figure as a PNG file."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
    return out.getvalue()


def inline(data: bytes) -> str:
    """A PNG file as an address that a page can hold in itself."""
    return "data:image/png;base64," + base64.b64encode(data).decode()
