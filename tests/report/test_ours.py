"""Figures and sentences are drawn for whichever method stands as ours among the runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from infogaze.report.contents import ENTRIES
from infogaze.report.drawing import Missing
from tests.support.evaluations import IMAGINING, MadeUp, one_chapter

NAMES = {entry.name: entry.draw for entry in ENTRIES}
WITHOUT_A_PAIR = [name for name in NAMES if name not in {"flows", "latents", "attention", "judged"}]


@pytest.mark.parametrize("method", IMAGINING)
def test_the_method_that_looks_by_gain_stands_as_ours(method: str, tmp_path: Path) -> None:
    chapter = one_chapter(tmp_path, MadeUp(method), MadeUp("random"))
    assert [group.method for group in chapter.groups if group.is_ours] == [method]


@pytest.mark.parametrize(
    ("methods", "ours"),
    [
        (("gaussian", "random", "paper", "dictionary"), "dictionary"),
        (("paper-corrected", "dictionary", "infogaze"), "infogaze"),
        (("attention", "gaussian-corrected", "paper", "paper-corrected"), "paper-corrected"),
    ],
)
def test_of_several_the_first_stands_as_ours(methods: tuple[str, ...], ours: str, tmp_path: Path) -> None:
    chapter = one_chapter(tmp_path, *(MadeUp(name) for name in methods))
    assert [group.method for group in chapter.groups if group.is_ours] == [ours]


def test_without_any_nothing_does(tmp_path: Path) -> None:
    chapter = one_chapter(tmp_path, MadeUp("random"), MadeUp("ram"))
    assert not any(group.is_ours for group in chapter.groups)
    drawn = NAMES["accuracy"](chapter)
    assert not isinstance(drawn, Missing)
    assert "no method that looks by expected gain" in drawn[0].sentence


@pytest.mark.parametrize("name", WITHOUT_A_PAIR)
def test_every_figure_is_drawn_of_the_papers_system_alone(name: str, tmp_path: Path) -> None:
    drawn = NAMES[name](one_chapter(tmp_path, MadeUp("paper"), MadeUp("random")))
    assert not isinstance(drawn, Missing), drawn
    assert drawn[0].sentence


@pytest.mark.parametrize(
    ("name", "other"), [("flows", "gaussian"), ("latents", "gaussian"), ("attention", "attention")]
)
def test_what_compares_two_is_drawn_of_the_papers_own_pair(name: str, other: str, tmp_path: Path) -> None:
    drawn = NAMES[name](one_chapter(tmp_path, MadeUp("paper"), MadeUp(other)))
    assert not isinstance(drawn, Missing), drawn


@pytest.mark.parametrize("name", ["accuracy", "area", "entropy"])
def test_sentences_speak_of_the_papers_system_where_it_stands_as_ours(name: str, tmp_path: Path) -> None:
    drawn = NAMES[name](one_chapter(tmp_path, MadeUp("paper"), MadeUp("random")))
    assert not isinstance(drawn, Missing), drawn
    assert "paper" in drawn[0].sentence
    assert "random" in drawn[0].sentence
