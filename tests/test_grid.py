from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from infogaze.errors import InfogazeError
from infogaze.gaze.sensor import ImageSensor, Sensor
from infogaze.grid import GlimpseGrid, extract, extract_grid, require_inside


@dataclass(frozen=True, kw_only=True)
class Sizes:
    height: int
    width: int
    glimpse_size: int
    stride: int


@st.composite
def _sizes(draw: st.DrawFn, largest: int = 40) -> Sizes:
    """Sizes that make a grid of at least two places."""
    glimpse = draw(st.integers(1, largest - 1))
    height, width = draw(st.integers(glimpse, largest)), draw(st.integers(glimpse, largest))
    longest = max(height, width) - glimpse
    assume(longest >= 1)
    return Sizes(height=height, width=width, glimpse_size=glimpse, stride=draw(st.integers(1, longest)))


def _grid(sizes: Sizes) -> GlimpseGrid:
    return GlimpseGrid(height=sizes.height, width=sizes.width, glimpse_size=sizes.glimpse_size, stride=sizes.stride)


def _scenes(scenes: int, channels: int, height: int, width: int, dtype: torch.dtype, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.uint8:
        return torch.randint(0, 256, (scenes, channels, height, width), generator=generator, dtype=dtype)
    return torch.rand(scenes, channels, height, width, generator=generator, dtype=dtype)


def _whole_locations(sizes: Sizes, *shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(0, sizes.height - sizes.glimpse_size + 1, shape, generator=generator)
    cols = torch.randint(0, sizes.width - sizes.glimpse_size + 1, shape, generator=generator)
    return torch.stack([rows, cols], -1)


def _fractional_locations(sizes: Sizes, *shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    span = torch.tensor([sizes.height - sizes.glimpse_size, sizes.width - sizes.glimpse_size])
    return torch.rand(*shape, 2, generator=generator, dtype=torch.float64) * span


@given(_sizes())
def test_places_are_every_stride_that_leaves_the_glimpse_inside_and_one_at_the_edge(sizes: Sizes) -> None:
    grid = _grid(sizes)
    rows = sorted({*range(0, sizes.height - sizes.glimpse_size, sizes.stride), sizes.height - sizes.glimpse_size})
    cols = sorted({*range(0, sizes.width - sizes.glimpse_size, sizes.stride), sizes.width - sizes.glimpse_size})
    assert (grid.rows, grid.cols, grid.num_locations) == (len(rows), len(cols), len(rows) * len(cols))
    assert grid.locations().tolist() == [[row, col] for row in rows for col in cols]


@given(_sizes())
def test_with_a_stride_no_larger_than_a_glimpse_every_pixel_can_be_looked_at(sizes: Sizes) -> None:
    assume(sizes.stride <= sizes.glimpse_size)
    seen = torch.zeros(sizes.height, sizes.width, dtype=torch.bool)
    for row, col in _grid(sizes).locations().tolist():
        seen[row : row + sizes.glimpse_size, col : col + sizes.glimpse_size] = True
    assert seen.all()


def test_grids_of_the_paper_are_seven_by_seven() -> None:
    for side in (32, 64):
        grid = GlimpseGrid(height=side, width=side, glimpse_size=side // 4, stride=side // 8)
        assert (grid.rows, grid.cols) == (7, 7)


@pytest.mark.parametrize("name", ["height", "width", "glimpse_size", "stride"])
@pytest.mark.parametrize("value", [0, -1, -8])
def test_sizes_below_one_are_refused_by_name(name: str, value: int) -> None:
    sizes = {"height": 12, "width": 12, "glimpse_size": 4, "stride": 2, name: value}
    with pytest.raises(ValueError, match=rf"{name} is {value}; .* 1 "):
        GlimpseGrid(**sizes)


@pytest.mark.parametrize(("height", "width"), [(7, 20), (20, 7), (7, 7)])
def test_a_glimpse_larger_than_the_scene_is_refused(height: int, width: int) -> None:
    with pytest.raises(ValueError, match=rf"glimpse of 8 pixels does not fit a scene of {height}x{width}"):
        GlimpseGrid(height=height, width=width, glimpse_size=8, stride=1)


@pytest.mark.parametrize("stride", [1, 100])
def test_a_scene_with_room_for_one_glimpse_is_refused(stride: int) -> None:
    with pytest.raises(ValueError, match="a scene of 8x8"):
        GlimpseGrid(height=8, width=8, glimpse_size=8, stride=stride)


@given(_sizes())
def test_coordinates_run_from_minus_one_to_one(sizes: Sizes) -> None:
    last_row, last_col = sizes.height - sizes.glimpse_size, sizes.width - sizes.glimpse_size
    assume(last_row > 0 and last_col > 0)
    corners = torch.tensor([[0, 0], [0, last_col], [last_row, 0], [last_row, last_col]])
    expected = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    torch.testing.assert_close(_grid(sizes).coordinates(corners), expected)
    middle = torch.tensor([last_row / 2, last_col / 2])
    torch.testing.assert_close(_grid(sizes).coordinates(middle), torch.zeros(2), rtol=0, atol=1e-6)


def test_coordinates_stay_finite_where_only_one_row_fits() -> None:
    assert GlimpseGrid(height=8, width=20, glimpse_size=8, stride=4).coordinates(torch.tensor([0, 12])).tolist() == [
        -1.0,
        1.0,
    ]


@given(_sizes(20), st.integers(0, 2**31))
def test_a_location_falls_on_the_place_less_than_half_a_pixel_away(sizes: Sizes, seed: int) -> None:
    grid = _grid(sizes)
    near = _fractional_locations(sizes, 6, seed=seed)
    expected = [
        [all(abs(a - b) < 0.5 for a, b in zip(where, place, strict=True)) for place in grid.locations().tolist()]
        for where in near.tolist()
    ]
    assert grid.at(near).tolist() == expected
    assert torch.equal(grid.at(grid.locations()), torch.eye(grid.num_locations, dtype=torch.bool))


@given(_sizes(20), st.booleans(), st.integers(0, 2**31))
def test_the_nearest_place_is_the_one_that_trying_all_finds(sizes: Sizes, between: bool, seed: int) -> None:
    grid = _grid(sizes)
    where = (_fractional_locations if between else _whole_locations)(sizes, 3, 5, seed=seed)
    places = grid.nearest(where)
    assert places.shape == (3, 5)
    for location, place in zip(where.view(-1, 2), places.flatten().tolist(), strict=True):
        away = (grid.locations() - location).double().norm(dim=1)
        assert float(away[place]) <= float(away.min()) + 1e-5, "where two are as near, either will do"
    assert torch.equal(grid.nearest(grid.locations()), torch.arange(grid.num_locations))


IRREGULAR = GlimpseGrid(height=13, width=15, glimpse_size=4, stride=4)
"""Rows 0, 4, 8 and 9; columns 0, 4, 8 and 11."""
ONE_ROW = GlimpseGrid(height=4, width=15, glimpse_size=4, stride=4)


@given(_sizes(20), st.sampled_from([torch.int64, torch.float32, torch.float64]))
def test_at_a_place_of_the_grid_all_weight_is_its_own(sizes: Sizes, dtype: torch.dtype) -> None:
    grid = _grid(sizes)
    assert torch.equal(grid.interpolation(grid.locations().to(dtype)), torch.eye(grid.num_locations))


@given(_sizes(20), st.sampled_from([torch.float32, torch.float64]), st.integers(0, 2**31))
def test_the_weights_of_the_places_in_a_location_are_shares_of_the_four_around_it(
    sizes: Sizes, dtype: torch.dtype, seed: int
) -> None:
    grid, where = _grid(sizes), _fractional_locations(sizes, 30, seed=seed).to(dtype)
    weights = grid.interpolation(where)
    assert weights.shape == (30, grid.num_locations)
    torch.testing.assert_close(weights.sum(1), torch.ones(30))
    assert (weights >= -1e-6).all()
    away = (grid.locations() - where[:, None]).abs().amax(-1)  # [30, L]
    assert (weights[away >= sizes.stride] < 1e-5).all(), "none but those less than a stride away"


@given(_sizes(20), st.integers(0, 2**31))
def test_between_places_a_bilinear_function_is_reproduced(sizes: Sizes, seed: int) -> None:
    grid, where = _grid(sizes), _fractional_locations(sizes, 30, seed=seed)
    factors = torch.randn(4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    def function(locations: Tensor) -> Tensor:
        row, col = locations.double().unbind(-1)
        return factors[0] + factors[1] * row / 20 + factors[2] * col / 20 + factors[3] * row * col / 400

    found = grid.interpolation(where).double() @ function(grid.locations())
    torch.testing.assert_close(found, function(where), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("grid", "where", "shares"),
    [
        (IRREGULAR, (4.0, 9.0), {(4, 8): 2 / 3, (4, 11): 1 / 3}),
        (IRREGULAR, (8.5, 8.0), {(8, 8): 1 / 2, (9, 8): 1 / 2}),
        (IRREGULAR, (8.25, 9.5), {(8, 8): 3 / 8, (8, 11): 3 / 8, (9, 8): 1 / 8, (9, 11): 1 / 8}),
        (IRREGULAR, (1.0, 2.0), {(0, 0): 3 / 8, (0, 4): 3 / 8, (4, 0): 1 / 8, (4, 4): 1 / 8}),
        (IRREGULAR, (9.0, 11.0), {(9, 11): 1.0}),
        (ONE_ROW, (0.0, 1.0), {(0, 0): 3 / 4, (0, 4): 1 / 4}),
        (ONE_ROW, (0.0, 10.0), {(0, 8): 1 / 3, (0, 11): 2 / 3}),
    ],
)
def test_weights_by_hand_where_the_last_place_is_nearer_and_where_there_is_one_row(
    grid: GlimpseGrid, where: tuple[float, float], shares: dict[tuple[int, int], float]
) -> None:
    (weights,) = grid.interpolation(torch.tensor([where]))
    expected = [shares.get((row, col), 0.0) for row, col in grid.locations().tolist()]
    assert weights.tolist() == pytest.approx(expected, abs=1e-6)


@given(_sizes(20), st.sampled_from([torch.uint8, torch.float32, torch.float64]), st.integers(0, 2**31))
def test_extraction_is_slicing(sizes: Sizes, dtype: torch.dtype, seed: int) -> None:
    images = _scenes(3, 2, sizes.height, sizes.width, dtype, seed)
    side = sizes.glimpse_size
    one, many = _whole_locations(sizes, 3, seed=seed), _whole_locations(sizes, 3, 4, seed=seed + 1)
    glimpses, sequences = extract(images, one, side), extract(images, many, side)
    assert glimpses.dtype == sequences.dtype == dtype
    assert sequences.shape == (3, 4, 2, side, side)
    for scene in range(3):
        row, col = one[scene].tolist()
        assert torch.equal(glimpses[scene], images[scene, :, row : row + side, col : col + side])
        for look in range(4):
            row, col = many[scene, look].tolist()
            assert torch.equal(sequences[scene, look], images[scene, :, row : row + side, col : col + side])


@given(_sizes(20), st.sampled_from([torch.uint8, torch.float32]), st.integers(0, 2**31))
def test_extracting_the_grid_is_slicing_at_its_locations(sizes: Sizes, dtype: torch.dtype, seed: int) -> None:
    grid, images = _grid(sizes), _scenes(2, 3, sizes.height, sizes.width, dtype, seed)
    glimpses = extract_grid(images, grid)
    assert glimpses.shape == (2, grid.num_locations, 3, grid.glimpse_size, grid.glimpse_size)
    for place, (row, col) in enumerate(grid.locations().tolist()):
        window = images[:, :, row : row + grid.glimpse_size, col : col + grid.glimpse_size]
        assert torch.equal(glimpses[:, place], window)


@given(_sizes(20), st.floats(0.7, 1.0), st.integers(0, 2**31))
def test_a_location_is_within_pixels_that_hold_its_whole_glimpse(sizes: Sizes, share: float, seed: int) -> None:
    grid = _grid(sizes)
    pixels = torch.rand(sizes.height, sizes.width, generator=torch.Generator().manual_seed(seed)) < share
    found = grid.within(pixels).flatten()
    for place, (row, col) in enumerate(grid.locations().tolist()):
        window = pixels[row : row + grid.glimpse_size, col : col + grid.glimpse_size]
        assert bool(found[place]) == bool(window.all())


def test_pixels_of_another_scene_are_refused_by_shape() -> None:
    with pytest.raises(InfogazeError, match=r"pixels have shape \(3, 4\); that of a scene, \(13, 15\)"):
        IRREGULAR.within(torch.ones(3, 4, dtype=torch.bool))


@given(_sizes(20), st.integers(0, 2**31))
def test_between_pixels_whole_numbers_are_plain_extraction(sizes: Sizes, seed: int) -> None:
    images = _scenes(3, 2, sizes.height, sizes.width, torch.float32, seed)
    for where in (_whole_locations(sizes, 3, seed=seed), _whole_locations(sizes, 3, 4, seed=seed)):
        assert torch.equal(
            extract(images, where.float(), sizes.glimpse_size), extract(images, where, sizes.glimpse_size)
        )


def test_between_pixels_the_last_place_is_read_without_leaving_the_scene() -> None:
    images = _scenes(1, 1, 6, 9, torch.float32, 0)
    assert torch.equal(extract(images, torch.tensor([[2.0, 5.0]]), 4), images[:, :, 2:, 5:])


def test_between_pixels_bytes_come_out_between_nought_and_one() -> None:
    images = _scenes(3, 2, 9, 9, torch.uint8, 0)
    where = torch.tensor([[1.0, 2.0], [0.0, 0.0], [5.0, 5.0]])
    torch.testing.assert_close(extract(images, where, 4), extract(images, where.long(), 4) / 255)
    half = extract(images, where.clamp(max=4.5) + 0.5, 4)
    assert half.dtype == torch.float32
    assert half.min() >= 0
    assert 0.5 < half.max() <= 1


@given(_sizes(20), st.integers(0, 2**31))
def test_between_pixels_a_ramp_is_reproduced(sizes: Sizes, seed: int) -> None:
    # Bilinear interpolation is exact on anything linear.
    rows = torch.arange(sizes.height, dtype=torch.float64)[:, None]
    cols = torch.arange(sizes.width, dtype=torch.float64)
    ramp = (0.25 * rows - 0.75 * cols + 2.0).expand(2, 1, -1, -1)
    where = _fractional_locations(sizes, 2, 3, seed=seed)
    glimpses = extract(ramp, where, sizes.glimpse_size)
    inside = torch.arange(sizes.glimpse_size, dtype=torch.float64)
    top, left = where[..., 0, None, None], where[..., 1, None, None]
    expected = 0.25 * (top + inside[:, None]) - 0.75 * (left + inside) + 2.0
    torch.testing.assert_close(glimpses, expected[:, :, None], rtol=0, atol=1e-10)


@given(_sizes(20), st.integers(0, 2**31))
def test_between_pixels_is_the_bilinear_interpolation_of_torch(sizes: Sizes, seed: int) -> None:
    assume(min(sizes.height, sizes.width) > 1)  # grid_sample puts a side of one pixel at the middle of its scale
    images = _scenes(3, 2, sizes.height, sizes.width, torch.float64, seed)
    where = _fractional_locations(sizes, 3, seed=seed)
    inside = torch.arange(sizes.glimpse_size, dtype=torch.float64)
    rows, cols = torch.broadcast_tensors(
        where[:, 0, None, None] + inside[:, None], where[:, 1, None, None] + inside
    )  # [3, g, g]
    points = torch.stack([2 * cols / (sizes.width - 1) - 1, 2 * rows / (sizes.height - 1) - 1], -1)
    expected = functional.grid_sample(images, points, align_corners=True, padding_mode="border")
    torch.testing.assert_close(extract(images, where, sizes.glimpse_size), expected, rtol=0, atol=1e-10)


@given(_sizes(16), st.integers(1, 6), st.integers(0, 2**31))
def test_the_sensor_counts_the_union_of_its_windows(sizes: Sizes, looks: int, seed: int) -> None:
    images = _scenes(2, 1, sizes.height, sizes.width, torch.uint8, seed)
    sensor = ImageSensor(images, sizes.glimpse_size)
    asked = _whole_locations(sizes, looks, 2, seed=seed)
    reads = np.zeros((2, sizes.height, sizes.width), dtype=int)
    for where in asked:
        assert torch.equal(sensor.look(where), extract(images, where, sizes.glimpse_size))
        for scene, (row, col) in enumerate(where.tolist()):
            reads[scene, row : row + sizes.glimpse_size, col : col + sizes.glimpse_size] += 1
    assert sensor.reads.tolist() == reads.tolist()
    assert sensor.pixels_read.tolist() == (reads > 0).sum((1, 2)).tolist()


@given(_sizes(16), st.integers(0, 2**31))
def test_between_pixels_the_sensor_counts_every_pixel_with_a_part_in_the_answer(sizes: Sizes, seed: int) -> None:
    images = _scenes(1, 1, sizes.height, sizes.width, torch.float64, seed).requires_grad_()
    sensor = ImageSensor(images, sizes.glimpse_size)
    glimpse = sensor.look(_fractional_locations(sizes, 1, seed=seed))
    (part,) = torch.autograd.grad(glimpse.sum(), images)
    assert torch.equal(sensor.reads > 0, part[:, 0] != 0)


def test_between_pixels_a_look_reads_one_pixel_more_a_side() -> None:
    sensor = ImageSensor(torch.zeros(4, 3, 10, 12), 4)
    sensor.look(torch.tensor([[2.5, 3.25], [2.0, 3.25], [2.5, 3.0], [2.0, 3.0]]))
    assert sensor.pixels_read.tolist() == [25, 20, 20, 16]


@pytest.mark.parametrize(
    "where",
    [(-1, 0), (0, -1), (7, 0), (0, 9), (6.01, 0.0), (-0.01, 0.0), (0.0, 8.5), (float("nan"), 0.0), (0.0, float("inf"))],
)
def test_the_sensor_refuses_windows_that_leave_the_scene(where: tuple[float, float]) -> None:
    sensor = ImageSensor(torch.zeros(2, 1, 10, 12), 4)
    with pytest.raises(ValueError, match=r"leaves the scene: rows 0 to 6 and columns 0 to 8 are allowed"):
        sensor.look(torch.tensor([(0, 0), where]))
    assert sensor.log == []
    assert sensor.pixels_read.tolist() == [0, 0]


def test_a_refused_location_is_named() -> None:
    with pytest.raises(ValueError, match=r"location \(3, 7\.5\) leaves"):
        require_inside(torch.tensor([[[1.0, 2.0], [3.0, 7.5]]]), 5, 7)
    require_inside(torch.tensor([[0, 0], [5, 7]]), 5, 7)


@pytest.mark.parametrize("glimpse", [11, 100])
def test_a_sensor_refuses_a_glimpse_larger_than_its_images(glimpse: int) -> None:
    with pytest.raises(ValueError, match=rf"glimpse of {glimpse} pixels does not fit images of 10x12"):
        ImageSensor(torch.zeros(1, 1, 10, 12), glimpse)


@pytest.mark.parametrize("glimpse", [0, -3])
def test_a_sensor_refuses_a_glimpse_of_no_pixels(glimpse: int) -> None:
    with pytest.raises(ValueError, match=rf"glimpse.*{glimpse}"):
        ImageSensor(torch.zeros(1, 1, 10, 12), glimpse)


def test_a_sensor_takes_arrays_and_lists_and_refuses_other_shapes_by_name() -> None:
    images = torch.arange(2 * 3 * 6 * 7, dtype=torch.uint8).view(2, 3, 6, 7)
    sensor = ImageSensor(images.numpy()[:, ::-1], 2)
    assert torch.equal(sensor.look([[0, 1], [2, 3]]), extract(images.flip(1), torch.tensor([[0, 1], [2, 3]]), 2))
    with pytest.raises(ValueError, match=r"images have shape \(3, 6, 7\); \(scenes, channels, height, width\)"):
        ImageSensor(images[0], 2)
    with pytest.raises(ValueError, match=r"locations have shape \(1, 2\); \(2, 2\) is expected"):
        sensor.look(torch.tensor([[0, 1]]))


def test_the_sensor_logs_what_was_asked_in_order() -> None:
    sensor = ImageSensor(torch.zeros(2, 1, 10, 12), 4)
    asked = [torch.tensor([[0, 1], [2, 3]]), torch.tensor([[6, 8], [0, 0]]), torch.tensor([[0.5, 1.0], [2.0, 3.5]])]
    where = asked[0].clone()
    sensor.look(where)
    where += 1  # what the caller does with its own tensor afterwards does not rewrite the log
    sensor.look(asked[1])
    sensor.look(asked[2])
    assert [entry.tolist() for entry in sensor.log] == [entry.tolist() for entry in asked]


def test_an_image_sensor_is_a_sensor() -> None:
    assert isinstance(ImageSensor(torch.zeros(1, 1, 4, 4), 2), Sensor)
