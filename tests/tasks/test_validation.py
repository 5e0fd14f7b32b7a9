from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from infogaze.data.sets import Split
from infogaze.methods.registry import METHODS
from infogaze.nn.model import Recogniser
from infogaze.tasks.validation import AT_MOST, due, keep_back, named_right
from infogaze.training import loop
from infogaze.training.loop import Stopped, Surroundings
from tests.support.small_run import configuration, run, scenes
from tests.training.test_loop import same

SHARE = 0.25


def shares(folder: Path) -> list[tuple[int, int, list[float]]]:
    """Phase, step and accuracy by look wherever the scenes held out were looked at."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["phase"], line["step"], line["held_out"]) for line in lines if "held_out" in line]


def test_the_scenes_kept_back_are_not_learned_from_and_all_others_are() -> None:
    numbered = Split(torch.arange(96, dtype=torch.uint8).view(-1, 1, 1, 1), torch.arange(96))
    learning, kept = keep_back(numbered, configuration(hold_out=SHARE))
    assert len(kept) == 24
    assert sorted([*learning.labels.tolist(), *kept.labels.tolist()]) == list(range(96))
    assert torch.equal(learning.images.flatten().long(), learning.labels)
    many = Split(torch.zeros(8 * AT_MOST, 1, 1, 1, dtype=torch.uint8), torch.zeros(8 * AT_MOST, dtype=torch.int64))
    learning, kept = keep_back(many, configuration(hold_out=SHARE))
    assert (len(learning), len(kept)) == (6 * AT_MOST, AT_MOST)


@pytest.mark.parametrize(("steps", "times"), [(1, 1), (7, 7), (10, 10), (95, 11), (4000, 10)])
def test_they_are_looked_at_ten_times_or_so_and_after_the_last_step(steps: int, times: int) -> None:
    judged = [step for step in range(1, steps + 1) if due(step, steps)]
    assert len(judged) == times
    assert judged[-1] == steps


def test_every_phase_says_what_it_would_hand_on_is_worth(tmp_path: Path) -> None:
    model, config = run(tmp_path / "run", hold_out=SHARE), configuration(hold_out=SHARE)
    said = shares(tmp_path / "run")
    assert [phase for phase, _, _ in said if phase == 3] == [3] * 9, "nine steps, each a tenth or more"
    assert {phase for phase, _, _ in said} == {1, 2, 3}
    _, kept = keep_back(scenes(), config)
    measured = named_right(model, kept, config, METHODS["infogaze"].phases[2])
    assert measured in [tuple(right) for phase, _, right in said if phase == 3]
    assert measured[-1] == max(right[-1] for phase, _, right in said if phase == 3)


def test_a_phase_hands_on_the_weights_that_named_most_right_and_of_equals_the_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[tuple[float, dict[str, Tensor]]] = []

    def scripted(model: Recogniser, *given: object) -> tuple[float, ...]:
        share = (0.9, 0.5, 0.9, 0.1)[len(judged) % 4]
        judged.append((share, {name: value.clone() for name, value in model.state_dict().items()}))
        return 0.95, share

    monkeypatch.setattr(loop, "named_right", scripted)
    model = run(tmp_path / "run", method="random", hold_out=SHARE)
    steps = [step for phase, step, _ in shares(tmp_path / "run") if phase == 2]
    last_phase = judged[-len(steps) :]
    place = max(place for place, (share, _) in enumerate(last_phase) if share == 0.9)
    assert place < len(steps) - 1
    (path,) = (tmp_path / "run" / "checkpoints").glob("*-best-*")
    assert path.name.startswith(f"phase2-step{steps[place]:08d}-best")
    stored = load_file(path)
    for name, value in model.state_dict().items():
        assert torch.equal(value, last_phase[place][1][name])
        assert torch.equal(value, stored[f"model.{name}"])


def test_judging_on_the_way_changes_nothing_of_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "named_right", lambda *given: (1.0,))  # so that the last weights are handed on
    often = run(tmp_path / "often", method="random", hold_out=SHARE)
    monkeypatch.setattr(loop, "due", lambda step, steps: step == steps)
    seldom = run(tmp_path / "seldom", method="random", hold_out=SHARE)
    assert len(shares(tmp_path / "often")) > len(shares(tmp_path / "seldom")) == 2
    assert same(often, seldom)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recogniser, Path]:
    folder = tmp_path_factory.mktemp("straight") / "run"
    return run(folder, method="random", hold_out=SHARE), folder


@pytest.mark.parametrize("stop_at", [1, 9, 14, 20])
def test_a_run_with_scenes_held_out_that_is_stopped_ends_bit_for_bit_where_it_would_have(
    stop_at: int, straight: tuple[Recogniser, Path], tmp_path: Path
) -> None:
    asked = count(1)
    around = Surroundings(asked_to_stop=lambda: next(asked) == stop_at)
    with pytest.raises(Stopped):
        run(tmp_path / "run", around=around, method="random", hold_out=SHARE)
    assert same(straight[0], run(tmp_path / "run", method="random", hold_out=SHARE))
    assert shares(tmp_path / "run") == shares(straight[1])


@pytest.mark.parametrize("stop_at", [9, 20])
def test_a_run_that_goes_on_remembers_its_best_weights(
    stop_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged, asked, firsts = count(), count(1), (0, 14)  # a phase's first weights, after one step, are best

    def scripted(*given: object) -> tuple[float, ...]:
        return (0.9 if next(judged) in firsts else 0.1,)

    monkeypatch.setattr(loop, "named_right", scripted)
    straight = run(tmp_path / "straight", method="random", hold_out=SHARE)
    assert [phase for phase, _, right in shares(tmp_path / "straight") if right == [0.9]] == [1, 2]
    judged = count()
    around = Surroundings(asked_to_stop=lambda: next(asked) == stop_at)
    with pytest.raises(Stopped):
        run(tmp_path / "run", around=around, method="random", hold_out=SHARE)
    assert same(straight, run(tmp_path / "run", method="random", hold_out=SHARE))
