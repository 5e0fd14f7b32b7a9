"""Save a model in the layout of the Hugging Face Hub, load it from there, and scan a handwritten digit with it.

python examples/hub_digits.py scan.png
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import infogaze
from infogaze.adapters.hub import HubAgent


def sample() -> np.ndarray:
    """A handwritten digit of 28 pixels, in the middle of 32."""
    ink = (load_digits().images[13] / 16 * 255).astype(np.uint8)
    return np.pad(np.asarray(Image.fromarray(ink).resize((28, 28), Image.Resampling.BICUBIC)), 2)


if __name__ == "__main__":
    picture = Path(sys.argv[1] if len(sys.argv) > 1 else "hub_digits.png")
    with TemporaryDirectory() as folder:
        HubAgent(infogaze.load("digits")).save_pretrained(folder)
        agent = HubAgent.from_pretrained(folder).agent
    result = agent.classify(sample(), stop=infogaze.Confident(0.99))
    result.plot(picture)
    looks = len(result.episode.history)
    print(f"label {result.label}, probability {float(result.episode.probabilities.max()):.2f}, after {looks} looks")
