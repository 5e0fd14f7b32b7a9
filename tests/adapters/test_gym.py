"""The environment over our sets: as gymnasium checks it, blind, and a scan of it that of the agent itself."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from PIL import Image

from infogaze import ImageSensor, InfogazeError
from infogaze.adapters.gym import ScenesEnv
from infogaze.data.registry import load_set
from tests.support.own import write_pictures
from tests.support.paths import ROOT
from tests.support.scenes import grey_agent, write_arrays
from tests.support.sets import noise
from tests.support.tiny import CONFIG

LOOKS = 5


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFOGAZE_CACHE", str(tmp_path / "cache"))


def env_over(root: Path, **settings: Any) -> ScenesEnv:
    return ScenesEnv(data="arrays", root=root, glimpse_size=CONFIG.glimpse_size, num_looks=LOOKS, **settings)


@pytest.fixture
def env(tmp_path: Path) -> ScenesEnv:
    return env_over(write_arrays(tmp_path / "set.npz"), render_mode="rgb_array")


def answer(where: Any = (0, 0), prediction: Any = (1.0, 0.0, 0.0)) -> dict[str, Any]:
    return {"action": np.asarray(where), "prediction": np.asarray(prediction)}


@pytest.mark.parametrize("data", ["digits", "arrays", "folder"])
def test_gymnasium_finds_nothing_to_warn_of(data: str, tmp_path: Path) -> None:
    """Warnings are errors in these tests."""
    root = None
    if data == "arrays":
        root = write_arrays(tmp_path / "set.npz")
    elif data == "folder":
        root = write_pictures(tmp_path / "pictures")
    made = gymnasium.make("infogaze/Scenes-v0", data=data, root=root, num_looks=3, render_mode="rgb_array")
    assert isinstance(made.unwrapped, ScenesEnv)
    check_env(made.unwrapped)
    made.close()


def test_a_whole_scan_is_that_of_the_agent_itself(env: ScenesEnv, tmp_path: Path) -> None:
    agent, scenes = grey_agent(), load_set("arrays", tmp_path / "set.npz").test
    for scene in range(4):
        observation, _ = env.reset(seed=scene, options={"scene": scene})
        episode, done, first = agent.episode(seed=scene, budget=LOOKS), False, observation["location"]
        while not done:
            if not episode.done:
                episode.observe(observation["glimpse"][None], at=observation["location"])
            where = observation["location"] if episode.done else episode.next_location()[0].numpy()
            observation, _, done, _, info = env.step(answer(where, episode.probabilities[0].numpy()))
            assert info["prediction"]["target"] == scenes.labels[scene]
        sensor = ImageSensor(scenes.images[scene : scene + 1], CONFIG.glimpse_size)
        alone = agent.run(sensor, LOOKS, seed=scene, first=first)
        assert len(alone.history) == len(episode.history) == LOOKS
        for ours, theirs in zip(episode.history, alone.history, strict=True):
            assert torch.equal(ours.location, theirs.location)
            assert torch.equal(ours.probabilities, theirs.probabilities)


def scan(env: ScenesEnv, moves: np.ndarray, seed: int = 0) -> list[Any]:
    """All that comes out of the environment on the way."""
    observation, info = env.reset(seed=seed, options={"scene": 2})
    told: list[Any] = [observation, info, env.render()]
    for where in moves:
        told += [*env.step(answer(where)), env.render()]
    return told


def test_unseen_pixels_change_nothing_that_leaves_it(tmp_path: Path) -> None:
    test = noise(1, 9, CONFIG.height, CONFIG.width)
    moves = np.array([(0, 0), (3, 5), (9, 7), (1, 1), (0, 0)])
    first = env_over(write_arrays(tmp_path / "set.npz", test), render_mode="rgb_array")
    told = scan(first, moves)
    seen = np.zeros(test.shape[1:], bool)
    for row, col in (told[0]["location"], *moves[:-1]):
        seen[row : row + CONFIG.glimpse_size, col : col + CONFIG.glimpse_size] = True
    other = np.where(seen, test, 255 - test)
    assert not seen.all()
    assert (other != test).any()
    again = scan(env_over(write_arrays(tmp_path / "other.npz", other), render_mode="rgb_array"), moves)
    np.testing.assert_equal(again, told)
    seen_too = np.where(seen, 255 - test, test)
    changed = scan(env_over(write_arrays(tmp_path / "third.npz", seen_too), render_mode="rgb_array"), moves)
    assert (changed[0]["glimpse"] != told[0]["glimpse"]).any(), "what is seen does change it"


def test_a_seed_fixes_the_scenes_and_the_first_looks_and_another_does_not(env: ScenesEnv) -> None:
    def begun(seed: int) -> list[tuple[bytes, tuple[int, ...]]]:
        found = []
        for number in range(6):
            observation, _ = env.reset(seed=seed if number == 0 else None)
            found.append((observation["glimpse"].tobytes(), tuple(observation["location"].tolist())))
        return found

    assert begun(3) == begun(3)
    assert begun(3) != begun(4)
    assert len(set(begun(3))) > 1


def test_so_many_looks_are_handed_out_and_the_last_step_judges_only(env: ScenesEnv) -> None:
    observation, _ = env.reset(seed=0)
    for left in range(LOOKS - 1, 0, -1):
        assert observation["looks_left"] == left
        observation, _, done, truncated, _ = env.step(answer((left, left)))
        assert observation["location"].tolist() == [left, left]
        assert not done
        assert not truncated
    last, _, done, _, _ = env.step(answer((9, 7)))
    assert done
    np.testing.assert_equal(last, observation)
    with pytest.raises(RuntimeError, match="reset"):
        env.step(answer())
    assert env.reset()[0]["looks_left"] == LOOKS - 1


@pytest.mark.parametrize(
    ("prediction", "reward"),
    [((1.0, 1.0, 1.0), -1.0), ((0.0, 0.0, 0.0), -1.0), ((0.25, 0.5, 0.25), -np.log(2) / np.log(3)), ((0, 7, 0), 0.0)],
)
def test_a_step_pays_the_cross_entropy_in_units_of_knowing_nothing(
    prediction: tuple[float, ...], reward: float, env: ScenesEnv
) -> None:
    env.reset(seed=0, options={"scene": 1})
    _, paid, _, _, info = env.step(answer(prediction=prediction))
    assert paid == pytest.approx(reward, abs=1e-5)
    assert info["prediction"]["target"] == 1
    assert info["prediction"]["loss"] == -paid


def test_a_label_that_was_ruled_out_costs_a_finite_sum(env: ScenesEnv) -> None:
    env.reset(seed=0, options={"scene": 1})
    assert -100 < env.step(answer(prediction=(1, 0, 0)))[1] < -5


def test_rendered_is_what_was_seen(env: ScenesEnv) -> None:
    observation, _ = env.reset(seed=1)
    picture = env.render()
    assert picture is not None
    scale = picture.shape[0] // CONFIG.height
    assert picture.shape == (CONFIG.height * scale, CONFIG.width * scale, 3)
    row, col = observation["location"] * scale
    side = CONFIG.glimpse_size * scale
    assert (picture[row, col : col + side] == picture[row, col]).all(), "a frame"
    outside = np.ones(picture.shape[:2], bool)
    outside[row : row + side, col : col + side] = False
    assert len(np.unique(picture[outside], axis=0)) == 1, "one grey"
    inner = picture[row + scale : row + side - scale, col + scale : col + side - scale][
        scale // 2 :: scale, scale // 2 :: scale, 0
    ]
    assert np.array_equal(inner, observation["glimpse"][0, 1:-1, 1:-1])


def test_several_at_once_and_closed_twice(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"data": "arrays", "root": write_arrays(tmp_path / "set.npz"), "glimpse_size": 4}
    several = gymnasium.make_vec("infogaze/Scenes-v0", num_envs=3, **settings)
    observation, _ = several.reset(seed=0)
    assert observation["glimpse"].shape == (3, 1, 4, 4)
    assert several.step(several.action_space.sample())[1].shape == (3,)
    several.close()
    one = gymnasium.make("infogaze/Scenes-v0", **settings)
    one.reset()
    one.close()
    one.close()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a set that is none": ({"data": "nothing"}, "no set is called 'nothing'"),
    "a split that is none": ({"split": "all"}, "split is 'all'; train or test"),
    "a glimpse that does not fit": ({"glimpse_size": 12}, "glimpse_size is 12; from 1 to 11"),
    "no looks": ({"num_looks": 0}, "num_looks is 0"),
    "a way to render that is none": ({"render_mode": "human"}, "render_mode is 'human'; rgb_array"),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_cannot_be_made_is_refused_in_one_line(wrong: str, tmp_path: Path) -> None:
    settings, message = REFUSED[wrong]
    with pytest.raises(InfogazeError, match=message) as error:
        ScenesEnv(**{"data": "arrays", "root": write_arrays(tmp_path / "set.npz"), **settings})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (answer((10, 0)), r"row 0 to 9 and column 0 to 7"),
        (answer((0.5, 0.0)), "whole numbers"),
        (answer((-1, 0)), "row 0 to 9"),
        (answer(prediction=(1.0, 0.0)), "3 numbers of at least 0"),
        (answer(prediction=(1.0, np.nan, 0.0)), "3 numbers of at least 0"),
        (answer(prediction=(1.0, -1.0, 0.0)), "3 numbers of at least 0"),
        (answer(prediction=(1.0, np.inf, 0.0)), "3 numbers of at least 0"),
    ],
)
def test_actions_that_are_none_are_refused(wrong: dict[str, Any], message: str, env: ScenesEnv) -> None:
    with pytest.raises(RuntimeError, match="reset"):
        env.step(answer())
    env.reset(seed=0)
    with pytest.raises(InfogazeError, match=message):
        env.step(wrong)


def test_a_scene_that_is_none_is_refused(env: ScenesEnv) -> None:
    for options in ({"scene": 9}, {"scene": -1}, {"image": 0}):
        with pytest.raises(InfogazeError, match='"scene", from 0 to 8'):
            env.reset(options=options)


@pytest.mark.parametrize(("adapter", "needed"), [("gym", "gymnasium"), ("ap_gym", "ap_gym")])
def test_without_the_extra_one_line_names_it(adapter: str, needed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, needed, None)
    monkeypatch.delitem(sys.modules, f"infogaze.adapters.{adapter}", raising=False)
    with pytest.raises(InfogazeError, match=r"needs the extra 'gym'.*pip install 'infogaze\[gym\]'") as error:
        import_module(f"infogaze.adapters.{adapter}")
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_the_example_draws_a_finished_scan_and_plays(tmp_path: Path) -> None:
    command = [sys.executable, "examples/gym_digits.py", str(tmp_path / "scan.png")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "look 7: " in done.stdout
    assert "ap_gym, 20 episodes: " in done.stdout
    with Image.open(tmp_path / "scan.png") as drawn, Image.open(ROOT / "docs" / "adapters" / "gym.png") as shown:
        assert drawn.size == shown.size
    assert (ROOT / "docs" / "adapters" / "gym.png").stat().st_size < 100_000
