"""The example that scans a TIFF, as its reader runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from infogaze import TiffSensor, load
from infogaze.data.digits import handwritten
from tests.support.paths import ROOT


@pytest.mark.slow
def test_the_example_goes_on_where_a_scan_was_and_draws_it(tmp_path: Path) -> None:
    agent = load("digits")
    drawing = (handwritten()[0][0].numpy() / handwritten()[0].max().item() * 255).astype(np.uint8)
    pixels = np.asarray(Image.fromarray(drawing).resize((1024, 1024)))
    tifffile.imwrite(tmp_path / "slide.tif", pixels, tile=(128, 128), compression="deflate")
    with TiffSensor(tmp_path / "slide.tif", agent.model.grid) as sensor:
        episode = agent.episode(allowed=sensor.allowed)
        for _ in range(2):
            episode.observe(sensor.look(episode.next_location()))
        episode.save(tmp_path / "scan.safetensors")
        straight = agent.run(sensor, allowed=sensor.allowed)
    label = agent.classes[int(straight.probabilities[0].argmax())]
    command = [
        sys.executable,
        str(ROOT / "examples" / "scan_slide.py"),
        str(tmp_path / "slide.tif"),
        "--model",
        "digits",
    ]
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "scan.png")], check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    first, last, read = done.stdout.splitlines()
    assert first.endswith("goes on after 2 looks")
    assert last.startswith(f"{label}, ")
    assert last.endswith(f"from {len(straight.history)} looks")
    assert re.fullmatch(r"read \d\.\d MiB of \d\.\d", read)
    with Image.open(tmp_path / "scan.png") as picture:
        assert picture.width > 1000
    assert not (tmp_path / "scan.safetensors").exists(), "it is over"
