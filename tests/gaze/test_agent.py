from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from infogaze import (
    Agent,
    Confident,
    Episode,
    GainPolicy,
    ImageSensor,
    LittleToGain,
    RandomPolicy,
    RasterPolicy,
    scene_seeds,
)
from infogaze.gaze.policies import Policy
from infogaze.gaze.stopping import StopRule
from infogaze.grid import extract
from infogaze.nn.gain import CRITERIA
from tests.support.paths import ROOT
from tests.support.tiny import CONFIG, scenes, tiny_agent

AGENT = tiny_agent()
TWIN = tiny_agent()
TWIN.twin = True


def windows(episode: Episode, count: int) -> Tensor:
    """The union of the windows looked at, drawn pixel by pixel."""
    union = torch.zeros(count, CONFIG.height, CONFIG.width, dtype=torch.bool)
    for look in episode.history:
        for scene, (row, col) in enumerate(look.location.tolist()):
            union[scene, row : row + CONFIG.glimpse, col : col + CONFIG.glimpse] = True
    return union


@pytest.mark.parametrize("agent", [AGENT, TWIN], ids=["one belief", "twin"])
@given(seed=st.integers(0, 2**40), batch=st.integers(1, 3), budget=st.integers(1, 6))
def test_unseen_pixels_cannot_change_the_outcome(agent: Agent, seed: int, batch: int, budget: int) -> None:
    images = scenes(batch, seed)
    sensor = ImageSensor(images, CONFIG.glimpse)
    episode = agent.run(sensor, budget, batch=batch, seed=seed)
    union = windows(episode, batch)[:, None].expand_as(images)
    other = torch.where(union, images, 255 - images)
    again = agent.run(ImageSensor(other, CONFIG.glimpse), budget, batch=batch, seed=seed)
    for look, same in zip(episode.history, again.history, strict=True):
        assert torch.equal(look.location, same.location)
        assert torch.equal(look.probabilities, same.probabilities)
        assert torch.equal(look.gain, same.gain)


@given(seed=st.integers(0, 2**40), batch=st.integers(1, 3))
def test_exactly_the_union_of_the_windows_is_read(seed: int, batch: int) -> None:
    sensor = ImageSensor(scenes(batch, seed), CONFIG.glimpse)
    episode = AGENT.run(sensor, batch=batch, seed=seed)
    union = windows(episode, batch)
    assert torch.equal(sensor.reads > 0, union)
    assert torch.equal(sensor.pixels_read, union.flatten(1).sum(1))


def test_a_pixel_inside_a_window_does_change_the_outcome() -> None:
    images = scenes(1)
    sensor = ImageSensor(images, CONFIG.glimpse)
    episode = AGENT.run(sensor)
    union = windows(episode, 1)[:, None].expand_as(images)
    seen = AGENT.run(ImageSensor(torch.where(union, 255 - images, images), CONFIG.glimpse))
    assert not torch.equal(episode.probabilities, seen.probabilities)


@given(batch=st.integers(2, 7), seed=st.integers(0, 1000))
def test_a_scenes_outcome_does_not_depend_on_its_neighbours(batch: int, seed: int) -> None:
    images = scenes(batch, seed)
    together = AGENT.run(ImageSensor(images, CONFIG.glimpse), batch=batch, seed=seed)
    seeds = scene_seeds(seed, batch)
    for scene in range(batch):
        sensor = ImageSensor(images[scene : scene + 1], CONFIG.glimpse)
        alone = AGENT.run(sensor, batch=1, seed=seeds[scene : scene + 1])
        for look, same in zip(together.history, alone.history, strict=True):
            assert torch.equal(look.location[scene], same.location[0])
            torch.testing.assert_close(look.probabilities[scene], same.probabilities[0])
            torch.testing.assert_close(look.gain[scene], same.gain[0], atol=1e-5, rtol=1e-4)


def test_the_same_seed_gives_the_same_outcome_and_another_seed_another() -> None:
    def outcome(seed: int) -> tuple[Tensor, Tensor]:
        episode = AGENT.run(ImageSensor(scenes(4), CONFIG.glimpse), batch=4, seed=seed)
        return torch.stack([look.location for look in episode.history]), episode.probabilities

    first, again, other = outcome(3), outcome(3), outcome(4)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])


