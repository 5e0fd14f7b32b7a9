from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from infogaze import (
    Agent,
    Confident,
    Episode,
    GainPolicy,
    ImageSensor,
    InfogazeError,
    LittleToGain,
    RandomPolicy,
    RasterPolicy,
    scene_seeds,
)
from infogaze.gaze.policies import Policy
from infogaze.gaze.stopping import Progress, StopRule
from infogaze.grid import extract
from infogaze.nn.gain import CRITERIA
from infogaze.nn.pixels import normalise_pixels
from infogaze.nn.typicality import Typicality, fit_typicality
from tests.support.paths import ROOT
from tests.support.tiny import CONFIG, TOKENS, scenes, tiny_agent

AGENT = tiny_agent()
FLIPPING = tiny_agent()
FLIPPING.flip_tta = True
TOKEN_AGENT = tiny_agent(TOKENS)
every_agent = pytest.mark.parametrize("agent", [AGENT, FLIPPING, TOKEN_AGENT], ids=["one belief", "flip_tta", "tokens"])
vector_or_tokens = pytest.mark.parametrize("agent", [AGENT, TOKEN_AGENT], ids=["vector", "tokens"])


def windows(episode: Episode, count: int) -> Tensor:
    """The union of the windows looked at, drawn pixel by pixel."""
    union = torch.zeros(count, CONFIG.height, CONFIG.width, dtype=torch.bool)
    for look in episode.history:
        for scene, (row, col) in enumerate(look.location.tolist()):
            union[scene, row : row + CONFIG.glimpse_size, col : col + CONFIG.glimpse_size] = True
    return union


@every_agent
@given(seed=st.integers(0, 2**40), batch=st.integers(1, 3), budget=st.integers(1, 6))
def test_unseen_pixels_cannot_change_the_outcome(agent: Agent, seed: int, batch: int, budget: int) -> None:
    images = scenes(batch, seed)
    sensor = ImageSensor(images, CONFIG.glimpse_size)
    episode = agent.run(sensor, budget, batch=batch, seed=seed)
    union = windows(episode, batch)[:, None].expand_as(images)
    other = torch.where(union, images, 255 - images)
    again = agent.run(ImageSensor(other, CONFIG.glimpse_size), budget, batch=batch, seed=seed)
    for look, same in zip(episode.history, again.history, strict=True):
        assert torch.equal(look.location, same.location)
        assert torch.equal(look.probabilities, same.probabilities)
        assert torch.equal(look.gain, same.gain)


@given(seed=st.integers(0, 2**40), batch=st.integers(1, 3))
def test_exactly_the_union_of_the_windows_is_read(seed: int, batch: int) -> None:
    sensor = ImageSensor(scenes(batch, seed), CONFIG.glimpse_size)
    episode = AGENT.run(sensor, batch=batch, seed=seed)
    union = windows(episode, batch)
    assert torch.equal(sensor.reads > 0, union)
    assert torch.equal(sensor.pixels_read, union.flatten(1).sum(1))


def test_a_pixel_inside_a_window_does_change_the_outcome() -> None:
    images = scenes(1)
    sensor = ImageSensor(images, CONFIG.glimpse_size)
    episode = AGENT.run(sensor)
    union = windows(episode, 1)[:, None].expand_as(images)
    seen = AGENT.run(ImageSensor(torch.where(union, 255 - images, images), CONFIG.glimpse_size))
    assert not torch.allclose(episode.probabilities, seen.probabilities)


@vector_or_tokens
@settings(max_examples=10)
@given(batch=st.integers(2, 7), seed=st.integers(0, 1000))
def test_a_scenes_outcome_does_not_depend_on_its_neighbours(agent: Agent, batch: int, seed: int) -> None:
    images = scenes(batch, seed)
    together = agent.run(ImageSensor(images, CONFIG.glimpse_size), batch=batch, seed=seed)
    seeds = scene_seeds(seed, batch)
    for scene in range(batch):
        sensor = ImageSensor(images[scene : scene + 1], CONFIG.glimpse_size)
        alone = agent.episode(seed=seeds[scene : scene + 1])
        for number, look in enumerate(together.history):
            where, gain = look.location[scene : scene + 1], alone.next_gain.flatten()
            torch.testing.assert_close(gain, look.gain[scene].flatten(), atol=1e-4, rtol=1e-3)
            if number:  # of two places that are as good as each other, rounding may choose either
                chosen = gain[CONFIG.grid.at(where)[0]]
                assert (gain[alone.candidates.flatten()] <= chosen + 1e-4 + 1e-3 * chosen.abs()).all()
            else:
                assert torch.equal(alone.next_location(), where)
            alone.observe(sensor.look(where), at=where)
            torch.testing.assert_close(alone.probabilities[0], look.probabilities[scene], atol=1e-5, rtol=1e-4)


