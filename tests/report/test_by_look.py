"""Figures of accuracy by look: that they and their sentences show what was measured."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

from infogaze.evaluation.estimates import Estimate, accuracy_over_runs, lead_over_runs
from infogaze.evaluation.judged import Judged
from infogaze.methods.registry import METHODS
from infogaze.plots.style import LINE_STYLES
from infogaze.report.by_look import by_attention, by_common_judge, by_flows, by_look
from infogaze.report.drawing import Missing, Rows
from infogaze.report.gather import Chapter, Group, gather
from infogaze.report.panels import spread_labels
from tests.support.evaluations import COUNTS, LOOKS, SCENES, MadeUp, one_chapter, write_run
from tests.support.figures import heights, levels, line, only, words


def column(rows: Rows, measure: str, method: str) -> list[tuple[float, float, float, int, str]]:
    """Value, interval and what is behind it, of one curve of a CSV."""
    found = [row for row in rows[1:] if row[0] == measure and row[1] == method and row[3] != ""]
    return [(float(row[4]), float(row[5]), float(row[6]), int(row[7]), str(row[8])) for row in found]


def parts(estimate: Estimate) -> list[torch.Tensor]:
    return [estimate.value, estimate.low, estimate.high]


def correct_by_run(group: Group) -> list[torch.Tensor]:
    return [run.summary.correct for run in group.runs]


MANY = (20, 55, 55, 55, 55, 55, 55)
FEW = (20, 30, 30, 30, 30, 30, 30)
SAME = (20, 40, 40, 40, 40, 40, 40)


def test_accuracy_by_look_plots_the_mean_over_seeds_its_interval_and_the_bounds(chapter: Chapter) -> None:
    drawing = only(by_look(chapter))
    plain, balanced = drawing.figure.axes
    assert (plain.get_xlabel(), plain.get_ylabel()) == ("look t", "accuracy, %")
    assert (balanced.get_xlabel(), balanced.get_ylabel()) == ("look t", "balanced accuracy, %")
    for group in chapter.lookers:
        # Seed 1 has one scene more than seed 0.
        extra = 0.5 if len(group.runs) == 2 else 0.0
        expected = 100 * (np.array(COUNTS[group.method]) + extra) / SCENES
        np.testing.assert_allclose(heights(plain, group.name), expected)
        np.testing.assert_allclose(
            heights(balanced, group.name), 100 * torch.stack([run.summary.balanced for run in group.runs]).mean(0)
        )
    ours = accuracy_over_runs(correct_by_run(chapter.groups[0]))
    band = plain.collections[-1]  # ours is drawn last
    np.testing.assert_allclose(np.asarray(band.get_facecolor())[0, :3], to_rgb(LINE_STYLES["infogaze"].colour))
    outline = np.asarray(band.get_paths()[0].vertices, float)[:, 1]
    np.testing.assert_allclose(
        (outline.min(), outline.max()), (100 * float(ours.low.min()), 100 * float(ours.high.max()))
    )
    assert levels(plain) == {95.0, round(100 / 3, 6)}, "the CNN, 57 of 60, and chance"


def test_the_oracle_is_marked_wherever_it_stands_and_ours_is_the_most_prominent(chapter: Chapter) -> None:
    drawing = only(by_look(chapter))
    axes = drawing.figure.axes[0]
    assert line(axes, "oracle (not deployable)").get_linestyle() == "--"
    assert "oracle\n(not deployable)" in words(drawing.figure)
    widths = {line.get_label(): line.get_linewidth() for line in axes.lines}
    assert max(widths, key=widths.__getitem__) == "infogaze"
    assert any("oracle (not deployable)" in str(row[0]) for row in drawing.table)
    drawn = [(style.colour, style.marker) for style in LINE_STYLES.values()]
    assert len({colour for colour, _ in drawn}) == len({marker for _, marker in drawn}) == len(LINE_STYLES)
    assert set(LINE_STYLES) == set(METHODS)


def test_the_figure_states_how_many_seeds_are_behind_it_and_what_the_interval_is_over(chapter: Chapter) -> None:
    foot = only(by_look(chapter)).figure.get_supxlabel().replace("\n", " ")
    assert (
        "infogaze, paper-corrected, gaussian-corrected, ram, random: mean of 2 seeds, 95 % interval over seeds" in foot
    )
    assert "oracle (not deployable): 1 seed, 95 % interval over 60 scenes" in foot


def test_the_csv_holds_what_is_plotted(chapter: Chapter) -> None:
    drawing = only(by_look(chapter))
    head = drawing.numbers[0]
    assert head == ("measure", "method", "preset", "look t", "value", "low", "high", "n", "interval over")
    estimate = accuracy_over_runs(correct_by_run(chapter.groups[0]))
    found = column(drawing.numbers, "accuracy, %", "infogaze")
    np.testing.assert_allclose([row[:3] for row in found], 100 * torch.stack(parts(estimate), 1))
    assert {row[3:] for row in found} == {(2, "seeds")}
    assert {row[3:] for row in column(drawing.numbers, "accuracy, %", "oracle")} == {(60, "scenes")}


def test_names_at_the_ends_of_curves_do_not_overlap(chapter: Chapter) -> None:
    figure = only(by_look(chapter)).figure
    figure.draw_without_rendering()
    for axes in figure.axes:
        names = [text for text in axes.texts if re.match(r"[\d.]+ \w", text.get_text())]
        assert len(names) == len(chapter.lookers)
        boxes = sorted((text.get_window_extent().y0, text.get_window_extent().y1) for text in names)
        for (_, top), (bottom, _) in pairwise(boxes):
            assert bottom > top - 1.5


def test_labels_are_spread_no_further_than_need_be() -> None:
    assert spread_labels([1.0, 5.0, 9.0], [1.0, 1.0, 1.0], low=0.0, high=10.0) == [1.0, 5.0, 9.0]
    np.testing.assert_allclose(spread_labels([4.0, 4.0, 4.0], [2.0, 2.0, 2.0], low=0.0, high=10.0), [2.0, 4.0, 6.0])
    np.testing.assert_allclose(spread_labels([9.5, 9.8], [1.0, 3.0], low=0.0, high=10.0), [8.0, 10.0])


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (MANY, FEW, "After 2 looks infogaze is 41.7 points ahead of the best baseline, random (95 % interval "),
        (FEW, MANY, "After 2 looks infogaze is 41.7 points behind the best baseline, random (95 % interval "),
        (SAME, SAME, "After 2 looks infogaze cannot be told apart from the best baseline, random: 0.0 points ahead"),
    ],
)
def test_the_sentence_is_ahead_behind_or_neither_as_the_numbers_are(
    ours: tuple[int, ...], theirs: tuple[int, ...], expected: str, tmp_path: Path
) -> None:
    runs = [MadeUp("infogaze", seed, ours, parts=()) for seed in (0, 1)]
    runs += [MadeUp("random", seed, theirs, parts=()) for seed in (0, 1)] + [MadeUp("ram", 0, (10,) * LOOKS, parts=())]
    chapter = one_chapter(tmp_path, *runs)
    sentence = only(by_look(chapter)).sentence
    assert sentence.startswith(expected)
    assert "2 seeds each" in sentence
    assert sentence.count("After 7 looks") == 1
    ahead = lead_over_runs(correct_by_run(chapter.groups[0]), correct_by_run(chapter.groups[2]))
    assert f"95 % interval {100 * float(ahead.low[1]):.1f} to {100 * float(ahead.high[1]):.1f}" in sentence


def test_with_one_seed_figure_and_sentence_state_that_the_interval_is_over_scenes(tmp_path: Path) -> None:
    chapter = one_chapter(tmp_path, MadeUp("infogaze", 0, MANY, parts=()), MadeUp("random", 0, FEW, parts=()))
    drawing = only(by_look(chapter))
    assert drawing.figure.get_supxlabel() == "Each curve: 1 seed, 95 % interval over 60 scenes."
    assert "1 seed each, interval over 60 scenes" in drawing.sentence
    assert "ahead of the baseline random" in drawing.sentence
    balanced = drawing.figure.axes[1]
    np.testing.assert_allclose(heights(balanced, "infogaze"), 100 * chapter.groups[0].runs[0].summary.balanced)


def test_a_lead_takes_as_many_seeds_from_either_side(tmp_path: Path) -> None:
    runs = [MadeUp("infogaze", seed, MANY, parts=()) for seed in (0, 1, 2)] + [
        MadeUp("random", s, FEW, parts=()) for s in (0, 1)
    ]
    assert "2 seeds each" in only(by_look(one_chapter(tmp_path, *runs))).sentence


def test_presets_are_never_mixed(tmp_path: Path) -> None:
    write_run(tmp_path, MadeUp("infogaze", 0, MANY, parts=()), preset="large")
    write_run(tmp_path, MadeUp("infogaze", 0, FEW, parts=()))
    write_run(tmp_path, MadeUp("random", 0, SAME, parts=()))
    (chapter,) = gather([tmp_path])
    drawing = only(by_look(chapter))
    names = {str(line.get_label()) for line in drawing.figure.axes[0].lines}
    assert {"infogaze (large)", "infogaze (small)", "random (small)"} <= names
    assert "infogaze (small) is 16.7 points behind the baseline random (small)" in drawing.sentence
    assert "infogaze (large) has accuracy 91.7 % (81.9 to 96.4); there is no baseline" in drawing.sentence
    faces = [
        line(drawing.figure.axes[0], f"infogaze ({preset})").get_markerfacecolor() for preset in ("large", "small")
    ]
    assert faces[0] != faces[1]


def test_the_common_judge_shows_the_predictions_of_the_judge(chapter: Chapter) -> None:
    drawing = only(by_common_judge(chapter))
    (axes,) = drawing.figure.axes
    for group in chapter.lookers:
        correct = [run.read(Judged).predictions == run.summary.labels[:, None] for run in group.runs]
        np.testing.assert_allclose(heights(axes, group.name), 100 * accuracy_over_runs(correct).value)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("look t", "accuracy, %")
    assert "best baseline, random" in drawing.sentence


def test_flows_are_compared_with_the_gaussian_alone(chapter: Chapter) -> None:
    drawing = only(by_flows(chapter))
    names = {
        str(line.get_label()) for line in drawing.figure.axes[0].lines if not str(line.get_label()).startswith("_")
    }
    assert names == {"paper-corrected", "gaussian-corrected"}
    assert drawing.sentence.startswith(
        "After 2 looks paper-corrected is 8.3 points ahead of gaussian-corrected (95 % interval"
    )


def test_flows_are_compared_with_and_without_the_correction_where_both_were_trained(tmp_path: Path) -> None:
    counts = (20, 31, 36, 40, 43, 45, 46), (20, 25, 30, 34, 37, 39, 40)
    papers = [MadeUp("paper", counts=counts[0], parts=()), MadeUp("gaussian", counts=counts[1], parts=())]
    drawing = only(by_flows(one_chapter(tmp_path / "papers", *papers)))
    assert drawing.sentence.startswith("After 2 looks paper is 10.0 points ahead of gaussian (95 % interval")
    corrected = [MadeUp("paper-corrected", parts=()), MadeUp("gaussian-corrected", parts=())]
    drawing = only(by_flows(one_chapter(tmp_path / "all", MadeUp("infogaze", parts=()), *corrected, *papers)))
    assert "paper-corrected is 8.3 points ahead of gaussian-corrected (" in drawing.sentence
    assert "paper is 10.0 points ahead of gaussian (" in drawing.sentence
    missing = by_flows(one_chapter(tmp_path / "half", papers[0]))
    assert isinstance(missing, Missing)
    assert missing.why == "no run of gaussian"
    ours = by_flows(one_chapter(tmp_path / "ours", MadeUp("infogaze", parts=()), corrected[1]))
    assert isinstance(ours, Missing), "without flows there is nothing to compare"


def test_self_attention_is_compared_in_the_papers_system(tmp_path: Path) -> None:
    runs = [
        MadeUp("infogaze", parts=()),
        MadeUp("paper", counts=MANY, parts=()),
        MadeUp("attention", counts=FEW, parts=()),
    ]
    drawing = only(by_attention(one_chapter(tmp_path, *runs)))
    assert {row[1] for row in drawing.numbers[1:]} == {"paper", "attention", "chance"}
    assert drawing.sentence.startswith("After 2 looks paper is 41.7 points ahead of attention (95 % interval")
