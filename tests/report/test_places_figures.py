"""Figures of where policies look, and their sentences."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch

from infogaze.evaluation.exact_pass import Records
from infogaze.evaluation.store import read, write
from infogaze.report.drawing import Missing
from infogaze.report.gather import Chapter, gather
from infogaze.report.places import by_places
from tests.support.evaluations import GRID, LOOKS, MadeUp, one_chapter, write_run
from tests.support.figures import heights, levels


def test_where_a_policy_looks_is_drawn_as_its_density(chapter: Chapter) -> None:
    drawn = by_places(chapter)
    assert not isinstance(drawn, Missing)
    maps, spreads = drawn
    names = [axes.get_ylabel() for axes in maps.figure.axes if axes.get_ylabel()]
    assert names[:4] == ["infogaze", "paper-corrected", "gaussian-corrected", "ram"]
    assert names[4:6] == ["random", "oracle\n(not deployable)"]
    ram = maps.figure.axes[3 * LOOKS + 3].images[0].get_array()
    assert ram is not None
    assert float(ram[1, 0]) == 100.0, "all scenes look at the fourth place at t = 3"
    entropy, dependence = spreads.figure.axes
    np.testing.assert_allclose(heights(entropy, "ram"), 0.0, atol=1e-9)
    assert entropy.get_ylabel().endswith("nats")
    assert dependence.get_ylabel().endswith("nats")
    assert levels(entropy) == {round(math.log(9), 6)}


def test_the_sentence_on_places_is_of_looks_fixed_beforehand_not_of_the_one_that_depends_most(tmp_path: Path) -> None:
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
    assert f"{entropy[1]:.0f} % at t=1 and {entropy[6]:.0f} % at t=6 of the largest" in spreads.sentence
    assert f"{shared[1]:.2f} nats at t=1 and {shared[6]:.2f} nats at t=6." in spreads.sentence
    assert "t=3" not in spreads.sentence


def test_a_dependence_that_may_be_chance_is_marked_as_such_and_one_seed_as_one(tmp_path: Path) -> None:
    for seeds, expected in (
        (
            (0, 1),
            "0.00 nats at t=1 (not to be told from none by these runs) and 0.00 nats at t=6 (not to be told from none",
        ),
        ((0,), "0.00 nats at t=1 and 0.00 nats at t=6 (1 seed)."),
    ):
        drawn = by_places(one_chapter(tmp_path / str(len(seeds)), *(MadeUp("ram", seed, parts=()) for seed in seeds)))
        assert not isinstance(drawn, Missing)
        assert expected in drawn[1].sentence
