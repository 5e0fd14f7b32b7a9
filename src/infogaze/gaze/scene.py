"""A picture as a scene that a model can look at, and the picture that comes with the package."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.gaze.agent import Agent
from infogaze.pictures import fit_picture, open_picture, pixels_of


def sample_picture() -> Path:
    """A cargo ship at sea, drawn for this package."""
    return Path(str(resources.files("infogaze").joinpath("bundled", "sample.png")))


def read_scene(path: Path | str, agent: Agent) -> UInt8[Tensor, "C H W"]:
    """A picture as a scene of the model's size and channels, brought to this size as the model's training pictures were."""
    grid = agent.model.grid
    channels = 3 if agent.config is None else agent.config.channels
    if channels not in {1, 3}:
        raise InfogazeError(f"this model takes {channels} channels; a picture has 1 or 3")
    picture = open_picture(Path(path))
    if min(picture.size) < grid.glimpse:
        width, height = picture.size
        raise InfogazeError(f"{path}: {height}x{width} pixels, smaller than a glimpse of {grid.glimpse}x{grid.glimpse}")
    return torch.tensor(fit_picture(pixels_of(picture, channels), (grid.height, grid.width), agent.fit))
