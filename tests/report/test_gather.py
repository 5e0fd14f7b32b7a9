from __future__ import annotations

import re
from pathlib import Path

import pytest

from infogaze.evaluation.comparing import recipe_digest
from infogaze.evaluation.store import EvaluationError
from infogaze.grid import GlimpseGrid
from infogaze.report.gather import Chapter, gather
from infogaze.training.recipe import RECIPES
from tests.support.evaluations import MadeUp, write_run

FAST = recipe_digest("infogaze", RECIPES["fast"])


def names(chapter: Chapter) -> list[tuple[str, int]]:
    return [(group.name, len(group.runs)) for group in chapter.groups]


def test_seeds_of_a_method_are_one_group_found_below_a_folder(chapter: Chapter) -> None:
    assert names(chapter) == [
        ("infogaze", 2), ("paper-corrected", 2), ("gaussian-corrected", 2), ("ram", 2), ("random", 2),
        ("oracle (not deployable)", 1), ("cnn", 1),
    ]  # fmt: skip
    assert [run.about.seed for run in chapter.groups[0].runs] == [0, 1]
    assert [group.method for group in chapter.whole] == ["cnn"]
    assert "cnn" not in [group.method for group in chapter.lookers]


def test_a_run_named_twice_counts_once(tmp_path: Path) -> None:
    run = write_run(tmp_path, MadeUp("random", parts=()))
    (chapter,) = gather([run, tmp_path, run / "." / "evaluation" / ".."])
    assert names(chapter) == [("random", 1)]


def test_each_image_set_is_a_chapter_and_each_preset_a_group_with_its_name(tmp_path: Path) -> None:
    write_run(tmp_path, MadeUp("infogaze", parts=()))
    write_run(tmp_path, MadeUp("oracle", parts=()), preset="large")
    write_run(tmp_path, MadeUp("infogaze", parts=()), preset="large")
    write_run(tmp_path, MadeUp("infogaze", parts=()), data="letters", test="another", num_looks=5)
    letters, shapes = gather([tmp_path])
    assert (letters.data, shapes.data) == ("letters", "shapes")
    assert names(letters) == [("infogaze", 1)]
    assert names(shapes) == [
        ("infogaze (large)", 1), ("infogaze (small)", 1), ("oracle (large, not deployable)", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"test": "0ther"}, "another test set (0ther and d1ge57)"),
        ({"num_looks": 6}, "another budget of looks (6 and 7)"),
        ({"grid": GlimpseGrid(height=16, width=16, glimpse_size=8, stride=8)}, "another grid"),
        ({"classes": ("ring", "bar", "blob")}, "another list of class names"),
        ({"first_looks": 3}, "another seed of first looks (3 and 0)"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused_with_the_reason_and_both_names(
    changes: dict[str, object], reason: str, tmp_path: Path
) -> None:
    one = write_run(tmp_path, MadeUp("infogaze", parts=()))
    other = write_run(tmp_path, MadeUp("random", parts=()), **changes)
    with pytest.raises(EvaluationError, match=re.escape(reason)) as refusal:
        gather([one, other])
    message = str(refusal.value)
    assert str(one) in message
    assert str(other) in message
    assert "\n" not in message


def test_what_would_make_an_interval_too_narrow_or_mix_two_things_in_a_curve_is_refused(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", MadeUp("random", parts=()))
    again = write_run(tmp_path / "b", MadeUp("random", parts=()))
    with pytest.raises(EvaluationError, match="both seed 0 of random with preset small") as refusal:
        gather([first, again])
    assert str(first) in str(refusal.value)
    assert str(again) in str(refusal.value)
    few = write_run(tmp_path / "c", MadeUp("infogaze", 0, parts=()), num_samples=1)
    many = write_run(tmp_path / "c", MadeUp("infogaze", 1, parts=()))
    with pytest.raises(EvaluationError, match="infogaze imagined 1 .* and 20"):
        gather([few, many])
    flipped = write_run(tmp_path / "d", MadeUp("infogaze", 0, parts=()), flip_tta=True)
    with pytest.raises(EvaluationError, match="infogaze used horizontal-flip test-time augmentation in one"):
        gather([flipped, many])


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        ({"recipe": FAST}, {"recipe": "c0ffee"}, f"the recipe fast {FAST} in one and custom c0ffee in the other"),
        ({"val_fraction": 0.0}, {"val_fraction": 0.1}, "a validation split of 0 in one and 0.1 in the other"),
    ],
    ids=["recipe", "val-fraction"],
)
def test_seeds_that_were_trained_otherwise_are_not_one_curve_also_with_another_between_them(
    one: dict[str, object], other: dict[str, object], reason: str, tmp_path: Path
) -> None:
    first = write_run(tmp_path, MadeUp("infogaze", 0, parts=()), **one)
    alike = write_run(tmp_path, MadeUp("infogaze", 1, parts=()), **one)
    last = write_run(tmp_path, MadeUp("infogaze", 2, parts=()), **other)
    (chapter,) = gather([first, alike])
    assert names(chapter) == [("infogaze", 2)]
    with pytest.raises(EvaluationError, match=re.escape(reason)) as refusal:
        gather([first, alike, last])
    message = str(refusal.value)
    assert message.startswith(f"{first} and {last} cannot be one curve: infogaze ")
    assert "\n" not in message


def test_methods_that_were_trained_otherwise_can_be_compared(tmp_path: Path) -> None:
    write_run(tmp_path, MadeUp("infogaze", parts=()), recipe="c0ffee", val_fraction=0.1)
    write_run(tmp_path, MadeUp("random", parts=()), recipe="decaf", val_fraction=0.0)
    (chapter,) = gather([tmp_path])
    assert names(chapter) == [("infogaze", 1), ("random", 1)]


def test_where_all_that_look_use_flip_tta_names_do_without_it(tmp_path: Path) -> None:
    write_run(tmp_path, MadeUp("infogaze", parts=()), flip_tta=True)
    write_run(tmp_path, MadeUp("oracle", parts=()), flip_tta=True)
    write_run(tmp_path, MadeUp("cnn", parts=()))
    (chapter,) = gather([tmp_path])
    assert names(chapter) == [("infogaze", 1), ("oracle (not deployable)", 1), ("cnn", 1)]
    assert [group.kind[0] for group in chapter.groups] == ["infogaze (flip TTA)", "oracle (flip TTA)", "cnn"]


def test_flip_tta_is_part_of_the_name_of_a_group_and_of_what_csv_files_call_it(tmp_path: Path) -> None:
    write_run(tmp_path, MadeUp("infogaze", parts=()), flip_tta=True)
    write_run(tmp_path, MadeUp("oracle", parts=()), flip_tta=True)
    write_run(tmp_path, MadeUp("random", parts=()))
    (chapter,) = gather([tmp_path])
    assert names(chapter) == [("infogaze (flip TTA)", 1), ("random", 1), ("oracle (flip TTA, not deployable)", 1)]
    assert [group.kind for group in chapter.groups] == [
        ("infogaze (flip TTA)", "small"), ("random", "small"), ("oracle (flip TTA)", "small"),
    ]  # fmt: skip


def test_folders_without_an_evaluation_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="nowhere: no such folder"):
        gather([tmp_path / "nowhere"])
    with pytest.raises(EvaluationError, match="no evaluation in it or below it"):
        gather([tmp_path])
    with pytest.raises(EvaluationError, match="no runs given"):
        gather([])