def test_the_same_seed_gives_the_same_outcome_and_another_seed_another() -> None:
    def outcome(seed: int) -> tuple[Tensor, Tensor]:
        episode = AGENT.run(ImageSensor(scenes(4), CONFIG.glimpse_size), batch=4, seed=seed)
        return torch.stack([look.location for look in episode.history]), episode.probabilities

    first, again, other = outcome(3), outcome(3), outcome(4)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])


def test_batches_may_hold_equal_scenes_with_equal_seeds() -> None:
    images = scenes(1).expand(3, -1, -1, -1)
    episode = AGENT.run(ImageSensor(images, CONFIG.glimpse_size), batch=3, seed=[5, 5, 5])
    assert torch.equal(episode.history[-1].location[0], episode.history[-1].location[2])


def test_the_contract_of_an_episode() -> None:
    episode = AGENT.episode(batch=2, seed=0)
    grid = CONFIG.grid
    assert episode.probabilities.tolist() == [[pytest.approx(1 / 3)] * 3] * 2
    assert not episode.done
    images = scenes(2)
    looks = 0
    while not episode.done:
        where = episode.next_location()
        assert where.dtype == torch.int64
        assert where.shape == (2, 2)
        assert torch.equal(where, episode.next_location()), "asking twice changes nothing"
        glimpse = torch.stack(
            [image[:, r : r + 4, c : c + 4] for image, (r, c) in zip(images, where.tolist(), strict=True)]
        )
        episode.observe(glimpse)
        looks += 1
        assert episode.gain.shape == (2, grid.rows, grid.cols)
        assert episode.gain.isfinite().all()
        assert episode.candidates.sum((1, 2)).tolist() == [grid.num_locations - looks] * 2
        assert torch.equal(episode.gain, episode.history[-1].gain)
        torch.testing.assert_close(episode.probabilities.sum(1), torch.ones(2))
        entropy = -(episode.probabilities * episode.probabilities.log()).sum(1)
        torch.testing.assert_close(episode.history[-1].entropy, entropy)
    assert looks == AGENT.num_looks == len(episode.history)
    with pytest.raises(RuntimeError, match="done after 4 looks"):
        episode.next_location()
    with pytest.raises(RuntimeError, match="done after 4 looks"):
        episode.observe(glimpse)


def test_the_next_location_is_where_the_gain_is_largest_among_the_candidates() -> None:
    episode = AGENT.episode(batch=3, seed=1)
    images = scenes(3)
    sensor = ImageSensor(images, CONFIG.glimpse_size)
    while not episode.done:
        left = episode.candidates.flatten(1)
        where = episode.next_location()
        if episode.history:
            best = episode.gain.flatten(1).masked_fill(~left, -torch.inf).argmax(1)
            assert torch.equal(CONFIG.grid.locations()[best], where)
        episode.observe(sensor.look(where))


@pytest.mark.parametrize("policy", [GainPolicy(3), RandomPolicy(), RasterPolicy()])
def test_no_place_is_looked_at_twice_and_all_places_can_be(policy: Policy) -> None:
    places = CONFIG.grid.num_locations
    episode = AGENT.run(ImageSensor(scenes(2), CONFIG.glimpse_size), places + 5, batch=2, policy=policy)
    assert len(episode.history) == places, "no place is left before the budget is"
    for scene in range(2):
        seen = {tuple(look.location[scene].tolist()) for look in episode.history}
        assert len(seen) == places
    assert not episode.candidates.any()


def test_random_first_looks_are_uniform_over_the_grid() -> None:
    # 30 places, 3000 scenes: 100 a place in expectation. The 0.9999 point of chi-squared with 29 degrees of freedom is 66.2.
    episode = AGENT.episode(batch=3000, seed=0)
    index = CONFIG.grid.at(episode.next_location()).float().argmax(1)
    counts = torch.bincount(index, minlength=CONFIG.grid.num_locations).double()
    expected = 3000 / CONFIG.grid.num_locations
    assert float(((counts - expected) ** 2 / expected).sum()) < 66.2


