from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
import torch

import infogaze
from infogaze.cli.quickstart import chosen_scenes, compared, first_run
from infogaze.data.digits import digits
from infogaze.data.sets import ImageSet, Split
from infogaze.tasks.watching import Bars
from infogaze.training.loop import Step
from infogaze.training.recipe import PhaseRecipe, Recipe

TINY = Recipe(
    PhaseRecipe(0.6, 64, 3e-3), PhaseRecipe(0.05, 64, 3e-3), PhaseRecipe(0.03, 32, 1e-3), PhaseRecipe(0.1, 64, 3e-3), augmentation=None
)  # fmt: skip


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digits of which few are tested."""

    def fewer(seed: int) -> ImageSet:
        data = digits(seed, copies=1)
        return ImageSet(data.train, Split(data.test.images[:40], data.test.labels[:40]), data.classes)

    monkeypatch.setattr("infogaze.cli.quickstart.digits", fewer)


@pytest.mark.usefixtures("few")
def test_a_first_run_writes_a_model_and_one_page_that_needs_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_first_run_that_is_stopped_saves_and_the_same_call_goes_on_where_it_was(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Step] = []
    signals = [number]

    class Watching(Bars):
        def notice(self, step: Step) -> None:
            super().notice(step)
            steps.append(step)
            if (step.number, step.step) == (1, 5) and signals:
                signal.raise_signal(signals.pop())

    monkeypatch.setattr("infogaze.cli.quickstart.Bars", Watching)
    with pytest.raises(SystemExit) as stop:
        first_run(tmp_path / "first", 0, TINY)
    assert stop.value.code == 128 + number
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(r"stopped in phase 1 after step 5 of \d+; the same command again goes on from there", last)
    assert (steps[-1].number, steps[-1].step) == (1, 5)
    assert not (tmp_path / "first" / "model").exists()
    steps.clear()
    first_run(tmp_path / "first", 0, TINY)
    assert (steps[0].number, steps[0].step) == (1, 5)
    assert (tmp_path / "first" / "index.html").exists()


def test_who_is_ahead_is_said_of_looks_fixed_beforehand_and_behind_where_it_is() -> None:
    scenes, looks = torch.arange(100)[:, None], torch.arange(7)
    ours = scenes < torch.tensor([50, 50, 90, 90, 90, 90, 20])
    other = (scenes < 50).expand(100, len(looks))
    assert compared(ours, other) == (
        "After 2 looks looking by gain cannot be told apart from looking at random: 0.0 points ahead (95 % interval 0.0 to 0.0, 1 seed "
        "each, interval over 100 scenes). After 7 looks looking by gain is 30.0 points behind looking at random (95 % interval -39.0 "
        "to -21.0, 1 seed each, interval over 100 scenes). The classifier and the first looks are the same."
    )


def test_the_scenes_to_show_are_picked_by_rule() -> None:
    right = torch.tensor([[True], [False], [True], [True], [False], [False], [True]])
    assert chosen_scenes(right, 5, 2) == [0, 2, 3, 1, 4]
    assert chosen_scenes(torch.ones(4, 1, dtype=torch.bool), 3, 2) == [0, 1, 2]
