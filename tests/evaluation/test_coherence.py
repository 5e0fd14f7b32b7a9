"""Both parts of the imagined gain, against plain sums over single imagined looks."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from infogaze import METHODS, Agent, Belief, ImageSensor, Model, SceneNoise, scene_seeds
from infogaze.data.sets import Split
from infogaze.evaluation.coherence import MEASUREMENT, Coherence, coherence
from infogaze.evaluation.measurement import Subject
from infogaze.evaluation.registry import MEASUREMENTS, measurements_for
from infogaze.evaluation.rollouts import roll_out
from infogaze.nn.gain import CRITERIA
from infogaze.nn.pixels import normalise_pixels
from tests.support.looks import looked_alike
from tests.support.methods import LOOKS, agent_of, made
from tests.support.tiny import CONFIG, scenes

SCENES, SEED, SAMPLES = 7, 5, 5
METHODS_OF_BOTH_KINDS = ["paper", "dictionary"]
SPLIT = Split(scenes(SCENES), torch.arange(SCENES) % CONFIG.num_classes)
both_kinds = pytest.mark.parametrize("method", METHODS_OF_BOTH_KINDS)


def looker(method: str, num_looks: int = LOOKS) -> Agent:
    """An agent whose gains are not faint, in float64, so that rounding chooses no look."""
    model = made(method).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.mul_(1.0 if name.endswith("bias") else 2.0)
    return agent_of(method, model, num_looks=num_looks, num_samples=SAMPLES)


def subject_of(agent: Agent, *, num_scenes: int = SCENES, batch_size: int = SCENES) -> Subject:
    assert agent.origin is not None
    method = METHODS[agent.origin.method]
    return Subject(agent=agent, method=method, test=SPLIT, num_scenes=num_scenes, seed=SEED, batch_size=batch_size)


def silent(scenes: int) -> None:
    pass


def single_looks(model: Model, belief: Belief, *, place: int, noise: Tensor) -> tuple[list[list[float]], list[float]]:
    """Of one scene: the class distribution after each imagined content at this place, and how likely each is."""
    imagined = model.imagination.imagine(belief, SAMPLES, noise=noise)
    where = model.grid.locations()[place : place + 1]
    after = [
        model.backbone.classify(model.backbone.update(belief, content[None], where))[0].exp().tolist()
        for content in imagined.features[0, place]
    ]
    return after, imagined.weights[0, place].tolist()


def entropy_of(distribution: list[float]) -> float:
    return -sum(p * math.log(p) for p in distribution if p > 0)


@both_kinds
@torch.no_grad()
def test_both_parts_are_those_of_single_imagined_looks_at_the_chosen_places(method: str) -> None:
    agent = looker(method)
    model = agent.model
    assert isinstance(model, Model)
    found = coherence(subject_of(agent), silent)
    assert found.mutual_information.shape == found.incoherence.shape == (SCENES, LOOKS - 1)
    seeds, sensor = scene_seeds(SEED, SCENES), ImageSensor(SPLIT.images, CONFIG.glimpse_size)
    history = agent.run(sensor, batch=SCENES, seed=seeds).history
    for scene in range(SCENES):
        belief = model.backbone.start(1)
        for number, look in enumerate(history):
            where = look.location[scene : scene + 1]
            if number:
                noise = SceneNoise(seeds[scene : scene + 1], number).normal(*model.imagination.noise_shape(SAMPLES))
                place = int(model.grid.nearest(where))
                after, weights = single_looks(model, belief, place=place, noise=noise)
                now = model.backbone.classify(belief)[0].exp().tolist()
                mean = [sum(w * p[label] for w, p in zip(weights, after, strict=True)) for label in range(len(now))]
                kept = sum(w * entropy_of(p) for w, p in zip(weights, after, strict=True))
                information = entropy_of(mean) - kept
                rest = sum(m * math.log(m / p) for m, p in zip(mean, now, strict=True) if m > 0)
                told = found.mutual_information[scene, number - 1], found.incoherence[scene, number - 1]
                assert [float(value) for value in told] == pytest.approx([information, rest], rel=1e-5, abs=1e-6)
            row, col = where[0].tolist()
            glimpse = SPLIT.images[scene : scene + 1, :, row : row + 4, col : col + 4]
            content = model.backbone.features(normalise_pixels(glimpse, torch.float64))
            belief = model.backbone.update(belief, content, where)
    assert found.mutual_information.min() > -1e-6
    assert found.incoherence.min() > -1e-6
    assert found.incoherence.max() > 1e-3


def expected_at_looks(agent: Agent, criterion: str) -> Tensor:
    """The maps of a criterion along the method's own looks, at the places that these choose, [N, T - 1]."""
    model, told = agent.model, list[Tensor]()
    assert isinstance(model, Model)
    policy = agent.policy

    def listening(model: Model, belief: Belief, *, candidates: Tensor, noise: SceneNoise) -> object:
        choice = policy(model, belief, candidates=candidates, noise=noise)
        numbers = noise.normal(*model.imagination.noise_shape(SAMPLES))
        gain = model.imagined_gain(belief, SAMPLES, noise=numbers, criterion=CRITERIA[criterion])
        told.append(gain[model.grid.at(choice.location)])
        return choice

    roll_out(agent.with_policy(listening), SPLIT, seed=SEED)  # type: ignore[arg-type]
    return torch.stack(told, 1)


