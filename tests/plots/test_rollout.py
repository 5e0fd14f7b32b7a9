"""The figure of one rollout: only what was seen, maps that can be read, words that do not touch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from infogaze import GainPolicy
from infogaze.data.sets import Split
from infogaze.evaluation.rollouts import roll_out
from infogaze.grid import GlimpseGrid
from infogaze.plots.rollout import rollout_figure
from infogaze.plots.scenes import shown_looks
from infogaze.plots.style import png
from tests.support.figures import drawn_size, extent
from tests.support.tiny import CONFIG, tiny_agent


def test_the_rollout_figure_shows_only_what_was_seen_and_each_map() -> None:
    agent = tiny_agent()
    images = torch.randint(0, 200, (1, 2, CONFIG.height, CONFIG.width)).to(torch.uint8)
    rollouts = roll_out(agent.with_policy(GainPolicy(3)), Split(images, torch.tensor([1])))
    figure = rollout_figure(
        images[0],
        locations=rollouts.locations[0],
        gains=rollouts.gains[0],
        probabilities=rollouts.probabilities[0],
        grid=CONFIG.grid,
        classes=agent.classes,
        label=1,
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


SQUARE = GlimpseGrid(height=16, width=16, glimpse_size=8, stride=4)


def gain_map(axes: Axes) -> QuadMesh:
    (drawn,) = (part for part in axes.collections if isinstance(part, QuadMesh))
    return drawn


def made_up_rollout(
    places: Sequence[int],
    names: Sequence[str] = ("ring", "bar", "dot"),
    label: int | None = 0,
    *,
    grid: GlimpseGrid = SQUARE,
    times: Sequence[float] | None = None,
) -> Figure:
    """A rollout over these places, with gains that are largest where it was looked before and second largest where it looks next."""
    generator = torch.Generator().manual_seed(3)
    looks = len(places)
    gains = torch.rand(looks, grid.num_locations, generator=generator)
    for look, place in enumerate(places):
        gains[look, place] = 2.0
        gains[look, list(places[:look])] = 3.0
    gains[0] = 0.0
    logits = torch.linspace(0.0, 3.0, len(names)) + torch.rand(looks, len(names), generator=generator)
    image = torch.randint(0, 256, (3, grid.height, grid.width), generator=generator).to(torch.uint8)
    if times is not None:
        gains *= torch.tensor(times)[:, None]
    return rollout_figure(
        image,
        locations=grid.locations()[list(places)],
        gains=gains.view(looks, grid.rows, grid.cols),
        probabilities=logits.softmax(-1),
        grid=grid,
        classes=names,
        label=label,
    )


@pytest.mark.parametrize("grid", [SQUARE, GlimpseGrid(height=20, width=13, glimpse_size=4, stride=3)])
def test_the_brightest_cell_of_a_gain_map_that_is_not_crossed_out_is_in_the_middle_of_the_box(
    grid: GlimpseGrid,
) -> None:
    places = (4, 0, 8, 2, 7)
    figure = made_up_rollout(places, grid=grid)
    for look, axes in enumerate(figure.axes[2 : 1 + len(places)], 1):
        drawn, crosses = gain_map(axes), axes.collections[1]
        values = drawn.get_array()
        assert isinstance(values, np.ma.MaskedArray)
        assert sorted(np.flatnonzero(values.mask)) == sorted(places[:look]), "those looked at before, and no other"
        assert len(crosses.get_paths()) == 2 * look, "each with two strokes"
        assert drawn.zorder < crosses.zorder < axes.patches[0].zorder, "over the map, under the box"
        row, col = np.unravel_index(int(values.argmax()), values.shape)
        corners = np.asarray(drawn.get_coordinates())
        x, y = corners[row : row + 2, col : col + 2].mean((0, 1))
        for box in axes.patches:
            corner = box.get_bbox().min  # type: ignore[attr-defined]
            np.testing.assert_allclose(corner + grid.glimpse_size / 2, np.array([x, y]))
        assert drawn.norm.vmax == pytest.approx(float(values.max())), "the scale is that of what may be chosen"


def test_a_gain_map_that_is_a_thousand_times_fainter_is_drawn_as_bright_and_its_maximum_is_written_with_it() -> None:
    places, times = (4, 0, 8, 2), (1.0, 1.0, 0.03, 0.001)
    figure = made_up_rollout(places, times=times)
    maps = figure.axes[2:5]
    assert [text.get_text() for axes in maps for text in axes.texts] == [
        "max 2 nats",
        "max 0.06 nats",
        "max 0.002 nats",
    ]
    for axes in maps:
        drawn = gain_map(axes)
        values = drawn.get_array()
        assert isinstance(values, np.ma.MaskedArray)
        assert drawn.norm.vmin == 0.0
        assert drawn.norm.vmax == pytest.approx(float(values.max()))
    (bar,) = (axes for axes in figure.axes if axes.get_ylabel())
    assert "share" in bar.get_ylabel()
    assert bar.get_ylim() == (0.0, 1.0)


def test_a_gain_map_with_every_location_looked_at_before_is_drawn() -> None:
    grid = GlimpseGrid(height=4, width=8, glimpse_size=4, stride=4)
    figure = made_up_rollout((0, 1, 1), grid=grid)
    values = gain_map(figure.axes[3]).get_array()
    assert isinstance(values, np.ma.MaskedArray)
    assert values.mask.all()
    drawn_size(figure)


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
    maxima = [extent(text) for axes in figure.axes for text in axes.texts if text.get_text().startswith("max ")]
    assert len(maxima) == len(captions) - 1, "one with each map"
    for row in (captions, titles, maxima):
        assert all(box.x0 > 0 for box in row)
        assert all(box.x1 < width for box in row)
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
    grid = GlimpseGrid(height=32, width=32, glimpse_size=8, stride=4)
    figure = made_up_rollout(range(49), grid=grid)
    titles = [axes.get_title() for axes in figure.axes[1:9]]
    assert titles == [f"t = {look}" for look in (0, 7, 14, 21, 27, 34, 41, 48)]
    assert not figure.axes[9].get_title()
    last = gain_map(figure.axes[8]).get_array()
    assert isinstance(last, np.ma.MaskedArray)
    assert last.mask.sum() == 48
    np.testing.assert_array_equal(figure.axes[9 + 8].images[0].get_array(), figure.axes[0].images[0].get_array())


@pytest.mark.parametrize("looks", [3, 12])
def test_the_scene_as_it_was_imagined_is_drawn_around_what_was_seen_with_its_uncertainty_on_one_scale(
    looks: int,
) -> None:
    grid = GlimpseGrid(height=20, width=16, glimpse_size=8, stride=4)
    generator = torch.Generator().manual_seed(2)
    image = torch.randint(0, 256, (3, grid.height, grid.width), generator=generator).to(torch.uint8)
    imagined = torch.randint(0, 256, (looks, 3, grid.height, grid.width), generator=generator).to(torch.uint8)
    uncertainty = 1.0 + torch.rand(looks, grid.rows, grid.cols, generator=generator)
    locations = grid.locations()[torch.arange(looks) % grid.num_locations]
    figure = rollout_figure(
        image,
        locations=locations,
        gains=torch.zeros(looks, grid.rows, grid.cols),
        probabilities=torch.full((looks, 2), 0.5),
        grid=grid,
        classes=("ring", "bar"),
        imagined=imagined,
        uncertainty=uncertainty,
    )
    shown = shown_looks(looks)
    rows = np.array(figure.axes[: 5 * (len(shown) + 1)], dtype=object).reshape(5, len(shown) + 1)
    assert [axes.texts[0].get_text() for axes in rows[1:, 0]] == [
        "glimpses\nso far",
        "imagined\naround them",
        "uncertainty",
        "label\nprobability",
    ]
    seen = np.zeros((grid.height, grid.width), dtype=bool)
    for look in range(looks):
        row, col = locations[look].tolist()
        seen[row : row + 8, col : col + 8] = True
        if look not in shown:
            continue
        column = 1 + shown.index(look)
        drawn = rows[2, column].images[0].get_array()
        np.testing.assert_allclose(drawn[seen], image.movedim(0, -1).numpy()[seen] / 255)
        np.testing.assert_allclose(drawn[~seen], imagined[look].movedim(0, -1).numpy()[~seen] / 255)
        mesh = gain_map(rows[3, column])
        np.testing.assert_allclose(np.asarray(mesh.get_array()), uncertainty[look].numpy())
        assert mesh.norm.vmin == pytest.approx(float(uncertainty.min()))
        assert mesh.norm.vmax == pytest.approx(float(uncertainty.max()))
        assert rows[3, column].texts[0].get_text() == f"mean {float(uncertainty[look].mean()):.2g} nats"
    (scale,) = (axes for axes in figure.axes if axes.get_ylabel())
    assert scale.get_ylabel() == "entropy, nats"
    drawn_size(figure)
    means = [extent(axes.texts[0]) for axes in rows[3, 1:]]
    assert all(left.x1 + 2 < right.x0 for left, right in pairwise(means))
