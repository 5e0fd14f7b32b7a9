"""Agents in ap_gym's own environments: their scans are those of the agent itself, in bounded steps, and what a command says of them."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ap_gym
import gymnasium
import numpy as np
import pytest
import torch
from ap_gym.envs.image import ImagePerceptionConfig
from ap_gym.envs.image_classification import ImageClassificationEnv, ImageClassificationVectorEnv

import infogaze
from infogaze import Agent, ImageSensor, InfogazeError, RasterPolicy
from infogaze.adapters.ap_gym import Played, Player, ScenesDataset, environment, play
from infogaze.cli.main import main
from infogaze.data.registry import load_set
from tests.support.calls import refused
from tests.support.own import write_pictures
from tests.support.scenes import grey_agent, write_arrays
from tests.support.sets import noise
from tests.support.tiny import CONFIG, tiny_agent

SIDE = CONFIG.glimpse_size
FAR = 3.0
"""A step that reaches every place from every other: positions are from -1 to 1 in both directions."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFOGAZE_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def digits() -> ScenesDataset:
    return ScenesDataset(data="digits")


@pytest.fixture
def small(tmp_path: Path) -> ScenesDataset:
    return ScenesDataset(data="arrays", root=write_arrays(tmp_path / "set.npz"))


def config_of(dataset: ScenesDataset, **settings: Any) -> ImagePerceptionConfig:
    return ImagePerceptionConfig(**{"dataset": dataset, "sensor_size": (SIDE, SIDE), "prefetch": False, **settings})


def vector(dataset: ScenesDataset, count: int, **settings: Any) -> ImageClassificationVectorEnv:
    return ImageClassificationVectorEnv(count, config_of(dataset, **settings))


def steps(
    player: Player, env: Any, seed: int | None = 0
) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Observation, action and what was told of each step of an episode."""
    observation, info = env.reset(seed=seed)
    done = False
    while not done:
        action = player.act(observation)
        before, (observation, _, terminated, _, told) = observation, env.step(action)
        done = bool(np.all(terminated))
        yield before, action, {**info, **told}


def where(observation: dict[str, Any], height: int = CONFIG.height, width: int = CONFIG.width) -> np.ndarray:
    """Row and column, from ap_gym's own definition of a position."""
    x, y = observation["glimpse_pos"][..., 0], observation["glimpse_pos"][..., 1]
    return np.stack([(y + 1) * (height - SIDE) / 2, (x + 1) * (width - SIDE) / 2], -1)


def test_where_steps_can_reach_a_scan_of_digits_is_that_of_the_agent_itself(digits: ScenesDataset) -> None:
    agent, count, looks = infogaze.load("digits"), 3, 6
    env = vector(digits, count, sensor_size=(8, 8), step_limit=looks, max_step_length=FAR)
    player, predictions = Player(agent, env, seed=5), []
    for number, (before, action, told) in enumerate(steps(player, env)):
        if number == 0:
            images = load_set("digits").test.images[torch.from_numpy(told["index"])]
            first = (torch.from_numpy(before["glimpse_pos"]).double().flip(-1) + 1) * 12
        predictions.append(torch.from_numpy(action["prediction"]))
    alone = agent.run(ImageSensor(images / 255, 8), looks, batch=count, seed=5, first=first)
    assert len(alone.history) == len(player.episode.history) == looks
    for ours, theirs, said in zip(player.episode.history, alone.history, predictions, strict=True):
        torch.testing.assert_close(ours.location, theirs.location.double(), atol=1e-3, rtol=0)
        torch.testing.assert_close(ours.probabilities, theirs.probabilities, atol=1e-3, rtol=0)
        torch.testing.assert_close(said.softmax(-1), ours.probabilities, atol=1e-6, rtol=0)


