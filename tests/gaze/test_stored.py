"""Episodes that are stored, and taken up again."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from infogaze import (
    Agent,
    CalibratedStop,
    Choice,
    Confident,
    Episode,
    GainPolicy,
    ImageSensor,
    InfogazeError,
    LittleToGain,
    LookFailed,
    LowEntropy,
    RandomPolicy,
    RasterPolicy,
    Stage,
    StopRule,
    Travel,
    load,
    save,
)
from infogaze.gaze.captured import CapturedPolicy
from infogaze.gaze.looking import take_look
from infogaze.gaze.policies import Policy, best
from infogaze.gaze.stopping import Progress
from infogaze.grid import extract
from infogaze.nn.belief import Belief
from infogaze.nn.model import GlimpseClassifier
from infogaze.nn.pixels import normalise_pixels
from infogaze.nn.typicality import fit_typicality
from infogaze.rng import SceneNoise
from tests.support.paths import ROOT
from tests.support.tiny import CONFIG, TOKENS, scenes, tiny_agent

SIDE = CONFIG.glimpse_size


def with_everything() -> Agent:
    """With flip TTA, temperatures and what it knows of training's glimpses."""
    agent = tiny_agent(seed=3)
    agent.flip_tta, agent.temperatures = True, (1.5, 1.2, 0.9)
    glimpses = torch.stack([scenes(7, seed)[..., :4, :4] for seed in range(100)])
    with torch.no_grad():
        agent.typicality = fit_typicality(agent.model.backbone.features(normalise_pixels(glimpses)))
    assert agent.typicality is not None
    return agent


def in_bfloat16() -> Agent:
    agent = tiny_agent()
    agent.precision = "bfloat16"
    return agent


AGENTS: dict[str, Callable[[], Agent]] = {
    "plain": tiny_agent,
    "everything": with_everything,
    "tokens": lambda: tiny_agent(TOKENS),
    "attention": lambda: tiny_agent(replace(CONFIG, attention_hops=2)),
    "correction": lambda: tiny_agent(replace(CONFIG, gain_correction=True)),
    "raster": lambda: tiny_agent().with_policy(RasterPolicy()),
    "bfloat16": in_bfloat16,
}


def same_from_here(one: Episode, other: Episode) -> None:
    """Both hold the same, and go on the same."""
    sensor = ImageSensor(scenes(one.batch), SIDE)
    while True:
        assert one.done == other.done
        assert one.ended_by == other.ended_by
        for name in ("probabilities", "gain", "candidates", "stopped", "looks_taken", "out_of_distribution", "running"):
            assert torch.equal(getattr(one, name), getattr(other, name)), name
        assert torch.equal(one.belief.hidden, other.belief.hidden)
        if one.ood_score is not None:
            assert other.ood_score is not None
            assert torch.equal(one.ood_score, other.ood_score)
        assert len(one.history) == len(other.history)
        for look, same in zip(one.history, other.history, strict=True):
            for part in ("location", "probabilities", "entropy", "gain", "hidden"):
                assert torch.equal(getattr(look, part), getattr(same, part)), part
                assert getattr(look, part).dtype == getattr(same, part).dtype, part
        if one.done:
            return
        assert one.has_map == other.has_map
        assert torch.equal(one.next_gain, other.next_gain)
        where = one.next_location()
        assert torch.equal(where, other.next_location())
        for episode in (one, other):
            episode.observe(sensor.look(where))


