"""The figure of what the imagined gain is made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from infogaze.evaluation.coherence import Coherence
from infogaze.evaluation.estimates import mean_over_runs
from infogaze.evaluation.store import write
from infogaze.report.coherence import by_coherence
from infogaze.report.contents import ENTRIES
from infogaze.report.drawing import Missing
from infogaze.report.gather import Chapter
from tests.support.evaluations import LOOKS, SCENES, MadeUp, one_chapter
from tests.support.figures import heights, line, only

COHERENCE = (Coherence,)


def test_it_is_figure_17() -> None:
    (entry,) = (entry for entry in ENTRIES if entry.draw is by_coherence)
    assert (entry.number, entry.name) == (17, "coherence")


def test_both_parts_are_drawn_by_look_from_the_first_that_is_chosen(chapter: Chapter) -> None:
    drawing = only(by_coherence(chapter))
    names = ("mutual information", "incoherence")
    assert [axes.get_title("left") for axes in drawing.figure.axes] == list(names)
    assert [axes.get_ylabel() for axes in drawing.figure.axes] == [f"{name}, nats" for name in names]
    group = chapter.groups[0]
    assert (group.name, len(group.runs)) == ("infogaze", 2)
    for axes, part in zip(drawing.figure.axes, ("mutual_information", "incoherence"), strict=True):
        by_seed = torch.stack([getattr(run.read(Coherence), part).double().mean(0) for run in group.runs])
        np.testing.assert_allclose(heights(axes, "infogaze"), by_seed.mean(0))
        assert list(np.asarray(line(axes, "infogaze").get_xdata(), float)) == list(range(1, LOOKS))
    assert "Equation 7 is the sum of both" in drawing.note


def test_the_numbers_have_their_interval_over_seeds(chapter: Chapter) -> None:
    drawing = only(by_coherence(chapter))
    runs = chapter.groups[0].runs
    for part, words in (("mutual_information", "mutual information"), ("incoherence", "incoherence")):
        known = mean_over_runs([getattr(run.read(Coherence), part).double().mean(0) for run in runs])
        found = [row for row in drawing.numbers if str(row[0]).endswith(f"{words}, nats") and row[1] == "infogaze"]
        for column, values in enumerate((known.value, known.low, known.high), start=4):
            np.testing.assert_allclose([float(row[column]) for row in found], values)
        assert {row[7:] for row in found} == {(2, "seeds")}


def test_with_one_seed_the_interval_is_over_scenes(tmp_path: Path) -> None:
    drawing = only(by_coherence(one_chapter(tmp_path, MadeUp("dictionary", parts=COHERENCE))))
    assert {row[7:] for row in drawing.numbers[1:]} == {(SCENES, "scenes")}


def test_methods_that_imagine_are_shown_and_no_others(tmp_path: Path) -> None:
    names = ("infogaze", "dictionary", "random", "oracle", "ram")
    drawing = only(by_coherence(one_chapter(tmp_path, *(MadeUp(name, parts=COHERENCE) for name in names))))
    assert {row[1] for row in drawing.numbers[1:]} == {"infogaze", "dictionary"}
    assert drawing.alt_text.endswith("2 methods")


def test_the_sentence_says_how_much_of_the_gain_is_information(tmp_path: Path) -> None:
    chapter = one_chapter(tmp_path, MadeUp("paper", parts=COHERENCE), MadeUp("dictionary", parts=COHERENCE))
    sentence = only(by_coherence(chapter)).sentence
    for group in chapter.groups:
        record = group.runs[0].read(Coherence)
        useful, rest = (float(part.double().mean()) for part in (record.mutual_information, record.incoherence))
        share = 100 * useful / (useful + rest)
        told = f"Of the {useful + rest:.3f} nats that {group.name} expects of a look on average, {share:.0f} % are information."
        assert told in sentence


@pytest.mark.parametrize("parts", [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)])
def test_a_gain_of_nothing_or_of_one_part_alone_is_drawn(parts: tuple[float, float], tmp_path: Path) -> None:
    chapter = one_chapter(tmp_path, MadeUp("dictionary", parts=COHERENCE))
    (run,) = chapter.groups[0].runs
    information, rest = (torch.full((SCENES, LOOKS - 1), value) for value in parts)
    write(run.folder / "evaluation", Coherence(mutual_information=information, incoherence=rest))
    assert f"{100 if parts[0] else 0} % are information" in only(by_coherence(chapter)).sentence


def test_a_method_that_imagines_and_was_not_measured_is_named(tmp_path: Path) -> None:
    runs = (MadeUp("infogaze", parts=COHERENCE), MadeUp("dictionary", parts=()), MadeUp("random", parts=()))
    assert only(by_coherence(one_chapter(tmp_path, *runs))).note.endswith("Not measured for dictionary.")


def test_measurements_of_different_scenes_do_not_go_into_one_figure(tmp_path: Path) -> None:
    chapter = one_chapter(tmp_path, MadeUp("infogaze", parts=COHERENCE), MadeUp("dictionary", parts=COHERENCE))
    run = chapter.groups[1].runs[0]
    known = run.read(Coherence)
    few = replace(known, mutual_information=known.mutual_information[:9], incoherence=known.incoherence[:9])
    write(run.folder / "evaluation", few)
    missing = by_coherence(chapter)
    assert isinstance(missing, Missing)
    assert str(run.folder) in missing.why


def test_without_a_method_that_imagines_it_is_missing_with_the_command_that_measures(tmp_path: Path) -> None:
    missing = by_coherence(one_chapter(tmp_path, MadeUp("random"), MadeUp("oracle", parts=())))
    assert isinstance(missing, Missing)
    assert missing.why == "no run has the parts of the imagined gain measured"
    assert missing.remedy == "`infogaze evaluate RUN`"