def test_steps_are_bounded_and_lead_to_where_was_asked(small: ScenesDataset) -> None:
    agent, reach = grey_agent(), 0.3
    env = vector(small, 4, step_limit=30, max_step_length=reach)
    places = agent.model.grid.locations().numpy()
    positions, visited = [], np.zeros(4, bool)
    for before, action, _ in steps(Player(agent, env), env):
        assert env.action_space["action"].contains(action["action"])
        positions.append(before["glimpse_pos"])
        location = where(before)
        on_place = (np.abs(location[:, None] - places) < 1e-3).all(-1).any(-1)
        visited |= on_place
    moved = np.linalg.norm(np.diff(positions, axis=0), axis=-1)
    assert (moved <= reach + 1e-5).all()
    assert (moved > reach - 1e-4).any(), "whole steps on the way"
    assert visited.all(), "and each arrives"


def test_a_heading_is_kept_until_it_is_reached(small: ScenesDataset) -> None:
    """Row by row, the first place is the top-left corner, whatever is seen on the way to it."""
    agent = grey_agent().with_policy(RasterPolicy())
    env = vector(small, 2, step_limit=24, max_step_length=0.2)
    distances = np.stack(
        [np.linalg.norm(before["glimpse_pos"] + 1, axis=-1) for before, _, _ in steps(Player(agent, env), env)]
    )
    arrived = distances.argmin(0)
    for scene in range(2):
        assert distances[arrived[scene], scene] < 1e-5
        falling = np.diff(distances[: arrived[scene] + 1, scene])
        assert (falling < 0).all()


@pytest.mark.parametrize("scale", [1, 2])
def test_at_a_place_of_the_grid_the_glimpse_is_the_scene_s_own_pixels(scale: int, tmp_path: Path) -> None:
    """At a sensor_scale of 2, pixels of scenes twice the size."""
    test = noise(3, 9, CONFIG.height, CONFIG.width)
    np.savez(
        tmp_path / "set.npz", test_x=test.repeat(scale, 1).repeat(scale, 2), train_x=test.repeat(scale, 1).repeat(scale, 2),
        test_y=np.arange(9) % 3, train_y=np.arange(9) % 3,
    )  # fmt: skip
    dataset, agent = ScenesDataset(data="arrays", root=tmp_path / "set.npz"), grey_agent()
    env = vector(dataset, 3, step_limit=6, max_step_length=FAR, sensor_scale=float(scale))
    player, found = Player(agent, env), 0
    for before, _, told in steps(player, env):
        location = player.episode.history[-1].location
        whole = location.round().long()
        for scene in np.flatnonzero((location == whole).all(1)):
            row, col = whole[scene].tolist()
            own = test[told["index"][scene], row : row + SIDE, col : col + SIDE]
            np.testing.assert_allclose(before["glimpse"][scene, ..., 0] * 255, own, atol=1e-3)
            found += 1
    assert found == 3 * 5, "all looks but the first are on the grid"


def test_unseen_pixels_cannot_change_a_scan(tmp_path: Path) -> None:
    test, agent = noise(1, 9, CONFIG.height, CONFIG.width), grey_agent()

    def played(pixels: np.ndarray, name: str) -> tuple[list[dict[str, Any]], Player, np.ndarray]:
        dataset = ScenesDataset(data="arrays", root=write_arrays(tmp_path / name, pixels))
        env = vector(dataset, 1, step_limit=5, max_step_length=FAR)
        player = Player(agent, env)
        found = list(steps(player, env))
        return [action for _, action, _ in found], player, found[0][2]["index"]

    actions, player, (index,) = played(test, "one.npz")
    sensor = ImageSensor(torch.from_numpy(test[[index]])[:, None] / 255, SIDE)
    for look in player.episode.history:
        sensor.look(look.location)
    # The last step moves once more, and what is seen there is for nothing.
    seen = (sensor.reads[0] > 0).numpy()
    assert not seen.all()
    other = np.where(seen, test, 255 - test)
    again, _, _ = played(other, "two.npz")
    for ours, theirs in zip(again, actions, strict=True):
        # Positions come in float32: at a whole pixel, a neighbour may have a weight of 1e-7.
        np.testing.assert_allclose(ours["action"], theirs["action"], atol=1e-4)
        np.testing.assert_allclose(ours["prediction"], theirs["prediction"], atol=1e-4)
    changed, _, _ = played(np.where(seen, 255 - test, test), "three.npz")
    assert (
        max(np.abs(one["prediction"] - two["prediction"]).max() for one, two in zip(actions, changed, strict=True))
        > 0.01
    )


