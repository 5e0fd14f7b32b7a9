"""A model on disk, and scenes in files and arrays, for the tests of scoring."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from infogaze import save
from infogaze.gaze.agent import Agent
from tests.support.sets import noise
from tests.support.tiny import CONFIG, tiny_agent

GREY = replace(CONFIG, channels=1)


def grey_agent() -> Agent:
    """A model of grey scenes, 13 by 11, with a budget of four looks, which imagines."""
    return tiny_agent(GREY)


def saved_model(folder: Path) -> Path:
    """The same as a folder."""
    save(grey_agent(), folder)
    return folder


def scenes_of_noise(count: int) -> np.ndarray:
    """Scenes of its size, uint8 [n, 1, 13, 11]."""
    return noise(0, count, 1, GREY.height, GREY.width)


def write_arrays(path: Path, *, train: int, test: int) -> Path:
    """A set of three classes in one file, the images of `scenes_of_noise` in order."""
    images, labels = scenes_of_noise(train + test), np.arange(train + test) % 3
    np.savez(
        path, train_x=images[:train], train_y=labels[:train], test_x=images[train:], test_y=labels[train:],
        classes=np.array([f"class {number}" for number in range(3)]),
    )  # fmt: skip
    return path


def write_pictures(folder: Path, count: int) -> Path:
    """The images of `scenes_of_noise`, half of them in a folder below."""
    for number, image in enumerate(scenes_of_noise(count)):
        path = folder / ("below" if number % 2 else ".") / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0]).save(path)
    return folder
