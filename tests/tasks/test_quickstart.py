from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
import torch

import infogaze
from infogaze.cli.main import main
from infogaze.data.digits import digits
from infogaze.data.sets import ImageSet, Split
from infogaze.tasks.quickstart import chosen_scenes, compared, quickstart
from infogaze.tasks.watching import TrainingBars
from infogaze.training.plan import Progress
from infogaze.training.recipe import RECIPES, PhaseRecipe, Recipe

TINY = Recipe(
    phase1=PhaseRecipe(epochs=0.6, batch_size=64, learning_rate=3e-3),
    phase2=PhaseRecipe(epochs=0.05, batch_size=64, learning_rate=3e-3),
    phase3=PhaseRecipe(epochs=0.03, batch_size=32, learning_rate=1e-3),
    full_image=PhaseRecipe(epochs=0.1, batch_size=64, learning_rate=3e-3),
    augmentation=None,
)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digits of which few are tested."""

    def fewer(seed: int) -> ImageSet:
        data = digits(seed, copies=1)
        return ImageSet(data.train, Split(data.test.images[:40], data.test.labels[:40]), data.classes)

    monkeypatch.setattr("infogaze.tasks.quickstart.digits", fewer)


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_a_first_run_writes_a_model_and_one_page_that_needs_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, other = quickstart(tmp_path / "first", seed=0, recipe=TINY)
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
    for line in ("phase 1, classify", "phase 2, imagine", "phase 3, finetune", "looking by gain", "to go"):
        assert line in said


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_first_run_that_is_stopped_saves_and_the_same_call_goes_on_where_it_was(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Progress] = []
    signals = [number]

    class Watching(TrainingBars):
        def on_step(self, progress: Progress) -> None:
            super().on_step(progress)
            steps.append(progress)
            if (progress.phase, progress.step) == (1, 5) and signals:
                signal.raise_signal(signals.pop())

    monkeypatch.setattr("infogaze.tasks.train.TrainingBars", Watching)
    for name, count in (("_ROLLOUTS", 1), ("_FAILURES", 0)):  # drawing takes longest
        monkeypatch.setattr(f"infogaze.tasks.quickstart.{name}", count)
    monkeypatch.setitem(RECIPES, "quickstart", TINY)
    with pytest.raises(SystemExit) as stop:
        main(["quickstart", "--out", str(tmp_path / "first")])
    assert stop.value.code == 128 + number
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.match(r"stopped in phase 1 after step 5 of \d+; the same command again goes on", last)
    assert (steps[-1].phase, steps[-1].step) == (1, 5)
    assert not (tmp_path / "first" / "model" / "model.json").exists()
    steps.clear()
    main(["quickstart", "--out", str(tmp_path / "first")])
    assert (steps[0].phase, steps[0].step) == (1, 5)
    assert (tmp_path / "first" / "index.html").exists()
    said = capsys.readouterr().out
    assert str(tmp_path / "first" / "model") in said
    assert str(tmp_path / "first" / "index.html") in said
    infogaze.load(tmp_path / "first" / "model")


def test_who_is_ahead_is_said_of_looks_fixed_beforehand_and_behind_where_it_is() -> None:
    scenes, looks = torch.arange(100)[:, None], torch.arange(7)
    ours = scenes < torch.tensor([50, 50, 90, 90, 90, 90, 20])
    other = (scenes < 50).expand(100, len(looks))
    early, late, _ = compared(ours, other).split(". ")
    assert early.startswith("After 2 looks looking by gain cannot be told apart from looking at random: 0.0 points")
    assert late.startswith("After 7 looks looking by gain is 30.0 points behind looking at random")
    assert "95 % interval -39.0 to -21.0" in late
    assert "100 scenes" in early
    assert "100 scenes" in late


def test_the_scenes_to_show_are_picked_by_rule() -> None:
    correct = torch.tensor([[True], [False], [True], [True], [False], [False], [True]])
    assert chosen_scenes(correct, 5, 2) == [0, 2, 3, 1, 4]
    assert chosen_scenes(torch.ones(4, 1, dtype=torch.bool), 3, 2) == [0, 1, 2]
