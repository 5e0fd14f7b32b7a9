from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from infogaze.evaluation.early_stopping import EarlyStopping
from infogaze.evaluation.store import write
from infogaze.report.early_stopping import by_early_stopping
from infogaze.report.gather import Chapter
from tests.support.evaluations import COUNTS, SCENES, MadeUp, one_chapter
from tests.support.figures import line, only

LEVELS = 3


def measured(seed: int, *, expects: bool) -> EarlyStopping:
    """Three levels, four splits, of which two of confidence break the promise."""
    rules = torch.ones(3, 1)
    if not expects:
        rules[2] = torch.nan
    by_split = rules[:, :, None] * torch.ones(3, 2, 4)
    broken = torch.zeros(3, 2, 4, dtype=torch.uint8)
    broken[0, 0, :2] = 1
    return EarlyStopping(
        curve_looks=rules * torch.tensor([7.0, 4.0 + seed, 1.0]),
        curve_correct=torch.tensor([52, 50, 20]).repeat(3, 1),
        looks=(3.5 + seed) * by_split,
        accuracy=0.8 * by_split,
        full=0.85 * by_split,
        broken=broken,
        broken_on_half=broken.clone(),
    )


@pytest.fixture(scope="module")
def chapter(tmp_path_factory: pytest.TempPathFactory) -> Chapter:
    home = tmp_path_factory.mktemp("early")
    made = [MadeUp(method, seed, parts=()) for method in ("infogaze", "random") for seed in (0, 1)]
    found = one_chapter(home, *made)
    for group in found.groups:
        for run in group.runs:
            record = measured(run.about.seed, expects=group.method == "infogaze")
            write(run.folder / "evaluation", record)
    return found


def test_a_panel_a_rule_shows_the_methods_that_can_be_read(chapter: Chapter) -> None:
    figure = only(by_early_stopping(chapter)).figure
    panels = [axes for axes in figure.axes if axes.get_title(loc="left")]
    assert [axes.get_title(loc="left") for axes in panels] == [
        "stops when confident",
        "stops at low entropy",
        "stops when little is left to gain",
    ]
    for number, axes in enumerate(panels):
        names = {str(drawn.get_label()) for drawn in axes.lines}
        assert "infogaze" in names
        assert ("random" in names) == (number < 2)
        curve, star, fixed = (
            line(axes, name) for name in ("infogaze", "calibrated, infogaze", "fixed number of looks, infogaze")
        )
        np.testing.assert_allclose(np.asarray(curve.get_xdata(), float), [7, 4.5, 1])
        np.testing.assert_allclose(np.asarray(curve.get_ydata(), float), [100 * n / SCENES for n in (52, 50, 20)])
        np.testing.assert_allclose(np.asarray(star.get_xydata(), float), [[4.0, 80.0]], rtol=1e-3)
        known = [100 * (count + 0.5) / SCENES for count in COUNTS["infogaze"]]
        np.testing.assert_allclose(np.asarray(fixed.get_ydata(), float), known)


def test_sentence_and_table_count_what_was_promised_and_kept(chapter: Chapter) -> None:
    drawing = only(by_early_stopping(chapter))
    fixed = 100 * (COUNTS["infogaze"][3] + 0.5) / SCENES
    assert drawing.sentence == (
        "Calibrated to lose at most 1 % of the scenes, infogaze takes 4.0 looks on average by entropy, with accuracy 80.0 % against "
        f"85.0 % after all looks and {fixed:.1f} % with a fixed number of the same mean; 0.0 % of the splits broke the promise, which "
        "allows 5 %."
    )
    head, *rows = drawing.table
    of_confidence = next(row for row in rows if row[:3] == ("infogaze", "confidence", "of all scenes"))
    assert dict(zip(head, of_confidence, strict=True))["violations, %"] == "50.0"
    assert len(rows) == 2 * 3 + 2 * 2, "two forms of three rules, and of two for a method without a map"
    assert {row[0] for row in drawing.numbers[1:]} >= {"calibrated entropy, gap of all scenes: looks"}


def test_one_seed_has_the_interval_over_its_scenes(tmp_path: Path) -> None:
    chapter = one_chapter(tmp_path, MadeUp("infogaze", parts=()))
    (run,) = chapter.groups[0].runs
    write(run.folder / "evaluation", replace(measured(0, expects=True)))
    drawing = only(by_early_stopping(chapter))
    assert f"95 % interval over {SCENES} scenes" in drawing.figure.get_supxlabel()
