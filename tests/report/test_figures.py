from __future__ import annotations

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from infogaze import GainPolicy
from infogaze.data.sets import Split
from infogaze.evaluation.accuracy import accuracy
from infogaze.evaluation.rollouts import roll_out
from infogaze.methods import METHODS
from infogaze.report.accuracy import accuracy_figure
from infogaze.report.contents import ENTRIES, Entry
from infogaze.report.drawing import Missing
from infogaze.report.gather import Chapter
from infogaze.report.page import Picture, Section, page
from infogaze.report.rollout import rollout_figure
from infogaze.report.style import png
from tests.report.made_up import MadeUp, one_chapter
from tests.tiny import CONFIG, tiny_agent


@pytest.fixture(scope="module")
def all_methods(tmp_path_factory: pytest.TempPathFactory) -> Chapter:
    """A chapter with every method there is, the one with the longest name too."""
    runs = (MadeUp(name) if name != "cnn" else MadeUp(name, parts=()) for name in METHODS)
    return one_chapter(tmp_path_factory.mktemp("runs"), *runs)


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
            shown = figure.axes[1 + look].images[0].get_array()
            assert shown is not None
            np.testing.assert_allclose(shown, rollouts.gains[0, look].numpy())
    assert png(figure).startswith(b"\x89PNG")


def test_a_page_escapes_what_it_is_given() -> None:
    text = page("<b>", "a & b", (Section("s", "1 < 2", (Picture("data:,", 'a "b"'),), (("x",), ("<i>",))),), "end")
    assert "<b>" not in text
    assert "a &amp; b" in text
    assert "1 &lt; 2" in text
    assert 'alt="a &quot;b&quot;"' in text
    assert "<td>&lt;i&gt;</td>" in text


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry.name for entry in ENTRIES])
def test_no_word_of_a_figure_touches_its_edge(entry: Entry, all_methods: Chapter) -> None:
    drawn = entry.draw(all_methods)
    assert not isinstance(drawn, Missing), drawn
    for drawing in drawn:
        figure = drawing.figure
        canvas = FigureCanvasAgg(figure)
        canvas.draw()  # type: ignore[no-untyped-call]
        width, height = canvas.get_width_height()
        words: list[Text] = [*figure.texts]
        for axes in figure.axes:
            words += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        for text in words:
            if text.get_visible() and text.get_text():
                box = text.get_window_extent()
                inside = box.x0 >= 2 and box.y0 >= 2 and box.x1 <= width - 2 and box.y1 <= height - 2
                assert inside, (text.get_text(), box.extents, (width, height))
