from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from infogaze import GainPolicy
from infogaze.data.sets import Split
from infogaze.evaluation.accuracy import accuracy
from infogaze.evaluation.rollouts import roll_out
from infogaze.grid import GlimpseGrid
from infogaze.methods.registry import METHODS
from infogaze.plots.rollout import rollout_figure
from infogaze.plots.style import png
from infogaze.report.accuracy import accuracy_figure
from infogaze.report.by_look import by_common_judge, by_look
from infogaze.report.contents import ENTRIES
from infogaze.report.drawing import Missing
from infogaze.report.gather import Chapter
from infogaze.report.page import Picture, Section, page
from infogaze.report.robustness import by_disturbance
from tests.support.evaluations import MadeUp, one_chapter
from tests.support.tiny import CONFIG, tiny_agent


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
    right = torch.rand(50, 7, generator=torch.Generator().manual_seed(0)) < 0.7
    ours, other = accuracy(right), accuracy(right.flip(1))
    axes = accuracy_figure(ours, other, 0.1).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("look t", "accuracy, %")
    lines = [line for line in axes.lines if len(line.get_xdata()) == 7]  # type: ignore[arg-type]
    np.testing.assert_allclose(np.asarray(lines[0].get_ydata(), float), 100 * ours.value.numpy())
    np.testing.assert_allclose(np.asarray(lines[1].get_ydata(), float), 100 * other.value.numpy())
    assert len(axes.collections) == 2
    shaded = np.asarray(axes.collections[0].get_paths()[0].vertices)
    np.testing.assert_allclose(shaded[:, 1].min(), 100 * float(ours.low.min()))
    assert {text.get_text() for text in axes.texts} >= {"chance"}


def test_the_rollout_figure_shows_only_what_was_seen_and_each_map() -> None:
    agent = tiny_agent()
    images = torch.randint(0, 200, (1, 2, CONFIG.height, CONFIG.width)).to(torch.uint8)
    rollouts = roll_out(agent, Split(images, torch.tensor([1])), GainPolicy(3))
    figure = rollout_figure(
        images[0], rollouts.locations[0], rollouts.gains[0], rollouts.probabilities[0], CONFIG.grid, agent.classes, 1
    )
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[:5] == ["scene: class 1", "t = 0", "t = 1", "t = 2", "t = 3"]
    seen = np.zeros((CONFIG.height, CONFIG.width), dtype=bool)
    scene = figure.axes[0].images[0].get_array()
    assert scene is not None
    for look, (row, col) in enumerate(rollouts.locations[0].tolist()):
        seen[row : row + 4, col : col + 4] = True
        drawn = figure.axes[5 + 1 + look].images[0].get_array()
        assert drawn is not None
        np.testing.assert_allclose(drawn[seen], scene[seen])
        assert np.unique(drawn[~seen]).size == 1, "one grey for all that was not looked at"
        if look:
            shown = gain_map(figure.axes[1 + look]).get_array()
            assert shown is not None
            assert isinstance(shown, np.ma.MaskedArray)
            free = ~shown.mask
            np.testing.assert_allclose(shown.data[free], rollouts.gains[0, look].numpy()[free])
    assert png(figure).startswith(b"\x89PNG")


SQUARE = GlimpseGrid(16, 16, 8, 4)


def gain_map(axes: Axes) -> QuadMesh:
    (drawn,) = (part for part in axes.collections if isinstance(part, QuadMesh))
    return drawn


def made_up_rollout(
    places: Sequence[int],
    names: Sequence[str] = ("ring", "bar", "dot"),
    label: int | None = 0,
    grid: GlimpseGrid = SQUARE,
) -> Figure:
    """A rollout over these places, with gains that are largest where it was looked before and second largest where it looks next."""
    generator = torch.Generator().manual_seed(3)
    looks = len(places)
    gains = torch.rand(looks, grid.places, generator=generator)
    for look, place in enumerate(places):
        gains[look, place] = 2.0
        gains[look, list(places[:look])] = 3.0
    gains[0] = 0.0
    logits = torch.linspace(0.0, 3.0, len(names)) + torch.rand(looks, len(names), generator=generator)
    image = torch.randint(0, 256, (3, grid.height, grid.width), generator=generator).to(torch.uint8)
    maps = gains.view(looks, grid.rows, grid.cols)
    return rollout_figure(image, grid.locations()[list(places)], maps, logits.softmax(-1), grid, names, label)


