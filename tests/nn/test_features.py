from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from infogaze import GlimpseGrid, InfogazeError, build, preset
from infogaze.grid import extract_grid
from infogaze.nn.features import GlimpseFeatures, Residual
from infogaze.nn.pixels import normalise_pixels
from tests.support.parts import TINY, normal, used


def _features(grid: GlimpseGrid, channels: int = 2, widths: tuple[int, ...] = (4,), size: int = 5) -> GlimpseFeatures:
    return used(GlimpseFeatures(grid, channels=channels, widths=widths, size=size))


@pytest.mark.parametrize(
    ("glimpse_size", "widths"),
    [
        (1, ()), (2, ()), (3, (4,)), (4, ()), (4, (3,)), (5, (3, 4)), (6, (3,)), (7, (2, 3, 4)), (8, (2, 3, 4)),
        (9, (2, 2, 2, 2)), (9, (3,)),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("height", "width", "stride"), [(13, 13, 2), (9, 17, 3), (14, 11, 1)])
def test_features_of_the_grid_are_one_dense_pass_over_the_scene(
    glimpse_size: int, widths: tuple[int, ...], height: int, width: int, stride: int
) -> None:
    # F_g sees exactly one glimpse, so convolving the whole scene gives every window's features, at stride one.
    features = _features(
        GlimpseGrid(height=height, width=width, glimpse_size=glimpse_size, stride=stride), widths=widths
    )
    images = normal(2, 2, height, width)
    dense = features.glimpse_network(images)  # [B, f, H - g + 1, W - g + 1]
    assert dense.shape[-2:] == (height - glimpse_size + 1, width - glimpse_size + 1)
    rows, cols = features.grid.axes()
    expected = dense[:, :, rows][:, :, :, cols].flatten(2).mT
    torch.testing.assert_close(features.content(extract_grid(images, features.grid)), expected)


def test_the_paper_ends_its_glimpse_network_with_a_convolution_of_two() -> None:
    for name in ("svhn", "cifar10", "cinic10", "cifar100", "tinyimagenet"):
        config = preset(name).model
        with torch.device("meta"):
            network = GlimpseFeatures(
                config.grid, channels=3, widths=config.glimpse_widths, size=config.feature_size
            ).glimpse_network
        kinds = [type(layer) for layer in network]
        repeats = len(config.glimpse_widths)
        assert kinds == [nn.Conv2d, nn.LeakyReLU, nn.BatchNorm2d] * repeats + [nn.Conv2d]
        kernels = [layer.kernel_size for layer in network if isinstance(layer, nn.Conv2d)]
        assert kernels == [(3, 3)] * repeats + [(2, 2)]


@given(st.integers(0, 2**31))
def test_features_are_content_plus_place(seed: int) -> None:
    grid = GlimpseGrid(height=9, width=17, glimpse_size=4, stride=2)
    features = _features(grid)
    glimpses = normal(3, 4, 2, 4, 4, seed=seed)
    where = torch.stack([torch.arange(12).view(3, 4) % 6, torch.arange(12).view(3, 4)], -1)
    rows, cols = where[..., :1] / 5 * 2 - 1, where[..., 1:] / 13 * 2 - 1
    weight, bias = features.location_network.weight, features.location_network.bias
    place = rows * weight[:, 0] + cols * weight[:, 1] + bias
    expected = features.glimpse_network(glimpses.flatten(0, 1)).view(3, 4, 5) + place
    # The scale of the grid is kept in float32.
    torch.testing.assert_close(features(glimpses, where), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(features(glimpses, where), features.content(glimpses) + features.place(where))


def test_content_does_not_know_its_place() -> None:
    grid = GlimpseGrid(height=12, width=12, glimpse_size=4, stride=2)
    features = _features(grid)
    tile = normal(1, 2, 4, 4)
    content = features.content(extract_grid(tile.repeat(1, 1, 3, 3), features.grid))
    there = grid.locations().remainder(4).sum(1) == 0
    assert there.sum() == 9
    torch.testing.assert_close(content[:, there], features.content(tile)[:, None].expand(1, 9, 5))


@pytest.mark.parametrize(("glimpse_size", "convolutions"), [(2, 1), (4, 2), (8, 4)])
def test_more_convolutions_than_a_glimpse_holds_are_refused(glimpse_size: int, convolutions: int) -> None:
    needed = 2 * convolutions + 1
    grid = GlimpseGrid(height=12, width=12, glimpse_size=glimpse_size, stride=2)
    with pytest.raises(InfogazeError, match=rf"{convolutions} conv.* at least {needed} pixels, not {glimpse_size}"):
        GlimpseFeatures(grid, channels=1, widths=[4] * convolutions, size=5)
    with pytest.raises(InfogazeError, match=rf"at least {needed} pixels, not {glimpse_size}"):
        replace(TINY, glimpse_size=glimpse_size, glimpse_widths=(4,) * convolutions)


def test_pixels_run_from_minus_one_to_one() -> None:
    assert normalise_pixels(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [-1.0, 1.0]
    assert normalise_pixels(torch.tensor([0.0, 0.5, 1.0])).tolist() == [-1.0, 0.0, 1.0]
    every = torch.arange(256, dtype=torch.uint8)
    torch.testing.assert_close(normalise_pixels(every), normalise_pixels(every / 255))


def test_residual_blocks_deepen_f_and_leave_its_sizes() -> None:
    plain, deep = build(TINY).double(), build(replace(TINY, glimpse_residuals=2)).double()
    glimpses = normal(3, TINY.channels, TINY.glimpse_size, TINY.glimpse_size)
    assert deep.backbone.features(glimpses).shape == plain.backbone.features(glimpses).shape
    blocks = [part for part in deep.modules() if isinstance(part, Residual)]
    assert len(blocks) == 2 * len(TINY.glimpse_widths)
    deep.eval()
    before = deep.backbone.features(glimpses)
    for block in blocks:
        for parameter in block.parameters():
            parameter.data.zero_()  # a block that changes nothing hands on what it was given
    for part, same in zip(
        (
            part
            for part in deep.backbone.get_submodule("feature_network").modules()
            if type(part) is torch.nn.Conv2d and part.padding == (0, 0)
        ),
        (part for part in plain.backbone.get_submodule("feature_network").modules() if type(part) is torch.nn.Conv2d),
        strict=True,
    ):
        same.load_state_dict(part.state_dict())
    after = deep.backbone.features(glimpses)
    torch.testing.assert_close(after, plain.eval().backbone.features(glimpses))
    assert not torch.allclose(before, after)