@pytest.mark.parametrize(
    ("make", "stop"),
    [
        *(pytest.param(make, None, id=name) for name, make in AGENTS.items()),
        *(pytest.param(tiny_agent, rule) for rule in (Confident(0.9), LowEntropy(0.3), LittleToGain(0.001))),
    ],
)
def test_what_is_taken_up_again_goes_on_as_if_nothing_had_happened(
    make: Callable[[], Agent], stop: StopRule | None
) -> None:
    images = scenes(3)
    whole = make().episode(3, seed=7, stop=stop)
    while not whole.done:
        whole.next_location()
        again = make().resume(whole.state())
        assert again.state() == whole.state()
        where = whole.next_location()
        assert torch.equal(again.next_location(), where)
        for episode in (whole, again):
            episode.observe(extract(images, where, SIDE))
        same_from_here(make().resume(whole.state()), again)
    straight = make().run(ImageSensor(images, SIDE), batch=3, seed=7, stop=stop)
    same_from_here(whole, straight)


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 1000),
    moves=st.lists(st.sampled_from(["ask", "look", "elsewhere", "drift", "skip", "skip some"]), max_size=8),
    first=st.booleans(),
)
def test_wherever_it_is_stored_and_however_it_came_there(seed: int, moves: list[str], first: bool) -> None:
    agent = with_everything()
    allowed = torch.rand(CONFIG.grid.rows, CONFIG.grid.cols, generator=torch.Generator().manual_seed(seed)) < 0.7
    allowed[0, 0] = True
    episode = agent.episode(3, seed=seed, budget=6, first=(4, 2) if first else None, allowed=allowed)
    sensor = ImageSensor(scenes(3), SIDE)
    for move in moves:
        if episode.done:
            break
        where = episode.next_location()
        if move == "look":
            episode.observe(sensor.look(where))
        elif move == "elsewhere":
            episode.observe(sensor.look([[2.5, 3.25]] * 3), at=[[2.5, 3.25]] * 3)
        elif move == "drift":
            episode.observe(sensor.look(where), reached=where + 0.3)
        elif move == "skip":
            episode.skip()
        elif move == "skip some":
            episode.skip([True, False, True])
    same_from_here(agent.resume(episode.state()), episode)


