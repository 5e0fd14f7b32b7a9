"""What one run must be to serve another: on the same images, and seeing all where that is needed; and where a model may be written."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Literal

from infogaze.data.sets import ImageSet
from infogaze.errors import InfogazeError
from infogaze.gaze.agent import Agent
from infogaze.methods.registry import METHODS
from infogaze.models import bundled


def require_sees_whole(folder: str | PathLike[str], agent: Agent, role: Literal["judge", "teacher"]) -> None:
    """Refuse a model that looks: only one that sees complete images can judge, or teach."""
    assert agent.origin is not None
    if METHODS[agent.origin.method].sees != "everything":
        seeing = [name for name in METHODS if METHODS[name].sees == "everything"]
        raise InfogazeError(f"{folder}: a run of {agent.origin.method}; a {role} must be one of {', '.join(seeing)}")


def require_place(model: str | PathLike[str], out: str | PathLike[str] | None) -> None:
    """Refuse to change a bundled model, and to write a model over what is there."""
    if out is None and str(model) in bundled():
        raise InfogazeError(f"{model} is a bundled model, which stays as it is; out must name a folder for the new one")
    if out is not None and Path(out).exists() and (not Path(out).is_dir() or any(Path(out).iterdir())):
        raise InfogazeError(f"{out} is there already; out must name a new folder")


def require_fit(
    folder: str | PathLike[str], agent: Agent, images: ImageSet, *, split: Literal["training", "test"]
) -> None:
    """Refuse a model of scenes of another size, or with other classes."""
    assert agent.origin is not None
    part = images.train if split == "training" else images.test
    config, shape = agent.origin.config, part.images.shape[1:]
    if shape != (config.channels, config.height, config.width):
        found = "x".join(map(str, shape))
        raise InfogazeError(
            f"{folder}: its scenes are {config.channels}x{config.height}x{config.width}, the {split} images {found}"
        )
    if agent.classes != images.classes:
        raise InfogazeError(
            f"{folder}: its {len(agent.classes)} classes are not the {len(images.classes)} of the {split} images"
        )
