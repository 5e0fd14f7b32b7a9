from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infogaze.errors import InfogazeError
from infogaze.grid import GlimpseGrid
from infogaze.presets import preset
from infogaze.tasks.sizes import MANY_LOCATIONS, SEEN, SuggestedSizes, suggest_sizes

sides = st.integers(9, 600)


def grid_of(sizes: SuggestedSizes, height: int, width: int) -> GlimpseGrid:
    return GlimpseGrid(height=height, width=width, glimpse_size=sizes.glimpse_size, stride=sizes.stride)


@pytest.mark.parametrize(("side", "name"), [(32, "cifar10"), (64, "tinyimagenet")])
def test_for_the_papers_scenes_they_are_the_papers_sizes(side: int, name: str) -> None:
    paper, sizes = preset(name), suggest_sizes(side, side)
    assert (sizes.glimpse_size, sizes.stride) == (paper.model.glimpse_size, paper.model.stride)
    assert (sizes.num_looks, sizes.num_locations) == (paper.num_looks, paper.model.grid.num_locations)


@given(sides, sides)
def test_every_pixel_can_be_looked_at(height: int, width: int) -> None:
    sizes = suggest_sizes(height, width)
    seen = torch.zeros(height, width, dtype=torch.bool)
    for row, col in grid_of(sizes, height, width).locations().tolist():
        seen[row : row + sizes.glimpse_size, col : col + sizes.glimpse_size] = True
    assert seen.all()


@given(sides, sides)
def test_there_is_something_to_choose_from_and_no_more_looks_than_locations(height: int, width: int) -> None:
    sizes = suggest_sizes(height, width)
    assert sizes.num_locations == grid_of(sizes, height, width).num_locations >= 2
    assert 1 <= sizes.num_looks <= min(16, sizes.num_locations)
    # As large a part of the scene as in the paper, to the nearest look, where that takes neither very few nor very many.
    if 4 < sizes.num_looks < 16:
        looks = SEEN * height * width / sizes.glimpse_size**2
        assert abs(sizes.num_looks - looks) <= 0.5


@given(st.integers(9, 256), st.integers(9, 256))
def test_there_are_not_more_locations_than_can_be_imagined_fast(height: int, width: int) -> None:
    assert suggest_sizes(height, width).num_locations <= MANY_LOCATIONS


@given(sides, sides)
def test_a_scene_turned_on_its_side_has_the_same_sizes(height: int, width: int) -> None:
    assert suggest_sizes(height, width) == suggest_sizes(width, height)


@given(sides, sides)
def test_the_networks_for_own_pictures_take_such_glimpses_in(height: int, width: int) -> None:
    # Three convolutions of 3x3 need seven pixels.
    assert suggest_sizes(height, width).glimpse_size > 2 * len(preset("own").model.glimpse_widths)


@pytest.mark.parametrize("side", [1, 4, 8])
def test_a_scene_with_nothing_to_choose_is_refused(side: int) -> None:
    with pytest.raises(InfogazeError, match=f"{side}x{side}"):
        suggest_sizes(side, side)