PROGRAM = """
import os, signal, sys, torch
import infogaze
from infogaze.gaze.looking import take_look
from tests.support.tiny import scenes
model, path, looks = sys.argv[1], sys.argv[2], int(sys.argv[3])
agent = infogaze.load(model)
sensor = infogaze.ImageSensor(scenes(2), 4)
episode = agent.resume(path) if os.path.exists(path) else agent.episode(2, seed=5, budget=6)
while not episode.done:
    take_look(episode, sensor.look)
    episode.save(path)
    if len(episode.history) == looks:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGKILL")
def test_an_experiment_outlives_its_process(tmp_path: Path) -> None:
    save(with_everything(), tmp_path / "model")
    path = tmp_path / "scan.safetensors"
    for looks, code in ((3, -signal.SIGKILL), (99, 0)):
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "model"), str(path), str(looks)]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": _path()}
        )
        assert done.returncode == code, done.stderr
    agent = load(tmp_path / "model")
    straight = agent.run(ImageSensor(scenes(2), SIDE), 6, batch=2, seed=5)
    resumed = agent.resume(path)
    assert resumed.ended_by == straight.ended_by == ("budget", "budget")
    for look, same in zip(resumed.history, straight.history, strict=True):
        assert torch.equal(look.location, same.location)
        torch.testing.assert_close(look.probabilities, same.probabilities)
    assert not [*tmp_path.glob("*.partial")]


def _path() -> str:
    return os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def begun(agent: Agent, **options: Any) -> Episode:
    episode = agent.episode(2, seed=1, **options)
    for _ in range(2):
        take_look(episode, ImageSensor(scenes(2), SIDE).look)
    return episode


def other_weight() -> Agent:
    agent = tiny_agent()
    next(agent.model.parameters()).data.view(-1)[0] += 1e-3
    return agent


def other_running_mean() -> Agent:
    agent = tiny_agent()
    next(value for name, value in agent.model.named_buffers() if name.endswith("running_mean")).view(-1)[0] += 1e-3
    return agent


def with_temperatures() -> Agent:
    agent = tiny_agent()
    agent.temperatures = (2.0,)
    return agent


def with_flip() -> Agent:
    agent = tiny_agent()
    agent.flip_tta = True
    return agent


def other_threshold() -> Agent:
    agent = with_everything()
    assert agent.typicality is not None
    agent.typicality = replace(agent.typicality, threshold=agent.typicality.threshold * 2)
    return agent


@pytest.mark.parametrize(
    ("began", "other"),
    [
        (tiny_agent, other_weight), (tiny_agent, other_running_mean), (tiny_agent, with_temperatures), (tiny_agent, with_flip),
        (with_flip, tiny_agent), (with_everything, other_threshold), (tiny_agent, lambda: tiny_agent().on_grid(stride=3)),
        (tiny_agent, lambda: tiny_agent().ask({"one": ["class 0"], "others": None})),
        (tiny_agent, lambda: tiny_agent(TOKENS)),
    ],
)  # fmt: skip
def test_another_model_is_refused_in_a_line(began: Callable[[], Agent], other: Callable[[], Agent]) -> None:
    state = begun(began()).state()
    with pytest.raises(
        InfogazeError, match="^the state: an episode of another model; the agent that began it is needed$"
    ):
        other().resume(state)
    began().resume(state)


def test_an_agent_with_another_question_or_grid_takes_up_its_own() -> None:
    makes: tuple[Callable[[], Agent], ...] = (
        lambda: tiny_agent().on_grid(stride=3), lambda: tiny_agent().ask({"one": ["class 0"], "others": None})
    )  # fmt: skip
    for make in makes:
        same_from_here(make().resume(begun(make()).state()), begun(make()))


def test_every_damaged_byte_is_noticed(tmp_path: Path) -> None:
    agent = tiny_agent()
    state = begun(agent).state()
    for place in [*range(0, len(state), 997), len(state) - 1]:
        damaged = bytearray(state)
        damaged[place] ^= 0x10
        with pytest.raises(InfogazeError) as caught:
            agent.resume(bytes(damaged))
        assert "\n" not in str(caught.value)
    for wrong in (b"", b"no", state[:-1], state[:100], b"\xff" * 64, struct.pack("<Q", 2) + b"[]", state + b"\0"):
        (tmp_path / "scan").write_bytes(wrong)
        with pytest.raises(InfogazeError, match=r"scan: (no stored episode|damaged)"):
            agent.resume(tmp_path / "scan")
    with pytest.raises(InfogazeError, match="nowhere: cannot be read"):
        agent.resume("nowhere")


def test_a_state_of_a_later_format_is_refused() -> None:
    agent = tiny_agent()
    state = begun(agent).state()
    from infogaze.gaze import stored

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "FORMAT", 2)
        later = begun(agent).state()
    with pytest.raises(InfogazeError, match="format 2, and this version of infogaze reads format 1"):
        agent.resume(later)
    agent.resume(state)


class Lucky:
    """A policy that holds nothing."""

    def __call__(self, model: GlimpseClassifier, belief: Belief, *, candidates: Tensor, noise: SceneNoise) -> Choice:
        draw = noise.uniform(model.grid.num_locations)
        return Choice(best(model, draw, candidates), torch.zeros_like(draw), has_map=False)


@dataclass(frozen=True)
class Corner:
    """A policy with plain fields."""

    last: bool

    def __call__(self, model: GlimpseClassifier, belief: Belief, *, candidates: Tensor, noise: SceneNoise) -> Choice:
        order = torch.arange(model.grid.num_locations, dtype=torch.float32).expand(candidates.shape)
        return Choice(best(model, order if self.last else -order, candidates), torch.zeros_like(order), has_map=False)


class Counting:
    """A policy whose state no one can store."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, model: GlimpseClassifier, belief: Belief, *, candidates: Tensor, noise: SceneNoise) -> Choice:
        self.calls += 1
        return RasterPolicy()(model, belief, candidates=candidates, noise=noise)


def after_three(episode: Progress) -> Tensor:
    return episode.looks_taken >= 3


def test_what_cannot_be_stored_is_given_again() -> None:
    agent = tiny_agent()
    state = begun(agent, policy=Counting(), stop=after_three).state()
    with pytest.raises(InfogazeError, match="policy was a .*Counting, which cannot be stored; give it again, policy="):
        agent.resume(state)
    with pytest.raises(InfogazeError, match="stop was a .*after_three, which cannot be stored; give it again, stop="):
        agent.resume(state, policy=Counting())
    again = agent.resume(state, policy=Counting(), stop=after_three)
    same_from_here(again, begun(agent, policy=Counting(), stop=after_three))
    assert again.ended_by == ("rule", "rule")


