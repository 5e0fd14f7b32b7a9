from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import infogaze
from infogaze.commands.quickstart import chosen_scenes, first_run
from infogaze.data.digits import digits
from infogaze.data.sets import ImageSet, Split
from infogaze.training.recipe import PhaseRecipe, Recipe

TINY = Recipe(
    PhaseRecipe(0.6, 64, 3e-3), PhaseRecipe(0.05, 64, 3e-3), PhaseRecipe(0.03, 32, 1e-3), PhaseRecipe(0.1, 64, 3e-3), augmentation=None
)  # fmt: skip


def test_a_first_run_writes_a_model_and_one_page_that_needs_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fewer(seed: int) -> ImageSet:
        data = digits(seed, copies=1)
        return ImageSet(data.train, Split(data.test.images[:40], data.test.labels[:40]), data.classes)

    monkeypatch.setattr("infogaze.commands.quickstart.digits", fewer)
    ours, other = first_run(tmp_path / "first", 0, TINY)
    assert ours.n == other.n == 40
    assert ours.value[0] == other.value[0], "the first looks are the same"
    page = (tmp_path / "first" / "index.html").read_text()
    assert page.count('<img src="data:image/png;base64,') == 13
    assert not re.search(r"(?:src|href)=\"(?!data:)|url\(|@import|<script", page), "nothing is fetched"
    assert "Accuracy by look" in page
    assert f"{100 * float(ours.value[-1]):.1f} [" in page
    agent = infogaze.load(tmp_path / "first" / "model")
    assert agent.classes == tuple("0123456789")
    said = capsys.readouterr().out
    for line in ("phase 1, recognise", "phase 2, imagine", "phase 3, refine", "looking by gain", "to go"):
        assert line in said


def test_the_scenes_to_show_are_picked_by_rule() -> None:
    right = torch.tensor([[True], [False], [True], [True], [False], [False], [True]])
    assert chosen_scenes(right, 5, 2) == [0, 2, 3, 1, 4]
    assert chosen_scenes(torch.ones(4, 1, dtype=torch.bool), 3, 2) == [0, 1, 2]