@both_kinds
def test_both_parts_add_up_to_equation_7_and_neither_is_corrected(method: str) -> None:
    found = coherence(subject_of(looker(method)), silent)
    whole = (found.mutual_information + found.incoherence).double()
    torch.testing.assert_close(whole, expected_at_looks(looker(method), "information-gain").double())
    if method == "paper":  # its map is equation 7 itself
        gains = roll_out(looker(method), SPLIT, seed=SEED)
        places = CONFIG.grid.nearest(gains.locations)[:, 1:, None]
        chosen = gains.gains[:, 1:].flatten(2).gather(2, places).squeeze(2)
        torch.testing.assert_close(whole, chosen.double())


@pytest.mark.parametrize("method", ["infogaze", "paper-corrected"])
def test_a_corrected_gain_is_taken_apart_as_imagined(method: str) -> None:
    agent = looker(method)
    found = coherence(subject_of(agent), silent)
    whole = (found.mutual_information + found.incoherence).double()
    torch.testing.assert_close(whole, expected_at_looks(agent, "information-gain").double())
    looked = roll_out(agent, SPLIT, seed=SEED)
    corrected = looked.gains[:, 1:].flatten(2).gather(2, CONFIG.grid.nearest(looked.locations)[:, 1:, None]).squeeze(2)
    assert not torch.allclose(corrected.double(), whole, atol=1e-2)


@both_kinds
@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_batches_change_nothing_and_every_scene_is_counted(method: str, batch_size: int) -> None:
    heard: list[int] = []
    parts = coherence(subject_of(looker(method), batch_size=batch_size), heard.append)
    whole = coherence(subject_of(looker(method)), silent)
    assert sum(heard) == SCENES == MEASUREMENT.work(subject_of(looker(method)))
    one, other = (roll_out(looker(method), SPLIT, seed=SEED, batch_size=size) for size in (batch_size, SCENES))
    alike = looked_alike(one.locations, other.locations)
    torch.testing.assert_close(parts.mutual_information[alike], whole.mutual_information[alike], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(parts.incoherence[alike], whole.incoherence[alike], rtol=1e-5, atol=1e-6)
    assert whole.incoherence.std(0).min() > 1e-6, "scenes differ"


def test_only_the_first_scenes_are_looked_at() -> None:
    agent = looker("dictionary")
    few, all_of_them = (coherence(subject_of(agent, num_scenes=count), silent) for count in (3, SCENES))
    torch.testing.assert_close(few.incoherence, all_of_them.incoherence[:3], rtol=1e-5, atol=1e-6)
    assert MEASUREMENT.source(subject_of(agent, num_scenes=3)) == "the first 3 scenes"


@pytest.mark.parametrize("method", ["dictionary", "infogaze", "paper", "paper-corrected"])
def test_a_budget_of_one_look_has_no_chosen_look_to_take_apart(method: str) -> None:
    found = coherence(subject_of(looker(method, num_looks=1)), silent)
    assert found.mutual_information.shape == found.incoherence.shape == (SCENES, 0)


@pytest.mark.parametrize("method", METHODS)
def test_it_is_measured_for_methods_that_imagine_and_for_no_others(method: str) -> None:
    kinds = [entry.record for entry in measurements_for(METHODS[method], MEASUREMENTS)]
    assert (Coherence in kinds) == METHODS[method].imagines


def test_a_policy_that_imagines_nothing_has_no_gain_to_take_apart() -> None:
    with pytest.raises(ValueError, match="imagines nothing"):
        coherence(subject_of(agent_of("random", made("random"))), silent)