def test_batches_may_hold_equal_scenes_with_equal_seeds() -> None:
    images = scenes(1).expand(3, -1, -1, -1)
    episode = AGENT.run(ImageSensor(images, CONFIG.glimpse), batch=3, seed=[5, 5, 5])
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
        assert episode.candidates.sum((1, 2)).tolist() == [grid.places - looks] * 2
        assert torch.equal(episode.gain, episode.history[-1].gain)
        torch.testing.assert_close(episode.probabilities.sum(1), torch.ones(2))
        entropy = -(episode.probabilities * episode.probabilities.log()).sum(1)
        torch.testing.assert_close(episode.history[-1].entropy, entropy)
    assert looks == AGENT.looks == len(episode.history)
    with pytest.raises(RuntimeError, match="done after 4 looks"):
        episode.next_location()
    with pytest.raises(RuntimeError, match="done after 4 looks"):
        episode.observe(glimpse)


def test_the_next_location_is_where_the_gain_is_largest_among_the_candidates() -> None:
    episode = AGENT.episode(batch=3, seed=1)
    images = scenes(3)
    sensor = ImageSensor(images, CONFIG.glimpse)
    while not episode.done:
        left = episode.candidates.flatten(1)
        where = episode.next_location()
        if episode.history:
            best = episode.gain.flatten(1).masked_fill(~left, -torch.inf).argmax(1)
            assert torch.equal(CONFIG.grid.locations()[best], where)
        episode.observe(sensor.look(where))


@pytest.mark.parametrize("policy", [GainPolicy(3), RandomPolicy(), RasterPolicy()])
def test_no_place_is_looked_at_twice_and_all_places_can_be(policy: Policy) -> None:
    places = CONFIG.grid.places
    episode = AGENT.run(ImageSensor(scenes(2), CONFIG.glimpse), places + 5, batch=2, policy=policy)
    assert len(episode.history) == places, "no place is left before the budget is"
    for scene in range(2):
        seen = {tuple(look.location[scene].tolist()) for look in episode.history}
        assert len(seen) == places
    assert not episode.candidates.any()


def test_random_first_looks_are_uniform_over_the_grid() -> None:
    # 30 places, 3000 scenes: 100 a place in expectation. The 0.9999 point of chi-squared with 29 degrees of freedom is 66.2.
    episode = AGENT.episode(batch=3000, seed=0)
    index = CONFIG.grid.at(episode.next_location()).float().argmax(1)
    counts = torch.bincount(index, minlength=CONFIG.grid.places).double()
    expected = 3000 / CONFIG.grid.places
    assert float(((counts - expected) ** 2 / expected).sum()) < 66.2


def test_raster_goes_row_by_row_after_the_first_look() -> None:
    episode = AGENT.run(ImageSensor(scenes(1), CONFIG.glimpse), policy=RasterPolicy(), first=(4, 4))
    assert [look.location[0].tolist() for look in episode.history] == [[4, 4], [0, 0], [0, 2], [0, 4]]


@pytest.mark.parametrize("criterion", sorted(CRITERIA))
def test_every_criterion_drives_an_episode(criterion: str) -> None:
    episode = AGENT.run(ImageSensor(scenes(2), CONFIG.glimpse), batch=2, policy=GainPolicy(4, criterion))
    assert (episode.gain.flatten(1).amax(1) > 0).all()


def test_the_first_look_may_be_given_for_all_scenes_or_for_each() -> None:
    assert AGENT.episode(batch=2, first=(4, 2)).next_location().tolist() == [[4, 2], [4, 2]]
    assert AGENT.episode(batch=2, first=[[4, 2], [0, 6]]).next_location().tolist() == [[4, 2], [0, 6]]


def test_looks_off_the_grid_are_accepted_fractions_of_a_pixel_too() -> None:
    image = scenes(1)
    episode = AGENT.episode()
    episode.observe(image[:, :, 3:7, 1:5], at=(3, 1))
    assert episode.candidates.all(), "no grid place was looked at"
    sensor = ImageSensor(image, CONFIG.glimpse)
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
    sensor = ImageSensor(scenes(2), CONFIG.glimpse)
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
    assert Agent(AGENT.model, AGENT.classes, looks=1000).episode().budget == CONFIG.grid.places
    assert AGENT.episode(budget=1000).budget == 1000, "one's own may be, for looks off the grid"


