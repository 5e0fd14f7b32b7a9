"""The figure of expected against realised gain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from infogaze.evaluation.gain_calibration import binned, rank_correlation
from infogaze.report.drawing import Missing
from infogaze.report.gain_calibration import by_gain_calibration
from infogaze.report.gather import Chapter
from tests.support.evaluations import MadeUp, one_chapter
from tests.support.figures import line, only


def test_gain_calibration_bins_expected_and_realised_gain_with_the_interval_over_seeds(chapter: Chapter) -> None:
    drawing = only(by_gain_calibration(chapter))
    axes, by_p = drawing.figure.axes
    assert "nats" in axes.get_xlabel()
    assert "nats" in axes.get_ylabel()
    runs = chapter.groups[0].runs
    expected, realised = (
        torch.stack([getattr(run.summary, name)[:, 1:] for run in runs]) for name in ("expected", "realised")
    )
    bins = binned(expected, realised)
    found = [row for row in drawing.numbers if row[:2] == ("realised gain, nats", "infogaze")]
    for column, part in enumerate((bins.expected, bins.realised, bins.low, bins.high), start=3):
        np.testing.assert_allclose([float(row[column]) for row in found], part)
    assert {row[7:] for row in found} == {(2, "seeds")}
    each = [
        rank_correlation(run.summary.expected[:, 1:].flatten(), run.summary.realised[:, 1:].flatten()) for run in runs
    ]
    assert f"the rank correlation between the two is {sum(each) / 2:.2f} (95 % interval" in drawing.sentence
    assert f"realised gain of {float(realised.mean()):.2f} nats" in drawing.sentence
    assert f"the {float(expected.mean()):.2f} nats expected" in drawing.sentence
    assert list(np.asarray(line(by_p, "infogaze").get_xdata(), float)) == [1, 5, 20]
    assert "its bar is the 95 % interval of the mean over seeds." in drawing.note
    assert "Bars: 95 % interval of the mean over seeds." in drawing.figure.get_supxlabel().replace("\n", " ")


def test_gain_calibration_is_of_every_method_that_expects_a_gain_and_not_of_the_oracle_which_knows(
    tmp_path: Path,
) -> None:
    methods = ("infogaze", "discriminative", "random", "ram", "oracle")
    drawing = only(by_gain_calibration(one_chapter(tmp_path, *(MadeUp(name, parts=()) for name in methods))))
    legend = drawing.figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["infogaze", "discriminative"]
    assert {row[1] for row in drawing.numbers[1:]} == {"infogaze", "discriminative"}


def test_with_one_seed_the_bars_of_gain_calibration_are_over_scenes_and_the_note_states_it(tmp_path: Path) -> None:
    runs = [MadeUp("infogaze", parts=()), MadeUp("paper", 0, parts=()), MadeUp("paper", 1, parts=())]
    mixed = only(by_gain_calibration(one_chapter(tmp_path / "mixed", *runs)))
    alone = only(by_gain_calibration(one_chapter(tmp_path / "alone", *runs[:1])))
    assert "mean over seeds, with one seed over scenes, the looks of one together." in mixed.note
    assert "mean over scenes, the looks of one together." in alone.note
    bars = [row for row in alone.numbers if row[0] == "realised gain, nats"]
    assert {row[8] for row in bars} == {"scenes"}
    assert all(int(row[7]) <= 36 for row in bars), (
        "a tenth of 60 scenes with 6 looks each, some of them of the same scene"
    )


def test_without_a_policy_that_expects_a_gain_its_calibration_is_missing(tmp_path: Path) -> None:
    missing = by_gain_calibration(one_chapter(tmp_path, MadeUp("random", parts=()), MadeUp("oracle", parts=())))
    assert isinstance(missing, Missing)
    assert "gain it expects" in missing.why
    assert "`infogaze train PRESET --method infogaze --out RUN`" in missing.remedy
