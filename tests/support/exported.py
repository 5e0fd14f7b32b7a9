"""Exported models run by `examples/onnx_loop.py`, which knows no torch, beside the same models in torch."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from infogaze import Agent, GlimpseClassifier, ImageSensor, ModelConfig
from infogaze.methods.registry import build_for
from infogaze.nn.typicality import Typicality
from tests.support.methods import agent_of, sizes
from tests.support.paths import ROOT
from tests.support.tiny import PRESET_SIZES

EQUAL = 1e-4
"""Probabilities differ by less."""


def outspoken(method: str, preset: ModelConfig = PRESET_SIZES) -> GlimpseClassifier:
    """A model of the method that tells scenes apart, with running statistics as if it had been trained."""
    model, generator = build_for(method, sizes(method, preset)), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in model.parameters():
            if value.dim() > 1:
                value.mul_(2.0)
            else:
                value.add_(0.3 * torch.randn(value.shape, generator=generator))
        for name, kept in model.named_buffers():
            if name.endswith("running_mean"):
                kept.copy_(0.3 * torch.randn(kept.shape, generator=generator))
            if name.endswith("running_var"):
                kept.copy_(0.2 + torch.rand(kept.shape, generator=generator))
            if name.endswith("patches"):
                kept.copy_(torch.rand(kept.shape, generator=generator) * 2.0 - 1.0)
        model.backbone.get_submodule("classifier.linear").get_parameter("weight").mul_(2.0)
    return model


def looking(method: str, preset: ModelConfig = PRESET_SIZES) -> Agent:
    """An agent around such a model."""
    return agent_of(method, outspoken(method, preset), preset=preset)


def onnx_loop() -> ModuleType:
    """The example, as a module."""
    spec = importlib.util.spec_from_file_location("onnx_loop", ROOT / "examples" / "onnx_loop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def require_same_episodes(agent: Agent, folder: Path, scenes: Tensor, *, seed: int = 3, on_grid: bool = True) -> Any:
    """Whole episodes of both, look by look: the host is led where torch looks, so that one rounding cannot part them for good.

    Where torch's own gains of two places are nearly the same, either may be chosen. Returns the finished episode of the host.
    """
    loop = onnx_loop()
    model, batch, side = loop.Model(folder), len(scenes), agent.model.grid.glimpse_size
    ours, host = agent.episode(batch, seed), loop.Episode(model, loop.scene_seeds(seed, batch))
    sensor = ImageSensor(scenes, side)
    while not ours.done:
        assert not host.done
        where, chosen = ours.next_location(), host.next_location()
        gain = ours.gain.flatten(1).numpy()
        scale = max(1.0, float(np.abs(gain).max()))
        np.testing.assert_allclose(host.gain, gain, rtol=0, atol=EQUAL * scale)
        require_as_good(where.numpy(), chosen, gain=gain, places=model.places, slack=2e-5 * scale, on_grid=on_grid)
        host.location = where.numpy().astype(np.float32)
        glimpses = sensor.look(where)
        np.testing.assert_array_equal(
            loop.glimpses(scenes.numpy(), host.location, side), glimpses.numpy() / np.float32(255)
        )
        ours.observe(glimpses)
        host.observe(glimpses.numpy().astype(np.float32) / 255)
        np.testing.assert_allclose(host.probabilities, ours.probabilities.numpy(), rtol=0, atol=EQUAL)
        np.testing.assert_array_equal(host.allowed, ours.candidates.flatten(1).numpy())
        np.testing.assert_array_equal(host.stopped, ours.stopped.numpy())
    assert host.done
    assert host.looks == len(ours.history)
    return host


def require_as_good(
    wanted: np.ndarray, chosen: np.ndarray, *, gain: np.ndarray, places: np.ndarray, slack: float, on_grid: bool
) -> None:
    """The same location, or another as good to rounding; an aim between places may be rounded to the next pixel."""
    if not on_grid:
        assert np.abs(wanted - chosen).max() <= 1
        return
    for scene in np.flatnonzero((wanted != chosen).any(1)):
        values = [gain[scene, (places == where).all(1)][0] for where in (wanted[scene], chosen[scene])]
        assert gain.any(), "without a map the locations are exactly the same"
        assert abs(values[0] - values[1]) < slack


def typicality(agent: Agent) -> Typicality:
    """Some statistics of its features, whitening of no special kind."""
    assert agent.origin is not None
    size = agent.origin.config.feature_size
    generator = torch.Generator().manual_seed(1)
    return Typicality(torch.randn(size, generator=generator), torch.randn(size, size, generator=generator), 1.5)
