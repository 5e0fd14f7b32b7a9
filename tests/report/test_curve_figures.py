"""Figures of curves: what they plot is what was measured, with names, units, intervals and their n."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from infogaze.evaluation.accuracy import Estimate, accuracy_over_runs, lead_over_runs, mean_over_runs
from infogaze.evaluation.area import accuracy_by_area, observed_share
from infogaze.evaluation.honesty import binned, rank_correlation
from infogaze.evaluation.records import Disturbed, Judged, ManyLooks, Records, Samples, read, write
from infogaze.methods import METHODS
from infogaze.report.area import by_area
from infogaze.report.by_look import by_attention, by_common_judge, by_flows, by_look
from infogaze.report.calibration import by_calibration
from infogaze.report.drawing import Drawing, Drawn, Missing, Rows
from infogaze.report.entropy import entropy_by_look
from infogaze.report.gather import Chapter, Group, gather
from infogaze.report.honesty import by_honesty
from infogaze.report.many_looks import by_many_looks
from infogaze.report.panels import spread
from infogaze.report.places import by_places
from infogaze.report.robustness import by_disturbance
from infogaze.report.samples import by_samples
from infogaze.report.style import HANDS
from tests.report.made_up import COUNTS, GRID, LOOKS, SCENES, MadeUp, one_chapter, write_run


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


def rights(group: Group) -> list[torch.Tensor]:
    return [run.summary.right for run in group.runs]


def column(rows: Rows, measure: str, method: str) -> list[tuple[float, float, float, int, str]]:
    """Value, interval and what is behind it, of one curve of a CSV."""
    found = [row for row in rows[1:] if row[0] == measure and row[1] == method and row[3] != ""]
    return [(float(row[4]), float(row[5]), float(row[6]), int(row[7]), str(row[8])) for row in found]


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
    ours = accuracy_over_runs(rights(chapter.groups[0]))
    band = plain.collections[-1]  # ours is drawn last
    np.testing.assert_allclose(np.asarray(band.get_facecolor())[0, :3], to_rgb(HANDS["infogaze"].colour))
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
    looks = [(hand.colour, hand.marker) for hand in HANDS.values()]
    assert len({colour for colour, _ in looks}) == len({marker for _, marker in looks}) == len(HANDS)
    assert set(HANDS) == set(METHODS)


def test_the_figure_says_how_many_seeds_are_behind_it_and_what_the_interval_is_over(chapter: Chapter) -> None:
    said = only(by_look(chapter)).figure.get_supxlabel().replace("\n", " ")
    assert "infogaze, gaussian, ram, random: mean of 2 seeds, 95 % interval over seeds" in said
    assert "oracle (not deployable): 1 seed, 95 % interval over 60 scenes" in said


def test_the_csv_holds_what_is_plotted(chapter: Chapter) -> None:
    drawing = only(by_look(chapter))
    head = drawing.numbers[0]
    assert head == ("measure", "method", "preset", "look t", "value", "low", "high", "n", "interval over")
    estimate = accuracy_over_runs(rights(chapter.groups[0]))
    found = column(drawing.numbers, "accuracy, %", "infogaze")
    np.testing.assert_allclose([row[:3] for row in found], 100 * torch.stack(parts(estimate), 1))
    assert {row[3:] for row in found} == {(2, "seeds")}
    assert {row[3:] for row in column(drawing.numbers, "accuracy, %", "oracle")} == {(60, "scenes")}


def parts(estimate: Estimate) -> list[torch.Tensor]:
    return [estimate.value, estimate.low, estimate.high]


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
    assert spread([1.0, 5.0, 9.0], [1.0, 1.0, 1.0], 0.0, 10.0) == [1.0, 5.0, 9.0]
    np.testing.assert_allclose(spread([4.0, 4.0, 4.0], [2.0, 2.0, 2.0], 0.0, 10.0), [2.0, 4.0, 6.0])
    np.testing.assert_allclose(spread([9.5, 9.8], [1.0, 3.0], 0.0, 10.0), [8.0, 10.0])


MANY = (20, 55, 55, 55, 55, 55, 55)
FEW = (20, 30, 30, 30, 30, 30, 30)
SAME = (20, 40, 40, 40, 40, 40, 40)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (MANY, FEW, "After 2 looks infogaze is 41.7 points ahead of the best baseline, random (95 % interval "),
        (FEW, MANY, "After 2 looks infogaze is 41.7 points behind the best baseline, random (95 % interval "),
        (SAME, SAME, "After 2 looks infogaze cannot be told apart from the best baseline, random: 0.0 points ahead"),
    ],
)
def test_the_sentence_says_ahead_behind_or_neither_as_the_numbers_do(
    ours: tuple[int, ...], theirs: tuple[int, ...], expected: str, tmp_path: Path
) -> None:
    runs = [MadeUp("infogaze", seed, ours, ()) for seed in (0, 1)]
    runs += [MadeUp("random", seed, theirs, ()) for seed in (0, 1)] + [MadeUp("ram", 0, (10,) * LOOKS, ())]
    chapter = one_chapter(tmp_path, *runs)
    sentence = only(by_look(chapter)).sentence
    assert sentence.startswith(expected)
    assert "2 seeds each" in sentence
    assert sentence.count("After 7 looks") == 1
    ahead = lead_over_runs(rights(chapter.groups[0]), rights(chapter.groups[2]))
    assert f"95 % interval {100 * float(ahead.low[1]):.1f} to {100 * float(ahead.high[1]):.1f}" in sentence


def test_with_one_seed_figure_and_sentence_say_that_the_interval_is_over_scenes(tmp_path: Path) -> None:
    chapter = one_chapter(tmp_path, MadeUp("infogaze", 0, MANY, ()), MadeUp("random", 0, FEW, ()))
    drawing = only(by_look(chapter))
    assert drawing.figure.get_supxlabel() == "Each curve: 1 seed, 95 % interval over 60 scenes."
    assert "1 seed each, interval over 60 scenes" in drawing.sentence
    assert "ahead of the baseline random" in drawing.sentence
    balanced = drawing.figure.axes[1]
    np.testing.assert_allclose(heights(balanced, "infogaze"), 100 * chapter.groups[0].runs[0].summary.balanced)


def test_a_lead_takes_as_many_seeds_from_either_side(tmp_path: Path) -> None:
    runs = [MadeUp("infogaze", seed, MANY, ()) for seed in (0, 1, 2)] + [MadeUp("random", s, FEW, ()) for s in (0, 1)]
    assert "2 seeds each" in only(by_look(one_chapter(tmp_path, *runs))).sentence


def test_presets_are_never_mixed(tmp_path: Path) -> None:
    write_run(tmp_path, MadeUp("infogaze", 0, MANY, ()), preset="large")
    write_run(tmp_path, MadeUp("infogaze", 0, FEW, ()))
    write_run(tmp_path, MadeUp("random", 0, SAME, ()))
    (chapter,) = gather([tmp_path])
    drawing = only(by_look(chapter))
    names = {str(line.get_label()) for line in drawing.figure.axes[0].lines}
    assert {"infogaze (large)", "infogaze (small)", "random (small)"} <= names
    assert "infogaze (small) is 16.7 points behind the baseline random (small)" in drawing.sentence
    assert (
        "infogaze (large) names 91.7 % (81.9 to 96.4) right; there is no baseline to compare with" in drawing.sentence
    )
    faces = [
        line(drawing.figure.axes[0], f"infogaze ({preset})").get_markerfacecolor() for preset in ("large", "small")
    ]
    assert faces[0] != faces[1]


def test_the_common_judge_sees_the_judged_labels(chapter: Chapter) -> None:
    drawing = only(by_common_judge(chapter))
    (axes,) = drawing.figure.axes
    for group in chapter.lookers:
        right = [run.read(Judged).named == run.summary.labels[:, None] for run in group.runs]
        np.testing.assert_allclose(heights(axes, group.name), 100 * accuracy_over_runs(right).value)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("look t", "accuracy, %")
    assert "best baseline, random" in drawing.sentence


def test_flows_are_compared_with_the_gaussian_alone(chapter: Chapter) -> None:
    drawing = only(by_flows(chapter))
    names = {
        str(line.get_label()) for line in drawing.figure.axes[0].lines if not str(line.get_label()).startswith("_")
    }
    assert names == {"infogaze", "gaussian"}
    assert drawing.sentence.startswith("After 2 looks infogaze is 10.0 points ahead of gaussian (95 % interval")


def test_flows_are_compared_without_hindsight_too_where_both_were_trained(tmp_path: Path) -> None:
    counts = (20, 31, 36, 40, 43, 45, 46), (20, 25, 30, 34, 37, 39, 40)
    plain = [
        MadeUp("no-hindsight", counts=counts[0], parts=()),
        MadeUp("gaussian-no-hindsight", counts=counts[1], parts=()),
    ]
    drawing = only(by_flows(one_chapter(tmp_path / "plain", *plain)))
    assert drawing.sentence.startswith(
        "After 2 looks no-hindsight is 10.0 points ahead of gaussian-no-hindsight (95 % interval"
    )
    ours = [MadeUp("infogaze", parts=()), MadeUp("gaussian", parts=())]
    drawing = only(by_flows(one_chapter(tmp_path / "all", *ours, *plain)))
    assert "infogaze is 10.0 points ahead of gaussian (" in drawing.sentence
    assert "no-hindsight is 10.0 points ahead of gaussian-no-hindsight (" in drawing.sentence
    missing = by_flows(one_chapter(tmp_path / "half", plain[0]))
    assert isinstance(missing, Missing)
    assert missing.why == "no run of gaussian and infogaze"


def test_a_method_without_a_run_is_named_with_the_command_that_would_train_it(chapter: Chapter) -> None:
    missing = by_attention(chapter)
    assert isinstance(missing, Missing)
    assert missing.why == "no run of attention"
    assert "`infogaze train PRESET --method attention --out RUN`" in missing.remedy


@pytest.mark.parametrize("figure", [by_common_judge, by_many_looks, by_samples, by_disturbance])
def test_what_was_not_measured_is_missing_with_the_command_that_measures(
    figure: Callable[[Chapter], Drawn], tmp_path: Path
) -> None:
    missing = figure(one_chapter(tmp_path, MadeUp("infogaze", parts=())))
    assert isinstance(missing, Missing)
    assert "measured" in missing.why
    assert missing.remedy.startswith("`infogaze evaluate RUN")
    assert ("--judge CNN" in missing.remedy) == (figure is by_common_judge)


def test_a_figure_says_for_which_methods_it_was_not_measured(tmp_path: Path) -> None:
    chapter = one_chapter(tmp_path, MadeUp("infogaze", parts=(Judged,)), MadeUp("random", parts=()))
    assert only(by_common_judge(chapter)).note.endswith("Not measured for random.")


def test_measurements_that_differ_are_left_out_with_both_runs_named(tmp_path: Path) -> None:
    chapter = one_chapter(tmp_path, MadeUp("infogaze", parts=(ManyLooks,)), MadeUp("random", parts=(ManyLooks,)))
    first, second = (group.runs[0] for group in chapter.groups)
    many = second.read(ManyLooks)
    write(second.folder / "evaluation", ManyLooks(many.labels[:9], many.named[:9]))
    missing = by_many_looks(chapter)
    assert isinstance(missing, Missing)
    assert missing.why == f"{second.folder} and {first.folder} differ in scenes or looks"


def test_accuracy_against_area_is_that_of_the_bins(chapter: Chapter) -> None:
    drawing = only(by_area(chapter))
    (axes,) = drawing.figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("area observed, %", "accuracy, %")
    drawn = line(axes, "infogaze")
    x = np.asarray(drawn.get_xdata(), float)
    assert x[0] == 25.0, "one glimpse of 8x8 in 16x16"
    edges = torch.tensor(
        [0.0, *(0.25 * (1.125 + 0.5 * step) for step in range(12) if 0.25 * (1.125 + 0.5 * step) < 1), 1.0]
    )
    values = []
    for run in chapter.groups[0].runs:
        values.append(accuracy_by_area(run.summary.right, observed_share(run.summary.locations, GRID), edges)[0])
    known = 100 * torch.stack(values).mean(0)
    np.testing.assert_allclose(np.asarray(drawn.get_ydata(), float), known[~known.isnan()])
    assert re.search(
        r"With about 25 % of the area observed infogaze names 34.2 % .* the best baseline, ", drawing.sentence
    )


def test_with_one_seed_each_point_against_area_has_the_number_of_looks_in_its_own_bin(tmp_path: Path) -> None:
    chapter = one_chapter(tmp_path, MadeUp("infogaze", parts=()))
    drawing = only(by_area(chapter))
    share = observed_share(chapter.groups[0].runs[0].summary.locations, GRID)
    found = {float(row[3]): int(row[7]) for row in drawing.numbers if row[1] == "infogaze"}
    assert found[25.0] == int((share == 0.25).sum()) == SCENES, "only the first look of each scene shows one glimpse"
    assert sum(found.values()) == share.numel()
    least, most = min(found.values()), max(found.values())
    assert least < most
    assert drawing.table[1][-1] == f"{least} to {most} looks"
    assert drawing.figure.get_supxlabel() == "Each curve: 1 seed, 95 % interval over the looks at each point."


def test_entropy_is_the_mean_over_scenes_in_nats_under_that_of_even_labels(chapter: Chapter) -> None:
    drawing = only(entropy_by_look(chapter))
    (axes,) = drawing.figure.axes
    assert axes.get_ylabel() == "entropy of the class distribution, nats"
    mean = torch.stack([run.summary.entropy.double().mean(0) for run in chapter.groups[0].runs]).mean(0)
    np.testing.assert_allclose(heights(axes, "infogaze"), mean)
    assert levels(axes) == {round(math.log(3), 6)}
    assert f"from {float(mean[0]):.2f} nats after the first look to {float(mean[-1]):.2f} nats" in drawing.sentence


def test_many_looks_mark_the_peak_and_the_budget_of_training(chapter: Chapter) -> None:
    drawing = only(by_many_looks(chapter))
    (axes,) = drawing.figure.axes
    assert len(heights(axes, "infogaze")) == 9
    (peak,) = np.asarray(line(axes, "peak of infogaze").get_xdata(), float)
    assert peak == 7 == heights(axes, "infogaze").argmax()
    assert any(list(line.get_xdata()) == [LOOKS - 1, LOOKS - 1] for line in axes.lines)  # type: ignore[arg-type]
    assert drawing.sentence.startswith("infogaze is highest after 8 looks, with 90.8 %")
    assert "3.3 points above its 7 looks of training; after all 9 looks it is 5.0 points lower" in drawing.sentence


def test_calibration_plots_the_errors_and_the_diagram_of_all_seeds(chapter: Chapter) -> None:
    drawing = only(by_calibration(chapter))
    diagram, error, likelihood = drawing.figure.axes
    group = chapter.groups[0]
    ece = mean_over_runs([run.summary.calibration_error for run in group.runs]).value
    np.testing.assert_allclose(heights(error, "infogaze"), 100 * ece)
    nll = torch.stack([run.summary.surprise.double().mean(0) for run in group.runs]).mean(0)
    np.testing.assert_allclose(heights(likelihood, "infogaze"), nll)
    assert (error.get_ylabel(), likelihood.get_ylabel()) == (
        "expected calibration error, %",
        "negative log-likelihood, nats",
    )
    pooled = [run.summary.reliability for run in group.runs]
    share = sum(part.share.nansum() for part in pooled)
    assert float(share) == pytest.approx(2.0)
    right = np.nansum([part.share * part.accuracy.nan_to_num() for part in pooled]) / 2
    assert right == pytest.approx((COUNTS["infogaze"][-1] + 0.5) / SCENES)
    assert diagram.get_ylabel() == "named right, %"
    assert f"its calibration error is {100 * float(ece[-1]):.1f} %" in drawing.sentence


def test_honesty_bins_what_methods_expected_and_got_with_the_interval_over_seeds(chapter: Chapter) -> None:
    drawing = only(by_honesty(chapter))
    axes, by_p = drawing.figure.axes
    assert "nats" in axes.get_xlabel()
    assert "nats" in axes.get_ylabel()
    runs = chapter.groups[0].runs
    wanted, came = (
        torch.stack([getattr(run.summary, name)[:, 1:] for run in runs]) for name in ("expected", "happened")
    )
    bins = binned(wanted, came)
    found = [row for row in drawing.numbers if row[:2] == ("gain that happened, nats", "infogaze")]
    for column, part in enumerate((bins.expected, bins.happened, bins.low, bins.high), start=3):
        np.testing.assert_allclose([float(row[column]) for row in found], part)
    assert {row[7:] for row in found} == {(2, "seeds")}
    each = [
        rank_correlation(run.summary.expected[:, 1:].flatten(), run.summary.happened[:, 1:].flatten()) for run in runs
    ]
    assert f"the rank correlation between the two is {sum(each) / 2:.2f} (95 % interval" in drawing.sentence
    assert f"brings {float(came.mean()):.2f} nats where {float(wanted.mean()):.2f} were expected" in drawing.sentence
    assert list(np.asarray(line(by_p, "infogaze").get_xdata(), float)) == [1, 5, 20]
    assert "its bar is the 95 % interval of the mean over seeds." in drawing.note
    assert "Bars: 95 % interval of the mean over seeds." in drawing.figure.get_supxlabel().replace("\n", " ")


def test_honesty_is_asked_of_every_method_that_expects_something_and_not_of_the_oracle_which_knows(
    tmp_path: Path,
) -> None:
    methods = ("infogaze", "discriminative", "random", "ram", "oracle")
    drawing = only(by_honesty(one_chapter(tmp_path, *(MadeUp(name, parts=()) for name in methods))))
    legend = drawing.figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["infogaze", "discriminative"]
    assert {row[1] for row in drawing.numbers[1:]} == {"infogaze", "discriminative"}


def test_with_one_seed_the_bars_of_honesty_are_over_scenes_and_the_note_says_so(tmp_path: Path) -> None:
    runs = [MadeUp("infogaze", parts=()), MadeUp("gaussian", 0, parts=()), MadeUp("gaussian", 1, parts=())]
    mixed = only(by_honesty(one_chapter(tmp_path / "mixed", *runs)))
    alone = only(by_honesty(one_chapter(tmp_path / "alone", *runs[:1])))
    assert "mean over seeds, with one seed over scenes, the looks of one together." in mixed.note
    assert "mean over scenes, the looks of one together." in alone.note
    bars = [row for row in alone.numbers if row[0] == "gain that happened, nats"]
    assert {row[8] for row in bars} == {"scenes"}
    assert all(int(row[7]) <= 36 for row in bars), (
        "a tenth of 60 scenes with 6 looks each, some of them of the same scene"
    )


def test_without_a_policy_that_expects_something_honesty_is_missing(tmp_path: Path) -> None:
    missing = by_honesty(one_chapter(tmp_path, MadeUp("random", parts=()), MadeUp("oracle", parts=())))
    assert isinstance(missing, Missing)
    assert missing.why == "no run has maps of what it expects of a look"
    assert "`infogaze train PRESET --method infogaze --out RUN`" in missing.remedy


def test_what_p_buys_plots_accuracy_and_time(chapter: Chapter) -> None:
    drawing = only(by_samples(chapter))
    early, late, time = drawing.figure.axes
    assert (early.get_title("left"), late.get_title("left")) == ("after 2 looks", "after 7 looks")
    assert time.get_ylabel() == "time a scene, ms"
    assert time.get_yscale() == early.get_xscale() == "log"
    np.testing.assert_allclose(heights(time, "infogaze"), 1000 * np.array([0.8, 1.1, 2.0]) / 30, rtol=1e-3)
    samples = [run.read(Samples) for run in chapter.groups[0].runs]
    right = [(part.named == part.labels[:, None])[:, :, 1].double().mean(1) for part in samples]
    np.testing.assert_allclose(heights(early, "infogaze"), 100 * torch.stack(right).mean(0))
    assert drawing.sentence.startswith("infogaze with 20 imagined scenes instead of 1: ")
    assert "for 2.5 times the time" in drawing.sentence


def test_what_p_buys_counts_the_labels_named_where_half_precision_cannot_tell_them(tmp_path: Path) -> None:
    chapter = one_chapter(tmp_path, MadeUp("infogaze", parts=(Samples,)))
    run = chapter.groups[0].runs[0]
    samples = run.read(Samples)
    even = torch.full_like(samples.log_probabilities, 1 / 3).log()
    right = samples.labels[:, None].expand_as(samples.named)
    write(run.folder / "evaluation", replace(samples, log_probabilities=even, named=right))
    assert set(heights(only(by_samples(chapter)).figure.axes[0], "infogaze")) == {100.0}


def test_robustness_has_a_panel_for_each_disturbance_against_its_strength_and_by_look(chapter: Chapter) -> None:
    drawn = by_disturbance(chapter)
    assert not isinstance(drawn, Missing)
    by_strength, by_look = drawn
    panels = by_strength.figure.axes[:5]
    assert [axes.get_title("left") for axes in panels] == ["shift", "scale", "blur", "noise", "occlusion"]
    assert panels[0].get_xlabel() == "shift: pixels"
    disturbed = [run.read(Disturbed) for run in chapter.groups[0].runs]
    right = torch.stack([part.named == part.labels[:, None] for part in disturbed]).double().mean(3)  # [2, 5, 5, T]
    for kind, axes in enumerate(panels):
        np.testing.assert_allclose(heights(axes, "infogaze"), 100 * right[:, kind, :, -1].mean(0))
        np.testing.assert_allclose(
            np.asarray(line(axes, "infogaze").get_xdata(), float), disturbed[0].strengths[kind], atol=1e-3
        )
        np.testing.assert_allclose(heights(by_look.figure.axes[kind], "infogaze"), 100 * right[:, kind, -1].mean(0))
    assert "loses most to occlusion" in by_strength.sentence
    assert "least to shift" in by_strength.sentence
    assert "oracle (not deployable)" in words(by_strength.figure)
    names = [str(row[0]) for row in by_strength.table]
    assert [name.partition(", ")[2] for name in names if name.startswith("chance")] == [
        name.partition(", ")[2] for name in names if name.startswith("infogaze, ")
    ], "what the numbers are stands after a comma in every row"


def test_where_a_policy_looks_is_drawn_as_its_density(chapter: Chapter) -> None:
    drawn = by_places(chapter)
    assert not isinstance(drawn, Missing)
    maps, spreads = drawn
    names = [axes.get_ylabel() for axes in maps.figure.axes if axes.get_ylabel()]
    assert names[:5] == ["infogaze", "gaussian", "ram", "random", "oracle\n(not deployable)"]
    ram = maps.figure.axes[2 * LOOKS + 3].images[0].get_array()
    assert ram is not None
    assert float(ram[1, 0]) == 100.0, "all scenes look at the fourth place at t = 3"
    entropy, dependence = spreads.figure.axes
    np.testing.assert_allclose(heights(entropy, "ram"), 0.0, atol=1e-9)
    assert entropy.get_ylabel().endswith("nats")
    assert dependence.get_ylabel().endswith("nats")
    assert levels(entropy) == {round(math.log(9), 6)}


def test_what_is_said_of_places_is_of_looks_fixed_beforehand_not_of_the_one_that_depends_most(tmp_path: Path) -> None:
    (root, *_) = runs = [write_run(tmp_path, MadeUp("infogaze", seed, parts=())) for seed in (0, 1)]
    for folder in runs:
        found = read(folder / "evaluation", Records)
        found.locations[:, 3] = torch.stack(
            [0 * found.labels, GRID.stride * found.labels], 1
        )  # tells all about the label
        write(folder / "evaluation", found)
    (chapter,) = gather([root.parent])
    drawn = by_places(chapter)
    assert not isinstance(drawn, Missing)
    spreads = drawn[1]
    shared = heights(spreads.figure.axes[1], "infogaze")
    assert shared.argmax() == 3
    entropy = 100 * heights(spreads.figure.axes[0], "infogaze") / math.log(9)
    assert spreads.sentence == (
        f"The entropy of the places that infogaze looks at is {entropy[1]:.0f} % at t=1 and {entropy[6]:.0f} % at t=6 of the largest "
        f"there can be; place and label share {shared[1]:.2f} nats at t=1 and {shared[6]:.2f} nats at t=6."
    )


def test_a_dependence_that_may_be_chance_is_said_to_be_none_and_one_seed_to_be_one(tmp_path: Path) -> None:
    for seeds, said in (
        (
            (0, 1),
            "0.00 nats at t=1 (not to be told from none by these runs) and 0.00 nats at t=6 (not to be told from none",
        ),
        ((0,), "0.00 nats at t=1 and 0.00 nats at t=6 (1 seed)."),
    ):
        drawn = by_places(one_chapter(tmp_path / str(len(seeds)), *(MadeUp("ram", seed, parts=()) for seed in seeds)))
        assert not isinstance(drawn, Missing)
        assert said in drawn[1].sentence