@pytest.mark.parametrize("grid", [SQUARE, GlimpseGrid(20, 13, 4, 3)])
def test_the_brightest_cell_of_a_gain_map_that_is_not_crossed_out_is_in_the_middle_of_the_box(
    grid: GlimpseGrid,
) -> None:
    places = (4, 0, 8, 2, 7)
    figure = made_up_rollout(places, grid=grid)
    brightest = []
    for look, axes in enumerate(figure.axes[2 : 1 + len(places)], 1):
        drawn = gain_map(axes)
        values = drawn.get_array()
        assert isinstance(values, np.ma.MaskedArray)
        assert sorted(np.flatnonzero(values.mask)) == sorted(places[:look]), "those looked at before, and no other"
        assert len(axes.collections[1].get_paths()) == 2 * look, "each with two strokes"
        row, col = np.unravel_index(int(values.argmax()), values.shape)
        brightest.append(float(values.max()))
        corners = np.asarray(drawn.get_coordinates())
        x, y = corners[row : row + 2, col : col + 2].mean((0, 1))
        for box in axes.patches:
            corner = box.get_bbox().min  # type: ignore[attr-defined]
            np.testing.assert_allclose(corner + grid.glimpse / 2, np.array([x, y]))
    assert gain_map(figure.axes[2]).norm.vmax == pytest.approx(max(brightest)), (
        "the scale is that of what may be chosen"
    )


@pytest.mark.parametrize("place", range(9))
def test_the_box_on_a_gain_map_has_four_visible_sides_wherever_it_is(place: int) -> None:
    figure = made_up_rollout((4 if place else 5, place))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    grey = np.asarray(canvas.buffer_rgba())[..., :3].mean(-1)  # type: ignore[no-untyped-call]
    axes = figure.axes[2]
    box = axes.transData.transform_bbox(axes.patches[0].get_bbox())  # type: ignore[attr-defined]
    top, bottom, left, right = (len(grey) - box.y1, len(grey) - box.y0, box.x0, box.x1)
    row, col = round((top + bottom) / 2), round((left + right) / 2)
    across = {
        "top": grey[round(top) - 3 : round(top) + 4, col],
        "bottom": grey[round(bottom) - 3 : round(bottom) + 4, col],
        "left": grey[row, round(left) - 3 : round(left) + 4],
        "right": grey[row, round(right) - 3 : round(right) + 4],
    }
    for side, pixels in across.items():
        assert pixels.max() > 200, (side, "no white line", pixels)
        assert pixels.min() < 90, (side, "no dark edge", pixels)


@pytest.mark.parametrize("name", ["a", "automobiles", "wheelbarrow, red", "W" * 40, "i" * 200])
@pytest.mark.parametrize("looks", [1, 2, 7, 9])
def test_captions_of_a_rollout_do_not_touch_each_other(name: str, looks: int) -> None:
    figure = made_up_rollout(range(looks), [name] * 6, 5)
    width, _ = drawn_size(figure)
    captions = [extent(axes.xaxis.label) for axes in figure.axes if axes.get_xlabel()]
    assert len(captions) == min(looks, 8)
    titles = [extent(axes.title) for axes in figure.axes if axes.get_title()]
    for row in (captions, titles):
        assert row[0].x0 > 0
        assert row[-1].x1 < width
        for left, right in pairwise(row):
            assert left.x1 + 2 < right.x0, (left, right)
    bars = next(axes for axes in figure.axes if axes.get_xlabel())
    assert all(extent(tick).x1 < bars.get_window_extent().x0 for tick in bars.get_yticklabels())


def test_the_true_label_has_a_bar_however_unlikely_it_was() -> None:
    names = [f"class {index}" for index in range(9)]
    for label in (0, 8, None):
        figure = made_up_rollout((4, 0, 8), names, label)
        bars = next(axes for axes in figure.axes if axes.get_xlabel())
        shown = {tick.get_text(): tick.get_fontweight() for tick in bars.get_yticklabels()}
        assert len(shown) == len(bars.patches) == 5
        assert [name for name, weight in shown.items() if weight == "bold"] == ([] if label is None else [names[label]])
        assert ("class 0" in shown) == (label == 0), "the least likely of all"


def test_a_rollout_of_many_looks_shows_some_of_them_with_all_glimpses_so_far() -> None:
    grid = GlimpseGrid(32, 32, 8, 4)
    figure = made_up_rollout(range(49), grid=grid)
    titles = [axes.get_title() for axes in figure.axes[1:9]]
    assert titles == [f"t = {look}" for look in (0, 7, 14, 21, 27, 34, 41, 48)]
    assert not figure.axes[9].get_title()
    last = gain_map(figure.axes[8]).get_array()
    assert isinstance(last, np.ma.MaskedArray)
    assert last.mask.sum() == 48
    np.testing.assert_array_equal(figure.axes[9 + 8].images[0].get_array(), figure.axes[0].images[0].get_array())


def test_a_page_escapes_what_it_is_given() -> None:
    text = page("<b>", "a & b", (Section("s", "1 < 2", (Picture("data:,", 'a "b"'),), (("x",), ("<i>",))),), "end")
    assert "<b>" not in text
    assert "a &amp; b" in text
    assert "1 &lt; 2" in text
    assert 'alt="a &quot;b&quot;"' in text
    assert "<td>&lt;i&gt;</td>" in text


def drawn_size(figure: Figure) -> tuple[int, int]:
    """Draw, so that everything has its place, and say how many pixels it took."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    return canvas.get_width_height()


def extent(text: Text) -> Bbox:
    """The pixels of the words, without a stroke that leads from them."""
    return Text.get_window_extent(text)


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
    for draw in (by_look, by_common_judge, by_disturbance):
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
