"""What holds of ours holds of all it is compared with: they train, resume, save, load and look through the same code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import infogaze
from infogaze import METHODS, Agent, ImageSensor
from infogaze.data.sets import Split
from infogaze.evaluation.exact_pass import exact_pass
from infogaze.evaluation.records import Records
from infogaze.evaluation.rollouts import roll_out
from infogaze.gaze.agent import Episode
from infogaze.nn.model import Recogniser
from infogaze.nn.pixels import to_pixels
from infogaze.training.loop import Step, Stopped, Surroundings
from infogaze.training.phases import Batch, Objective, draw
from infogaze.training.recipe import RECIPES, PhaseRecipe
from tests.support.methods import LOOKS, made, sizes
from tests.support.small_run import RECIPE, run, scenes
from tests.support.tiny import CONFIG

PART = PhaseRecipe(1, 16, 1e-2)
SHORT = replace(RECIPE, recognise=PART, imagine=PART, refine=PART, whole=replace(PART, epochs=2))
HELD_OUT, LEFT = 0.25, 72
LENGTH = {name: [round(phase.length(SHORT).epochs * LEFT / 16) for phase in METHODS[name].phases] for name in METHODS}
"""Steps of each phase."""
DEPLOYABLE = [name for name in METHODS if name != "oracle"]
NAMES = [f"class {index}" for index in range(CONFIG.classes)]


def trained(method: str, folder: Path, around: Surroundings) -> tuple[Recogniser, str]:
    """The model, and the metrics as they were written."""
    model = run(folder, SHORT, around=around, hold_out=HELD_OUT, method=method)
    return model, (folder / "metrics.jsonl").read_text()


@pytest.mark.parametrize("method", METHODS)
def test_a_method_trains_resumes_bit_for_bit_saves_and_loads(method: str, tmp_path: Path) -> None:
    steps: list[Step] = []
    straight, metrics = trained(method, tmp_path / "straight", Surroundings(notice=steps.append))
    assert list(dict.fromkeys(step.phase for step in steps)) == [phase.name for phase in METHODS[method].phases]
    lines = [json.loads(line) for line in metrics.splitlines()]
    ends = [max(line["step"] for line in lines if line["phase"] == index + 1) for index in range(len(LENGTH[method]))]
    assert ends == LENGTH[method]
    assert not any(line["skipped"] for line in lines)

    asked, moment = 0, sum(LENGTH[method]) - LENGTH[method][-1] // 2

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == moment

    with pytest.raises(Stopped, match=f"stopped in phase {len(LENGTH[method])} after step"):
        trained(method, tmp_path / "run", Surroundings(asked_to_stop=stop))
    assert sum("-best-" in path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == 1
    resumed, written = trained(method, tmp_path / "run", Surroundings())
    assert written == metrics
    state = resumed.state_dict()
    for name, value in straight.state_dict().items():
        assert torch.equal(value, state[name]), name

    agent = Agent(straight, NAMES, looks=LOOKS, samples=5, config=sizes(method), method=method)
    infogaze.save(agent, tmp_path / "model")
    again = infogaze.load(tmp_path / "model")
    assert (again.method, again.config, type(again.model)) == (method, sizes(method), type(straight))
    one, other = (roll_out(a, scenes(5), a.policy) for a in (agent, again))
    assert torch.equal(one.probabilities, other.probabilities)
    assert torch.equal(one.locations, other.locations)


def some(count: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, CONFIG.channels, CONFIG.height, CONFIG.width), generator=generator).to(
        torch.uint8
    )


def looked(method: str, images: Tensor, seeds: list[int]) -> Episode:
    agent = Agent(made(method), NAMES, looks=LOOKS, samples=5, config=sizes(method), method=method)
    return agent.run(ImageSensor(images, CONFIG.glimpse), batch=len(images), seed=seeds)


@pytest.mark.parametrize("method", DEPLOYABLE)
def test_in_an_episode_unseen_pixels_cannot_change_the_outcome(method: str) -> None:
    images = some(4)
    episode = looked(method, images, [1, 2, 3, 4])
    assert len(episode.history) == LOOKS
    seen = torch.zeros(images.shape, dtype=torch.bool)
    for look in episode.history:
        for scene, (row, col) in enumerate(look.location.tolist()):
            seen[scene, :, row : row + CONFIG.glimpse, col : col + CONFIG.glimpse] = True
    again = looked(method, torch.where(seen, images, 255 - images), [1, 2, 3, 4])
    for look, same in zip(episode.history, again.history, strict=True):
        assert torch.equal(look.location, same.location)
        assert torch.equal(look.probabilities, same.probabilities)
    other = looked(method, torch.where(seen, 255 - images, images), [1, 2, 3, 4])
    assert not torch.allclose(other.probabilities, episode.probabilities)


@pytest.mark.parametrize("method", DEPLOYABLE)
def test_in_an_episode_a_scenes_outcome_is_its_own(method: str) -> None:
    images = some(4)
    together = looked(method, images, [1, 2, 3, 4])
    alone = looked(method, images[2:3], [3])
    for look, same in zip(together.history, alone.history, strict=True):
        assert torch.equal(look.location[2:3], same.location)
        torch.testing.assert_close(look.probabilities[2:3], same.probabilities, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"ram", "ram-plus", "oracle"}))
def test_what_looks_on_the_grid_never_looks_twice_at_a_place(method: str) -> None:
    agent = Agent(made(method), NAMES, looks=CONFIG.grid.places, samples=2, config=sizes(method), method=method)
    episode = agent.run(ImageSensor(some(3), CONFIG.glimpse), batch=3)
    visited = torch.stack([CONFIG.grid.nearest(look.location) for look in episode.history])
    assert torch.equal(visited.sort(0).values, torch.arange(CONFIG.grid.places)[:, None].expand(-1, 3))


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_method_that_looks_has_as_many_passes_over_the_data(recipe: str) -> None:
    passes = {
        name: sum(phase.length(RECIPES[recipe]).epochs for phase in method.phases)
        for name, method in METHODS.items()
        if method.sees != "everything"
    }
    assert set(passes.values()) == {passes["infogaze"]}, passes


@pytest.mark.parametrize("method", METHODS)
def test_a_budget_of_one_look_leaves_every_loss_finite(method: str) -> None:
    model = made(method).train()
    for phase in METHODS[method].phases:
        single = Objective(1, alpha=0.25, beta=2.0, dropout=0.5)
        numbers = draw(phase, model, 6, single, torch.Generator().manual_seed(0))
        loss = phase.loss(model, Batch(to_pixels(some(6)), torch.arange(6) % CONFIG.classes), numbers, single).loss
        loss.backward()
        assert loss.isfinite(), phase.name


def test_the_best_weights_of_the_cnn_are_chosen_by_complete_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def spy(agent: Agent, split: Split, seed: int, batch: int) -> Records:
        seen.append(agent.method)
        return exact_pass(agent, split, seed, batch)

    monkeypatch.setattr("infogaze.tasks.validation.exact_pass", spy)
    run(tmp_path / "run", SHORT, hold_out=HELD_OUT, method="cnn")
    assert set(seen) == {"cnn"}