def test_a_scene_with_no_place_left_stays_where_it_is_and_says_what_it_said(small: ScenesDataset) -> None:
    agent = grey_agent()
    many = agent.model.grid.num_locations
    env = vector(small, 2, step_limit=many + 4, max_step_length=FAR)
    found = list(steps(Player(agent, env), env))
    for _, action, _ in found[-2:]:
        assert not action["action"].any()
        assert np.array_equal(action["prediction"], found[-3][1]["prediction"])
    assert found[0][1]["action"].any()


def test_seeds_fix_what_is_played_and_each_episode_has_its_own(small: ScenesDataset) -> None:
    agent = grey_agent()

    def once(seed: int, episodes: int = 6) -> Played:
        return play(agent, vector(small, 3, step_limit=4), episodes=episodes, seed=seed)

    first, again, other = once(0), once(0), once(1)
    assert torch.equal(first.returns, again.returns)
    assert torch.equal(first.correct, again.correct)
    assert not torch.equal(first.returns, other.returns)
    assert torch.equal(once(0, 4).returns, first.returns[:4]), "a part of the last batch is enough"
    assert len(set(first.returns.tolist())) == 6


def test_what_is_right_is_what_the_environment_s_own_log_says(small: ScenesDataset) -> None:
    agent, env = (
        grey_agent(),
        ap_gym.ActiveClassificationLogWrapper(ImageClassificationEnv(config_of(small, step_limit=5))),
    )
    played = play(agent, env, episodes=1, seed=2)
    player = Player(agent, env, seed=2)
    logged: dict[str, Any] = {}
    for _, action, told in steps(player, env, seed=2):
        assert env.action_space.contains(action)
        logged = told.get("stats", logged)
    assert played.correct.shape == (1, 5)
    assert np.mean(played.correct[0].tolist()) == pytest.approx(float(np.mean(logged["vector"]["accuracy"])))


def test_an_environment_that_ap_gym_registers_is_played_through_all_its_wrappers() -> None:
    config = replace(CONFIG, height=28, width=28, channels=1, num_classes=2, glimpse_size=5, stride=4)
    agent = tiny_agent(config)
    for env in (ap_gym.make_vec("CircleSquare-v0", num_envs=2), gymnasium.make("CircleSquare-v0")):
        with contextlib.closing(env):
            played = play(agent, env, episodes=2, seed=0)
        assert played.correct.shape == (2, 16)
        assert played.accuracy.n == 2
        assert bool(played.returns.isfinite().all())


def resized(**changes: Any) -> Agent:
    return tiny_agent(replace(CONFIG, channels=1, **changes))


