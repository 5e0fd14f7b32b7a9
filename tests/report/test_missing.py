"""What a report says of figures, or of methods in them, for which something was not trained or measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from infogaze.evaluation.records import Judged, ManyLooks, write
from infogaze.report.by_look import by_attention, by_common_judge
from infogaze.report.drawing import Drawn, Missing
from infogaze.report.gather import Chapter
from infogaze.report.many_looks import by_many_looks
from infogaze.report.robustness import by_disturbance
from infogaze.report.samples import by_samples
from tests.support.evaluations import MadeUp, one_chapter
from tests.support.figures import only


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
