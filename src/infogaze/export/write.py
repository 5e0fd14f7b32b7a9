"""An agent as a folder of ONNX graphs with their contract, for hosts without torch."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from infogaze.errors import InfogazeError
from infogaze.export.contract import FORMAT, Contract, GraphFile, Precision
from infogaze.export.graphs import Decide, Imagine, Layout, See, keeps_tokens, layout_of, needs_of
from infogaze.files import make_folder, write_json, write_whole
from infogaze.gaze.agent import Agent
from infogaze.gaze.policies import DistilledPolicy, ScenePolicy
from infogaze.methods.registry import METHODS
from infogaze.nn.dictionary import Dictionary
from infogaze.nn.model import Model
from infogaze.typed import to_plain
from infogaze.version import __version__

CONTRACT = "contract.json"
_ROOM = 32
"""Looks that a belief of tokens has room for, unless its budget is larger or there are fewer places."""


def export_onnx(
    agent: Agent, folder: str | os.PathLike[str], *, precision: Precision = "float32", max_looks: int | None = None
) -> Contract:
    """Write the agent as ONNX graphs with their contract, which is returned; `docs/export.md` says how to run them.

    Its method must be one that can be deployed. `max_looks` is the room of a belief that keeps its looks as tokens; other beliefs take any
    number. Files of an earlier export are replaced.
    """
    _require_deployable(agent)
    _require_extra()
    from infogaze.export.onnx_file import graph_of, ports
    from infogaze.export.precision import in_precision

    assert agent.origin is not None
    config, grid = agent.origin.config, agent.model.grid
    room = _room(agent, max_looks)
    layout = layout_of(agent, room or 1)
    noise, has_map = needs_of(agent.policy, agent.model)
    files: dict[str, GraphFile] = {}
    folder = make_folder(Path(folder))
    for name, (module, example, inputs, outputs) in _graphs(
        agent, layout, noise_count=noise.count if noise else 0
    ).items():
        model = in_precision(graph_of(module, example, inputs=inputs, outputs=outputs), precision)
        data = model.SerializeToString(deterministic=True)
        write_whole(folder / f"{name}.onnx", data)
        files[name] = GraphFile(
            file=f"{name}.onnx",
            sha256=hashlib.sha256(data).hexdigest(),
            bytes=len(data),
            inputs=ports(model.graph.input),
            outputs=ports(model.graph.output),
        )
    if "imagine" not in files:
        (folder / "imagine.onnx").unlink(missing_ok=True)
    rows, cols = grid.axes()
    contract = Contract(
        format=FORMAT,
        infogaze=__version__,
        method=agent.origin.method,
        precision=precision,
        height=grid.height,
        width=grid.width,
        channels=config.channels,
        glimpse_size=grid.glimpse_size,
        rows=tuple(rows.tolist()),
        cols=tuple(cols.tolist()),
        classes=agent.classes,
        num_looks=agent.num_looks,
        max_looks=room,
        num_samples=0 if isinstance(agent.policy, DistilledPolicy) else agent.origin.num_samples,
        fit=agent.fit,
        normalisation="inside the graph: 2 * glimpse - 1, from pixels in [0, 1]",
        flip_tta=agent.flip_tta,
        temperatures=agent.temperatures,
        belief=layout.parts,
        noise=noise,
        has_map=has_map,
        ood_threshold=None if agent.typicality is None else agent.typicality.threshold,
        stop=agent.stop,
        graphs=files,
    )
    write_json(folder / CONTRACT, to_plain(contract))
    return contract


def _require_extra() -> None:
    """Say which packages are lacking; nothing else of infogaze needs them."""
    lacking = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if lacking:
        raise InfogazeError(
            f"exporting needs the extra \"export\" ({lacking[0]} is missing): pip install 'infogaze[export]'"
        )


def _require_deployable(agent: Agent) -> None:
    if agent.origin is None:
        raise InfogazeError("an agent around a model of one's own has no origin, so it cannot be exported")
    sees = METHODS[agent.origin.method].sees
    if sees != "looks":
        able = ", ".join(name for name in METHODS if METHODS[name].sees == "looks")
        raise InfogazeError(
            f"a model by {agent.origin.method} sees {'the scene when it chooses' if sees == 'scene' else sees}, so it cannot be "
            f"exported; these methods can: {able}"
        )
    if isinstance(agent.policy, ScenePolicy):
        raise InfogazeError(f"{agent.policy} must be shown the scenes, so it cannot be exported")
    if agent.model.device.type != "cpu" or agent.precision != "float32":
        raise InfogazeError(
            f"the agent is on {agent.model.device}, its products in {agent.precision}; load it with neither device nor compile"
        )


def _room(agent: Agent, max_looks: int | None) -> int | None:
    """The looks that a belief of tokens has room for; None for one that takes any number."""
    if not keeps_tokens(agent):
        if max_looks is not None:
            raise InfogazeError(
                f"max_looks is {max_looks}; this model's belief takes any number of looks, so none is allowed"
            )
        return None
    if max_looks is None:
        return max(agent.num_looks, min(_ROOM, agent.model.grid.num_locations))
    if max_looks < agent.num_looks:
        raise InfogazeError(f"max_looks is {max_looks}; it must be at least the budget, {agent.num_looks}")
    return max_looks


def _graphs(
    agent: Agent, layout: Layout, *, noise_count: int
) -> dict[str, tuple[nn.Module, tuple[Any, ...], Sequence[str], Sequence[str]]]:
    """By name: the module, what it takes for two scenes, and the names of inputs and outputs."""
    assert agent.origin is not None
    grid, channels = agent.model.grid, agent.origin.config.channels
    belief = [torch.zeros(2, part.size) for part in layout.parts]
    held, kept = ([f"{owner}.{name}" for name in layout.names] for owner in ("belief", "next"))
    glimpse = torch.zeros(2, channels, grid.glimpse_size, grid.glimpse_size)
    allowed = torch.ones(2, grid.num_locations, dtype=torch.bool)
    seen = ["probabilities", *(["ood_score"] if agent.typicality is not None else [])]
    noise = (torch.full((2, noise_count), 0.5),) if noise_count else ()
    graphs: dict[str, tuple[nn.Module, tuple[Any, ...], Sequence[str], Sequence[str]]] = {
        "see": (
            See(agent, layout),
            (glimpse, torch.zeros(2, 2), belief),
            ["glimpse", "location", *held],
            [*kept, *seen],
        ),
        "decide": (
            Decide(agent, layout),
            (belief, allowed, *noise),
            [*held, "allowed", *(["noise"] if noise else [])],
            ["gain", "location"],
        ),
    }
    if isinstance(agent.model, Model) and isinstance(agent.model.imagination, Dictionary):
        imagine = Imagine(agent.model.imagination, agent.model, layout)
        graphs["imagine"] = imagine, (belief,), held, ["picture", "uncertainty"]
    return graphs
