"""Figures as files of the kinds that people ask for."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.figure import Figure

from infogaze.errors import InfogazeError
from infogaze.plots.style import png, svg

ENDINGS = (".png", ".svg", ".pdf", ".jpg", ".jpeg")


def require_drawable(path: Path) -> None:
    """Refuse what no picture can be written as."""
    allowed = f"a file that ends in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]} is allowed"
    if path.is_dir():
        raise InfogazeError(f"out is {path}, a folder; {allowed}")
    if path.suffix.lower() not in ENDINGS:
        raise InfogazeError(f"out is {path}; {allowed}")


def encoded(figure: Figure, ending: str) -> bytes:
    """The figure as a file of the kind that has this ending."""
    if ending == ".png":
        return png(figure)
    if ending == ".svg":
        return svg(figure)
    out = io.BytesIO()
    metadata = {"CreationDate": None} if ending == ".pdf" else None
    figure.savefig(out, format=ending[1:], dpi=150, facecolor="white", metadata=metadata)
    return out.getvalue()