def test_raster_goes_row_by_row_after_the_first_look() -> None:
    episode = AGENT.run(ImageSensor(scenes(1), CONFIG.glimpse_size), policy=RasterPolicy(), first=(4, 4))
    assert [look.location[0].tolist() for look in episode.history] == [[4, 4], [0, 0], [0, 2], [0, 4]]


def test_a_policy_given_to_an_episode_chooses_its_first_look_too() -> None:
    by_raster = AGENT.episode(batch=2, policy=RasterPolicy())
    assert by_raster.next_location().tolist() == [[0, 0], [0, 0]]
    by_gain = AGENT.episode(batch=2, policy=GainPolicy(3))
    assert by_gain.has_map
    best = by_gain.next_gain.flatten(1).argmax(1)
    assert torch.equal(by_gain.next_location(), CONFIG.grid.locations()[best])
    elsewhere = AGENT.episode(batch=2, policy=RasterPolicy(), first=(4, 4))
    assert elsewhere.next_location().tolist() == [[4, 4], [4, 4]]


def test_an_agent_with_another_policy_has_the_same_random_first_look() -> None:
    images, other = scenes(5), AGENT.with_policy(RasterPolicy())
    plain, raster = (agent.run(ImageSensor(images, CONFIG.glimpse_size), batch=5) for agent in (AGENT, other))
    first = plain.history[0].location
    assert torch.equal(raster.history[0].location, first)
    assert len(first.unique(dim=0)) > 1, "at random"
    assert raster.history[1].location.tolist() == [[0, 2] if where == [0, 0] else [0, 0] for where in first.tolist()]
    assert isinstance(AGENT.policy, GainPolicy), "the agent itself is as it was"


@pytest.mark.parametrize("criterion", sorted(CRITERIA))
def test_every_criterion_drives_an_episode(criterion: str) -> None:
    episode = AGENT.run(ImageSensor(scenes(2), CONFIG.glimpse_size), batch=2, policy=GainPolicy(4, criterion))
    assert (episode.gain.flatten(1).amax(1) > 0).all()


def test_the_first_look_may_be_given_for_all_scenes_or_for_each() -> None:
    assert AGENT.episode(batch=2, first=(4, 2)).next_location().tolist() == [[4, 2], [4, 2]]
    assert AGENT.episode(batch=2, first=[[4, 2], [0, 6]]).next_location().tolist() == [[4, 2], [0, 6]]


@vector_or_tokens
def test_looks_off_the_grid_are_accepted_fractions_of_a_pixel_too(agent: Agent) -> None:
    image = scenes(1)
    episode = agent.episode()
    episode.observe(image[:, :, 3:7, 1:5], at=(3, 1))
    assert episode.candidates.all(), "no grid place was looked at"
    sensor = ImageSensor(image, CONFIG.glimpse_size)
    between = torch.tensor([[2.25, 3.5]])
    episode.observe(sensor.look(between), at=between)
    assert episode.history[-1].location.tolist() == [[2.25, 3.5]]
    episode.observe(sensor.look(torch.tensor([[4.0, 2.0]])), at=(4.0, 2.0))
    assert not episode.candidates[0, 2, 1], "a float that falls on a grid place is that place"
    assert episode.gain.abs().sum() == 0, "no map chose it"
    next_place = episode.next_location()
    assert episode.gain.abs().sum() > 0
    assert next_place.tolist() != [[4, 2]]


@pytest.mark.parametrize(
    "stop", [None, Confident(1.0), LittleToGain(0.0)], ids=["no rule", "confident", "little to gain"]
)
def test_a_look_elsewhere_than_was_asked_for_is_recorded_as_chosen_by_no_map(stop: StopRule | None) -> None:
    sensor = ImageSensor(scenes(2), CONFIG.glimpse_size)
    episode = AGENT.episode(batch=2, stop=stop)
    episode.observe(sensor.look(episode.next_location()))
    episode.observe(sensor.look(torch.tensor([[1, 1], [1, 1]])), at=(1, 1))
    assert not episode.history[-1].gain.any(), "nothing was asked"
    asked, planned = episode.next_location(), episode.gain
    where = torch.stack([asked[0], torch.tensor([1, 3])])
    episode.observe(sensor.look(where), at=where)
    assert torch.equal(episode.history[-1].gain[0], planned[0]), "the place that was asked for, named"
    assert planned[0].any()
    assert not episode.history[-1].gain[1].any()


