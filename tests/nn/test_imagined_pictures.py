"""Pictures of what a dictionary imagines, and how uncertain each place is."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from scipy import stats

from infogaze import Model, ModelConfig
from infogaze.nn.dictionary import Dictionary
from tests.support.dictionaries import ENTRIES, PLAIN, SCENES, WIDE, belief_of, dictionary_of, every_config, model_of
from tests.support.parts import normal


@torch.no_grad()
def test_uncertainty_is_scipys_entropy_of_what_a_location_holds() -> None:
    model = model_of()
    belief, dictionary = belief_of(model), dictionary_of(model)
    probabilities = dictionary.log_probabilities(belief.hidden, model.grid.locations()).exp().numpy()
    np.testing.assert_allclose(dictionary.uncertainty(belief), stats.entropy(probabilities, axis=-1), atol=1e-12)
    some = torch.tensor([[1.5, 0.25], [3.0, 7.0]])
    elsewhere = dictionary.log_probabilities(belief.hidden, some).exp().numpy()
    np.testing.assert_allclose(dictionary.uncertainty(belief, some), stats.entropy(elsewhere, axis=-1), atol=1e-12)


def sure_of(dictionary: Dictionary, entry: int | None) -> None:
    """Of one entry at every location of every scene; of none, where all are to be equally likely."""
    with torch.no_grad():
        dictionary.keys.weight.zero_()
        dictionary.usual.weight.zero_()
        dictionary.keys.bias.zero_()
        if entry is not None:
            dictionary.keys.bias[entry] = 1e3


@torch.no_grad()
def test_uncertainty_is_log_k_where_all_entries_are_equally_likely_and_nothing_where_one_is_sure() -> None:
    model = model_of()
    for entry, nats in ((None, math.log(ENTRIES)), (2, 0.0)):
        sure_of(dictionary_of(model), entry)
        uncertain = dictionary_of(model).uncertainty(belief_of(model))
        torch.testing.assert_close(uncertain, torch.full_like(uncertain, nats))


def with_patches(model: Model) -> Dictionary:
    dictionary = dictionary_of(model)
    dictionary.patches.copy_(normal(*dictionary.patches.shape, seed=3).clamp(-1, 1))
    return dictionary


@every_config
@torch.no_grad()
def test_the_picture_is_the_mean_of_the_expected_patches_over_each_pixel_and_grey_where_no_place_is(
    config: ModelConfig,
) -> None:
    model = model_of(config)
    dictionary, belief, side = with_patches(model), belief_of(model), config.glimpse_size
    places = model.grid.locations().tolist()
    probabilities = dictionary.log_probabilities(belief.hidden, model.grid.locations()).exp().numpy()
    patches = dictionary.patches.numpy()
    expected = np.zeros((SCENES, config.channels, config.height, config.width))
    for row in range(config.height):
        for col in range(config.width):
            over = [
                probabilities[:, place] @ patches[:, :, row - top, col - left]
                for place, (top, left) in enumerate(places)
                if top <= row < top + side and left <= col < left + side
            ]
            expected[:, :, row, col] = np.mean(over, 0) if over else 0.0
    np.testing.assert_allclose(dictionary.picture(belief).numpy(), expected, atol=1e-12)


@torch.no_grad()
def test_the_picture_of_what_is_certain_is_its_patch_everywhere() -> None:
    tiled = model_of(replace(PLAIN, height=8, width=12, stride=4))
    dictionary = with_patches(tiled)
    sure_of(dictionary, 4)
    picture = dictionary.picture(belief_of(tiled))
    assert torch.equal(picture, dictionary.patches[4].repeat(1, 2, 3).expand(SCENES, -1, -1, -1))
    overlapping = model_of()
    plain = dictionary_of(overlapping)
    plain.patches.copy_(torch.tensor([-0.25, 0.75]).view(1, 2, 1, 1))
    picture = plain.picture(belief_of(overlapping))
    torch.testing.assert_close(picture, torch.tensor([-0.25, 0.75]).double().view(1, 2, 1, 1).expand_as(picture))


@torch.no_grad()
def test_a_drawn_scene_is_the_picture_in_bytes_and_the_uncertainty_on_the_grid() -> None:
    model = model_of(WIDE)
    belief, dictionary = belief_of(model), dictionary_of(model)
    dictionary.patches.uniform_(-1.0, 1.0, generator=torch.Generator().manual_seed(1))
    drawn = dictionary.draw(belief)
    expected = (dictionary.picture(belief).double() + 1.0) / 2.0 * 255.0
    assert drawn.picture.dtype == torch.uint8
    assert float((drawn.picture.double() - expected).abs().max()) <= 0.5 + 1e-3
    rows, cols = model.grid.rows, model.grid.cols
    torch.testing.assert_close(drawn.uncertainty, dictionary.uncertainty(belief).view(SCENES, rows, cols))
    finer = replace(model.grid, stride=1)
    on_finer = dictionary.draw(belief, finer)
    assert torch.equal(on_finer.picture, drawn.picture)
    torch.testing.assert_close(on_finer.uncertainty.flatten(1), dictionary.uncertainty(belief, finer.locations()))
