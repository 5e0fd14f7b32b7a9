"""What holds of ours holds of all it is compared with: they train, resume, save, load and look through the same code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import infogaze
from infogaze import METHODS, Agent, Episode, ImageSensor
from infogaze.evaluation.exact_pass import Records, exact_pass
from infogaze.evaluation.measurement import Subject
from infogaze.evaluation.rollouts import Rollouts, roll_out
from infogaze.nn.model import GlimpseClassifier
from infogaze.training.loop import Stopped
from infogaze.training.plan import Callbacks, Progress
from infogaze.training.recipe import RECIPES, PhaseRecipe
from tests.support.methods import LOOKS, OBJECTIVE, agent_of, batch_for, made, outcome, sizes
from tests.support.small_run import RECIPE, epochs, run, scenes
from tests.support.tiny import CONFIG

SHORT = replace(RECIPE, phase1=epochs(1), phase2=epochs(1), phase3=epochs(1), full_image=epochs(2))
VALIDATED, LEFT = 0.25, 72
LENGTH = {name: [phase.budget(SHORT).num_steps(LEFT) for phase in METHODS[name].phases] for name in METHODS}
"""Steps of each phase."""
DEPLOYABLE = [name for name in METHODS if name != "oracle"]


def trained(method: str, folder: Path, callbacks: Callbacks) -> tuple[GlimpseClassifier, str]:
    """The model, and the metrics as they were written."""
    model = run(folder, SHORT, callbacks=callbacks, val_fraction=VALIDATED, method=method)
    return model, (folder / "metrics.jsonl").read_text()


@pytest.mark.parametrize("method", METHODS)
def test_a_method_trains_resumes_bit_for_bit_saves_and_loads(method: str, tmp_path: Path) -> None:
    steps: list[Progress] = []
    straight, metrics = trained(method, tmp_path / "straight", Callbacks(on_step=steps.append))
    assert list(dict.fromkeys(step.name for step in steps)) == [phase.name for phase in METHODS[method].phases]
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
        trained(method, tmp_path / "run", Callbacks(should_stop=stop))
    assert sum("-best-" in path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == 1
    resumed, written = trained(method, tmp_path / "run", Callbacks())
    assert written == metrics
    state = resumed.state_dict()
    for name, value in straight.state_dict().items():
        assert torch.equal(value, state[name]), name

    agent = agent_of(method, straight)
    infogaze.save(agent, tmp_path / "model")
    again = infogaze.load(tmp_path / "model")
    assert again.origin is not None
    assert (again.origin.method, again.origin.config, type(again.model)) == (method, sizes(method), type(straight))
    one, other = (roll_out(a, scenes(5)) for a in (agent, again))
    torch.testing.assert_close(one.probabilities, other.probabilities)
    assert torch.equal(one.locations, other.locations)


def some(count: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, CONFIG.channels, CONFIG.height, CONFIG.width), generator=generator).to(
        torch.uint8
    )


def looked(method: str, images: Tensor, seeds: list[int]) -> Episode:
    agent = agent_of(method, made(method))
    return agent.run(ImageSensor(images, CONFIG.glimpse_size), batch=len(images), seed=seeds)


@pytest.mark.parametrize("method", DEPLOYABLE)
def test_in_an_episode_unseen_pixels_cannot_change_the_outcome(method: str) -> None:
    images = some(4)
    episode = looked(method, images, [1, 2, 3, 4])
    assert len(episode.history) == LOOKS
    seen = torch.zeros(images.shape, dtype=torch.bool)
    for look in episode.history:
        for scene, (row, col) in enumerate(look.location.tolist()):
            seen[scene, :, row : row + CONFIG.glimpse_size, col : col + CONFIG.glimpse_size] = True
    again = looked(method, torch.where(seen, images, 255 - images), [1, 2, 3, 4])
    for look, same in zip(episode.history, again.history, strict=True):
        assert torch.equal(look.location, same.location)
        assert torch.equal(look.probabilities, same.probabilities)
    other = looked(method, torch.where(seen, 255 - images, images), [1, 2, 3, 4])
    assert not torch.allclose(other.probabilities, episode.probabilities)


@pytest.mark.parametrize("method", DEPLOYABLE)
def test_in_an_episode_a_scenes_outcome_is_its_own(method: str) -> None:
    images = some(4)
    together, alone = looked(method, images, [1, 2, 3, 4]), agent_of(method, made(method)).episode(seed=[3])
    sensor = ImageSensor(images[2:3], CONFIG.glimpse_size)
    for look in together.history:
        where, gain = look.location[2:3], alone.next_gain.flatten()
        torch.testing.assert_close(gain, look.gain[2].flatten(), rtol=1e-3, atol=1e-4)
        if alone.has_map:  # of two places that are as good as each other, rounding may choose either
            there = gain[CONFIG.grid.at(where)[0]]
            assert bool((gain[alone.candidates.flatten()] <= there + 1e-4 + 1e-3 * there.abs()).all())
        else:  # an aim may be rounded to the next pixel
            assert int((alone.next_location() - where).abs().max()) <= 1
        alone.observe(sensor.look(where), at=where)
        torch.testing.assert_close(alone.probabilities, look.probabilities[2:3], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"ram", "ram-plus", "oracle"}))
def test_what_looks_on_the_grid_never_looks_twice_at_a_place(method: str) -> None:
    agent = agent_of(method, made(method), num_looks=CONFIG.grid.num_locations, num_samples=2)
    episode = agent.run(ImageSensor(some(3), CONFIG.glimpse_size), batch=3)
    visited = torch.stack([CONFIG.grid.nearest(look.location) for look in episode.history])
    assert torch.equal(visited.sort(0).values, torch.arange(CONFIG.grid.num_locations)[:, None].expand(-1, 3))


def length(budget: PhaseRecipe) -> float:
    """In epochs or in steps, as its recipe counts."""
    assert (budget.epochs is None) != (budget.steps is None)
    return budget.epochs or budget.steps or 0.0


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_method_that_looks_has_as_many_passes_over_the_data(recipe: str) -> None:
    passes = {
        name: sum(length(phase.budget(RECIPES[recipe])) for phase in method.phases)
        for name, method in METHODS.items()
        if method.sees != "everything"
    }
    assert set(passes.values()) == {passes["infogaze"]}, passes


@pytest.mark.parametrize("method", METHODS)
def test_a_budget_of_one_look_leaves_every_loss_finite(method: str) -> None:
    model, single = made(method), replace(OBJECTIVE, num_looks=1)
    for phase in METHODS[method].phases:
        loss = outcome(phase, model, batch_for(phase, model, objective=single), single).loss
        loss.backward()
        assert loss.isfinite(), phase.name


def test_the_best_weights_of_the_cnn_are_chosen_by_complete_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def whole(subject: Subject) -> Records:
        seen.append(subject.method.sees)
        return exact_pass(subject)

    def by_looks(agent: Agent, *given: object, **options: object) -> Rollouts:
        raise AssertionError("it does not look")

    monkeypatch.setattr("infogaze.tasks.validation.exact_pass", whole)
    monkeypatch.setattr("infogaze.tasks.validation.roll_out", by_looks)
    run(tmp_path / "run", SHORT, val_fraction=VALIDATED, method="cnn")
    assert set(seen) == {"everything"}
