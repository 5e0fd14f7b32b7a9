"""One picture classified glimpse by glimpse: the label, what it was read from, and how it came about."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from PIL import Image
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.files import make_folder, write_whole
from infogaze.gaze.episode import Episode
from infogaze.gaze.sensor import ImageSensor
from infogaze.grid import GlimpseGrid, tensor_of
from infogaze.pictures import Fit, as_eight_bits, fit_picture, open_picture, pixels_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Classification:
    """What came of a picture."""

    episode: Episode
    """The finished episode, with its history."""
    scene: UInt8[Tensor, "C H W"]
    """The picture at the size of the model's scenes. The model saw of it what it looked at."""
    sensor: ImageSensor
    """What handed out the glimpses, and counted them."""
    classes: tuple[str, ...]
    """The names of the labels."""
    grid: GlimpseGrid
    """Where could be looked."""

    @property
    def probabilities(self) -> Float[Tensor, " classes"]:
        """Of each label, after the last look."""
        return self.episode.probabilities[0]

    @property
    def label(self) -> str:
        """The most likely one."""
        return self.classes[int(self.probabilities.argmax())]

    @property
    def seen(self) -> float:
        """The share of the scene's pixels that was looked at."""
        return int(self.sensor.pixels_read[0]) / (self.grid.height * self.grid.width)

    @property
    def out_of_distribution(self) -> bool:
        """Whether the scene is unlike those of training, so that the label means little; False where the model cannot tell."""
        return bool(self.episode.out_of_distribution[0])

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draw what was looked at, expected and believed; and write it to a file, whose ending says of what kind."""
        from infogaze.plots.files import encoded, require_drawable
        from infogaze.plots.rollout import rollout_figure

        if path is not None:
            require_drawable(Path(path))
        history = self.episode.history
        scenes = [scene for scene in map(self.episode.imagined, range(len(history))) if scene is not None]
        figure = rollout_figure(
            self.scene,
            locations=torch.cat([look.location for look in history]),
            gains=torch.cat([look.gain for look in history]),
            probabilities=torch.cat([look.probabilities for look in history]),
            grid=self.grid,
            classes=self.classes,
            imagined=torch.cat([scene.picture for scene in scenes]) if scenes else None,
            uncertainty=torch.cat([scene.uncertainty for scene in scenes]) if scenes else None,
        )
        if path is not None:
            make_folder(Path(path).parent)
            write_whole(Path(path), encoded(figure, Path(path).suffix.lower()))
        return figure


def sample_picture() -> Path:
    """A cargo ship at sea, drawn for this package."""
    return Path(str(resources.files("infogaze").joinpath("bundled", "sample.png")))


def scene_of(
    picture: str | os.PathLike[str] | Image.Image | np.ndarray | Tensor,
    grid: GlimpseGrid,
    *,
    channels: int | None,
    fit: Fit,
) -> UInt8[Tensor, "C H W"]:
    """A picture as a scene of this size and so many channels (colour if None), brought to the size as training pictures were."""
    if isinstance(picture, np.ndarray | Tensor):
        name = "the array"
        pixels = _channels_first(np.asarray(picture.cpu() if isinstance(picture, Tensor) else picture), channels)
    else:
        wanted = 3 if channels is None else channels
        if wanted not in {1, 3}:
            raise InfogazeError(f"this model takes {wanted} channels; a picture has 1 or 3, give an array")
        name = "the picture" if isinstance(picture, Image.Image) else str(picture)
        opened = as_eight_bits(picture, name) if isinstance(picture, Image.Image) else open_picture(Path(picture))
        pixels = pixels_of(opened, wanted)
    _, height, width = pixels.shape
    if min(height, width) < grid.glimpse_size:
        raise InfogazeError(
            f"{name}: {height}x{width} pixels, smaller than a glimpse of {grid.glimpse_size}x{grid.glimpse_size}"
        )
    if len(pixels) not in {1, 3} and (height, width) != (grid.height, grid.width):
        raise InfogazeError(
            f"{name}: {height}x{width} pixels of {len(pixels)} channels; give it at the size of the model's scenes, "
            f"{grid.height}x{grid.width}: only pictures of 1 or 3 channels are brought to it"
        )
    return tensor_of(fit_picture(pixels, (grid.height, grid.width), fit))


def allowed_of(picture: str | os.PathLike[str], grid: GlimpseGrid, *, fit: Fit) -> Bool[Tensor, "rows cols"]:
    """The locations that a mask allows: a picture, brought to the size of a scene as the scene's own was, white where may be looked and
    black where not. A glimpse with a dark pixel in it is not allowed; bars beside a picture are not dark."""
    pixels = pixels_of(open_picture(Path(picture)), 1)
    dark = fit_picture(255 - pixels, (grid.height, grid.width), fit)[0] > 127
    allowed = grid.within(tensor_of(~dark))
    if not bool(allowed.any()):
        raise InfogazeError(
            f"{picture}: leaves no location, a glimpse is {grid.glimpse_size}x{grid.glimpse_size} pixels"
        )
    return allowed


def _channels_first(array: np.ndarray, channels: int | None) -> UInt8[np.ndarray, "C h w"]:
    """The array as uint8 [C, h, w]; grey becomes colour where the model takes that."""
    if array.ndim == 2:
        array = array[None]
    elif array.ndim == 3 and array.shape[-1] in (1, 3, channels) and array.shape[0] not in (1, 3, channels):
        array = array.transpose(2, 0, 1)
    if array.ndim != 3 or array.shape[0] not in (1, 3, channels):
        raise InfogazeError(f"the array has shape {array.shape}; [H, W], [H, W, C] or [C, H, W] is allowed")
    if np.issubdtype(array.dtype, np.floating):
        if not bool(((array >= 0) & (array <= 1)).all()):
            raise InfogazeError("an array of floats must lie in [0, 1] with no NaN; give uint8 for 0 to 255")
        array = np.rint(array * 255).astype(np.uint8)
    if array.dtype != np.uint8:
        raise InfogazeError(f"the array is {array.dtype}; uint8, or float in [0, 1], is expected")
    if channels is not None and array.shape[0] != channels:
        if array.shape[0] == 1:
            return np.repeat(array, channels, 0)
        raise InfogazeError(f"the array has {array.shape[0]} channels; the model takes {channels}")
    return array