REFUSED: dict[str, tuple[Agent, dict[str, Any], str]] = {
    "glimpses": (grey_agent(), {"sensor_size": (5, 5)}, "glimpses are 5x5 pixels; the model takes 4x4"),
    "glimpses that are no squares": (grey_agent(), {"sensor_size": (4, 5)}, "glimpses are 4x5 pixels; the model takes 4x4"),
    "images": (resized(height=15), {}, "images are 13x11 pixels at a sensor_scale of 1; the model's scenes are then 15x11"),
    "a scale": (grey_agent(), {"sensor_scale": 1.5}, "13x11 pixels at a sensor_scale of 1.5; the model's scenes are then 19.5x16.5"),
    "channels": (tiny_agent(), {}, "glimpses have 1 channels; the model takes 2"),
    "classes": (resized(num_classes=4), {}, "the environment has 3 classes; the model has 4"),
    "labels that are not what they are": (grey_agent(), {"randomly_invert_labels": True}, "labels as they are"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", REFUSED)
def test_an_environment_that_does_not_fit_is_refused_in_one_line(wrong: str, small: ScenesDataset) -> None:
    agent, settings, message = REFUSED[wrong]
    with pytest.raises(InfogazeError, match=message) as error:
        Player(agent, vector(small, 1, **settings))
    assert "\n" not in str(error.value)


def test_other_environments_are_refused() -> None:
    with (
        contextlib.closing(gymnasium.make("CartPole-v1")) as env,
        pytest.raises(InfogazeError, match="image-classification"),
    ):
        Player(grey_agent(), env)


@pytest.mark.parametrize(("episodes", "seed", "message"), [(0, 0, "episodes is 0"), (1, -1, "seed is -1")])
def test_no_episodes_and_no_seed_are_refused(episodes: int, seed: int, message: str, small: ScenesDataset) -> None:
    with pytest.raises(InfogazeError, match=message):
        play(grey_agent(), vector(small, 1), episodes=episodes, seed=seed)


def test_nothing_is_played_before_an_observation(small: ScenesDataset) -> None:
    with pytest.raises(RuntimeError, match="act"):
        _ = Player(grey_agent(), vector(small, 1)).episode


def told_by(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[str]:
    capsys.readouterr()
    main([str(argument) for argument in arguments])
    return capsys.readouterr().out.splitlines()


def test_the_command_prints_accuracy_after_each_look_with_its_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent, root = grey_agent(), write_arrays(tmp_path / "set.npz")
    infogaze.save(agent, tmp_path / "model")
    said = told_by(
        capsys,
        "gym",
        tmp_path / "model",
        "--env",
        "arrays",
        "--root",
        root,
        "--episodes",
        12,
        "--seed",
        3,
        "--device",
        "cpu",
    )
    with contextlib.closing(environment("arrays", agent, root=root, num_envs=12)) as env:
        played = play(agent, env, episodes=12, seed=3)
    assert said[0].endswith("in arrays, 12 episodes, 95 % intervals")
    shares = [float(line.split()[1]) for line in said[2:18]]
    assert shares == pytest.approx((100 * played.accuracy.value).tolist(), abs=0.06)
    low, high = (float(end) for end in said[2].split("(")[1].rstrip(")").split(" to "))
    assert low < shares[0] < high
    assert said[-1] == f"mean return {float(played.returns.mean()):.2f}"


def test_a_folder_s_pictures_are_brought_to_the_model_s_size_and_channels(tmp_path: Path) -> None:
    root, agent = write_pictures(tmp_path / "pictures", ("a", "b", "c")), grey_agent()
    with contextlib.closing(environment("folder", agent, root=root, num_envs=2)) as env:
        assert play(agent, env, episodes=2).correct.shape == (2, 16)


def test_the_command_refuses_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    infogaze.save(grey_agent(), tmp_path / "model")
    for arguments, message in (
        (("--env", "CircleSquare-v0"), "5x5"),
        (("--env", "Nonsense-v0"), "no environment of ap_gym and no set of infogaze"),
        (("--env", "LightDark-v0"), "image-classification"),
        (("--env", "digits", "--episodes", "0"), "episodes is 0"),
        (("--env", "CircleSquare-v0", "--root", "."), "has no root"),
        (("--env", "arrays"), "--root"),
    ):
        assert message in refused(capsys, "gym", tmp_path / "model", *arguments)


def test_no_thread_is_left_of_an_environment_that_reads_ahead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = replace(CONFIG, height=28, width=28, channels=1, num_classes=2, glimpse_size=5, stride=4)
    infogaze.save(tiny_agent(config), tmp_path / "model")
    before = set(threading.enumerate())
    said = told_by(capsys, "gym", tmp_path / "model", "--env", "CircleSquare-v0", "--episodes", 2)
    assert len(said) == 2 + 16 + 1
    gc.collect()  # ap_gym's thread ends when its environment is let go
    assert not set(threading.enumerate()) - before


@pytest.mark.slow
def test_without_a_network_the_command_says_in_one_line_that_images_are_missing(tmp_path: Path) -> None:
    infogaze.save(grey_agent(), tmp_path / "model")
    command = [sys.executable, "-m", "infogaze.cli", "gym", str(tmp_path / "model"), "--env", "MNIST-test-v0"]
    alone = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "empty")}
    done = subprocess.run(command, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    # What the libraries of others print of it, and of objects they had half made, stands beside it.
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("infogaze: ")]
    assert line.startswith("infogaze: MNIST-test-v0: ap_gym cannot get its images")
