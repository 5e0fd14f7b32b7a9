from __future__ import annotations

import math

import pytest
import torch
from sklearn.metrics import mutual_info_score

from infogaze.evaluation.places import density, dependence, visit_entropy
from infogaze.grid import GlimpseGrid

GRID = GlimpseGrid(height=12, width=16, glimpse_size=4, stride=4)  # 3 rows, 4 columns


def test_density_is_the_share_of_scenes_at_each_place_of_each_look() -> None:
    locations = torch.tensor([[[0, 0], [8, 12]], [[0, 4], [8, 12]], [[0, 4], [4, 0]], [[0, 4], [8, 12]]])
    shares = density(locations, GRID)
    expected = torch.zeros(2, 3, 4, dtype=shares.dtype)
    expected[0, 0, 0], expected[0, 0, 1], expected[1, 2, 3], expected[1, 1, 0] = 0.25, 0.75, 0.75, 0.25
    assert torch.equal(shares, expected)


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5])
def test_a_location_off_the_grid_counts_to_its_nearest_place(stride: int) -> None:
    grid = GlimpseGrid(height=13, width=16, glimpse_size=4, stride=stride)
    everywhere = torch.cartesian_prod(torch.arange(10), torch.arange(13))
    places = grid.locations()
    for location in everywhere:
        distance = (places - location).abs().amax(-1)
        row, col = (density(location[None, None], grid)[0] == 1).nonzero()[0].tolist()
        found = (places[row * grid.cols + col] - location).abs()
        rows, cols = (places - location).abs().amin(0).tolist()
        assert found.tolist() == [rows, cols], f"{location.tolist()} went to row {row}, column {col}"
        assert int(found.amax()) == int(distance.amin())


def test_the_entropy_of_places_is_zero_where_all_look_alike_and_log_of_the_places_where_evenly() -> None:
    everywhere = GRID.locations()  # [12, 2], a scene each
    locations = torch.stack([everywhere[5].expand(12, 2), everywhere, everywhere // 8 * 8], 1)
    # The last look is at rows 0 (8 scenes) and 8 (4), columns 0 and 8 (half each).
    last = math.log(2) - (2 / 3) * math.log(2 / 3) - (1 / 3) * math.log(1 / 3)
    assert visit_entropy(locations, GRID).tolist() == pytest.approx([0.0, math.log(12), last])


def _looks(scenes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels, and three looks: one that says nothing of the label, one that says it half of the time, one that says it always."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 10, (scenes,), generator=generator)
    anywhere = torch.randint(0, GRID.num_locations, (scenes,), generator=generator)
    half = torch.where(torch.rand(scenes, generator=generator) < 0.5, labels, anywhere)
    return labels, torch.stack([GRID.locations()[place] for place in (anywhere, half, labels)], 1)


def test_dependence_is_zero_for_a_blind_policy_and_the_entropy_of_labels_where_the_place_tells_them() -> None:
    labels, locations = _looks(10_000)
    blind, some, all_of_it = dependence(locations, labels, GRID).tolist()
    assert blind == pytest.approx(0.0, abs=2e-3)
    assert all_of_it == pytest.approx(math.log(10), abs=0.01)
    assert 0.3 < some < 1.5


def test_dependence_is_the_mutual_information_of_sklearn_without_its_bias() -> None:
    labels, locations = _looks(400)
    theirs = [mutual_info_score(labels, look[:, 0] * 100 + look[:, 1]) for look in locations.unbind(1)]
    ours = dependence(locations, labels, GRID, shuffles=200)
    # The bias of finite counts is (places - 1) (labels - 1) / 2N to first order (Miller 1955): 0.12 nats here, and 0.10 with 10 places.
    bias = torch.tensor([11 * 9, 11 * 9, 9 * 9]) / 800
    assert (torch.tensor(theirs) - ours).tolist() == pytest.approx(bias.tolist(), rel=0.25)
    assert theirs[0] > 0.08
    assert float(ours[0]) == pytest.approx(0.0, abs=0.03)


def test_dependence_repeats_with_its_seed() -> None:
    labels, locations = _looks(200)
    first, again, other = (dependence(locations, labels, GRID, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
