from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from infogaze import Belief, ModelConfig, build
from infogaze.nn.imagination import Imagined
from infogaze.nn.partial_vae import PartialVAE
from tests.support.parts import TINY, normal, used
from tests.support.small_model import vae_of

IRREGULAR = replace(TINY, height=13, width=11, stride=4)
"""Rows 0, 4, 8 and 9; columns 0, 4 and 7."""
ONE_ROW = replace(TINY, height=4, width=13)
every_grid = pytest.mark.parametrize("config", [TINY, IRREGULAR, ONE_ROW], ids=["square", "irregular", "one row"])
SAMPLES, SCENES = 3, 2


def _vae(config: ModelConfig = TINY) -> PartialVAE:
    return vae_of(used(build(config)))


def _belief() -> Belief:
    return Belief(normal(SCENES, TINY.belief_size), torch.zeros(SCENES, 0).double())


def _imagined(vae: PartialVAE, locations: Tensor | None = None) -> Imagined:
    noise = normal(SCENES, SAMPLES, TINY.latent_size, seed=1)
    return vae.imagine(_belief(), SAMPLES, noise=noise, locations=locations)


@every_grid
@torch.no_grad()
def test_what_is_imagined_is_what_the_decoder_makes_of_each_sample_and_all_are_as_likely(config: ModelConfig) -> None:
    vae, belief = _vae(config), _belief()
    imagined = _imagined(vae)
    assert imagined.weights.tolist() == [[[pytest.approx(1 / SAMPLES)] * SAMPLES] * config.grid.num_locations] * SCENES
    noise = normal(SCENES, SAMPLES, TINY.latent_size, seed=1)
    for scene in range(SCENES):
        for sample in range(SAMPLES):
            z = vae.posterior(belief.hidden[scene : scene + 1]).rsample(noise[scene, sample : sample + 1])
            torch.testing.assert_close(imagined.features[scene, :, sample], vae.decoder(z)[0])


def test_a_scene_takes_as_many_numbers_as_its_samples_of_z_have() -> None:
    assert _vae().noise_shape(7) == (7, TINY.latent_size)


@every_grid
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
@torch.no_grad()
def test_at_the_grids_own_locations_the_same_is_imagined_as_on_the_grid(
    config: ModelConfig, dtype: torch.dtype
) -> None:
    vae = _vae(config)
    there, own = _imagined(vae, config.grid.locations().to(dtype)), _imagined(vae)
    torch.testing.assert_close(there.features, own.features)
    assert torch.equal(there.weights, own.weights)


@every_grid
@torch.no_grad()
def test_the_locations_may_be_some_of_the_grids_in_any_order(config: ModelConfig) -> None:
    vae, places = _vae(config), torch.tensor([3, 0, 2, 2])
    some = _imagined(vae, config.grid.locations()[places])
    torch.testing.assert_close(some.features, _imagined(vae).features[:, places])
    assert some.weights.shape == (SCENES, 4, SAMPLES)


@every_grid
@torch.no_grad()
@given(seed=st.integers(0, 2**31))
def test_between_places_each_feature_lies_between_those_of_the_places_around_it(config: ModelConfig, seed: int) -> None:
    vae, grid = _vae(config), config.grid
    last = torch.tensor([grid.height - grid.glimpse_size, grid.width - grid.glimpse_size])
    where = torch.rand(20, 2, generator=torch.Generator().manual_seed(seed)) * last
    there, own = _imagined(vae, where).features, _imagined(vae).features
    rows, cols = (axis.tolist() for axis in grid.axes())
    for number, (row, col) in enumerate(where.tolist()):
        around = [
            own[:, down * grid.cols + across] for down in _around(rows, row) for across in _around(cols, col)
        ]  # each [SCENES, SAMPLES, f]
        lowest, highest = torch.stack(around).amin(0), torch.stack(around).amax(0)
        assert (there[:, number] >= lowest - 1e-5).all()
        assert (there[:, number] <= highest + 1e-5).all()


def _around(starts: list[int], value: float) -> set[int]:
    """The last start before a value and the first behind it, or one where there are no others."""
    before = [index for index, start in enumerate(starts) if start <= value]
    behind = [index for index, start in enumerate(starts) if start >= value]
    return {max(before), min(behind, default=len(starts) - 1)}


@torch.no_grad()
def test_halfway_between_two_places_is_their_mean() -> None:
    vae = _vae(IRREGULAR)
    own = _imagined(vae).features.unflatten(1, (4, 3))  # rows and columns
    halfway = _imagined(vae, torch.tensor([[2.0, 4.0], [8.5, 7.0], [4.0, 5.5]])).features
    torch.testing.assert_close(halfway[:, 0], (own[:, 0, 1] + own[:, 1, 1]) / 2)
    torch.testing.assert_close(halfway[:, 1], (own[:, 2, 2] + own[:, 3, 2]) / 2)
    torch.testing.assert_close(halfway[:, 2], (own[:, 1, 1] + own[:, 1, 2]) / 2)
    assert (own[:, 0, 1] - own[:, 1, 1]).abs().max() > 1e-2, "else there would be nothing between"


@torch.no_grad()
def test_some_scenes_and_locations_of_what_is_imagined() -> None:
    imagined = _imagined(_vae())
    part = imagined[1:2, 3:5]
    assert torch.equal(part.weights, imagined.weights[1:2, 3:5])
    assert torch.equal(part.features, imagined.features[1:2, 3:5])


def test_entries_of_a_dictionary_are_named_by_their_index_and_the_dictionary_stays_whole() -> None:
    entries, index = normal(4, 5), torch.tensor([[[0, 3], [1, 1], [2, 0]]])  # [K, f], [B, L, M]
    imagined = Imagined(torch.full((1, 3, 2), 0.5), entries, index)
    for place, m in torch.cartesian_prod(torch.arange(3), torch.arange(2)).tolist():
        assert torch.equal(imagined.features[0, place, m], entries[index[0, place, m]])
    part = imagined[0:1, 1:3]
    assert torch.equal(part.features, imagined.features[:, 1:3])
    assert torch.equal(part.weights, imagined.weights[:, 1:3])
