"""What the bundled models say is what they said when they were put into the package: 256 scenes, all looks, in `reference/bundled.npz`.

Locations may differ where two were all but equally good then, because processors round differently; what follows such a look is not
compared.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import infogaze
from infogaze import ImageSensor
from infogaze.gaze.episode import Episode

REFERENCE = Path(__file__).parent / "reference" / "bundled.npz"
MODELS = ("digits", "cifar10", "cifar10-plus", "svhn")
ALL_BUT_EQUAL = 1e-5
"""Nats between two gains that float32 cannot order on every processor."""
SEED = 7


def scenes_for(model: str, reference: np.lib.npyio.NpzFile) -> torch.Tensor:
    return torch.from_numpy(reference["grey" if model == "digits" else "colour"])


def told_in_advance(model: str, scenes: torch.Tensor, locations: torch.Tensor) -> Episode:
    """An episode that looks where it is told, in float64, so that nothing depends on how a processor rounds."""
    agent = infogaze.load(model)
    agent.model.double()
    episode = agent.episode(len(scenes), SEED, policy=infogaze.RandomPolicy())
    sensor = ImageSensor(scenes, agent.model.grid.glimpse_size)
    for where in locations.unbind(1):
        episode.observe(sensor.look(where), at=where)
    return episode


@pytest.mark.parametrize("model", MODELS)
def test_the_same_looks_give_the_same_probabilities(model: str) -> None:
    with np.load(REFERENCE) as reference:
        locations = torch.from_numpy(reference[f"{model}/locations"].astype(np.int64))
        expected = torch.from_numpy(reference[f"{model}/probabilities"])
        episode = told_in_advance(model, scenes_for(model, reference), locations)
    found = torch.stack([look.probabilities for look in episode.history], 1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_the_same_locations_are_chosen(model: str) -> None:
    agent = infogaze.load(model)
    with np.load(REFERENCE) as reference:
        scenes = scenes_for(model, reference)
        expected = torch.from_numpy(reference[f"{model}/locations"].astype(np.int64))
        probabilities = torch.from_numpy(reference[f"{model}/probabilities"])
    episode = agent.run(ImageSensor(scenes, agent.model.grid.glimpse_size), batch=len(scenes), seed=SEED)
    alike = torch.ones(len(scenes), dtype=torch.bool)
    for number, look in enumerate(episode.history):
        other = (look.location != expected[:, number]).any(1) & alike
        gain = look.gain.flatten(1)
        chosen, before = (
            gain.gather(1, agent.model.grid.nearest(where)[:, None])[:, 0]
            for where in (look.location, expected[:, number])
        )
        assert bool(((chosen - before)[other] < ALL_BUT_EQUAL).all()), f"look {number}"
        alike &= ~other
        torch.testing.assert_close(look.probabilities[alike].double(), probabilities[alike, number], rtol=0, atol=1e-5)
    assert int(alike.sum()) >= len(scenes) - 3, "ties are rare"
