"""Figures of pictures: scenes, rollouts, confusion, samples of z."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes

from infogaze.evaluation.imagined import ImaginedScenes
from infogaze.evaluation.latents import Latents
from infogaze.evaluation.showcase import Showcase
from infogaze.report.confusion import by_confusion
from infogaze.report.drawing import Drawing, Drawn, Missing
from infogaze.report.gather import Chapter
from infogaze.report.latents import by_latents
from infogaze.report.scenes import chosen, one_scene, rollouts
from tests.support.evaluations import CLASSES, GRID, LOOKS, MadeUp, one_chapter


def drawings(drawn: Drawn) -> tuple[Drawing, ...]:
    assert not isinstance(drawn, Missing), drawn
    return drawn


def pixels(axes: Axes) -> np.ndarray:
    values = axes.images[0].get_array()
    assert values is not None
    return np.asarray(values)


def test_one_scene_shows_of_each_method_only_what_it_looked_at_and_its_predictions(chapter: Chapter) -> None:
    (drawing,) = drawings(one_scene(chapter))
    cells = np.array(drawing.figure.axes, dtype=object).reshape(len(chapter.lookers), LOOKS + 1)
    scene = pixels(cells[0, 0])
    assert cells[0, 0].get_title() == "bar", "scene 4 is of class 1"
    assert [axes.get_title() for axes in cells[0, 1:]] == [f"t = {look}" for look in range(LOOKS)]
    for row, group in zip(cells, chapter.lookers, strict=True):
        seen = np.zeros((GRID.height, GRID.width), dtype=bool)
        for axes, (top, left) in zip(row[1:], group.runs[0].summary.locations[4].tolist(), strict=True):
            seen[top : top + GRID.glimpse_size, left : left + GRID.glimpse_size] = True
            np.testing.assert_allclose(pixels(axes)[seen], scene[seen])
            if not seen.all():
                assert np.unique(pixels(axes)[~seen]).size == 1, "one grey for all that was not looked at"
            assert axes.get_xlabel() == "bar ✓"
    assert 'On test scene 4, "bar", 6 of 6 methods are correct after 7 looks' in drawing.sentence
    assert cells[-1, 0].texts[0].get_text() == "oracle\n(not deployable)"
    assert len(drawing.numbers) == 1 + 6 * LOOKS


def test_rollouts_are_of_scenes_picked_by_rule_successes_first(chapter: Chapter) -> None:
    drawn = drawings(rollouts(chapter))
    scenes = [drawing.sentence.split(",")[0] for drawing in drawn]
    assert scenes == [f"Test scene {scene}" for scene in (0, 1, 58, 59)]
    assert drawn[0].note.startswith("Picked by rule, not by hand: ")
    assert "Seed 0, 20 contents imagined of each location" in drawn[0].note
    assert "is correct from the first look on" in drawn[0].sentence
    assert "and is never correct" in drawn[-1].sentence
    titles = [axes.get_title() for axes in drawn[0].figure.axes]
    assert titles[: LOOKS + 1] == ["scene: ring", *(f"t = {look}" for look in range(LOOKS))]
    assert drawn[0].numbers[0][-1] == "probability, %"


def test_rollouts_have_the_imagined_scenes_where_these_were_measured(
    chapter: Chapter, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with_rows, without = (
        drawings(rollouts(found))[0]
        for found in (chapter, one_chapter(tmp_path_factory.mktemp("plain"), MadeUp("infogaze", parts=(Showcase,))))
    )
    measured = chapter.groups[0].runs[0].read(ImaginedScenes)
    index = measured.scenes.tolist().index(0)
    cells = np.array(with_rows.figure.axes[: 5 * (LOOKS + 1)], dtype=object).reshape(5, LOOKS + 1)
    looked = chapter.groups[0].runs[0].summary.locations[0]
    seen = np.zeros((GRID.height, GRID.width), dtype=bool)
    for look, (top, left) in enumerate(looked.tolist()):
        seen[top : top + GRID.glimpse_size, left : left + GRID.glimpse_size] = True
        expected = measured.pictures[index, look, 0].numpy()[~seen] / 255
        np.testing.assert_allclose(pixels(cells[2, 1 + look])[~seen][:, 0], expected)
    assert "entropy of what a location may hold" in with_rows.note
    assert "entropy" not in without.note
    assert not [axes for axes in without.figure.axes if axes.texts and "imagined" in axes.texts[0].get_text()]


def test_no_more_than_three_successes_and_three_failures_are_shown_and_common_scenes_only_for_want_of_others() -> None:
    correct = torch.tensor([True, False, *[True, False] * 5])
    assert chosen(correct, common=2) == [2, 4, 6, 3, 5, 7]
    assert chosen(correct[:2], common=2) == [0, 1]
    assert chosen(torch.ones(5, dtype=torch.bool), common=1) == [1, 2, 3]


def test_confusion_shows_shares_of_each_true_class_over_the_mean_images(chapter: Chapter) -> None:
    (drawing,) = drawings(by_confusion(chapter))
    matrices = [axes for axes in drawing.figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in matrices] == [group.name for group in chapter.lookers]
    for axes, group in zip(matrices, chapter.lookers, strict=True):
        known = np.zeros((CLASSES, CLASSES))
        for run in group.runs:
            np.add.at(known, (run.summary.labels.numpy(), run.summary.predictions[:, -1].numpy()), 1)
        np.testing.assert_allclose(pixels(axes), 100 * known / known.sum(1, keepdims=True), rtol=1e-6)
    means = [axes for axes in drawing.figure.axes if axes.get_xlabel() in {"ring", "bar", "dot"}]
    assert [pixels(axes)[0, 0, 0] for axes in means] == pytest.approx([0, 60 / 255, 120 / 255])
    # Of 60 scenes, 52 and 53 are correct; the predictions of the others are one class further. Wrong are 6 of 40 of the last class.
    assert drawing.sentence.startswith("After 7 looks infogaze most often ")
    assert '"ring" for "dot" (15.0 %' in drawing.sentence
    assert "seeds" in drawing.figure.get_supxlabel()


def test_samples_of_z_are_projected_alike_each_time_with_the_glimpses_above(chapter: Chapter) -> None:
    (drawing,) = drawings(by_latents(chapter))
    (again,) = drawings(by_latents(chapter))
    assert drawing.numbers == again.numbers
    cells = np.array(drawing.figure.axes, dtype=object).reshape(3, LOOKS + 1)
    assert [axes.get_title() for axes in cells[0]] == ["scene", *(f"t = {look}" for look in range(LOOKS))]
    assert all(len(axes.collections[0].get_offsets()) == 12 for axes in cells[1, 1:])
    assert "with flows" in cells[2, 0].texts[0].get_text()
    assert "without flows" in cells[1, 0].texts[0].get_text()
    assert "On test scene 4" in drawing.sentence


@pytest.mark.parametrize(("method", "lacking"), [("paper-corrected", "gaussian-corrected"), ("paper", "gaussian")])
def test_samples_of_z_need_both_methods(method: str, lacking: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    alone = by_latents(one_chapter(tmp_path_factory.mktemp("alone"), MadeUp(method)))
    assert isinstance(alone, Missing)
    assert alone.why == f"no run of {lacking}"


def test_the_note_on_samples_of_z_speaks_of_glimpses_only_where_they_are_drawn(
    chapter: Chapter, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spoken = "; those so far are drawn on top"
    (drawing,) = drawings(by_latents(chapter))
    assert spoken in drawing.note
    hidden = [MadeUp(name, parts=(Latents,)) for name in ("gaussian", "paper")]
    (drawing,) = drawings(by_latents(one_chapter(tmp_path_factory.mktemp("hidden"), *hidden)))
    assert len(drawing.figure.axes) == 2 * (LOOKS + 1), "no row of glimpses"
    assert spoken not in drawing.note
    assert "Both took in the same glimpses" in drawing.note


def test_samples_of_z_compare_the_papers_own_pair(tmp_path_factory: pytest.TempPathFactory) -> None:
    (drawing,) = drawings(by_latents(one_chapter(tmp_path_factory.mktemp("pair"), MadeUp("gaussian"), MadeUp("paper"))))
    assert [row[0] for row in drawing.table[1:]] == ["without flows", "with flows"]
    assert "paper" in drawing.figure.get_supxlabel()
