"""Figures of curves against area, look, P and severity: that they and their sentences show what was measured."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from infogaze.evaluation.area import accuracy_by_area, observed_share
from infogaze.evaluation.corrupted import Corrupted
from infogaze.evaluation.corruptions import CORRUPTIONS
from infogaze.evaluation.estimates import mean_over_runs
from infogaze.evaluation.sample_counts import SampleCounts
from infogaze.evaluation.store import write
from infogaze.evaluation.travelled import Travelled
from infogaze.report.area import by_area
from infogaze.report.calibration import by_calibration
from infogaze.report.corruptions import by_corruption
from infogaze.report.curves import Curve, Panel
from infogaze.report.drawing import Missing
from infogaze.report.entropy import entropy_by_look
from infogaze.report.gather import Chapter
from infogaze.report.many_looks import by_many_looks
from infogaze.report.panels import curve_figure
from infogaze.report.sample_counts import by_sample_counts
from infogaze.report.travelled import by_travelled_time
from tests.support.evaluations import COUNTS, GRID, LOOKS, SCENES, MadeUp, one_chapter
from tests.support.figures import heights, levels, line, only, words


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
        values.append(accuracy_by_area(run.summary.correct, observed_share(run.summary.locations, GRID), edges)[0])
    known = 100 * torch.stack(values).mean(0)
    np.testing.assert_allclose(np.asarray(drawn.get_ydata(), float), known[~known.isnan()])
    assert re.search(
        r"With about 25 % of the area observed infogaze has accuracy 34.2 % .* the best baseline, ", drawing.sentence
    )


def test_where_curves_end_at_different_areas_all_are_ranked_at_one(chapter: Chapter) -> None:
    figure = only(by_area(chapter)).figure
    (axes,) = figure.axes
    drawn = {name: line(axes, name) for name in (group.name for group in chapter.lookers)}
    ends = {name: float(np.asarray(curve.get_xdata(), float)[-1]) for name, curve in drawn.items()}
    assert ends["ram"] < ends["infogaze"], "what it sees again shows it no more of the area"
    assert not [text for text in axes.texts if text.get_text().split()[-1] in drawn], "no name stands at a curve's end"
    (legend,) = figure.legends
    assert legend.get_title().get_text() == "at the dotted line"
    listed = [text.get_text().replace("\n", " ").split(" ", 1) for text in legend.get_texts()]
    upright = [np.asarray(found.get_xdata(), float) for found in axes.lines if list(found.get_ydata()) == [0, 1]]  # type: ignore[arg-type]
    assert len(upright) == 1, "one dotted line"
    place = float(upright[0][0])
    for value, name in listed:
        at = list(np.asarray(drawn[name].get_xdata(), float)).index(place)
        assert float(value) == pytest.approx(np.asarray(drawn[name].get_ydata(), float)[at], abs=0.051)
    assert len(listed) == len(drawn)
    assert [float(value) for value, _ in listed] == sorted((float(value) for value, _ in listed), reverse=True)
    ours = next(value for value, name in listed if name == "infogaze")
    assert f"infogaze has accuracy {ours} % (" in only(by_area(chapter)).sentence


def test_curves_with_no_place_in_common_are_named_without_values(tmp_path: Path) -> None:
    estimate = mean_over_runs([torch.tensor([0.5]), torch.tensor([0.7])])
    groups = one_chapter(tmp_path, MadeUp("random", parts=()), MadeUp("ram", parts=())).groups
    curves = tuple(Curve(group=group, x=(x,), estimate=estimate) for group, x in zip(groups, (10.0, 20.0), strict=True))
    for read_at, expected in ((None, ["ram", "random"]), (20.0, ["60.0 random", "ram"])):
        panel = Panel(measure="accuracy, %", against="area observed, %", curves=curves, scale=100, read_at=read_at)
        (legend,) = curve_figure("a title", (panel,), foot="").legends
        assert [text.get_text() for text in legend.get_texts()] == expected


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
    assert drawing.sentence.startswith("infogaze is highest after 8 looks, with accuracy 90.8 %")
    assert re.search(
        "3.3 points above .* 7 looks of training; after all 9 looks it is 5.0 points lower", drawing.sentence
    )


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
    accuracy = np.nansum([part.share * part.accuracy.nan_to_num() for part in pooled]) / 2
    assert accuracy == pytest.approx((COUNTS["infogaze"][-1] + 0.5) / SCENES)
    assert (diagram.get_xlabel(), diagram.get_ylabel()) == ("confidence\nafter 7 looks, %", "accuracy, %")
    assert f"its calibration error is {100 * float(ece[-1]):.1f} %" in drawing.sentence


def test_what_p_buys_plots_accuracy_and_time(chapter: Chapter) -> None:
    drawing = only(by_sample_counts(chapter))
    early, late, time = drawing.figure.axes
    assert (early.get_title("left"), late.get_title("left")) == ("after 2 looks", "after 7 looks")
    assert time.get_ylabel() == "time a scene, ms"
    assert time.get_yscale() == early.get_xscale() == "log"
    np.testing.assert_allclose(heights(time, "infogaze"), 1000 * np.array([0.8, 1.1, 2.0]) / 30, rtol=1e-3)
    samples = [run.read(SampleCounts) for run in chapter.groups[0].runs]
    correct = [(part.predictions == part.labels[:, None])[:, :, 1].double().mean(1) for part in samples]
    np.testing.assert_allclose(heights(early, "infogaze"), 100 * torch.stack(correct).mean(0))
    assert drawing.sentence.startswith("infogaze with 20 imagined scenes instead of 1: ")
    assert "for 2.5 times the time" in drawing.sentence


def test_what_p_buys_counts_the_predictions_where_half_precision_cannot_tell_them(tmp_path: Path) -> None:
    chapter = one_chapter(tmp_path, MadeUp("infogaze", parts=(SampleCounts,)))
    run = chapter.groups[0].runs[0]
    samples = run.read(SampleCounts)
    even = torch.full_like(samples.log_probabilities, 1 / 3).log()
    correct = samples.labels[:, None].expand_as(samples.predictions)
    write(run.folder / "evaluation", replace(samples, log_probabilities=even, predictions=correct))
    assert set(heights(only(by_sample_counts(chapter)).figure.axes[0], "infogaze")) == {100.0}


def test_robustness_has_a_panel_for_each_corruption_against_its_severity_and_by_look(chapter: Chapter) -> None:
    drawn = by_corruption(chapter)
    assert not isinstance(drawn, Missing)
    by_severity, by_look = drawn
    panels = by_severity.figure.axes[: len(CORRUPTIONS)]
    assert [axes.get_title("left") for axes in panels] == list(CORRUPTIONS)
    assert panels[0].get_xlabel() == "shift: pixels"
    corrupted = [run.read(Corrupted) for run in chapter.groups[0].runs]
    correct = torch.stack([part.predictions == part.labels[:, None] for part in corrupted])
    accuracy = correct.double().mean(3)  # [2, kinds, 5, T]
    for kind, axes in enumerate(panels):
        np.testing.assert_allclose(heights(axes, "infogaze"), 100 * accuracy[:, kind, :, -1].mean(0))
        np.testing.assert_allclose(
            np.asarray(line(axes, "infogaze").get_xdata(), float), corrupted[0].severities[kind], atol=1e-3
        )
        np.testing.assert_allclose(heights(by_look.figure.axes[kind], "infogaze"), 100 * accuracy[:, kind, -1].mean(0))
    assert f"loses most to {list(CORRUPTIONS)[-1]}" in by_severity.sentence
    assert "least to shift" in by_severity.sentence
    assert "oracle (not deployable)" in words(by_severity.figure)
    names = [str(row[0]) for row in by_severity.table]
    assert [name.partition(", ")[2] for name in names if name.startswith("chance")] == [
        name.partition(", ")[2] for name in names if name.startswith("infogaze, ")
    ], "what the numbers are stands after a comma in every row"


def test_accuracy_against_time_has_one_method_by_each_policy_beside_all_methods(chapter: Chapter) -> None:
    drawing = only(by_travelled_time(chapter))
    one, every = drawing.figure.axes
    assert one.get_xlabel() == every.get_xlabel() == "seconds"
    measured = [run.read(Travelled) for run in chapter.groups[0].runs]
    correct = torch.stack([part.predictions == part.labels[:, None] for part in measured]).double().mean((0, 2))
    for name, known in zip(("gain a second", "gain alone", "random looks"), correct, strict=True):
        np.testing.assert_allclose(heights(one, name), 100 * known)
        assert np.asarray(line(one, name).get_xdata(), float).tolist() == [1.0, 3.0, 5.0, 7.0]
    for group in chapter.lookers:
        assert len(heights(every, group.name)) == 4
    np.testing.assert_allclose(heights(every, "infogaze"), 100 * correct[0])
    clock = "The clock: 1 s a look; 4 s across the longer side of the scene, both axes at once; 0.5 s to settle"
    assert clock in " ".join(drawing.figure.get_supxlabel().split())
    gap = 100 * float(correct[0, -1] - correct[1, -1])
    assert f"After 7.0 s infogaze by gain a second has accuracy {100 * float(correct[0, -1]):.1f} %" in drawing.sentence
    assert f"{gap:+.1f} points against gain alone" in drawing.sentence
    assert "9.0 looks in this time, gain alone 6.0, random looks 5.0" in drawing.sentence


def test_one_method_against_time_has_one_panel_and_its_csv_tells_the_policies_apart(tmp_path: Path) -> None:
    drawing = only(by_travelled_time(one_chapter(tmp_path, MadeUp("discriminative", parts=(Travelled,)))))
    assert len(drawing.figure.axes) == 1
    named = {row[1] for row in drawing.numbers[1:]}
    assert named == {"discriminative", "discriminative: gain alone", "random"}
