"""What a drawn figure and its CSV show, read back from them."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from infogaze.report.drawing import Drawing, Drawn, Missing


def only(drawn: Drawn) -> Drawing:
    assert not isinstance(drawn, Missing), drawn
    (drawing,) = drawn
    return drawing


def line(axes: Axes, name: str) -> Line2D:
    return next(line for line in axes.lines if line.get_label() == name)


def heights(axes: Axes, name: str) -> np.ndarray:
    return np.asarray(line(axes, name).get_ydata(), float)


def levels(axes: Axes) -> set[float]:
    """Where lines go straight across."""
    flat = (np.asarray(line.get_ydata(), float) for line in axes.lines if list(line.get_xdata()) == [0, 1])  # type: ignore[arg-type]
    return {round(float(y[0]), 6) for y in flat}


def words(figure: Figure) -> str:
    """All that is written in a figure."""
    parts = [text.get_text() for axes in figure.axes for text in axes.texts]
    parts += [axes.get_xlabel() + axes.get_ylabel() + axes.get_title("left") for axes in figure.axes]
    for box in [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]:
        parts += [text.get_text() for text in box.get_texts()] if box is not None else []
    return "\n".join([*parts, figure.get_suptitle(), figure.get_supxlabel()])


def drawn_size(figure: Figure) -> tuple[int, int]:
    """Draw, so that everything has its place; width and height in pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    return canvas.get_width_height()


def extent(text: Text) -> Bbox:
    """The pixels of the text, without a stroke that leads from it."""
    return Text.get_window_extent(text)
