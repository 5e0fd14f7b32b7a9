"""Small sets of own images in one file, for adapters that read them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from infogaze import Agent
from tests.support.sets import noise
from tests.support.tiny import CONFIG, tiny_agent


def write_arrays(path: Path, test: np.ndarray | None = None) -> Path:
    """A set of the tiny model's sizes in grey, nine images of noise to test on, or these."""
    test = noise(1, 9, CONFIG.height, CONFIG.width) if test is None else test
    labels = np.arange(9) % CONFIG.num_classes
    np.savez(path, train_x=noise(0, 9, CONFIG.height, CONFIG.width), train_y=labels, test_x=test, test_y=labels)
    return path


def grey_agent(*, num_looks: int = 6) -> Agent:
    """A tiny agent for them."""
    return tiny_agent(replace(CONFIG, channels=1), num_looks=num_looks)
