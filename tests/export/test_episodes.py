"""Exported models look and classify as in torch, over whole episodes, whatever the method."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import infogaze
from infogaze import METHODS, Agent, CalibratedStop, ImageSensor, ModelConfig
from infogaze.export.contract import Precision
from infogaze.nn.distilled import DistilledGain
from infogaze.typed import to_plain
from tests.support.exported import looking, onnx_loop, require_same_episodes, typicality
from tests.support.tiny import CONFIG, PRESET_SIZES, TOKEN_SIZES, scenes

pytestmark = pytest.mark.slow
DEPLOYABLE = [name for name in METHODS if METHODS[name].sees == "looks"]
AIMS = ("ram", "ram-plus")
"""What looks between places too."""


def plain(agent: Agent) -> Agent:
    return agent


def mirrored(agent: Agent) -> Agent:
    agent.flip_tta = True
    return agent


def by_distilled_gain(agent: Agent) -> Agent:
    """With a gain that has learned nothing, and says something else of every belief and place."""
    gain = DistilledGain(CONFIG.belief_size, CONFIG.grid.num_locations)
    for number, value in enumerate(gain.parameters()):
        value.data.normal_(generator=torch.Generator().manual_seed(number))
    agent.distilled = gain
    return agent.with_distilled_gain()


def all_told(agent: Agent) -> Agent:
    """With all that an agent can have beside its networks."""
    agent.flip_tta, agent.temperatures, agent.typicality = True, (0.5, 2.0), typicality(agent)
    return agent


CASES: dict[str, tuple[str, ModelConfig, Callable[[Agent], Agent]]] = {
    **{name: (name, PRESET_SIZES, plain) for name in DEPLOYABLE},
    "infogaze": ("infogaze", PRESET_SIZES, all_told),
    "attention": ("attention", PRESET_SIZES, mirrored),
    "tokens, infogaze": ("infogaze", TOKEN_SIZES, all_told),
    "tokens, paper": ("paper", TOKEN_SIZES, plain),
    "tokens, ram": ("ram", TOKEN_SIZES, plain),
    "tokens, discriminative": ("discriminative", TOKEN_SIZES, plain),
    "row by row": ("random", PRESET_SIZES, lambda agent: agent.with_policy(infogaze.RasterPolicy())),
    "another question": ("infogaze", PRESET_SIZES, lambda agent: agent.ask({"first": ["class 0"], "other": None})),
    "a distilled gain": ("paper", PRESET_SIZES, by_distilled_gain),
    "a finer grid": ("paper", PRESET_SIZES, lambda agent: agent.on_grid(stride=1)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_model_looks_outside_torch_as_in_it(case: str, tmp_path: Path) -> None:
    method, preset, changed = CASES[case]
    agent = changed(looking(method, preset))
    contract = infogaze.export_onnx(agent, tmp_path)
    assert (contract.method, contract.classes, contract.num_looks) == (method, agent.classes, agent.num_looks)
    host = require_same_episodes(agent, tmp_path, scenes(5), on_grid=method not in AIMS)
    assert host.probabilities.std(0).max() > 0.05, "scenes are told apart"
    require_same_episodes(agent, tmp_path, scenes(1, seed=9), seed=-4, on_grid=method not in AIMS)


@pytest.mark.parametrize("name", infogaze.models.bundled())
def test_a_bundled_model_looks_outside_torch_as_in_it(name: str, tmp_path: Path) -> None:
    agent = infogaze.load(name)
    infogaze.export_onnx(agent, tmp_path)
    assert agent.origin is not None
    scene = agent.classify(infogaze.sample_picture()).scene
    pictures = torch.stack([scene, scene.flip(1), 255 - scene])
    host = require_same_episodes(agent, tmp_path, pictures)
    assert host.probabilities.std(0).max() > 0.01, "scenes are told apart"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Agent, Path]:
    """A model with all that an agent can have, exported once for the tests below."""
    agent, folder = all_told(looking("infogaze")), tmp_path_factory.mktemp("exported")
    infogaze.export_onnx(agent, folder)
    return agent, folder


RULES = {"confidence": (0.6, None, 0.7), "entropy": (0.5, 0.6, None), "gain": (None, 0.25, 0.3)}
"""With thresholds that end some scenes after some looks."""


@pytest.mark.parametrize("rule", RULES)
def test_the_stop_rule_ends_the_same_scenes(exported: tuple[Agent, Path], rule: Any, tmp_path: Path) -> None:
    agent, folder = exported
    stop = CalibratedStop(rule=rule, thresholds=RULES[rule], budget=4, gap=0.1, delta=0.1, by_look=False, scenes=9)
    contract = json.loads((folder / "contract.json").read_text())
    for graph in contract["graphs"].values():
        (tmp_path / graph["file"]).symlink_to(folder / graph["file"])
    (tmp_path / "contract.json").write_text(json.dumps({**contract, "stop": to_plain(stop)}))
    host = require_same_episodes(agent.with_stop(stop), tmp_path, scenes(12))
    assert host.stopped.any()
    assert not host.stopped.all()


def test_the_imagined_scene_is_the_one_that_torch_draws(exported: tuple[Agent, Path]) -> None:
    agent, folder = exported
    model = onnx_loop().Model(folder)
    episode = agent.run(ImageSensor(scenes(3), CONFIG.glimpse_size), batch=3)
    drawn = episode.imagined()
    assert drawn is not None
    given = model.run("imagine", **{"belief.hidden": episode.belief.hidden.numpy()})
    assert drawn.picture.float().std() > 10
    np.testing.assert_allclose(255 * given["picture"], drawn.picture.numpy(), atol=0.51)
    np.testing.assert_allclose(given["uncertainty"], drawn.uncertainty.flatten(1).numpy(), atol=1e-4)


def test_the_scores_of_glimpses_tell_scenes_out_of_distribution(exported: tuple[Agent, Path]) -> None:
    agent, folder = exported
    model, pictures = onnx_loop().Model(folder), scenes(6)
    episode, total, belief = agent.episode(6), np.zeros(6), model.start(6)
    while not episode.done:
        where = episode.next_location()
        glimpse = ImageSensor(pictures, CONFIG.glimpse_size).look(where)
        episode.observe(glimpse)
        given = model.run("see", glimpse=glimpse.numpy() / np.float32(255), location=where.float().numpy(), **belief)
        belief = {name: given[name.replace("belief", "next")] for name in belief}
        total += given["ood_score"]
    assert episode.ood_score is not None
    np.testing.assert_allclose(total / agent.num_looks, episode.ood_score.numpy(), rtol=1e-4)
    assert model.contract["ood_threshold"] == agent.typicality.threshold  # type: ignore[union-attr]


def test_a_look_between_pixels_is_taken_in_as_in_torch(exported: tuple[Agent, Path]) -> None:
    agent, folder = exported
    model, where = onnx_loop().Model(folder), torch.tensor([[1.5, 2.25], [0.0, 6.75]])
    glimpse, episode = torch.rand(2, CONFIG.channels, 4, 4), agent.episode(2)
    episode.observe(glimpse, at=where)
    given = model.run("see", glimpse=glimpse.numpy(), location=where.numpy(), **model.start(2))
    np.testing.assert_allclose(given["probabilities"], episode.probabilities.numpy(), atol=1e-5)


def test_random_numbers_of_the_example_are_the_scenes_own() -> None:
    loop, seeds = onnx_loop(), infogaze.scene_seeds(-5, 4)
    assert np.array_equal(loop.scene_seeds(-5, 4).astype(np.int64), seeds.numpy())
    for look in (0, 3):
        noise = infogaze.SceneNoise(seeds, look)
        np.testing.assert_array_equal(loop.uniform(loop.scene_seeds(-5, 4), look, 1000), noise.uniform(1000).numpy())
        np.testing.assert_allclose(
            loop.normal(loop.scene_seeds(-5, 4), look, 1000), noise.normal(1000).numpy(), atol=1e-5
        )


def test_tokens_have_room_for_so_many_looks_and_no_more_are_promised(tmp_path: Path) -> None:
    agent = looking("random", replace(TOKEN_SIZES, dictionary_entries=0))
    contract = infogaze.export_onnx(agent, tmp_path, max_looks=5)
    assert contract.max_looks == 5
    agent.num_looks = 5
    data = json.loads((tmp_path / "contract.json").read_text())
    (tmp_path / "contract.json").write_text(json.dumps({**data, "num_looks": 5}))
    assert require_same_episodes(agent, tmp_path, scenes(3)).looks == 5


@pytest.mark.parametrize(("precision", "largest"), [("float16", 2e-3), ("int8", 0.1)])
def test_weights_of_fewer_bytes_say_nearly_the_same(precision: Precision, largest: float, tmp_path: Path) -> None:
    agent = infogaze.load("digits")
    whole, small = (infogaze.export_onnx(agent, tmp_path / kind, precision=kind) for kind in ("float32", precision))
    for name, graph in small.graphs.items():
        assert graph.bytes < whole.graphs[name].bytes * {"float16": 0.6, "int8": 0.45}[precision], name
        assert (graph.inputs, graph.outputs) == (whole.graphs[name].inputs, whole.graphs[name].outputs)
    loop = onnx_loop()
    models = [loop.Model(tmp_path / kind) for kind in ("float32", precision)]
    scene = agent.classify(infogaze.sample_picture()).scene[None].expand(3, -1, -1, -1)
    beliefs = [model.start(3) for model in models]
    for where in ([[0, 0], [12, 8], [24, 20]], [[8, 8], [4, 4], [12, 12]]):
        glimpses = loop.glimpses(scene.numpy(), np.array(where), 8)
        given = [
            model.run("see", glimpse=glimpses, location=np.array(where, np.float32), **belief)
            for model, belief in zip(models, beliefs, strict=True)
        ]
        beliefs = [{name: one[name.replace("belief", "next")] for name in beliefs[0]} for one in given]
        np.testing.assert_allclose(given[0]["probabilities"], given[1]["probabilities"], atol=largest)
    allowed = np.ones((3, agent.model.grid.num_locations), bool)
    gains = [model.run("decide", allowed=allowed, **beliefs[0])["gain"] for model in models]
    assert gains[0].max() > 0.01
    np.testing.assert_allclose(gains[0], gains[1], atol=largest * gains[0].max())
