"""A dictionary: which entries a belief expects where, in how many groups, on which grid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from infogaze import Belief, GlimpseGrid, build
from infogaze.nn.dictionary import Dictionary
from infogaze.nn.gain import mutual_information
from tests.support.dictionaries import (
    CONFIGS,
    ENTRIES,
    LIKELY,
    NO_NOISE,
    PLAIN,
    SCENES,
    belief_of,
    dictionary_of,
    gain_of,
    in_groups,
    model_of,
)
from tests.support.parts import normal, used


def test_the_grids_of_these_tests_have_irregular_last_places_and_scenes_that_are_not_square() -> None:
    for config in CONFIGS.values():
        rows, cols = config.grid.axes()
        assert config.height != config.width
        assert int(rows.diff()[-1]) != config.stride or int(cols.diff()[-1]) != config.stride
        assert config.grid.num_locations > 2


@torch.no_grad()
def test_the_probabilities_of_the_entries_add_up_to_one_and_follow_belief_and_location() -> None:
    model = model_of()
    belief, where = belief_of(model), model.grid.locations()
    probabilities = dictionary_of(model).log_probabilities(belief.hidden, where).exp()
    assert probabilities.shape == (SCENES, model.grid.num_locations, ENTRIES)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones_like(probabilities[..., 0]))
    assert probabilities.std(0).amax() > 0.01, "another belief expects another content"
    assert probabilities.std(1).amax() > 0.01, "and so does another place"


@torch.no_grad()
def test_what_a_location_holds_needs_no_other_belief_and_no_other_location() -> None:
    model = model_of()
    hidden, where = belief_of(model).hidden, model.grid.locations()
    together = dictionary_of(model).log_probabilities(hidden, where)
    for scene, place in ((0, 3), (2, model.grid.num_locations - 1)):
        alone = dictionary_of(model).log_probabilities(hidden[scene], where[place : place + 1])
        torch.testing.assert_close(alone[0], together[scene, place])


@torch.no_grad()
def test_locations_given_for_each_belief_are_those_given_for_all() -> None:
    model = model_of()
    hidden, where = belief_of(model).hidden, model.grid.locations()
    head = dictionary_of(model).log_probabilities
    together = head(hidden, where)
    torch.testing.assert_close(head(hidden, where.expand(SCENES, -1, 2)), together)
    own = torch.stack([where.roll(scene, 0) for scene in range(SCENES)])
    found = head(hidden, own)
    for scene in range(SCENES):
        torch.testing.assert_close(found[scene], together[scene].roll(scene, 0))


@torch.no_grad()
@pytest.mark.parametrize(
    ("wanted", "count"), [(1, 1), (2, 2), (4, 3), (5, 3), (ENTRIES, ENTRIES), (ENTRIES + 5, ENTRIES)]
)
def test_each_group_of_entries_stands_as_its_likeliest_with_all_its_probability(wanted: int, count: int) -> None:
    model = model_of()
    belief, dictionary = belief_of(model), dictionary_of(model)
    imagined = dictionary.imagine(belief, wanted, noise=NO_NOISE)
    assert imagined.index is not None
    weights, index = in_groups(
        dictionary.log_probabilities(belief.hidden, model.grid.locations()).exp(), min(wanted, ENTRIES)
    )
    assert index.shape[-1] == count
    np.testing.assert_array_equal(imagined.index.numpy(), index.numpy())
    np.testing.assert_allclose(imagined.weights.numpy(), weights.numpy())
    np.testing.assert_array_equal(imagined.features.numpy(), dictionary.entries.numpy()[index.numpy()])


@torch.no_grad()
def test_with_a_group_for_each_entry_nothing_is_left_out() -> None:
    model = model_of()
    belief, dictionary = belief_of(model), dictionary_of(model)
    imagined = dictionary.imagine(belief, ENTRIES, noise=NO_NOISE)
    probabilities = dictionary.log_probabilities(belief.hidden, model.grid.locations()).exp()
    torch.testing.assert_close(imagined.weights, probabilities)


@torch.no_grad()
def test_the_same_belief_gives_the_same_gain_bit_for_bit_whatever_the_noise() -> None:
    model = build(PLAIN)
    hidden, memory = normal(SCENES, PLAIN.belief_size).float(), torch.zeros(SCENES, 0)
    belief = Belief(hidden, memory)
    assert dictionary_of(model).noise_shape(20) == (0,)
    maps = [model.gain(belief, LIKELY, noise=numbers) for numbers in (NO_NOISE, NO_NOISE, torch.randn(SCENES, 0))]
    louder = model.gain(belief, LIKELY, noise=torch.randn(SCENES, 9))
    assert all(torch.equal(found, maps[0]) for found in (*maps, louder))


@torch.no_grad()
def test_what_a_location_holds_changes_little_from_pixel_to_pixel() -> None:
    model = model_of()
    hidden, head = belief_of(model).hidden, dictionary_of(model).log_probabilities
    first, last = model.grid.locations()[[7, 8]].double()
    share = torch.linspace(0, 1, 201, dtype=torch.float64)[:, None]
    between = head(hidden, (1 - share) * first + share * last)
    at_places = head(hidden, model.grid.locations())
    torch.testing.assert_close(between[:, [0, -1]], at_places[:, [7, 8]], rtol=0, atol=1e-4)
    change = (between[:, -1] - between[:, 0]).abs().amax()
    steps = between.diff(dim=1).abs().amax()
    assert float(change) > 0.01
    assert float(steps) < 0.2 * float(change)
    finer = head(hidden, first + (last - first) * torch.linspace(0, 0.005, 201, dtype=torch.float64)[:, None])
    assert finer.diff(dim=1).abs().amax() < 0.02 * float(steps), "steps two hundred times smaller"


@torch.no_grad()
def test_a_finer_grid_is_told_the_same_where_both_have_a_place() -> None:
    model = model_of()
    belief, dictionary = belief_of(model), dictionary_of(model)
    finer = replace(model.grid, stride=1)
    shared = finer.nearest(model.grid.locations())
    assert torch.equal(finer.locations()[shared], model.grid.locations())
    coarse = dictionary.imagine(belief, LIKELY, noise=NO_NOISE)
    fine = dictionary.imagine(belief, LIKELY, noise=NO_NOISE, locations=finer.locations())
    assert coarse.index is not None
    assert fine.index is not None
    assert fine.weights.shape == (SCENES, finer.num_locations, coarse.weights.shape[-1])
    assert torch.equal(fine.index[:, shared], coarse.index)
    torch.testing.assert_close(fine.weights[:, shared], coarse.weights)
    gain = model.lookahead_gain(belief, fine, locations=finer.locations(), criterion=mutual_information)
    torch.testing.assert_close(gain[:, shared], gain_of(model, belief), rtol=0, atol=1e-10)


def test_a_dictionary_names_its_own_nearest_entry() -> None:
    dictionary = dictionary_of(model_of())
    order = torch.tensor([3, 0, 5, 5, 1])
    assert torch.equal(dictionary.nearest(dictionary.entries.detach()[order] + 1e-3), order)


def test_a_single_entry_is_certain() -> None:
    grid = GlimpseGrid(height=4, width=8, glimpse_size=4, stride=4)
    dictionary = used(Dictionary(grid, belief_size=3, feature_size=2, channels=1, entries=1, width=4))
    belief = Belief(normal(2, 3), normal(2, 0))
    imagined = dictionary.imagine(belief, 5, noise=torch.zeros(2, 0))
    assert torch.equal(imagined.weights, torch.ones(2, 2, 1).double())
    assert torch.equal(dictionary.uncertainty(belief), torch.zeros(2, 2).double())
