"""What a report states of figures, or of methods in them, for which something was not trained or measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from infogaze.evaluation.coherence import Coherence
from infogaze.evaluation.corrupted import Corrupted
from infogaze.evaluation.early_stopping import EarlyStopping
from infogaze.evaluation.judged import Judged
from infogaze.evaluation.many_looks import ManyLooks
from infogaze.evaluation.registry import measurement_of
from infogaze.evaluation.sample_counts import SampleCounts
from infogaze.evaluation.store import Record, write
from infogaze.evaluation.travelled import Travelled
from infogaze.report.by_look import by_attention, by_common_judge
from infogaze.report.coherence import by_coherence
from infogaze.report.corruptions import by_corruption
from infogaze.report.drawing import Drawn, Missing
from infogaze.report.early_stopping import by_early_stopping
from infogaze.report.gather import Chapter
from infogaze.report.many_looks import by_many_looks
from infogaze.report.sample_counts import by_sample_counts
from infogaze.report.travelled import by_travelled_time
from tests.support.evaluations import MadeUp, one_chapter
from tests.support.figures import only


def test_a_method_without_a_run_is_named_with_the_command_that_would_train_it(tmp_path: Path) -> None:
    missing = by_attention(one_chapter(tmp_path, MadeUp("paper", parts=())))
    assert isinstance(missing, Missing)
    assert missing.why == "no run of attention"
    assert "`infogaze train PRESET --method attention --out RUN`" in missing.remedy


@pytest.mark.parametrize(
    ("figure", "record"),
    [
        (by_common_judge, Judged),
        (by_many_looks, ManyLooks),
        (by_sample_counts, SampleCounts),
        (by_corruption, Corrupted),
        (by_coherence, Coherence),
        (by_early_stopping, EarlyStopping),
        (by_travelled_time, Travelled),
    ],
)
def test_what_was_not_measured_is_missing_with_the_command_that_measures(
    figure: Callable[[Chapter], Drawn], record: type[Record], tmp_path: Path
) -> None:
    missing = figure(one_chapter(tmp_path, MadeUp("infogaze", parts=())))
    assert isinstance(missing, Missing)
    assert "measured" in missing.why
    assert measurement_of(record).lacking in missing.why
    assert missing.remedy.startswith("`infogaze evaluate RUN")
    assert ("--judge CNN" in missing.remedy) == (figure is by_common_judge)


def test_a_figure_names_the_methods_it_was_not_measured_for(tmp_path: Path) -> None:
    chapter = one_chapter(tmp_path, MadeUp("infogaze", parts=(Judged,)), MadeUp("random", parts=()))
    assert only(by_common_judge(chapter)).note.endswith("Not measured for random.")


def test_measurements_that_differ_are_left_out_with_both_runs_named(tmp_path: Path) -> None:
    chapter = one_chapter(tmp_path, MadeUp("infogaze", parts=(ManyLooks,)), MadeUp("random", parts=(ManyLooks,)))
    first, second = (group.runs[0] for group in chapter.groups)
    many = second.read(ManyLooks)
    write(second.folder / "evaluation", ManyLooks(many.labels[:9], many.predictions[:9]))
    missing = by_many_looks(chapter)
    assert isinstance(missing, Missing)
    assert missing.why == f"{second.folder} and {first.folder} differ in scenes or looks"
