from __future__ import annotations

import math

import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor
from torch.nn import functional

from infogaze.evaluation.corruptions import CORRUPTIONS
from infogaze.rng import SceneNoise, scene_seeds

KINDS = [kind for kind in CORRUPTIONS if kind != "displacement"]
"""Those of the scene."""


def _scenes(count: int, channels: int = 3, height: int = 32, width: int = 32) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, channels, height, width), generator=generator).to(torch.uint8)


def _apply(kind: str, images: Tensor, severity: float, seed: int = 0) -> Tensor:
    return CORRUPTIONS[kind].apply(images, severity, scene_seeds(seed, len(images)))


def test_every_kind_has_five_rising_severities() -> None:
    assert list(CORRUPTIONS) == ["shift", "scale", "blur", "noise", "occlusion", "exposure", "displacement"]
    for corruption in CORRUPTIONS.values():
        assert len(corruption.severities) == 5
        assert list(corruption.severities) == sorted(set(corruption.severities))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("channels", "height", "width"), [(3, 32, 32), (1, 9, 14), (2, 65, 40)])
def test_severity_0_changes_no_bit_and_every_other_does(kind: str, channels: int, height: int, width: int) -> None:
    images = _scenes(4, channels, height, width)
    none, *severities = CORRUPTIONS[kind].severities
    assert none == 0.0
    assert torch.equal(_apply(kind, images, none), images)
    for severity in severities:
        corrupted = _apply(kind, images, severity)
        assert corrupted.shape == images.shape
        assert corrupted.dtype == torch.uint8
        assert bool((corrupted != images).flatten(1).any(1).all())


@pytest.mark.parametrize("kind", KINDS)
def test_a_more_severe_corruption_of_a_picture_is_farther_from_it(kind: str) -> None:
    row, col = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
    smooth = 127 + 90 * torch.sin(row / 5) * torch.cos(col / 4)
    images = smooth.to(torch.uint8).expand(20, 1, 32, 32)
    change = [
        float((_apply(kind, images, severity).float() - images.float()).abs().mean())
        for severity in CORRUPTIONS[kind].severities
    ]
    assert change == sorted(change)
    assert change[-1] > 1.3 * change[-3] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_happens_to_a_scene_does_not_depend_on_its_neighbours(kind: str) -> None:
    images, seeds = _scenes(6), scene_seeds(0, 6)
    corruption = CORRUPTIONS[kind]
    for severity in corruption.severities:
        together = corruption.apply(images, severity, seeds)
        for scene in (5, 2):
            alone = corruption.apply(images[scene : scene + 1], severity, seeds[scene : scene + 1])
            assert torch.equal(alone[0], together[scene])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "blur"])
def test_all_is_done_on_the_device_of_the_images(kind: str) -> None:
    # The meta device computes nothing, and refuses as any other to mix with tensors that are elsewhere.
    images = torch.empty(2, 3, 32, 32, dtype=torch.uint8, device="meta")
    assert _apply(kind, images, CORRUPTIONS[kind].severities[-1]).device.type == "meta"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_what_is_blurred_comes_back_to_the_device_of_the_images() -> None:
    images = _scenes(2)
    blurred = _apply("blur", images.cuda(), 1.0)
    assert blurred.device.type == "cuda"
    assert torch.equal(blurred.cpu(), _apply("blur", images, 1.0))


@pytest.mark.parametrize(
    ("kind", "random"), [(kind, kind in ("shift", "noise", "occlusion")) for kind in KINDS if kind != "exposure"]
)
def test_the_same_image_with_another_seed_is_corrupted_in_another_way_where_chance_has_a_part(
    kind: str, random: bool
) -> None:
    images = _scenes(1).expand(20, -1, -1, -1)
    corrupted = _apply(kind, images, CORRUPTIONS[kind].severities[-1])
    assert (len(corrupted.flatten(1).unique(dim=0)) > 10) == random
    assert torch.equal(corrupted, _apply(kind, images, CORRUPTIONS[kind].severities[-1]))


@pytest.mark.parametrize("pixels", [1.0, 4.0, 8.0])
def test_a_shift_moves_the_scene_so_far_in_every_direction_and_repeats_its_edge(pixels: float) -> None:
    height, width, count = 32, 40, 200
    # The image says where each of its pixels comes from.
    rows = torch.arange(height)[:, None].expand(height, width)
    cols = torch.arange(width).expand(height, width)
    images = torch.stack([rows, cols]).to(torch.uint8).expand(count, 2, height, width)
    moved = _apply("shift", images, pixels).long()
    down, right = (rows[16, 20] - moved[:, 0, 16, 20]), (cols[16, 20] - moved[:, 1, 16, 20])
    distance = torch.hypot(down.float(), right.float())
    assert bool(((distance - pixels).abs() <= math.sqrt(0.5)).all())  # the nearest whole pixel
    for scene in range(count):
        assert torch.equal(moved[scene, 0], (rows - down[scene]).clamp(0, height - 1))
        assert torch.equal(moved[scene, 1], (cols - right[scene]).clamp(0, width - 1))
    quarters = torch.stack([down > 0, right > 0]).double().mean(1)
    assert bool(((quarters > 0.25) & (quarters < 0.75)).all())


