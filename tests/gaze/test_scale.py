"""Pixels of a scene and micrometres of a stage."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infogaze import InfogazeError, Scale

finite = st.floats(-1e6, 1e6)


def test_the_stage_is_driven_to_the_middle_of_the_glimpse() -> None:
    scale = Scale(glimpse_size=8, um_per_pixel=0.5, x=1000.0, y=2000.0)
    assert scale.side == 4.0
    assert scale.to_stage((0, 0)).tolist() == [1002.0, 2002.0]
    assert scale.to_stage([[4, 12], [0, 24]]).tolist() == [[1008.0, 2004.0], [1014.0, 2002.0]]
    assert scale.from_stage((1008.0, 2004.0)).tolist() == [4.0, 12.0]


def test_an_axis_may_run_the_other_way() -> None:
    scale = Scale(glimpse_size=8, um_per_pixel=0.5, x=1000.0, y=2000.0, x_grows_left=True, y_grows_up=True)
    assert scale.to_stage((4, 12)).tolist() == [992.0, 1996.0]
    assert scale.from_stage((992.0, 1996.0)).tolist() == [4.0, 12.0]


@given(
    um=st.floats(1e-3, 1e4), x=finite, y=finite, left=st.booleans(), up=st.booleans(),
    row=st.floats(0, 2000), col=st.floats(0, 2000), side=st.integers(1, 64),
)  # fmt: skip
def test_there_and_back_is_where_it_was(
    *, um: float, x: float, y: float, left: bool, up: bool, row: float, col: float, side: int
) -> None:
    scale = Scale(glimpse_size=side, um_per_pixel=um, x=x, y=y, x_grows_left=left, y_grows_up=up)
    where = torch.tensor([[row, col], [col, row]], dtype=torch.float64)
    rounding = 1e-9 + 1e-14 * max(abs(x), abs(y)) / um  # of positions that are far from the origin
    torch.testing.assert_close(scale.from_stage(scale.to_stage(where)), where, atol=rounding * 10, rtol=1e-12)
    moved = scale.to_stage(where + 1) - scale.to_stage(where)
    torch.testing.assert_close(moved.abs(), torch.full_like(moved, um), atol=1e-8, rtol=1e-6)


def test_senseless_scales_and_positions_are_refused_by_name() -> None:
    for um in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(InfogazeError, match="um_per_pixel is"):
            Scale(glimpse_size=8, um_per_pixel=um)
    with pytest.raises(InfogazeError, match="glimpse_size is 0"):
        Scale(glimpse_size=0, um_per_pixel=1.0)
    with pytest.raises(InfogazeError, match="x inf"):
        Scale(glimpse_size=8, um_per_pixel=1.0, x=float("inf"))
    with pytest.raises(InfogazeError, match="two numbers"):
        Scale(glimpse_size=8, um_per_pixel=1.0).to_stage(np.zeros(3))