def test_the_models_own_budget_is_no_more_than_the_places() -> None:
    agent = Agent(AGENT.model, AGENT.classes, policy=GainPolicy(), num_looks=1000)
    assert agent.episode().budget == CONFIG.grid.num_locations
    assert AGENT.episode(budget=1000).budget == 1000, "one's own may be, for looks off the grid"


@vector_or_tokens
def test_a_scene_with_no_place_left_takes_nothing_in_while_others_go_on(agent: Agent) -> None:
    image = scenes(1).expand(2, -1, -1, -1)
    sensor = ImageSensor(image, CONFIG.glimpse_size)
    episode = agent.episode(batch=2, budget=1000)
    for place in CONFIG.grid.locations():
        where = torch.stack([place, torch.tensor([1, 1])])
        episode.observe(sensor.look(where), at=where)
    seen = episode.probabilities
    assert not episode.done
    episode.observe(sensor.look(torch.tensor([[3, 3], [3, 3]])), at=(3, 3))
    assert torch.equal(episode.probabilities[0], seen[0])
    assert not torch.equal(episode.probabilities[1], seen[1])


def test_a_small_step_off_the_grid_changes_the_outcome_a_little() -> None:
    image = torch.nn.functional.avg_pool2d(scenes(1).float(), 3, 1, 1).round().to(torch.uint8)
    sensor = ImageSensor(image, CONFIG.glimpse_size)

    def probabilities(row: float) -> Tensor:
        episode = AGENT.episode()
        where = torch.tensor([[row, 2.0]])
        episode.observe(sensor.look(where), at=where)
        return episode.probabilities

    near, far = (probabilities(4.0) - probabilities(4.0 + step) for step in (1e-3, 1.0))
    assert 0 < near.abs().max() < 0.05 * far.abs().max() + 1e-3


def test_uint8_and_float_glimpses_mean_the_same() -> None:
    glimpse = scenes(1)[:, :, :4, :4]
    one, other = AGENT.episode(first=(0, 0)), AGENT.episode(first=(0, 0))
    one.observe(glimpse, at=(0, 0))
    other.observe(glimpse.float() / 255, at=(0, 0))
    torch.testing.assert_close(one.probabilities, other.probabilities)


def test_a_numpy_glimpse_is_as_good_as_a_tensor() -> None:
    glimpse = scenes(1)[:, :, :4, :4].contiguous()
    one, other = AGENT.episode(), AGENT.episode()
    one.observe(glimpse, at=(0, 0))
    other.observe(glimpse.numpy(), at=(0, 0))
    assert torch.equal(one.probabilities, other.probabilities)