@pytest.mark.parametrize("beyond", [0.25, 0.6, 1.0])
def test_scaling_is_torchs_bilinear_zoom_about_the_centre(beyond: float) -> None:
    images = _scenes(3, height=20, width=33)
    zoom = torch.eye(2, 3)[None].expand(3, 2, 3) / (1 + beyond)
    grid = functional.affine_grid(zoom, list(images.shape), align_corners=False)
    expected = functional.grid_sample(images.float(), grid, padding_mode="border", align_corners=False)
    ours = _apply("scale", images, beyond).float()
    assert float((ours - expected).abs().max()) < 0.51  # rounded to a whole value


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0, 5.0])
def test_blurring_is_scipys_gaussian_filter(sigma: float) -> None:
    images = _scenes(2, height=12, width=20)  # smaller than the widest kernel
    expected = gaussian_filter(images.double().numpy(), sigma, mode="nearest", truncate=4.0, axes=(2, 3))
    ours = _apply("blur", images, sigma).double()
    assert float((ours - torch.from_numpy(expected)).abs().max()) < 0.501


def test_noise_has_the_stated_deviation_and_no_mean() -> None:
    images = torch.full((50, 3, 32, 32), 128, dtype=torch.uint8)
    difference = (_apply("noise", images, 0.1).double() - 128) / 255
    assert float(difference.std()) == pytest.approx(0.1, rel=0.01)
    assert float(difference.mean()) == pytest.approx(0.0, abs=1e-3)
    channels = difference.flatten(2)
    assert float((channels[:, 0] * channels[:, 1]).mean()) == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize("stops", [0.5, 1.0, 2.0])
def test_exposure_makes_half_of_the_scenes_brighter_and_half_darker_by_so_many_stops(stops: float) -> None:
    images = torch.full((400, 1, 4, 4), 60, dtype=torch.uint8)
    found, counts = _apply("exposure", images, stops)[:, 0, 0, 0].unique(return_counts=True)
    assert found.tolist() == [round(60 / 2**stops), round(60 * 2**stops)]
    assert bool((counts > 150).all())
    assert int(_apply("exposure", torch.full_like(images, 200), 2.0).max()) == 255, "and no brighter"


def displaced(images: Tensor, where: Tensor, pixels: float, *, looks: int = 1) -> list[Tensor]:
    """What each of some looks at the same place gives, as the image says where its pixels are from: row and column."""
    sensor = CORRUPTIONS["displacement"].sensor(pixels)(images, 4, scene_seeds(0, len(images)))
    return [sensor.look(where)[:, :, 0, 0].long() for _ in range(looks)]


@pytest.mark.parametrize("pixels", [1.0, 3.0])
def test_a_displaced_look_is_so_far_from_the_place_asked_for_in_a_direction_of_its_own(pixels: float) -> None:
    places = torch.stack(torch.meshgrid(torch.arange(30), torch.arange(20), indexing="ij")).to(torch.uint8)
    images, where = places.expand(200, -1, -1, -1), torch.tensor([12, 8]).expand(200, 2)
    first, second = displaced(images, where, pixels, looks=2)
    for found in (first, second):
        away = torch.hypot(*(found - where).T.float())
        assert bool(((away - pixels).abs() <= math.sqrt(0.5)).all())
        assert len((found - where).unique(dim=0)) > 3
    assert not torch.equal(first, second)
    assert torch.equal(first, displaced(images, where, pixels)[0]), "and the same when it is done again"
    (corner,) = displaced(images, torch.zeros(200, 2, dtype=torch.int64), pixels)
    assert bool((corner >= 0).all()), "never outside"
    assert torch.equal(displaced(images, where, 0.0)[0], where)


def test_what_a_displaced_sensor_does_to_a_scene_does_not_depend_on_its_neighbours() -> None:
    images, where = _scenes(6), torch.tensor([12, 8]).expand(6, 2)
    make, seeds = CORRUPTIONS["displacement"].sensor(3.0), scene_seeds(0, 6)
    together = make(images, 4, seeds).look(where)
    for scene in (5, 2):
        own = slice(scene, scene + 1)
        assert torch.equal(make(images[own], 4, seeds[own]).look(where[own])[0], together[scene])


@pytest.mark.parametrize("channels", [1, 3])
def test_occlusion_covers_the_stated_share_with_one_square_anywhere_in_the_scene(channels: int) -> None:
    images = torch.zeros(300, channels, 32, 32, dtype=torch.uint8)
    covered = _apply("occlusion", images, 0.25) == 128
    assert bool((covered == covered[:, :1]).all())
    rows, cols = covered[:, 0].any(2), covered[:, 0].any(1)
    assert bool((covered[:, 0] == rows[:, :, None] & cols[:, None, :]).all())
    for side in (rows, cols):  # 16 pixels in a row, from 0 to 16 as their first
        first = side.int().argmax(1)
        assert bool((side.sum(1) == 16).all())
        assert bool((side.int().flip(1).argmax(1) == 16 - first).all())
        assert first.unique().tolist() == list(range(17))


def test_occlusion_of_more_than_a_square_can_cover_is_the_largest_square() -> None:
    covered = _apply("occlusion", torch.zeros(2, 1, 8, 32, dtype=torch.uint8), 1.0) == 128
    assert covered.sum((1, 2, 3)).tolist() == [64, 64]


def test_a_corruption_says_nothing_about_the_first_look_of_the_same_seed() -> None:
    images, seeds = torch.zeros(2000, 1, 32, 32, dtype=torch.uint8), scene_seeds(0, 2000)
    covered = CORRUPTIONS["occlusion"].apply(images, 0.05, seeds)[:, 0] == 128
    top = covered.any(2).int().argmax(1).double()
    for position in range(4):
        drawn = SceneNoise(seeds, 0).uniform(4)[:, position].double()
        assert abs(float(torch.corrcoef(torch.stack([top, drawn]))[0, 1])) < 0.1
