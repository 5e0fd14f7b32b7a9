"""Small sweeps, and what they print, for the tests of the command and of the scripts around it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from infogaze.cli import main
from infogaze.presets import PRESETS
from infogaze.training.recipe import RECIPES, PhaseRecipe, Recipe

PART = PhaseRecipe(1, 16, 1e-3)
DIGITS = PRESETS["digits"]
SIZES = replace(DIGITS.model, glimpse_widths=(4,), feature_size=8, belief_size=16, latent_size=4, flow_layers=1)


def write_set(path: Path, train: int) -> Path:
    """Wide scenes whose brightness tells their class, and 24 to test on that are hard to tell apart."""
    rng = np.random.default_rng(0)
    labels = np.arange(train + 24) % 3
    images = (labels[:, None, None] * 30 + rng.integers(0, 160, (train + 24, 12, 20))).astype(np.uint8)
    np.savez(path, train_x=images[:train], train_y=labels[:train], test_x=images[train:], test_y=labels[train:])
    return path


def tiny_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A set, and a recipe and networks with which a run takes no time."""
    monkeypatch.setenv("INFOGAZE_CACHE", str(folder / "cache"))
    monkeypatch.setitem(RECIPES, "smoke", Recipe(PART, PART, PART, PART))
    monkeypatch.setitem(PRESETS, "digits", replace(DIGITS, model=SIZES, looks=3, samples=2))
    return write_set(folder / "set.npz", 32)


def printed(capsys: pytest.CaptureFixture[str], arguments: list[str], stage: str) -> list[str]:
    capsys.readouterr()
    main([*arguments, "--print-stage", stage])
    return capsys.readouterr().out.splitlines()
