"""What each measurement says, against plain loops over the same scenes."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from infogaze import METHODS, Agent, GlimpseClassifier, ImageSensor, Origin, RandomPolicy, Travel, scene_seeds
from infogaze.data.sets import Split
from infogaze.evaluation.corrupted import PASSES, corrupted
from infogaze.evaluation.corruptions import CORRUPTIONS
from infogaze.evaluation.exact_pass import Records, exact_pass
from infogaze.evaluation.judged import judged
from infogaze.evaluation.latents import latents
from infogaze.evaluation.many_looks import many_looks
from infogaze.evaluation.measurement import Subject
from infogaze.evaluation.registry import MEASUREMENTS, measurements_for
from infogaze.evaluation.rollouts import LEAST, roll_out
from infogaze.evaluation.sample_counts import COUNTS, sample_counts
from infogaze.evaluation.showcase import COMMON, FAILURES, SUCCESSES, class_means, picked, showcase
from infogaze.evaluation.travelled import EXPOSURE, POLICIES, stage_for, time_of_random_looks, travelled
from infogaze.gaze.policies import ScenePolicy
from infogaze.gaze.sensor import EpisodeSensor
from infogaze.methods.cnn import PictureBackbone
from infogaze.methods.registry import build_for
from infogaze.models import make_agent
from infogaze.nn.pixels import normalise_pixels
from tests.support.looks import looked_alike
from tests.support.tiny import CONFIG, tiny_agent

LOOKS, SCENES, SEED = 4, 11, 5
SIZES = replace(CONFIG, dictionary_entries=6)
NAMES = tuple(f"class {index}" for index in range(CONFIG.num_classes))
THAT_LOOK = [name for name in METHODS if METHODS[name].sees != "everything"]
WITH_MAPS = ["infogaze", "paper-corrected", "discriminative", "oracle"]
ALL_BUT_EQUAL = 1e-4
"""Between two logits or log-probabilities that another batch may order otherwise."""


def scenes(count: int = SCENES) -> Split:
    """Of noise, each as bright as it happens to be."""
    generator = torch.Generator().manual_seed(0)
    bright = torch.randint(0, 100, (count, CONFIG.channels, 1, 1), generator=generator)
    noise = torch.randint(0, 156, (count, CONFIG.channels, CONFIG.height, CONFIG.width), generator=generator)
    return Split((bright + noise).to(torch.uint8), torch.randint(0, CONFIG.num_classes, (count,), generator=generator))


SPLIT = scenes()


def last_layer(model: GlimpseClassifier) -> nn.Linear:
    """The layer that the class probabilities come from."""
    return [part for part in model.backbone.modules() if isinstance(part, nn.Linear)][-1]


def agent_around(model: GlimpseClassifier, method: str) -> Agent:
    origin = Origin(method=method, config=METHODS[method].sizes(SIZES), num_samples=5)
    return make_agent(model, NAMES, origin=origin, num_looks=LOOKS)


def subject_of(agent: Agent, test: Split = SPLIT, *, seed: int = SEED, batch_size: int = SCENES) -> Subject:
    assert agent.origin is not None
    method = METHODS[agent.origin.method]
    return Subject(agent=agent, method=method, test=test, num_scenes=len(test), seed=seed, batch_size=batch_size)


@cache
def balanced(method: str) -> GlimpseClassifier:
    """A model with random weights to which no class is always the likeliest."""
    model = build_for(method, METHODS[method].sizes(SIZES))
    layer = last_layer(model)
    usual = exact_pass(subject_of(agent_around(model, method))).log_probabilities.mean((0, 1))
    with torch.no_grad():
        layer.bias.copy_(10.0 * (layer.bias - usual))
        layer.weight.mul_(10.0)
    return model


def agent_of(method: str) -> Agent:
    return agent_around(deepcopy(balanced(method)), method)


@cache
def passed(method: str, batch_size: int = SCENES) -> Records:
    return exact_pass(subject_of(agent_of(method), batch_size=batch_size))


def silent(scenes: int) -> None:
    pass


def clear(log_probabilities: Tensor) -> Tensor:
    """Where the likeliest class is ahead by more than rounding, [...] of [..., classes]."""
    first, second = log_probabilities.topk(2).values.unbind(-1)
    return first - second > ALL_BUT_EQUAL


@pytest.mark.parametrize("method", METHODS)
def test_the_exact_pass_takes_every_image_once_and_in_order(method: str) -> None:
    heard: list[int] = []
    found = exact_pass(subject_of(agent_of(method), batch_size=4), heard.append)
    assert heard == [4, 4, 3]
    assert torch.equal(found.labels, SPLIT.labels)
    backwards = Split(SPLIT.images.flip(0), SPLIT.labels.flip(0))
    turned = exact_pass(subject_of(agent_of(method), backwards, batch_size=4))
    assert torch.equal(turned.labels, SPLIT.labels.flip(0))
    middle = SCENES // 2  # has the same seed either way
    torch.testing.assert_close(turned.log_probabilities[middle], found.log_probabilities[middle])
    assert not torch.allclose(turned.log_probabilities[0], found.log_probabilities[0])


@pytest.mark.parametrize("method", THAT_LOOK)
@pytest.mark.parametrize("batch_size", [3, SCENES])
def test_first_looks_are_those_of_any_other_method_in_any_batch(method: str, batch_size: int) -> None:
    assert torch.equal(passed(method, batch_size).locations[:, 0], passed("random").locations[:, 0])
    assert len(passed("random").locations[:, 0].unique(dim=0)) > 3, "and not all at one place"


def test_another_seed_has_other_first_looks() -> None:
    other = exact_pass(subject_of(agent_of("random"), seed=SEED + 1))
    assert not torch.equal(other.locations[:, 0], passed("random").locations[:, 0])


@pytest.mark.parametrize("method", METHODS)
def test_batches_change_neither_locations_nor_predictions(method: str) -> None:
    parts, whole = passed(method, 3), passed(method)
    alike = looked_alike(parts.locations, whole.locations)
    sure = alike[:, None] & clear(whole.log_probabilities)
    assert torch.equal(parts.predictions[sure], whole.predictions[sure])
    torch.testing.assert_close(parts.log_probabilities[alike], whole.log_probabilities[alike], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", THAT_LOOK)
def test_records_are_what_an_episode_says_and_expected_is_the_maps_value_at_the_place_it_chose(method: str) -> None:
    agent, found = agent_of(method), passed(method)
    if isinstance(agent.policy, ScenePolicy):
        agent = agent.with_policy(agent.policy.for_scenes(SPLIT.images, SPLIT.labels))
    sensor = ImageSensor(SPLIT.images, CONFIG.glimpse_size)
    episode = agent.run(sensor, batch=SCENES, seed=scene_seeds(SEED, SCENES))
    assert found.log_probabilities.shape == (SCENES, LOOKS, CONFIG.num_classes)
    for number, look in enumerate(episode.history):
        assert torch.equal(found.locations[:, number], look.location)
        torch.testing.assert_close(found.log_probabilities[:, number], look.probabilities.log())
        assert torch.equal(found.predictions[:, number], look.probabilities.argmax(1))
        for scene, place in enumerate(CONFIG.grid.nearest(look.location).tolist()):
            expected = float(found.expected[scene, number])
            if method in WITH_MAPS:
                assert expected == pytest.approx(float(look.gain[scene].flatten()[place]))
            if number == 0 or method in {"random", "ram", "ram-plus"}:
                assert expected == 0.0
    if method in WITH_MAPS:
        assert bool((found.expected[:, 1:] != 0).all())


def test_the_cnn_sees_the_complete_image_in_one_look() -> None:
    agent = agent_of("cnn")
    backbone = agent.model.backbone
    assert isinstance(backbone, PictureBackbone)
    found = passed("cnn", 4)
    with torch.no_grad():
        alone = torch.cat([backbone.network(normalise_pixels(image[None])) for image in SPLIT.images])
    torch.testing.assert_close(found.log_probabilities[:, 0], alone)
    assert torch.equal(found.predictions[clear(alone), 0], alone.argmax(1)[clear(alone)])
    assert found.locations.tolist() == [[[0, 0]]] * SCENES
    assert found.expected.tolist() == [[0.0]] * SCENES


@pytest.mark.parametrize("method", ["infogaze", "cnn"])
def test_a_probability_that_float32_holds_for_zero_is_finite_in_the_records(method: str) -> None:
    agent = agent_of(method)
    with torch.no_grad():
        last_layer(agent.model).weight.mul_(1e7)
    found = exact_pass(subject_of(agent)).log_probabilities
    assert float(found.min()) == LEAST
    assert bool(found.half().isfinite().all())


@pytest.mark.parametrize("name", METHODS)
def test_what_is_measured_of_a_method_is_what_means_something_for_it(name: str) -> None:
    everything = [entry.name for entry in measurements_for(METHODS[name], MEASUREMENTS)]
    assert [entry.record for entry in measurements_for(METHODS[name], ())] == [Records]
    if name == "cnn":
        assert everything == ["records"]
    elif name in {"paper", "gaussian", "paper-corrected", "gaussian-corrected", "attention"}:
        assert everything == [kind for kind in MEASUREMENTS if kind != "imagined"]
    elif name in {"infogaze", "dictionary"}:
        assert everything == [kind for kind in MEASUREMENTS if kind != "latents"]
    else:
        of_imagination = {"imagined", "latents", "sample-counts", "coherence"}
        of_looks = {"early-stopping"} if name == "oracle" else set()
        assert everything == [kind for kind in MEASUREMENTS if kind not in of_imagination | of_looks]


def test_the_exact_pass_comes_first_whatever_the_order_in_which_measurements_are_named() -> None:
    assert next(iter(MEASUREMENTS)) == "records"
    assert all(name == entry.name == entry.record.file for name, entry in MEASUREMENTS.items())
    turned = measurements_for(METHODS["paper-corrected"], [*reversed(MEASUREMENTS)])
    assert turned == [entry for name, entry in MEASUREMENTS.items() if name != "imagined"]


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_a_measurement_tells_of_no_more_progress_than_the_work_it_announced(name: str) -> None:
    method = "infogaze" if name == "imagined" else "paper-corrected"
    subject = subject_of(agent_of(method), batch_size=4)
    subject = replace(subject, num_scenes=5, records=passed(method), judge=agent_of("cnn"))
    heard: list[int] = []
    MEASUREMENTS[name].measure(subject, heard.append)
    assert sum(heard) == (
        0 if name in {"showcase", "imagined", "latents", "early-stopping"} else MEASUREMENTS[name].work(subject)
    )
    assert MEASUREMENTS[name].work(subject) >= 1


@pytest.mark.parametrize("name", ["many-looks", "sample-counts", "corruptions", "travel"])
def test_what_looks_at_the_first_scenes_depends_on_how_many_they_are(name: str) -> None:
    subject = subject_of(agent_of("infogaze"))
    few, more = (MEASUREMENTS[name].source(replace(subject, num_scenes=count)) for count in (2, 3))
    assert few != more
    all_of_them, beyond = (MEASUREMENTS[name].source(replace(subject, num_scenes=count)) for count in (SCENES, 10**6))
    assert all_of_them == beyond, "there are no more than all"


def masked(image: Tensor, looks: list[list[int]]) -> Tensor:
    """The image in [-1, 1], grey but for the looks."""
    picture = torch.zeros(image.shape)
    for row, col in looks:
        seen = slice(row, row + CONFIG.glimpse_size), slice(col, col + CONFIG.glimpse_size)
        picture[:, seen[0], seen[1]] = image[:, seen[0], seen[1]] / 127.5 - 1.0
    return picture


@pytest.mark.parametrize("method", ["infogaze", "ram"])
def test_the_judge_classifies_the_image_masked_but_for_the_looks_so_far(method: str) -> None:
    judge, heard = agent_of("cnn"), list[int]()
    subject = replace(subject_of(agent_of(method), batch_size=4), records=passed(method), judge=judge)
    backbone = judge.model.backbone
    assert isinstance(backbone, PictureBackbone)
    locations = passed(method).locations
    found = judged(subject, heard.append).predictions
    assert heard == [4, 4, 3]
    plain = torch.empty(SCENES, LOOKS, CONFIG.num_classes)
    for scene in range(SCENES):
        for look in range(LOOKS):
            picture = masked(SPLIT.images[scene], locations[scene, : look + 1].tolist())
            with torch.no_grad():
                plain[scene, look] = backbone.network(picture[None])[0]
    sure = clear(plain)
    assert float(sure.double().mean()) > 0.9
    assert torch.equal(found[sure], plain.argmax(-1)[sure])
    assert len(found.unique()) > 1, "a judge that always says the same would agree with anything"


def test_judgements_of_other_weights_are_told_apart() -> None:
    judge, other = agent_of("cnn"), agent_of("cnn")
    with torch.no_grad():
        next(other.model.parameters()).flatten()[0] += 1e-3
    subject = replace(subject_of(agent_of("random"), batch_size=4), records=passed("random"))
    first, same, changed = (judged(replace(subject, judge=agent), silent).judge for agent in (judge, judge, other))
    assert torch.equal(first, same)
    assert not torch.equal(first, changed)


def picked_plainly(correct: Tensor) -> list[int]:
    learned = [i for i, row in enumerate(correct.tolist()) if row[-1] and not row[0]]
    failed = [i for i, row in enumerate(correct.tolist()) if not row[-1]]
    return learned[:SUCCESSES] + failed[:FAILURES]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_successes_are_the_first_that_were_learned_and_failures_the_first_wrong_at_the_end(share: float) -> None:
    correct = torch.rand(60, LOOKS, generator=torch.Generator().manual_seed(0)) < share
    assert picked(correct) == picked_plainly(correct)
    if share == 0.5:
        assert len(picked(correct)) == SUCCESSES + FAILURES


@pytest.mark.parametrize("method", [*WITH_MAPS, "ram"])
def test_the_showcase_holds_the_scenes_of_the_rule_as_the_records_have_them(method: str) -> None:
    found = passed(method)
    shown = showcase(replace(subject_of(agent_of(method)), records=found), silent)
    chosen = shown.scenes
    assert chosen.tolist() == [*range(COMMON), *picked_plainly(found.correct)]
    assert int(shown.common) == COMMON
    assert torch.equal(shown.images, SPLIT.images[chosen])
    assert torch.equal(shown.labels, SPLIT.labels[chosen])
    alike = looked_alike(shown.locations, found.locations[chosen])
    torch.testing.assert_close(
        shown.probabilities.log()[alike], found.log_probabilities[chosen][alike], rtol=1e-4, atol=1e-4
    )
    grid = CONFIG.grid
    assert shown.gains.shape == (len(chosen), LOOKS, grid.rows, grid.cols)
    place = grid.nearest(shown.locations)[..., None]
    at_the_look = shown.gains.flatten(2).gather(2, place).squeeze(2)
    torch.testing.assert_close(at_the_look[alike], found.expected[chosen][alike], rtol=1e-4, atol=1e-5)


def test_a_split_of_few_scenes_is_shown_whole() -> None:
    few = Split(SPLIT.images[:2], SPLIT.labels[:2])
    subject = subject_of(agent_of("random"), few)
    shown = showcase(replace(subject, records=exact_pass(subject)), silent)
    assert int(shown.common) == 2
    assert shown.scenes.tolist()[:2] == [0, 1]


def test_class_means_are_numpys() -> None:
    many = scenes(2300)
    means = class_means(many, CONFIG.num_classes + 1)
    images, labels = many.images.numpy(), many.labels.numpy()
    for label in range(CONFIG.num_classes):
        expected = np.round(images[labels == label].mean(0, dtype=np.float64)).astype(np.uint8)
        assert np.array_equal(means[label].numpy(), expected)
    assert not means[CONFIG.num_classes].any(), "black where a class has no image"


def test_latents_are_samples_for_every_look_at_the_first_scene_and_repeat() -> None:
    found, again = (latents(subject_of(tiny_agent()), silent) for _ in range(2))
    looks, samples, size = found.z.shape
    assert (looks, size, int(found.scene)) == (LOOKS, CONFIG.latent_size, 0)
    assert samples >= 100
    assert bool(found.z.isfinite().all())
    torch.testing.assert_close(found.z, again.z)
    for look in range(looks):
        assert len(found.z[look].unique(dim=0)) == samples, "drawn one by one"
        assert look == 0 or not torch.allclose(found.z[look].mean(0), found.z[look - 1].mean(0)), "a look changes q"
    other = Split(SPLIT.images.flip(0), SPLIT.labels.flip(0))
    assert not torch.allclose(latents(subject_of(tiny_agent(), other), silent).z, found.z)


def test_latents_of_different_models_are_of_the_same_looks() -> None:
    one, other = (latents(subject_of(agent_of(method)), silent) for method in ("paper", "gaussian"))
    assert torch.equal(one.locations, other.locations)
    assert len(one.locations.unique(dim=0)) == LOOKS, "none twice"
    assert not torch.allclose(one.z, other.z)


@pytest.mark.parametrize("method", ["random", "infogaze", "dictionary"])
def test_a_method_without_a_partial_vae_has_no_latents(method: str) -> None:
    with pytest.raises(ValueError, match="without a Partial VAE"):
        latents(subject_of(agent_of(method)), silent)


@pytest.mark.parametrize("method", ["infogaze", "paper-corrected", "random", "oracle", "ram"])
def test_many_looks_begin_as_the_records_and_cover_all_places_where_the_policy_never_revisits(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensors: list[ImageSensor] = []

    class Kept(EpisodeSensor):
        def __init__(self, images: Tensor, glimpse_size: int) -> None:
            super().__init__(images, glimpse_size)
            sensors.append(self)

    monkeypatch.setattr("infogaze.evaluation.rollouts.EpisodeSensor", Kept)
    heard: list[int] = []
    found = many_looks(subject_of(agent_of(method)), heard.append)
    assert heard == [SCENES]
    assert found.predictions.shape == (SCENES, CONFIG.grid.num_locations)
    places = torch.stack([CONFIG.grid.nearest(where) for where in sensors[0].log], 1)
    assert places.shape == (SCENES, CONFIG.grid.num_locations)
    every = torch.arange(CONFIG.grid.num_locations).expand(SCENES, -1)
    assert torch.equal(places.sort(1).values, every) == (method != "ram")
    assert torch.equal(found.predictions[:, :LOOKS], passed(method).predictions)
    assert torch.equal(found.labels, SPLIT.labels)


def test_twenty_imagined_scenes_are_the_records_of_an_agent_that_imagines_twenty() -> None:
    heard: list[int] = []
    found = sample_counts(subject_of(tiny_agent(num_samples=3)), heard.append)
    assert heard == [SCENES] * len(COUNTS)
    assert tuple(found.num_samples.tolist()) == COUNTS
    for count in (5, 20):
        row = COUNTS.index(count)
        same = exact_pass(subject_of(tiny_agent(num_samples=count)))
        torch.testing.assert_close(found.log_probabilities[row], same.log_probabilities)
        assert torch.equal(found.predictions[row], same.predictions)
        torch.testing.assert_close(found.expected[row], same.expected)
    assert torch.equal(found.labels, SPLIT.labels)
    assert bool((found.seconds > 0).all())
    first, last = found.expected[0], found.expected[-1]
    torch.testing.assert_close(
        found.log_probabilities[0, :, 0], found.log_probabilities[-1, :, 0]
    )  # the same first looks
    assert not torch.allclose(first, last)


@pytest.mark.parametrize("method", ["random", "oracle"])
def test_corrupted_scenes_are_classified_as_by_the_exact_pass_and_severity_0_is_none(method: str) -> None:
    heard: list[int] = []
    agent = agent_of(method)
    found = corrupted(subject_of(agent), heard.append)
    assert sum(heard) == PASSES * SCENES
    clean = passed(method).predictions
    seeds = scene_seeds(SEED, SCENES)
    strongest = []
    for kind, corruption in enumerate(CORRUPTIONS.values()):
        assert found.severities[kind].tolist() == pytest.approx(list(corruption.severities))
        assert float(found.severities[kind, 0]) == 0.0
        assert torch.equal(found.predictions[kind, 0], clean)
        images = corruption.apply(SPLIT.images, corruption.severities[-1], seeds)
        split, sensor_of = Split(images, SPLIT.labels), corruption.sensor(corruption.severities[-1])
        again = roll_out(agent, split, seed=SEED, sensor_of=sensor_of).predictions
        assert torch.equal(found.predictions[kind, -1], again)
        strongest.append(not torch.equal(again, clean))
    assert sum(strongest) >= 3, "most corruptions change something"


@pytest.mark.parametrize("method", ["infogaze", "discriminative", "oracle", "ram"])
def test_against_time_each_prediction_is_that_of_the_last_look_that_had_ended(method: str) -> None:
    heard: list[int] = []
    agent = agent_of(method)
    found = travelled(subject_of(agent, batch_size=4), heard.append)
    assert heard == [4, 4, 3] * len(POLICIES)
    assert torch.equal(found.labels, SPLIT.labels)
    end = float(found.seconds[-1])
    assert float(found.seconds[0]) == EXPOSURE
    if isinstance(agent.policy, ScenePolicy):
        agent = agent.with_policy(agent.policy.for_scenes(SPLIT.images, SPLIT.labels))
    for number, name in enumerate(POLICIES):
        looker = agent.with_policy(RandomPolicy()) if name == "random" else agent
        travel = Travel(way=stage_for(CONFIG.grid), exposure=EXPOSURE, weighed=name == "gain a second")
        sensor = ImageSensor(SPLIT.images, CONFIG.glimpse_size)
        episode = looker.run(sensor, batch=SCENES, seed=scene_seeds(SEED, SCENES), travel=travel, seconds=end)
        same = found.looks[number] == episode.looks_taken
        assert int((~same).sum()) <= 1, "all but where two looks are as good"
        for scene in same.nonzero().flatten().tolist():
            for index, time in enumerate(found.seconds.tolist()):
                ended = [look for look in episode.history if look.seconds is not None and look.seconds[scene] <= time]
                chances = ended[-1].probabilities[scene]
                if bool(clear(chances.log())):
                    assert int(found.predictions[number, scene, index]) == int(chances.argmax())


def test_all_policies_begin_at_the_same_places_and_ways_that_are_weighed_leave_time_for_more_looks() -> None:
    found = travelled(subject_of(agent_of("infogaze")), silent)
    assert torch.equal(found.predictions[0, :, 0], found.predictions[1, :, 0])
    assert torch.equal(found.predictions[0, :, 0], found.predictions[2, :, 0])
    weighed, alone, at_random = found.looks.double().mean(1).tolist()
    assert weighed > alone
    assert at_random == pytest.approx(LOOKS, abs=1.0), "the time is that of as many looks at random"


def test_the_time_of_random_looks_is_their_mean_over_all_ways() -> None:
    grid = CONFIG.grid
    travel = Travel(way=stage_for(grid), exposure=EXPOSURE)
    places = grid.locations().double()
    ways = [
        float(travel.seconds(here[None], there[None, None], grid=grid))
        for here in places
        for there in places
        if not torch.equal(here, there)
    ]
    assert time_of_random_looks(travel, grid, num_looks=3) == pytest.approx(EXPOSURE + 2 * sum(ways) / len(ways))