@pytest.mark.parametrize("policy", [Lucky(), Corner(True)])
def test_a_policy_of_ones_own_that_is_plain_is_known_again(policy: Policy) -> None:
    agent = tiny_agent()
    state = begun(agent, policy=policy).state()
    with pytest.raises(InfogazeError, match="policy was a .*; give it again, policy="):
        agent.resume(state)
    with pytest.raises(InfogazeError, match="policy was another"):
        agent.resume(state, policy=Corner(False))
    same_from_here(agent.resume(state, policy=policy), begun(agent, policy=policy))
    with_it = agent.with_policy(policy)
    same_from_here(with_it.resume(begun(with_it).state()), begun(with_it))


def test_a_policy_or_rule_is_not_exchanged_on_the_way() -> None:
    agent = tiny_agent()
    state = begun(agent, policy=GainPolicy(3)).state()
    with pytest.raises(InfogazeError, match='another, GainPolicy with .*"num_samples": 3'):
        agent.resume(state, policy=RandomPolicy())
    with pytest.raises(InfogazeError, match="no stop rule"):
        agent.resume(state, stop=Confident(0.9))
    same_from_here(agent.resume(state, policy=GainPolicy(3)), begun(agent, policy=GainPolicy(3)))
    with pytest.raises(InfogazeError, match="stop was another, Confident"):
        agent.resume(begun(agent, stop=Confident(0.999)).state(), stop=Confident(0.9))


def test_a_calibrated_rule_is_stored_and_none_is_put_in_its_place() -> None:
    rule = CalibratedStop(
        rule="confidence", thresholds=(None, 0.6, 0.5), budget=4, gap=0.05, delta=0.1, by_look=True, scenes=100
    )
    agent, bare = tiny_agent().with_stop(rule), tiny_agent()
    with_rule, without = begun(agent), begun(bare)
    again = bare.resume(with_rule.state())
    assert again._stop == rule
    same_from_here(again, with_rule)
    assert agent.resume(without.state())._stop is None


def test_a_captured_policy_is_stored_as_the_one_whose_choices_it_makes() -> None:
    agent, fast = tiny_agent(), tiny_agent()
    fast.policy = CapturedPolicy(agent.policy)
    begun_here = begun(agent)
    assert fast.resume(begun_here.state())._policy is fast.policy
    here = agent.resume(begun_here.state())
    here._policy = fast.policy
    assert here.state() == begun_here.state()


def test_every_attribute_of_an_episode_is_stored_or_follows_from_what_is() -> None:
    stored = {
        "_seeds", "_policy", "_first_policy", "_stop", "batch", "budget", "history", "stopped", "looks_taken", "_belief", "_flipped",
        "_candidates", "_probabilities", "_ood", "_chosen_by", "_next", "_asked", "_failed", "_clock", "_masked",
    }  # fmt: skip
    of_the_agent = {"_model", "_autocast", "_channels", "_temperatures", "_typicality"}
    follows = {"_over", "_digest"}
    assert set(vars(tiny_agent().episode())) == stored | of_the_agent | follows


def test_a_state_holds_no_pixel_and_no_weight() -> None:
    agent = tiny_agent()
    state = begun(agent).state()
    header = json.loads(state[8 : 8 + struct.unpack("<Q", state[:8])[0]])
    assert json.loads(json.loads(header["__metadata__"]["episode"])[1])["looks"] == 2
    sizes = {
        entry["data_offsets"][1] - entry["data_offsets"][0] for name, entry in header.items() if name != "__metadata__"
    }
    assert max(sizes) <= 8 * 2 * CONFIG.grid.num_locations


def test_episodes_in_two_threads_do_not_disturb_each_other() -> None:
    agent = with_everything()
    images = [scenes(3, seed) for seed in range(4)]
    alone = [agent.run(ImageSensor(image, SIDE), 20, batch=3, seed=seed) for seed, image in enumerate(images)]
    together: dict[int, Episode] = {}
    begin = threading.Barrier(4)

    def run(seed: int) -> None:
        calls = [0]

        def look(where: Tensor) -> Tensor:
            calls[0] += 1
            return extract(images[seed], where, SIDE)

        begin.wait(60)
        together[seed] = agent.run(look, 20, batch=3, seed=seed)
        assert calls == [20]

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    for seed, straight in enumerate(alone):
        for look, same in zip(straight.history, together[seed].history, strict=True):
            assert torch.equal(look.location, same.location)
            torch.testing.assert_close(look.probabilities, same.probabilities)
            assert not look.probabilities.requires_grad


