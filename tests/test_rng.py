from __future__ import annotations

import pytest
import torch

from infogaze.errors import InfogazeError
from infogaze.rng import SceneNoise, scene_seeds, seeds_at, stream_seed


def test_a_scene_draws_the_same_numbers_in_any_batch() -> None:
    seeds = scene_seeds(7, 16)
    together = SceneNoise(seeds, 3).normal(5, 4)
    alone = SceneNoise(seeds[11:12], 3).normal(5, 4)
    assert torch.equal(together[11:12], alone)
    assert torch.equal(scene_seeds(7, 4, first=8), seeds[8:12])


def test_numbers_differ_between_scenes_looks_seeds_and_positions() -> None:
    def draw(seed: int, look: int) -> torch.Tensor:
        return SceneNoise(scene_seeds(seed, 2), look).uniform(1000)

    every = torch.cat([draw(seed, look).flatten() for seed in (0, 1) for look in (0, 1, 2)])
    # 24 bits: among 12,000 draws about four collide by chance; a shared stream would make a thousand.
    assert every.unique().numel() > every.numel() - 50


def test_normal_numbers_have_the_moments_of_a_standard_gaussian() -> None:
    x = SceneNoise(scene_seeds(0, 500), 1).normal(20, 32).double()
    n = x.numel()
    assert abs(x.mean()) < 5 / n**0.5
    assert abs(x.square().mean() - 1) < 5 * (2 / n) ** 0.5
    assert abs(x.pow(4).mean() - 3) < 5 * (96 / n) ** 0.5
    neighbours = (x[:, :, 1:] * x[:, :, :-1]).mean()
    assert abs(neighbours) < 5 / n**0.5
    assert x.isfinite().all()


def test_uniform_numbers_are_below_one_where_rounding_would_make_one_of_them() -> None:
    drawn = SceneNoise(torch.tensor([3465117]), 0).uniform(4)  # its third number has all of its 24 bits set
    assert float(drawn[0, 2]) == 1.0 - 2.0**-24
    assert float(drawn.min()) > 0.0


def test_no_two_purposes_share_a_stream() -> None:
    purposes = [(name, phase) for name in ("step", "order", "prepare") for phase in range(3)] + [
        ("weights",),
        ("validation",),
    ]
    streams = [stream_seed(seed, *purpose) for seed in range(200) for purpose in purposes]
    assert len(set(streams)) == len(streams)
    assert all(0 <= stream < 2**63 for stream in streams), "as torch's generators take them"


def test_the_preparation_of_a_phase_draws_other_numbers_than_any_step() -> None:
    seeds = [stream_seed(0, name, phase) for name in ("prepare", "step") for phase in range(3)]
    drawn = [torch.rand(4, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    assert len({tuple(numbers.tolist()) for numbers in drawn}) == len(seeds)


@pytest.mark.parametrize("seed", [2**63, -(2**63) - 1, 2**200])
def test_seeds_beyond_64_bits_are_refused_by_name(seed: int) -> None:
    with pytest.raises(InfogazeError, match=f"seed is {seed}"):
        stream_seed(seed, "step")


def test_seeds_of_any_numbers_in_any_order_are_those_of_the_scenes() -> None:
    numbers = torch.tensor([9, 0, 4])
    assert torch.equal(seeds_at(3, numbers), scene_seeds(3, 10)[numbers])
    assert seeds_at(3, torch.tensor([-(1 << 63), (1 << 63) - 1])).unique().numel() == 2