def test_numpy_glimpses_may_be_views_and_not_to_be_written_to_and_seeds_may_be_numpys_too() -> None:
    glimpse = scenes(1)[:, :, :4, :4].contiguous()
    swapped = glimpse.numpy()[:, ::-1]
    swapped.flags.writeable = False
    one, other = AGENT.episode(seed=3), AGENT.episode(seed=np.int64(3))
    one.observe(glimpse.flip(1), at=(0, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other.observe(swapped, at=np.array([2, 0])[::-1])
    assert torch.equal(one.probabilities, other.probabilities)
    assert torch.equal(one.next_location(), other.next_location())


def test_bad_glimpses_and_locations_are_refused_by_name() -> None:
    episode = AGENT.episode(batch=2)
    good = scenes(2)[:, :, :4, :4]
    with pytest.raises(RuntimeError, match="call next_location"):
        episode.observe(good)
    with pytest.raises(InfogazeError, match=r"\(2, 2, 5, 4\).*\(2, 2, 4, 4\)"):
        episode.observe(scenes(2)[:, :, :5, :4], at=(0, 0))
    with pytest.raises(InfogazeError, match=r"\(2, 1, 4, 4\).*\(2, 2, 4, 4\)"):
        episode.observe(good[:, :1], at=(0, 0))
    with pytest.raises(InfogazeError, match=r"\[0, 1\]"):
        episode.observe(good.float(), at=(0, 0))
    with pytest.raises(InfogazeError, match=r"\[0, 1\]"):
        episode.observe(good.float() * float("nan"), at=(0, 0))
    with pytest.raises(InfogazeError, match="int64"):
        episode.observe(good.long(), at=(0, 0))
    with pytest.raises(InfogazeError, match=r"\(10, 0\).*0 to 9.*0 to 7"):
        episode.observe(good, at=(10, 0))
    with pytest.raises(InfogazeError, match="row, column"):
        episode.observe(good, at=(1, 2, 3))
    assert not episode.history, "what was refused left nothing behind"


BAD = """
import numpy as np, torch, infogaze
from tests.support.tiny import tiny_agent
agent = tiny_agent()
for given in (
    {"batch": 0}, {"batch": 1.5}, {"batch": True}, {"budget": 0}, {"budget": 2.5}, {"batch": 2, "seed": [1]},
    {"batch": 2, "seed": [1.7, 2.2]},
    {"batch": 2, "seed": torch.tensor([1.7, 2.2])}, {"batch": 2, "seed": ["a", "b"]}, {"seed": 2**64}, {"stop": 0.9}, {"policy": "random"},
):
    try:
        agent.episode(**given)
    except infogaze.InfogazeError as error:
        print(error)
try:
    agent.run("a camera")
except infogaze.InfogazeError as error:
    print(error)
"""


def test_bad_values_of_an_episode_are_refused_by_name() -> None:
    # In a process of its own, because the tests themselves check types before a call is made.
    done = subprocess.run([sys.executable, "-c", BAD], capture_output=True, text=True, check=True, cwd=ROOT)
    lines = done.stdout.splitlines()
    named = [
        "batch is 0", "batch is 1.5", "batch is True", "budget is 0", "budget is 2.5", "(1,)", "float64", "float32", "<U1", str(2**64),
        "stop is 0.9", "policy is 'random'", "'a camera'",
    ]  # fmt: skip
    assert len(lines) == len(named), done.stdout
    for line, words in zip(lines, named, strict=True):
        assert words in line


def test_a_plain_function_is_a_sensor() -> None:
    images = scenes(2)
    by_sensor = AGENT.run(ImageSensor(images, CONFIG.glimpse_size), batch=2)
    by_function = AGENT.run(lambda where: extract(images, where, CONFIG.glimpse_size), batch=2)
    assert torch.equal(by_sensor.probabilities, by_function.probabilities)


def test_changing_what_an_episode_hands_out_changes_nothing_in_it() -> None:
    episode = AGENT.run(ImageSensor(scenes(2), CONFIG.glimpse_size), batch=2)
    before = episode.probabilities
    episode.probabilities.zero_()
    assert torch.equal(episode.probabilities, before)
    assert torch.equal(episode.history[-1].probabilities, before)


def test_with_flip_tta_probabilities_are_the_mean_of_both_and_looks_are_those_without_it() -> None:
    images = scenes(3)
    plain, flipping = (agent.run(ImageSensor(images, CONFIG.glimpse_size), batch=3) for agent in (AGENT, FLIPPING))
    mirrored = AGENT.episode(3)
    sensor = ImageSensor(images.flip(-1), CONFIG.glimpse_size)
    for one, both in zip(plain.history, flipping.history, strict=True):
        assert torch.equal(one.location, both.location)
        torch.testing.assert_close(one.gain, both.gain)
        row, col = one.location.unbind(1)
        where = torch.stack([row, CONFIG.width - CONFIG.glimpse_size - col], 1)
        mirrored.observe(sensor.look(where), at=where)
        torch.testing.assert_close(both.probabilities, (one.probabilities + mirrored.probabilities) / 2)
    assert not torch.allclose(plain.probabilities, flipping.probabilities)


def test_with_flip_tta_a_mirrored_scene_has_the_probabilities_of_the_scene() -> None:
    there, here = FLIPPING.episode(3), FLIPPING.episode(3)
    for where in (torch.tensor([0.0, 1.5]), torch.tensor([4.0, 6.0])):
        back = torch.stack([where[0], CONFIG.width - CONFIG.glimpse_size - where[1]])
        glimpse = scenes(3, int(where[0]))[..., : CONFIG.glimpse_size, : CONFIG.glimpse_size]
        there.observe(glimpse, at=where)
        here.observe(glimpse.flip(-1), at=back)
    torch.testing.assert_close(there.probabilities, here.probabilities)


@vector_or_tokens
@pytest.mark.parametrize("flip_tta", [False, True])
def test_a_scene_that_goes_on_is_as_if_none_beside_it_had_stopped(agent: Agent, flip_tta: bool) -> None:
    looker = agent.with_policy(GainPolicy(3))
    looker.flip_tta = flip_tta

    def stop(episode: Progress) -> Tensor:
        """The first scene after the first look, the second after the second, the third never."""
        assert isinstance(episode, Episode)
        return episode.looks_taken >= torch.tensor([1, 2, 1000])

    sensor = ImageSensor(scenes(3), CONFIG.glimpse_size)
    whole, ending = looker.episode(3), looker.episode(3, stop=stop)
    while not ending.done:
        where = ending.next_location()
        ending.observe(sensor.look(where), at=where)
        whole.observe(sensor.look(where), at=where)
    assert ending.looks_taken.tolist() == [1, 2, looker.num_looks]
    for scene, last in enumerate([0, 1, looker.num_looks - 1]):
        torch.testing.assert_close(ending.probabilities[scene], whole.history[last].probabilities[scene])
        torch.testing.assert_close(ending.belief.hidden[scene], whole.history[last].hidden[scene])


def test_the_location_that_is_handed_out_may_be_changed_without_harm() -> None:
    sensor = ImageSensor(scenes(1), CONFIG.glimpse_size)
    one, other = AGENT.episode(), AGENT.episode()
    where = one.next_location()
    glimpse = sensor.look(where)
    where += 1000
    one.observe(glimpse)
    other.observe(glimpse, at=other.next_location())
    assert torch.equal(one.history[0].location, other.history[0].location)
    assert torch.equal(one.probabilities, other.probabilities)


def test_the_number_of_imagined_scenes_may_be_changed() -> None:
    agent, few = tiny_agent(), tiny_agent(num_samples=1)
    sensor = ImageSensor(scenes(1), CONFIG.glimpse_size)
    before = agent.run(sensor).history[1].gain
    after = agent.with_policy(GainPolicy(1)).run(sensor).history[1].gain
    assert not torch.allclose(after, before)
    torch.testing.assert_close(after, few.run(sensor).history[1].gain)
    torch.testing.assert_close(agent.run(sensor).history[1].gain, before)


def _typical(agent: Agent) -> Typicality:
    """Of glimpses of noise, fitted with this agent's features."""
    glimpses = torch.stack([scenes(7, seed)[..., :4, :4] for seed in range(100)])
    with torch.no_grad():
        fitted = fit_typicality(agent.model.backbone.features(normalise_pixels(glimpses)))
    assert fitted is not None
    return fitted


def test_the_ood_score_of_an_episode_is_the_mean_over_its_looks() -> None:
    agent = tiny_agent()
    assert agent.episode(3).ood_score is None, "who has not seen training cannot tell"
    agent.typicality = _typical(agent)
    images = scenes(3, seed=1000)
    episode, sensor, scores = agent.episode(3), ImageSensor(images, CONFIG.glimpse_size), []
    while not episode.done:
        where = episode.next_location()
        glimpse = sensor.look(where)
        episode.observe(glimpse)
        with torch.no_grad():
            scores.append(agent.typicality.score(agent.model.backbone.features(normalise_pixels(glimpse))))
        assert episode.ood_score is not None
        torch.testing.assert_close(episode.ood_score, torch.stack(scores).mean(0))
    assert not episode.out_of_distribution.any(), "noise, as in training"


def test_scenes_unlike_those_of_training_are_noticed_and_the_others_of_the_batch_are_not() -> None:
    agent = tiny_agent(seed=4)
    agent.typicality = _typical(agent)
    images = scenes(4, seed=1000)
    images[::2] = (torch.arange(CONFIG.width) % 2 * 255).to(torch.uint8)  # a test pattern
    episode = agent.run(ImageSensor(images, CONFIG.glimpse_size), batch=4)
    assert episode.out_of_distribution.tolist() == [True, False, True, False]


def test_a_scene_that_has_stopped_keeps_its_ood_score() -> None:
    agent = tiny_agent()
    agent.typicality = _typical(agent)
    sensor = ImageSensor(scenes(2), CONFIG.glimpse_size)

    def stop(episode: Progress) -> Tensor:
        return torch.tensor([True, False])

    episode, scores = agent.episode(2, stop=stop), []
    while not episode.done:
        episode.observe(sensor.look(episode.next_location()))
        assert episode.ood_score is not None
        scores.append(episode.ood_score)
    first, second = torch.stack(scores).unbind(1)
    assert len(scores) == agent.num_looks
    torch.testing.assert_close(first, first[:1].expand_as(first))
    assert not torch.allclose(second, second[:1].expand_as(second))


def test_bad_policies_are_refused() -> None:
    with pytest.raises(InfogazeError, match="'luck'.*information-gain"):
        GainPolicy(criterion="luck")
    with pytest.raises(InfogazeError, match="num_samples is 0"):
        GainPolicy(num_samples=0)