def test_a_place_that_failed_stays_out_after_the_pause() -> None:
    agent = tiny_agent()
    episode = agent.episode()
    asked = episode.next_location()
    episode.skip()
    again = agent.resume(episode.state())

    def look(where: Tensor) -> Tensor:
        if torch.equal(where, asked):
            raise LookFailed
        return extract(scenes(1), where, SIDE)

    while not again.done:
        assert not torch.equal(again.next_location(), asked)
        take_look(again, look)


def _slow(here: Tensor, there: Tensor) -> Tensor:
    return (there - here).abs().sum(-1)


WAYS: dict[str, Any] = {
    "a stage": Stage(speed=(2.0, 5.0), settle=0.3),
    "no way": Stage(),
    "a matrix": torch.arange(float(CONFIG.grid.num_locations)).repeat(CONFIG.grid.num_locations, 1) / 10,
    "a function": _slow,
}


@pytest.mark.parametrize("way", WAYS)
def test_an_episode_whose_looks_take_time_goes_on_with_its_clock(way: str) -> None:
    agent, sensor = tiny_agent(), ImageSensor(scenes(2), SIDE)
    travel = Travel(way=WAYS[way], exposure=0.5, start=(4.0, 2.0))
    whole = agent.episode(2, 5, travel=travel, seconds=60.0)
    parts = agent.episode(2, 5, travel=travel, seconds=60.0)
    again = travel if way == "a function" else None
    while not whole.done:
        for episode in (whole, parts):
            episode.observe(sensor.look(episode.next_location()))
        parts = agent.resume(parts.state(), travel=again)
    assert parts.ended_by == whole.ended_by
    assert len(parts.history) == len(whole.history) > 2
    assert parts.seconds_spent is not None
    assert whole.seconds_spent is not None
    assert torch.equal(parts.seconds_spent, whole.seconds_spent)
    for one, other in zip(parts.history, whole.history, strict=True):
        assert torch.equal(one.location, other.location)
        assert one.seconds is not None
        assert other.seconds is not None
        assert torch.equal(one.seconds, other.seconds)


def test_a_way_that_is_a_function_is_given_again_and_no_other_travel_is_taken() -> None:
    agent = tiny_agent()
    of_function = agent.episode(travel=Travel(way=_slow, exposure=0.5)).state()
    with pytest.raises(InfogazeError, match="give it again, travel="):
        agent.resume(of_function)
    with pytest.raises(InfogazeError, match="no travel is to be given"):
        agent.resume(agent.episode().state(), travel=Travel())
    matrix: Tensor = WAYS["a matrix"]
    cases: list[tuple[Any, list[Any]]] = [
        (_slow, [Stage()]),
        (Stage(speed=3.0), [Stage(speed=4.0), _slow]),
        (matrix, [matrix + 1, Stage()]),
    ]
    for way, others in cases:
        state = agent.episode(travel=Travel(way=way, exposure=0.5)).state()
        agent.resume(state, travel=Travel(way=way, exposure=0.5))
        wrong = [Travel(way=way, exposure=0.25), *(Travel(way=other, exposure=0.5) for other in others)]
        for travel in wrong:
            with pytest.raises(InfogazeError, match="its travel was another, with an exposure of 0.5 seconds"):
                agent.resume(state, travel=travel)


def test_a_look_that_failed_took_its_time_and_its_way() -> None:
    agent = tiny_agent()
    episode = agent.episode(2, travel=Travel(way=Stage(speed=2.0), exposure=0.5))
    first = episode.next_location()
    episode.skip([True, False])
    assert episode.seconds_spent is not None
    assert episode.seconds_spent.tolist() == [0.5, 0.0]
    second = episode.next_location()
    episode.observe(ImageSensor(scenes(2), SIDE).look(second))
    way = float((second[0] - first[0]).abs().max()) / 2
    assert episode.seconds_spent.tolist() == [pytest.approx(1.0 + way), 0.5]
