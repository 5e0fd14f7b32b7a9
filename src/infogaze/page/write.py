"""The page as a folder: its own files, the runtime, the models as graphs, pictures, and `settings.json`, which names them all."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from infogaze.errors import InfogazeError
from infogaze.files import make_folder, read_json, write_json, write_whole
from infogaze.gaze.agent import Agent
from infogaze.models import load
from infogaze.nn.model import Model
from infogaze.page.pictures import bundled_pictures
from infogaze.page.runtime import FILES, runtime_files
from infogaze.plots.style import GAIN_COLOURS
from infogaze.version import __version__

DEFAULT_MODELS = ("cifar10-plus", "cifar10", "cifar10-paper", "digits")
SETTINGS = "settings.json"
"""By which a folder is known as a page."""
_WEIGHTS = "weights.bin"
_COLOURS = 64


@dataclass(frozen=True)
class WrittenPage:
    """What was written."""

    folder: Path
    bytes_of: dict[str, int]
    """By part of the page: its own files, the runtime, the pictures, each model."""

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(self.bytes_of.values())


def write_page(folder: Path, models: Sequence[str] = DEFAULT_MODELS, *, runtime: Path | None = None) -> WrittenPage:
    """Write a static folder on which these models look; bundled names, or folders that training wrote. The first is shown first."""
    named = _named(models)
    ready = runtime_files(runtime)
    agents = {name: load(model) for name, model in named.items()}
    folder = make_folder(folder)
    if (folder / SETTINGS).exists():  # an older page, perhaps of other models
        for old in ("models", "pictures"):
            shutil.rmtree(folder / old, ignore_errors=True)
    files: dict[str, dict[str, bytes]] = {
        "page": _own_files(),
        "runtime": {f"runtime/{name}": data for name, data in ready.items()},
    }
    described = []
    for name, agent in agents.items():
        model_files, about = _model_files(agent)
        place = f"models/{name}"
        files[place] = {f"{place}/{file}": data for file, data in model_files.items()}
        described.append({"name": name, "folder": place, **about})
    pictures = bundled_pictures({name for agent in agents.values() for name in agent.classes})
    files["pictures"] = {f"pictures/{picture.name}.png": picture.data for picture in pictures}
    for part in files.values():
        for path, data in part.items():
            make_folder((folder / path).parent)
            write_whole(folder / path, data)
    script, wasm = FILES
    settings = {
        "infogaze": __version__,
        "models": described,
        "runtime": {"script": f"runtime/{script.name}", "file": f"runtime/{wasm.name}", "bytes": len(ready[wasm.name])},
        "pictures": [
            {"name": picture.name, "file": f"pictures/{picture.name}.png", "label": picture.label}
            for picture in pictures
        ],
        "colours": _gain_colours(),
    }
    write_json(folder / SETTINGS, settings)  # the last: a folder with it is whole
    return WrittenPage(folder, {part: sum(map(len, data.values())) for part, data in files.items()})


def _named(models: Sequence[str]) -> dict[str, str]:
    """The models by the name that the page gives them: that of their folder."""
    if not models:
        raise InfogazeError("models are none; a page needs at least one")
    named: dict[str, str] = {}
    for model in models:
        name = re.sub(r"[^\w.-]", "-", Path(model).name)
        if name in named:
            raise InfogazeError(f"two models are called {name}: {named[name]} and {model}; a page shows each name once")
        named[name] = model
    return named


def _own_files() -> dict[str, bytes]:
    own = resources.files("infogaze").joinpath("page", "static")
    return {entry.name: entry.read_bytes() for entry in own.iterdir() if entry.is_file()}


def _model_files(agent: Agent) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files of a model by name, and what the page must know before it fetches them."""
    from infogaze.export.write import export_onnx

    with tempfile.TemporaryDirectory() as made:
        export_onnx(agent, made, precision="float16")  # the first, because it says so where the extra is missing
        import onnx

        from infogaze.page.ask import ask_graph
        from infogaze.page.pack import packed

        contract = read_json(Path(made) / "contract.json")
        graphs = {title: onnx.load(Path(made) / graph["file"]) for title, graph in contract["graphs"].items()}
    asks = isinstance(agent.model, Model)
    if asks:
        graphs["ask"] = ask_graph(agent, contract)
    shared, weights = packed(graphs, name=_WEIGHTS)
    # What else it says of a graph was true of the file with its weights in it.
    contract["graphs"] = {title: {"file": f"{title}.onnx", "bytes": len(data)} for title, data in shared.items()}
    contract["weights"] = {"file": _WEIGHTS, "bytes": len(weights)}
    files = {f"{title}.onnx": data for title, data in shared.items()} | {_WEIGHTS: weights}
    files["contract.json"] = _json(contract)
    return files, {"method": contract["method"], "classes": contract["classes"], "asks": asks, "stop": contract["stop"]}


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


def _gain_colours() -> list[str]:
    """The scale of gain maps in our figures, from nothing to the most."""
    import matplotlib as mpl
    from matplotlib.colors import to_hex

    return [to_hex(colour) for colour in mpl.colormaps[GAIN_COLOURS].resampled(_COLOURS)(range(_COLOURS))]
