"""What each measurement says, against plain loops over the same scenes."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from infogaze import METHODS, Agent, ImageSensor, Recogniser, scene_seeds
from infogaze.data.sets import Split
from infogaze.evaluation.corrupted import PASSES, disturbed
from infogaze.evaluation.corruptions import DISTURBANCES
from infogaze.evaluation.exact_pass import exact_pass
from infogaze.evaluation.judged import judged
from infogaze.evaluation.latents import latents
from infogaze.evaluation.many_looks import many_looks
from infogaze.evaluation.measuring import KINDS, kinds_for
from infogaze.evaluation.records import Judged, Latents, Records, Samples
from infogaze.evaluation.rollouts import LEAST
from infogaze.evaluation.sample_counts import COUNTS, sample_counts
from infogaze.evaluation.showcase import COMMON, FAILURES, SUCCESSES, class_means, picked, showcase
from infogaze.methods.cnn import PictureBackbone
from infogaze.methods.oracle import Oracle
from infogaze.methods.registry import build_for
from infogaze.nn.pixels import to_pixels
from tests.support.tiny import CONFIG, tiny_agent

LOOKS, SCENES, SEED = 4, 11, 5
NAMES = [f"class {index}" for index in range(CONFIG.classes)]
THAT_LOOK = [name for name in METHODS if METHODS[name].sees != "everything"]
WITH_MAPS = ["infogaze", "discriminative", "oracle"]


def scenes(count: int = SCENES) -> Split:
    """Of noise, each as bright as it happens to be."""
    generator = torch.Generator().manual_seed(0)
    bright = torch.randint(0, 100, (count, CONFIG.channels, 1, 1), generator=generator)
    noise = torch.randint(0, 156, (count, CONFIG.channels, CONFIG.height, CONFIG.width), generator=generator)
    return Split((bright + noise).to(torch.uint8), torch.randint(0, CONFIG.classes, (count,), generator=generator))


SPLIT = scenes()


def naming(model: Recogniser) -> nn.Linear:
    """The layer that the class probabilities come from."""
    return [part for part in model.backbone.modules() if isinstance(part, nn.Linear)][-1]


@cache
def balanced(method: str) -> Recogniser:
    """A model with random weights to which no class is always the likeliest."""
    model = build_for(method, METHODS[method].sizes(CONFIG))
    agent, layer = Agent(model, NAMES, looks=LOOKS, samples=5, method=method), naming(model)
    usual = exact_pass(agent, SPLIT, SEED, SCENES).log_probabilities.mean((0, 1))
    with torch.no_grad():
        layer.bias.copy_(10.0 * (layer.bias - usual))
        layer.weight.mul_(10.0)
    return model


def agent_of(method: str) -> Agent:
    return Agent(deepcopy(balanced(method)), NAMES, looks=LOOKS, samples=5, method=method)


@cache
def passed(method: str, batch: int = SCENES) -> Records:
    return exact_pass(agent_of(method), SPLIT, SEED, batch)


def silent(scenes: int) -> None:
    pass


@pytest.mark.parametrize("method", METHODS)
def test_the_exact_pass_takes_every_image_once_and_in_order(method: str) -> None:
    heard: list[int] = []
    found = exact_pass(agent_of(method), SPLIT, SEED, 4, heard.append)
    assert heard == [4, 4, 3]
    assert torch.equal(found.labels, SPLIT.labels)
    backwards = Split(SPLIT.images.flip(0), SPLIT.labels.flip(0))
    turned = exact_pass(agent_of(method), backwards, SEED, 4)
    assert torch.equal(turned.labels, SPLIT.labels.flip(0))
    middle = SCENES // 2  # has the same seed either way
    torch.testing.assert_close(turned.log_probabilities[middle], found.log_probabilities[middle])
    assert not torch.allclose(turned.log_probabilities[0], found.log_probabilities[0])


@pytest.mark.parametrize("method", THAT_LOOK)
@pytest.mark.parametrize("batch", [3, SCENES])
def test_first_looks_are_those_of_any_other_method_in_any_batch(method: str, batch: int) -> None:
    assert torch.equal(passed(method, batch).locations[:, 0], passed("random").locations[:, 0])
    assert len(passed("random").locations[:, 0].unique(dim=0)) > 3, "and not all at one place"


def test_another_seed_has_other_first_looks() -> None:
    other = exact_pass(agent_of("random"), SPLIT, SEED + 1, SCENES)
    assert not torch.equal(other.locations[:, 0], passed("random").locations[:, 0])


@pytest.mark.parametrize("method", METHODS)
def test_batches_change_neither_places_nor_what_is_named(method: str) -> None:
    parts, whole = passed(method, 3), passed(method)
    assert torch.equal(parts.locations, whole.locations)
    assert torch.equal(parts.named, whole.named)
    torch.testing.assert_close(parts.log_probabilities, whole.log_probabilities, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", THAT_LOOK)
def test_records_are_what_an_episode_says_and_expected_is_the_maps_value_at_the_place_it_chose(method: str) -> None:
    agent, found = agent_of(method), passed(method)
    policy = Oracle().seeing(SPLIT.images, SPLIT.labels) if method == "oracle" else None
    sensor = ImageSensor(SPLIT.images, CONFIG.glimpse)
    episode = agent.run(sensor, batch=SCENES, seed=scene_seeds(SEED, SCENES), policy=policy)
    assert found.log_probabilities.shape == (SCENES, LOOKS, CONFIG.classes)
    for number, look in enumerate(episode.history):
        assert torch.equal(found.locations[:, number], look.location)
        assert torch.equal(found.log_probabilities[:, number], look.probabilities.log())
        assert torch.equal(found.named[:, number], look.probabilities.argmax(1))
        for scene, place in enumerate(CONFIG.grid.nearest(look.location).tolist()):
            expected = float(found.expected[scene, number])
            if method in WITH_MAPS:
                assert expected == float(look.gain[scene].flatten()[place])
            if number == 0 or method in {"random", "ram", "ram-plus"}:
                assert expected == 0.0
    if method in WITH_MAPS:
        assert bool((found.expected[:, 1:] != 0).all())


def test_the_cnn_sees_the_complete_image_in_one_look() -> None:
    agent = agent_of("cnn")
    backbone = agent.model.backbone
    assert isinstance(backbone, PictureBackbone)
    found = passed("cnn", batch=4)
    with torch.no_grad():
        alone = torch.cat([backbone.network(to_pixels(image[None])) for image in SPLIT.images])
    torch.testing.assert_close(found.log_probabilities[:, 0], alone)
    assert torch.equal(found.named[:, 0], alone.argmax(1))
    assert found.locations.tolist() == [[[0, 0]]] * SCENES
    assert found.expected.tolist() == [[0.0]] * SCENES


@pytest.mark.parametrize("method", ["infogaze", "cnn"])
def test_a_probability_that_float32_holds_for_zero_is_finite_in_the_records(method: str) -> None:
    agent = agent_of(method)
    with torch.no_grad():
        naming(agent.model).weight.mul_(1e7)
    found = exact_pass(agent, SPLIT, SEED, SCENES).log_probabilities
    assert float(found.min()) == LEAST
    assert bool(found.half().isfinite().all())


@pytest.mark.parametrize("name", METHODS)
def test_what_is_measured_of_a_method_is_what_means_something_for_it(name: str) -> None:
    everything = kinds_for(name, KINDS)
    assert kinds_for(name, ()) == {Records}
    if name == "cnn":
        assert everything == {Records}
    elif name in {"infogaze", "no-hindsight", "gaussian", "gaussian-no-hindsight", "attention"}:
        assert everything == set(KINDS.values())
    else:
        assert everything == set(KINDS.values()) - {Latents, Samples}
        assert Judged in everything


def masked(image: Tensor, looks: list[list[int]]) -> Tensor:
    """The image in [-1, 1], grey but for the looks."""
    picture = torch.zeros(image.shape)
    for row, col in looks:
        seen = slice(row, row + CONFIG.glimpse), slice(col, col + CONFIG.glimpse)
        picture[:, seen[0], seen[1]] = image[:, seen[0], seen[1]] / 127.5 - 1.0
    return picture


@pytest.mark.parametrize("method", ["infogaze", "ram"])
def test_the_judge_names_the_image_masked_but_for_the_looks_so_far(method: str) -> None:
    judge, heard = agent_of("cnn"), list[int]()
    backbone = judge.model.backbone
    assert isinstance(backbone, PictureBackbone)
    locations = passed(method).locations
    found = judged(judge, SPLIT, locations, 4, heard.append).named
    assert heard == [4, 4, 3]
    plain = torch.empty(SCENES, LOOKS, dtype=torch.int64)
    for scene in range(SCENES):
        for look in range(LOOKS):
            picture = masked(SPLIT.images[scene], locations[scene, : look + 1].tolist())
            with torch.no_grad():
                plain[scene, look] = backbone.network(picture[None]).argmax()
    assert torch.equal(found, plain)
    assert len(found.unique()) > 1, "a judge that always says the same would agree with anything"


def test_judgements_of_other_weights_are_told_apart() -> None:
    judge, other = agent_of("cnn"), agent_of("cnn")
    with torch.no_grad():
        next(other.model.parameters()).flatten()[0] += 1e-3
    locations = passed("random").locations
    first, same, changed = (judged(agent, SPLIT, locations, 4, silent).judge for agent in (judge, judge, other))
    assert torch.equal(first, same)
    assert not torch.equal(first, changed)


def picked_plainly(right: Tensor) -> list[int]:
    learned = [i for i, row in enumerate(right.tolist()) if row[-1] and not row[0]]
    failed = [i for i, row in enumerate(right.tolist()) if not row[-1]]
    return learned[:SUCCESSES] + failed[:FAILURES]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_successes_are_the_first_that_were_learned_and_failures_the_first_wrong_at_the_end(share: float) -> None:
    right = torch.rand(60, LOOKS, generator=torch.Generator().manual_seed(0)) < share
    assert picked(right) == picked_plainly(right)
    if share == 0.5:
        assert len(picked(right)) == SUCCESSES + FAILURES


@pytest.mark.parametrize("method", [*WITH_MAPS, "ram"])
def test_the_showcase_holds_the_scenes_of_the_rule_as_the_records_have_them(method: str) -> None:
    found = passed(method)
    shown = showcase(agent_of(method), SPLIT, found, SEED)
    chosen = shown.scenes
    assert chosen.tolist() == [*range(COMMON), *picked_plainly(found.right)]
    assert int(shown.common) == COMMON
    assert torch.equal(shown.images, SPLIT.images[chosen])
    assert torch.equal(shown.labels, SPLIT.labels[chosen])
    assert torch.equal(shown.locations, found.locations[chosen])
    torch.testing.assert_close(shown.probabilities.log(), found.log_probabilities[chosen], rtol=1e-4, atol=1e-4)
    grid = CONFIG.grid
    assert shown.gains.shape == (len(chosen), LOOKS, grid.rows, grid.cols)
    place = grid.nearest(shown.locations)[..., None]
    at_the_look = shown.gains.flatten(2).gather(2, place).squeeze(2)
    torch.testing.assert_close(at_the_look, found.expected[chosen], rtol=1e-4, atol=1e-5)


def test_a_split_of_few_scenes_is_shown_whole() -> None:
    few = Split(SPLIT.images[:2], SPLIT.labels[:2])
    agent = agent_of("random")
    shown = showcase(agent, few, exact_pass(agent, few, SEED, 2), SEED)
    assert int(shown.common) == 2
    assert shown.scenes.tolist()[:2] == [0, 1]


def test_class_means_are_numpys() -> None:
    many = scenes(2300)
    means = class_means(many, CONFIG.classes + 1)
    images, labels = many.images.numpy(), many.labels.numpy()
    for label in range(CONFIG.classes):
        expected = np.round(images[labels == label].mean(0, dtype=np.float64)).astype(np.uint8)
        assert np.array_equal(means[label].numpy(), expected)
    assert not means[CONFIG.classes].any(), "black where a class has no image"


def test_latents_are_samples_for_every_look_at_the_first_scene_and_repeat() -> None:
    found, again = (latents(tiny_agent(), SPLIT, SEED) for _ in range(2))
    looks, samples, size = found.z.shape
    assert (looks, size, int(found.scene)) == (LOOKS, CONFIG.latent_size, 0)
    assert samples >= 100
    assert bool(found.z.isfinite().all())
    assert torch.equal(found.z, again.z)
    for look in range(looks):
        assert len(found.z[look].unique(dim=0)) == samples, "drawn one by one"
        assert look == 0 or not torch.allclose(found.z[look].mean(0), found.z[look - 1].mean(0)), "a look changes q"
    other = Split(SPLIT.images.flip(0), SPLIT.labels.flip(0))
    assert not torch.allclose(latents(tiny_agent(), other, SEED).z, found.z)


def test_a_method_that_imagines_nothing_has_no_latents() -> None:
    with pytest.raises(ValueError, match="random imagines nothing"):
        latents(agent_of("random"), SPLIT, SEED)


@pytest.mark.parametrize("method", ["infogaze", "random", "oracle", "ram"])
def test_many_looks_begin_as_the_records_and_cover_all_places_where_the_policy_never_revisits(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensors: list[ImageSensor] = []

    class Kept(ImageSensor):
        def __init__(self, images: Tensor, glimpse: int) -> None:
            super().__init__(images, glimpse)
            sensors.append(self)

    monkeypatch.setattr("infogaze.evaluation.rollouts.ImageSensor", Kept)
    heard: list[int] = []
    found = many_looks(agent_of(method), SPLIT, SEED, SCENES, heard.append)
    assert heard == [SCENES]
    assert found.named.shape == (SCENES, CONFIG.grid.places)
    places = torch.stack([CONFIG.grid.nearest(where) for where in sensors[0].log], 1)
    assert places.shape == (SCENES, CONFIG.grid.places)
    every = torch.arange(CONFIG.grid.places).expand(SCENES, -1)
    assert torch.equal(places.sort(1).values, every) == (method != "ram")
    assert torch.equal(found.named[:, :LOOKS], passed(method).named)
    assert torch.equal(found.labels, SPLIT.labels)


def test_twenty_imagined_scenes_are_the_records_of_an_agent_that_imagines_twenty() -> None:
    heard: list[int] = []
    found = sample_counts(tiny_agent(samples=3), SPLIT, SEED, SCENES, heard.append)
    assert heard == [SCENES] * len(COUNTS)
    assert tuple(found.samples.tolist()) == COUNTS
    for count in (5, 20):
        row = COUNTS.index(count)
        same = exact_pass(tiny_agent(samples=count), SPLIT, SEED, SCENES)
        assert torch.equal(found.log_probabilities[row], same.log_probabilities)
        assert torch.equal(found.named[row], same.named)
        assert torch.equal(found.expected[row], same.expected)
    assert torch.equal(found.labels, SPLIT.labels)
    assert bool((found.seconds > 0).all())
    first, last = found.expected[0], found.expected[-1]
    assert torch.equal(found.log_probabilities[0, :, 0], found.log_probabilities[-1, :, 0]), "the same first looks"
    assert not torch.allclose(first, last)


@pytest.mark.parametrize("method", ["random", "oracle"])
def test_disturbed_scenes_are_named_as_the_exact_pass_names_them_and_strength_0_is_undisturbed(method: str) -> None:
    heard: list[int] = []
    agent = agent_of(method)
    found = disturbed(agent, SPLIT, SEED, SCENES, heard.append)
    assert sum(heard) == PASSES * SCENES
    undisturbed = passed(method).named
    seeds = scene_seeds(SEED, SCENES)
    strongest = []
    for kind, disturbance in enumerate(DISTURBANCES.values()):
        assert found.strengths[kind].tolist() == pytest.approx(list(disturbance.strengths))
        assert float(found.strengths[kind, 0]) == 0.0
        assert torch.equal(found.named[kind, 0], undisturbed)
        images = disturbance.apply(SPLIT.images, disturbance.strengths[-1], seeds)
        again = exact_pass(agent, Split(images, SPLIT.labels), SEED, SCENES).named
        assert torch.equal(found.named[kind, -1], again)
        strongest.append(not torch.equal(again, undisturbed))
    assert sum(strongest) >= 3, "most disturbances change something"
