from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms.v2 import functional as reference

from infogaze.data.augmentation import NUMBERS, Augmentation, Draw, crop, draw_from, transform

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
PAPER = Augmentation()
ADJUST = (reference.adjust_brightness, reference.adjust_contrast, reference.adjust_saturation)


def draw(augmentation: Augmentation, count: int, *, height: int, width: int, generator: torch.Generator) -> Draw:
    """What happens to `count` images, drawn on the generator's device."""
    uniform = torch.rand(count, NUMBERS, generator=generator, device=generator.device)
    return draw_from(uniform, augmentation, height=height, width=width)


def augment(images: Tensor, augmentation: Augmentation, generator: torch.Generator) -> Tensor:
    """As a training step does it."""
    return transform(
        images / 255.0,
        draw(augmentation, len(images), height=images.shape[2], width=images.shape[3], generator=generator),
    )


def generator(seed: int, device: str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


def by_torchvision(image: Tensor, drawn: Draw, place: int) -> Tensor:
    """One image by torchvision's own functions, in the order that was drawn."""
    size = list(image.shape[1:])
    image = reference.resized_crop(image, *drawn.box[place].tolist(), size=size, antialias=False)
    if drawn.flip[place]:
        image = reference.horizontal_flip(image)
    for kind in drawn.turn[place].argsort().tolist():
        image = ADJUST[kind](image, drawn.factors[place, kind].item())
    return image


@given(st.sampled_from([1, 3]), st.integers(4, 70), st.integers(4, 70), st.integers(0, 10**6))
def test_each_image_is_what_torchvision_makes_of_it(channels: int, height: int, width: int, seed: int) -> None:
    images = torch.rand(6, channels, height, width, generator=generator(seed), dtype=torch.float64)
    wide = Augmentation(crop_scale=(0.05, 1.0), brightness=0.9, contrast=0.9, saturation=1.5)
    for augmentation in (PAPER, wide):
        drawn = draw(augmentation, 6, height=height, width=width, generator=generator(seed + 1))
        expected = torch.stack([by_torchvision(image, drawn, place) for place, image in enumerate(images)])
        assert (transform(images, drawn) - expected).abs().max() < 1e-12


@pytest.mark.parametrize("side", [32, 64])
def test_single_precision_is_enough(side: int) -> None:
    images = torch.rand(200, 3, side, side, generator=generator(0))
    drawn = draw(PAPER, 200, height=side, width=side, generator=generator(1))
    expected = torch.stack([by_torchvision(image, drawn, place) for place, image in enumerate(images)])
    assert (crop(images, drawn.box, drawn.flip) - crop(images.double(), drawn.box, drawn.flip)).abs().max() < 1e-5
    assert (transform(images, drawn) - expected).abs().max() < 2e-5


def test_all_six_orders_occur_and_each_is_the_one_drawn() -> None:
    drawn = draw(PAPER, 6000, height=8, width=8, generator=generator(0))
    orders, counts = drawn.turn.unique(dim=0, return_counts=True)
    assert {tuple(order) for order in orders.tolist()} == set(itertools.permutations(range(3)))
    assert (counts - 1000).abs().max() < 5 * (6000 * 5 / 36) ** 0.5


def test_equal_numbers_still_make_an_order() -> None:
    drawn = draw_from(torch.full((1, NUMBERS), 0.5), PAPER, height=8, width=8)
    assert drawn.turn.tolist() == [[0, 1, 2]]


@pytest.mark.parametrize(("height", "width"), [(32, 32), (24, 40)])
def test_boxes_are_distributed_as_torchvision_draws_them(height: int, width: int) -> None:
    count = 6000
    image = torch.empty(3, height, width)
    torch.manual_seed(0)
    theirs = torch.tensor(
        [RandomResizedCrop.get_params(image, [*PAPER.crop_scale], [*PAPER.crop_ratio]) for _ in range(count)]
    )
    ours = draw(PAPER, count, height=height, width=width, generator=generator(0)).box
    assert (ours[:, :2] >= 0).all()
    assert (ours[:, 0] + ours[:, 2] <= height).all()
    assert (ours[:, 1] + ours[:, 3] <= width).all()
    for column in range(4):
        bins = max(height, width) + 1
        frequencies = [torch.bincount(boxes[:, column], minlength=bins) / count for boxes in (theirs, ours)]
        # Between two samples of this size from one distribution over some ten values, a distance of 0.02 is usual.
        assert (frequencies[0] - frequencies[1]).abs().sum() / 2 < 0.04
    assert (theirs.float().mean(0) - ours.float().mean(0)).abs().max() < 0.2
    assert (theirs.float().T.cov() - ours.float().T.cov()).abs().max() < 0.6


@pytest.mark.parametrize(("height", "width"), [(8, 64), (64, 8), (10, 31)])
def test_where_no_candidate_fits_the_crop_is_torchvisions_middle(height: int, width: int) -> None:
    narrow = Augmentation(crop_scale=(1.0, 1.0), crop_ratio=(0.9, 1.1))
    expected = RandomResizedCrop.get_params(torch.empty(3, height, width), [1.0, 1.0], [0.9, 1.1])
    boxes = draw(narrow, 50, height=height, width=width, generator=generator(0)).box
    assert boxes.unique(dim=0).tolist() == [[*expected]]


def test_the_first_candidate_that_fits_is_taken() -> None:
    numbers = torch.full((1, NUMBERS), 0.5)
    numbers[0, 0], numbers[0, 10] = 0.999, 0.999  # as large and as wide as may be: does not fit a square
    numbers[0, 1] = 0.0  # the least area, square: fits
    box = draw_from(numbers, PAPER, height=32, width=32).box[0].tolist()
    assert box[2:] == [28, 28]  # the root of three quarters, of 32
    assert box[:2] == [2, 2]


def test_factors_and_flips_are_uniform_within_their_bounds() -> None:
    drawn = draw(
        Augmentation(brightness=0.4, contrast=0.2, saturation=3.0), 20000, height=8, width=8, generator=generator(0)
    )
    low, high = torch.tensor([0.6, 0.8, 0.0]), torch.tensor([1.4, 1.2, 4.0])
    unit = (drawn.factors - low) / (high - low)
    assert unit.min() >= 0
    assert unit.max() <= 1
    assert (unit.mean(0) - 0.5).abs().max() < 5 * (1 / 12 / 20000) ** 0.5
    assert (unit.var(0) - 1 / 12).abs().max() < 0.003
    assert abs(drawn.flip.float().mean() - 0.5) < 5 * 0.5 / 20000**0.5
    assert not draw(replace(PAPER, flip=False), 1000, height=8, width=8, generator=generator(0)).flip.any()


@pytest.mark.parametrize("device", DEVICES)
def test_equal_seeds_give_equal_images_and_the_global_state_is_left_alone(device: str) -> None:
    images = torch.randint(0, 256, (16, 3, 32, 32), dtype=torch.uint8, generator=generator(0)).to(device)
    before = torch.get_rng_state()
    first = augment(images, PAPER, generator(1, device))
    assert torch.equal(first, augment(images, PAPER, generator(1, device)))
    assert not torch.equal(first, augment(images, PAPER, generator(2, device)))
    assert torch.equal(torch.get_rng_state(), before)
    assert first.min() >= 0
    assert first.max() <= 1


def test_an_augmentation_that_allows_nothing_changes_nothing() -> None:
    still = Augmentation(crop_scale=(1, 1), crop_ratio=(1, 1), flip=False, brightness=0, contrast=0, saturation=0)
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8, generator=generator(0))
    assert (augment(images, still, generator(1)) - images / 255).abs().max() < 1e-5


