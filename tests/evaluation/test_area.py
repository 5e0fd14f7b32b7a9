from __future__ import annotations

import pytest
import torch

from infogaze.evaluation.area import accuracy_by_area, observed_share
from infogaze.gaze.sensor import ImageSensor
from infogaze.grid import GlimpseGrid

GRID = GlimpseGrid(height=8, width=12, glimpse_size=4, stride=2)


def test_two_overlapping_looks_count_their_overlap_once() -> None:
    locations = torch.tensor([[[0, 0], [2, 2], [0, 0]], [[0, 0], [4, 8], [0, 4]]])
    pixels = observed_share(locations, GRID) * 96
    assert pixels[0].tolist() == pytest.approx([16, 28, 28])  # the overlap is 2x2; a repeated look shows nothing new
    assert pixels[1].tolist() == pytest.approx([16, 32, 48])


def test_the_observed_share_is_what_the_sensor_handed_out() -> None:
    generator = torch.Generator().manual_seed(0)
    scenes, looks = 1003, 5  # more than are treated at once
    rows = torch.randint(0, 5, (scenes, looks, 1), generator=generator)
    cols = torch.randint(0, 9, (scenes, looks, 1), generator=generator)  # off the grid too
    locations = torch.cat([rows, cols], -1)
    sensor = ImageSensor(torch.zeros(scenes, 1, 8, 12), GRID.glimpse_size)
    share = observed_share(locations, GRID)
    for look in range(looks):
        sensor.look(locations[:, look])
        torch.testing.assert_close(share[:, look], sensor.pixels_read / 96)


def test_looking_everywhere_shows_the_whole_scene() -> None:
    assert float(observed_share(GRID.locations()[None], GRID)[0, -1]) == 1.0


def test_each_look_of_each_scene_falls_in_one_bin() -> None:
    share = torch.tensor([[0.0, 0.25, 0.5], [0.1, 0.3, 1.0]])
    correct = torch.tensor([[False, True, True], [True, True, False]])
    accuracy, count = accuracy_by_area(correct, share, torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]))
    assert count.tolist() == [2, 2, 1, 1]  # an edge opens its bin, and the last closes the last
    assert accuracy.tolist() == [0.5, 1.0, 1.0, 0.0]


def test_an_empty_bin_has_no_accuracy() -> None:
    accuracy, count = accuracy_by_area(torch.tensor([[True]]), torch.tensor([[0.9]]), torch.tensor([0.0, 0.5, 1.0]))
    assert count.tolist() == [0, 1]
    assert accuracy.tolist() == pytest.approx([torch.nan, 1.0], nan_ok=True)


def test_a_share_outside_the_edges_is_refused() -> None:
    with pytest.raises(ValueError, match="a share of 0.9 is outside the edges, 0 to 0.5"):
        accuracy_by_area(torch.tensor([[True]]), torch.tensor([[0.9]]), torch.tensor([0.0, 0.5]))
