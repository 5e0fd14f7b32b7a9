"""How long one decision and one scene of seven looks take on this CPU: torch, torch compiled, and exported graphs.

python benchmarks/latency.py cifar10 --threads 1 2 --repeats 30
"""

import argparse
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

import infogaze
from infogaze.gaze.agent import Agent
from infogaze.nn.compilation import compile_parts
from infogaze.rng import SceneNoise

KINDS = ("torch", "torch compiled", "ONNX", "ONNX int8")


def onnx_loop() -> ModuleType:
    """The example, which knows no torch."""
    path = Path(__file__).parents[1] / "examples" / "onnx_loop.py"
    spec = importlib.util.spec_from_file_location("onnx_loop", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_torch(agent: Agent, scene: np.ndarray) -> tuple[Callable[[], object], Callable[[], object]]:
    """A decision after two looks, and a whole scene."""
    images = torch.from_numpy(scene)
    begun = agent.episode(seed=0)
    sensor = infogaze.ImageSensor(images, agent.model.grid.glimpse_size)
    for _ in range(2):
        begun.observe(sensor.look(begun.next_location()))
    belief, allowed = begun.belief, begun.candidates.flatten(1)
    seeds = infogaze.scene_seeds(0, 1)

    @torch.no_grad()
    def decision() -> object:
        return agent.policy(agent.model, belief, candidates=allowed, noise=SceneNoise(seeds, 2))

    return decision, lambda: agent.run(infogaze.ImageSensor(images, agent.model.grid.glimpse_size))


def in_onnx(loop: ModuleType, model: object, scene: np.ndarray) -> tuple[Callable[[], object], Callable[[], object]]:
    """The same, by the example."""

    def begun() -> object:
        return loop.Episode(model, loop.scene_seeds(0, 1))

    def look(episode: object) -> None:
        where = episode.next_location()
        episode.observe(loop.glimpses(scene, where, model.contract["glimpse_size"]))

    started = begun()
    for _ in range(2):
        look(started)

    def decision() -> object:
        started.planned = None
        return started.plan()

    def whole() -> None:
        episode = begun()
        while not episode.done:
            look(episode)

    return decision, whole


def measured(act: Callable[[], object], repeats: int) -> str:
    """Median and quartiles of the time, and the median of the time that the processor worked, in ms."""
    for _ in range(3):
        act()
    wall, worked = [], []
    for _ in range(repeats):
        at, busy = time.perf_counter(), time.process_time()
        act()
        wall.append(1e3 * (time.perf_counter() - at))
        worked.append(1e3 * (time.process_time() - busy))
    low, middle, high = statistics.quantiles(wall, n=4)
    return f"{middle:.1f} ({low:.1f} to {high:.1f}) | {statistics.median(worked):.1f}"


def main() -> None:
    """A table, a line a way to run a model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", help="a bundled model's name, or a model folder")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--repeats", type=int, default=30)
    given = parser.parse_args()
    loop = onnx_loop()
    agent = infogaze.load(given.model)
    scene = agent.classify(infogaze.sample_picture()).scene[None].numpy()
    print("| | threads | a decision, ms (quartiles) | CPU, ms | a scene, ms (quartiles) | CPU, ms |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for kind in given.kinds:
            if kind == "torch compiled":
                compile_parts(agent.model)
            if kind.startswith("ONNX"):
                precision = "int8" if kind.endswith("int8") else "float32"
                # The compiled parts are of no use to the exporter.
                infogaze.export_onnx(infogaze.load(given.model), folder, precision=precision)
            for threads in given.threads:
                torch.set_num_threads(threads)
                acts = (
                    in_onnx(loop, loop.Model(folder, threads), scene)
                    if kind.startswith("ONNX")
                    else in_torch(agent, scene)
                )
                row = " | ".join(measured(act, given.repeats) for act in acts)
                print(f"| {kind} | {threads} | {row} |", flush=True)


if __name__ == "__main__":
    main()