def test_saturation_leaves_grey_images_as_they_are() -> None:
    images = torch.rand(8, 1, 16, 16, generator=generator(0))
    drawn = draw(PAPER, 8, height=16, width=16, generator=generator(1))
    other = replace(drawn, factors=drawn.factors * torch.tensor([1.0, 1.0, 0.1]))
    assert torch.equal(transform(images, drawn), transform(images, other))


def test_an_image_is_the_same_in_any_batch() -> None:
    images = torch.rand(8, 3, 16, 16, generator=generator(0))
    drawn = draw(PAPER, 8, height=16, width=16, generator=generator(1))
    alone = Draw(box=drawn.box[5:6], flip=drawn.flip[5:6], factors=drawn.factors[5:6], turn=drawn.turn[5:6])
    assert (transform(images, drawn)[5] - transform(images[5:6], alone)[0]).abs().max() < 1e-6


def test_nothing_depends_on_values_that_only_the_device_knows() -> None:
    drawn = draw_from(torch.empty(4, NUMBERS, device="meta"), PAPER, height=16, width=16)
    assert transform(torch.empty(4, 3, 16, 16, device="meta"), drawn).shape == (4, 3, 16, 16)


COMPILED = """
import torch
from infogaze.data.augmentation import NUMBERS, Augmentation, draw_from, transform
def step(images, numbers):
    return transform(images / 255.0, draw_from(numbers, Augmentation(), height=16, width=16))
generator = torch.Generator().manual_seed(0)
images = torch.randint(0, 256, (4, 3, 16, 16), dtype=torch.uint8, generator=generator)
numbers = torch.rand(4, NUMBERS, generator=generator)
torch.testing.assert_close(torch.compile(step, fullgraph=True, backend="eager")(images, numbers), step(images, numbers))
"""


def test_it_compiles_whole() -> None:
    # In a process of its own, since the checks of shapes in tests do not compile.
    subprocess.run([sys.executable, "-c", COMPILED], check=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_it_fits_a_cuda_graph() -> None:
    images = torch.rand(4, 3, 16, 16, device="cuda")
    numbers = torch.rand(4, NUMBERS, device="cuda")
    expected = transform(images, draw_from(numbers, PAPER, height=16, width=16))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = transform(images, draw_from(numbers, PAPER, height=16, width=16))
    graph.replay()
    assert (found - expected).abs().max() < 1e-6


def test_autocast_does_not_round_it() -> None:
    images = torch.rand(4, 3, 16, 16, generator=generator(0))
    drawn = draw(PAPER, 4, height=16, width=16, generator=generator(1))
    with torch.autocast("cpu", torch.bfloat16):
        found = transform(images, drawn)
    assert torch.equal(found, transform(images, drawn))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"crop_scale": (0.0, 1.0)}, r"crop_scale is \(0\.0, 1\.0\); it must rise, within 0 and 1"),
        ({"crop_scale": (0.9, 0.5)}, "crop_scale"),
        ({"crop_scale": (0.5, 1.5)}, "crop_scale"),
        ({"crop_ratio": (2.0, 1.0)}, r"crop_ratio is \(2\.0, 1\.0\); it must rise, above 0"),
        ({"contrast": -0.1}, r"contrast is -0\.1; it must not be negative"),
    ],
)
def test_an_augmentation_that_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(PAPER, **settings)
