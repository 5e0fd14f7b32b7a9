from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from infogaze import GlimpseGrid
from infogaze.nn.decoder import Decoder, growth
from tests.support.parts import normal, used


def _decoder(rows: int, cols: int, latent: int = 4, size: int = 5) -> Decoder:
    grid = GlimpseGrid(height=rows + 1, width=cols + 1, glimpse_size=2, stride=1)
    return used(Decoder(latent, size, grid))


@pytest.mark.parametrize(
    ("rows", "cols"),
    [(1, 2), (1, 9), (1, 40), (9, 1), (2, 2), (3, 4), (7, 7), (8, 5), (16, 9), (2, 30), (33, 40)],
)
def test_the_decoder_fills_any_grid(rows: int, cols: int) -> None:
    decoder = _decoder(rows, cols)
    z = normal(3, 2, 4)
    content = decoder(z)
    assert content.shape == (3, 2, rows * cols, 5)
    # Every place is imagined: it differs from sample to sample.
    assert (content[0] - content[1]).abs().amax((0, 2)).min() > 1e-6


@given(st.integers(1, 200))
def test_growth_ends_at_the_size_with_small_kernels(size: int) -> None:
    steps = growth(size)
    reached = 1
    for step in steps:
        # The output size of a transposed convolution without padding.
        assert (reached - 1) * step.stride + step.kernel == step.size
        assert step.kernel <= 4
        reached = step.size
    assert reached == size
    assert all(after.size > before.size for before, after in pairwise(steps))


def test_on_seven_by_seven_the_decoder_is_the_one_of_the_paper() -> None:
    decoder = Decoder(4, 5, GlimpseGrid(height=32, width=32, glimpse_size=8, stride=4))
    convolutions = [m for m in decoder.modules() if isinstance(m, nn.Conv2d | nn.ConvTranspose2d)]
    assert [type(c) for c in convolutions] == [nn.ConvTranspose2d] * 3 + [nn.Conv2d] * 6
    assert {c.kernel_size for c in convolutions} == {(3, 3)}
    assert {c.stride for c in convolutions} == {(1, 1)}
    assert [c.padding for c in convolutions] == [(0, 0)] * 3 + [(1, 1)] * 6
    assert [c.in_channels for c in convolutions] == [4] + [5] * 8
    assert {c.out_channels for c in convolutions} == {5}
    assert sum(isinstance(m, nn.LayerNorm) for m in decoder.modules()) == 8


def test_on_seven_by_seven_the_decoder_computes_table_one() -> None:
    decoder = _decoder(7, 7)
    z = normal(3, 4)
    maps = z[:, :, None, None]  # [N, channels, rows, cols]
    for block in decoder.layers:
        convolution, norm = block.convolution, block.norm
        assert isinstance(norm, nn.LayerNorm)
        if isinstance(convolution, nn.ConvTranspose2d):
            maps = functional.conv_transpose2d(maps, convolution.weight, convolution.bias)
        else:
            assert isinstance(convolution, nn.Conv2d)
            maps = functional.conv2d(maps, convolution.weight, convolution.bias, padding=1)
        maps = functional.leaky_relu(maps)
        # Over channels and places together, one mean and one variance a map.
        flat = maps.flatten(1)
        flat = (flat - flat.mean(1, keepdim=True)) / (flat.var(1, correction=0, keepdim=True) + norm.eps).sqrt()
        weight, bias = (value.view(*maps.shape[2:], -1).movedim(-1, 0) for value in (norm.weight, norm.bias))
        maps = flat.view_as(maps) * weight + bias
    maps = functional.conv2d(maps, decoder.last.weight, decoder.last.bias, padding=1)
    torch.testing.assert_close(decoder(z), maps.flatten(2).mT)


@pytest.mark.parametrize(("rows", "cols"), [(7, 7), (3, 4), (1, 9)])
@pytest.mark.parametrize("spread", [0.02, 3.0])
def test_the_decoder_begins_at_the_mean_and_the_spread_it_is_asked_for(rows: int, cols: int, spread: float) -> None:
    decoder = _decoder(rows, cols)
    z, mean = normal(40, 4), 2 * normal(5, seed=1)
    assert abs(float(decoder(z).detach().flatten(0, 1).var(0).mean().sqrt()) / spread - 1) > 0.1, "it has to change"
    decoder.initialise(z, mean, torch.tensor(spread).double())
    content = decoder(z).detach().flatten(0, 1).numpy()
    np.testing.assert_allclose(content.mean(0), mean.numpy(), rtol=0, atol=1e-6 * (1 + spread))
    assert np.sqrt(content.var(0, ddof=1).mean()) == pytest.approx(spread, rel=1e-6)


def test_beginning_there_scales_all_differences_between_samples_alike() -> None:
    decoder = _decoder(3, 4)
    z = normal(40, 4)
    before = decoder(z)
    decoder.initialise(z, torch.zeros(5).double(), torch.tensor(0.25).double())
    after = decoder(z)
    ratio = (after[1:] - after[:1]) / (before[1:] - before[:1])
    torch.testing.assert_close(ratio, ratio[0, 0, 0].expand_as(ratio))