def test_a_scene_with_no_place_left_takes_nothing_in_while_others_go_on() -> None:
    image = scenes(1).expand(2, -1, -1, -1)
    sensor = ImageSensor(image, CONFIG.glimpse)
    episode = AGENT.episode(batch=2, budget=1000)
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
    sensor = ImageSensor(image, CONFIG.glimpse)

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
    with pytest.raises(ValueError, match=r"\(2, 2, 5, 4\); \(2, 2, 4, 4\) is expected"):
        episode.observe(scenes(2)[:, :, :5, :4], at=(0, 0))
    with pytest.raises(ValueError, match=r"\(2, 1, 4, 4\); \(2, 2, 4, 4\) is expected"):
        episode.observe(good[:, :1], at=(0, 0))
    with pytest.raises(ValueError, match=r"lie in \[0, 1\]"):
        episode.observe(good.float(), at=(0, 0))
    with pytest.raises(ValueError, match=r"lie in \[0, 1\]"):
        episode.observe(good.float() * float("nan"), at=(0, 0))
    with pytest.raises(ValueError, match="int64"):
        episode.observe(good.long(), at=(0, 0))
    with pytest.raises(ValueError, match=r"\(10, 0\) leaves the scene: rows 0 to 9 and columns 0 to 7"):
        episode.observe(good, at=(10, 0))
    with pytest.raises(ValueError, match="row, column"):
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
    by_sensor = AGENT.run(ImageSensor(images, CONFIG.glimpse), batch=2)
    by_function = AGENT.run(lambda where: extract(images, where, CONFIG.glimpse), batch=2)
    assert torch.equal(by_sensor.probabilities, by_function.probabilities)


def test_changing_what_an_episode_hands_out_changes_nothing_in_it() -> None:
    episode = AGENT.run(ImageSensor(scenes(2), CONFIG.glimpse), batch=2)
    before = episode.probabilities
    episode.probabilities.zero_()
    assert torch.equal(episode.probabilities, before)
    assert torch.equal(episode.history[-1].probabilities, before)


def test_twins_say_the_mean_of_the_scene_and_its_mirror_image_and_look_where_one_alone_would() -> None:
    images = scenes(3)
    plain, twin = (agent.run(ImageSensor(images, CONFIG.glimpse), batch=3) for agent in (AGENT, TWIN))
    mirrored = AGENT.episode(3)
    sensor = ImageSensor(images.flip(-1), CONFIG.glimpse)
    for one, both in zip(plain.history, twin.history, strict=True):
        assert torch.equal(one.location, both.location)
        assert torch.equal(one.gain, both.gain)
        row, col = one.location.unbind(1)
        where = torch.stack([row, CONFIG.width - CONFIG.glimpse - col], 1)
        mirrored.observe(sensor.look(where), at=where)
        torch.testing.assert_close(both.probabilities, (one.probabilities + mirrored.probabilities) / 2)
    assert not torch.equal(plain.probabilities, twin.probabilities)


def test_twins_name_a_mirrored_scene_as_they_name_the_scene() -> None:
    there, here = TWIN.episode(3), TWIN.episode(3)
    for where in (torch.tensor([0.0, 1.5]), torch.tensor([4.0, 6.0])):
        back = torch.stack([where[0], CONFIG.width - CONFIG.glimpse - where[1]])
        glimpse = scenes(3, int(where[0]))[..., : CONFIG.glimpse, : CONFIG.glimpse]
        there.observe(glimpse, at=where)
        here.observe(glimpse.flip(-1), at=back)
    torch.testing.assert_close(there.probabilities, here.probabilities)


def test_the_location_that_is_handed_out_may_be_changed_without_harm() -> None:
    sensor = ImageSensor(scenes(1), CONFIG.glimpse)
    one, other = AGENT.episode(), AGENT.episode()
    where = one.next_location()
    glimpse = sensor.look(where)
    where += 1000
    one.observe(glimpse)
    other.observe(glimpse, at=other.next_location())
    assert torch.equal(one.history[0].location, other.history[0].location)
    assert torch.equal(one.probabilities, other.probabilities)


def test_the_number_of_imagined_scenes_may_be_changed() -> None:
    agent, few = tiny_agent(), tiny_agent(samples=1)
    sensor = ImageSensor(scenes(1), CONFIG.glimpse)
    before = agent.run(sensor).history[1].gain
    agent.samples = 1
    assert not torch.equal(agent.run(sensor).history[1].gain, before)
    assert torch.equal(agent.run(sensor).history[1].gain, few.run(sensor).history[1].gain)


def test_bad_policies_are_refused() -> None:
    with pytest.raises(ValueError, match="no criterion is called 'luck'; there are information-gain"):
        GainPolicy(criterion="luck")
    with pytest.raises(ValueError, match="samples is 0"):
        GainPolicy(samples=0)
