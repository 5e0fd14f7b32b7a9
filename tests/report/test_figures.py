"""What every figure keeps to: words inside its edges, reference lines named where nothing is covered."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from infogaze.evaluation.estimates import accuracy
from infogaze.methods.registry import METHODS
from infogaze.report.by_look import by_common_judge, by_look
from infogaze.report.contents import ENTRIES
from infogaze.report.corruptions import by_corruption
from infogaze.report.drawing import Missing
from infogaze.report.gather import Chapter
from infogaze.report.page import Picture, Section, page
from infogaze.report.quickstart_figure import accuracy_figure
from tests.support.evaluations import MadeUp, one_chapter
from tests.support.figures import drawn_size, extent


@pytest.fixture(scope="module")
def all_methods(tmp_path_factory: pytest.TempPathFactory) -> Chapter:
    """A chapter with every method there is, the one with the longest name too."""
    runs = (MadeUp(name) if name != "cnn" else MadeUp(name, parts=()) for name in METHODS)
    return one_chapter(tmp_path_factory.mktemp("runs"), *runs)


@pytest.fixture(scope="module")
def figures(all_methods: Chapter) -> dict[str, list[Figure]]:
    """Every figure of that chapter, by its entry."""
    found = {}
    for entry in ENTRIES:
        drawn = entry.draw(all_methods)
        assert not isinstance(drawn, Missing), drawn
        found[entry.name] = [drawing.figure for drawing in drawn]
    return found


def test_the_accuracy_figure_holds_both_curves_their_intervals_and_chance() -> None:
    correct = torch.rand(50, 7, generator=torch.Generator().manual_seed(0)) < 0.7
    ours, other = accuracy(correct), accuracy(correct.flip(1))
    axes = accuracy_figure(ours, other, 0.1).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("look t", "accuracy, %")
    lines = [line for line in axes.lines if len(line.get_xdata()) == 7]  # type: ignore[arg-type]
    np.testing.assert_allclose(np.asarray(lines[0].get_ydata(), float), 100 * ours.value.numpy())
    np.testing.assert_allclose(np.asarray(lines[1].get_ydata(), float), 100 * other.value.numpy())
    assert len(axes.collections) == 2
    shaded = np.asarray(axes.collections[0].get_paths()[0].vertices)
    np.testing.assert_allclose(shaded[:, 1].min(), 100 * float(ours.low.min()))
    assert {text.get_text() for text in axes.texts} >= {"chance"}


def test_a_page_escapes_what_it_is_given() -> None:
    pictures = (Picture("data:,", 'a "b"'),)
    section = Section(title="s", sentence="1 < 2", pictures=pictures, table=(("x",), ("<i>",)))
    text = page("<b>", opening="a & b", sections=(section,), closing="end")
    assert "<b>" not in text
    assert "a &amp; b" in text
    assert "1 &lt; 2" in text
    assert 'alt="a &quot;b&quot;"' in text
    assert "<td>&lt;i&gt;</td>" in text


@pytest.mark.parametrize("entry", [entry.name for entry in ENTRIES])
def test_no_word_of_a_figure_touches_its_edge(entry: str, figures: dict[str, list[Figure]]) -> None:
    for figure in figures[entry]:
        width, height = drawn_size(figure)
        words: list[Text] = [*figure.texts]
        for axes in figure.axes:
            words += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        for text in words:
            if text.get_visible() and text.get_text():
                box = text.get_window_extent()
                inside = box.x0 >= 2 and box.y0 >= 2 and box.x1 <= width - 2 and box.y1 <= height - 2
                assert inside, (text.get_text(), box.extents, (width, height))


def level_names(axes: Axes) -> list[Text]:
    return [text for text in axes.texts if re.match("chance|all .* alike|.* sees all", text.get_text())]


def assert_nothing_is_covered(figure: Figure) -> None:
    """No curve, point, reference line or other word lies under the name of a reference line, at any size in pixels."""
    for dpi in (100, 150):
        figure.set_dpi(dpi)
        drawn_size(figure)
        for axes in figure.axes:
            inside = axes.get_window_extent()
            for text in level_names(axes):
                box = extent(text)
                assert inside.x0 <= box.x0 < box.x1 <= inside.x1, text.get_text()
                assert inside.y0 <= box.y0 < box.y1 <= inside.y1, text.get_text()
                for line in axes.lines:
                    path = line.get_transform().transform_path(line.get_path())
                    if len(set(line.get_xdata())) > 1:  # type: ignore[arg-type]  # else it is the budget in training, from top to bottom
                        assert not path.intersects_bbox(box, filled=False), (text.get_text(), line.get_label())
                    if line.get_marker() not in ("", "None"):
                        near = box.padded(2 * dpi / 72)
                        assert not near.count_contains(path.vertices), (text.get_text(), line.get_label())
            for one, other in combinations(axes.texts, 2):
                assert not extent(one).padded(-1).overlaps(extent(other)), (one.get_text(), other.get_text())


def test_the_name_of_a_reference_line_covers_no_curve_and_no_other_name(figures: dict[str, list[Figure]]) -> None:
    named = [figure for drawn in figures.values() for figure in drawn if any(map(level_names, figure.axes))]
    assert len(named) >= 10
    for figure in named:
        assert_nothing_is_covered(figure)


# Of 60 scenes: chance is 20, and the CNN has 57.
CURVES = {
    "an early rise through the CNN's line": ((20, 40, 44, 46, 48, 50, 52), (20, 58, 60, 60, 60, 60, 60)),
    "around chance": ((20, 23, 17, 22, 18, 23, 17), (18, 21, 19, 22, 17, 20, 21)),
    "close around chance, side by side": ((21, 21, 21, 21, 21, 21, 21), (19, 19, 19, 19, 19, 19, 19)),
    "falling to chance": ((52, 45, 38, 31, 26, 22, 20), (57, 50, 40, 33, 30, 21, 20)),
    "falling from the CNN's line": ((57, 57, 57, 57, 57, 57, 20), (20, 57, 57, 57, 57, 57, 57)),
}


@pytest.mark.parametrize("curves", CURVES.values(), ids=CURVES)
def test_a_reference_line_is_named_where_there_is_room_whatever_the_curves_do(
    curves: tuple[tuple[int, ...], tuple[int, ...]], tmp_path: Path
) -> None:
    ours, other = curves
    chapter = one_chapter(
        tmp_path, MadeUp("infogaze", counts=ours), MadeUp("oracle", counts=other), MadeUp("cnn", parts=())
    )
    for draw in (by_look, by_common_judge, by_corruption):
        drawn = draw(chapter)
        assert not isinstance(drawn, Missing), drawn
        for drawing in drawn:
            assert_nothing_is_covered(drawing.figure)


def test_the_cnn_and_chance_are_named_alike_in_figure_and_table(all_methods: Chapter) -> None:
    drawn = by_common_judge(all_methods)
    assert not isinstance(drawn, Missing), drawn
    (drawing,) = drawn
    names = [text.get_text() for text in level_names(drawing.figure.axes[0])]
    assert names == ["cnn, sees all: 95.0 %", "chance: 33.3 %"]
    assert [row[0] for row in drawing.table[-2:]] == ["cnn, sees all", "chance"]
    assert {"cnn, sees all", "chance"} <= {row[1] for row in drawing.numbers}
