from __future__ import annotations

from dataclasses import replace

import torch

from infogaze.methods.three_phases import recognise
from infogaze.training.phases import Objective, visited
from tests.support.methods import LOOKS, OBJECTIVE, batch
from tests.support.small_model import drawn, model
from tests.support.tiny import CONFIG


def test_visited_counts_the_looks_on_each_place_or_next_to_it() -> None:
    generator = torch.Generator().manual_seed(0)
    last = torch.tensor([CONFIG.height - CONFIG.glimpse, CONFIG.width - CONFIG.glimpse])
    locations = (torch.rand(LOOKS, 50, 2, generator=generator) * (last + 1)).long()
    counts = visited(locations, CONFIG.grid)
    expected = torch.zeros(LOOKS, CONFIG.grid.places)
    for look in range(LOOKS):
        for scene in range(50):
            expected[look, CONFIG.grid.nearest(locations[look, scene])] += 1
    assert torch.equal(counts, expected)
    assert counts.sum(1).tolist() == [50.0] * LOOKS
    where = torch.tensor([[[0, 0], [2, 0], [0, 0], [9, 7]]])  # places are 2 apart, the last at row 8 and column 6
    assert visited(where, CONFIG.grid).nonzero().tolist() == [
        [0, 0],
        [0, CONFIG.grid.cols],
        [0, CONFIG.grid.places - 1],
    ]


def test_a_phase_draws_no_numbers_it_does_not_need() -> None:
    numbers = drawn(0, model())
    assert numbers.anywhere.shape == (6, LOOKS, 2)
    assert numbers.dropout.shape == (6, LOOKS, CONFIG.belief_size)
    assert numbers.places.numel() == numbers.latent.numel() == numbers.explore.numel() == numbers.wander.numel() == 0


def test_phase_3_draws_as_many_imagined_scenes_as_it_is_told() -> None:
    numbers = drawn(2, model(), objective=replace(OBJECTIVE, samples=3))
    assert numbers.explore.shape == (6, 3, LOOKS, CONFIG.latent_size)
    assert numbers.wander.shape == (6, LOOKS)


def test_dropout_hides_the_stated_share_of_the_belief_and_keeps_its_mean() -> None:
    net, seen = model().eval(), []
    net.backbone.classify = lambda belief: seen.append(belief.hidden) or torch.zeros(LOOKS, 200, 3)  # type: ignore[method-assign, func-returns-value]
    numbers = drawn(0, net, 200)
    for rate in (0.0, 0.5):
        recognise(net, batch(200), numbers, Objective(LOOKS, 1.0, 1.0, rate))
    plain, dropped = seen
    assert abs(float((dropped == 0).double().mean()) - 0.5) < 0.03
    torch.testing.assert_close(dropped[dropped != 0], 2 * plain[dropped != 0])
