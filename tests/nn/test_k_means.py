from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from torch import Tensor

from infogaze.nn.k_means import k_means, nearest
from tests.support.parts import normal


@given(st.integers(0, 2**31), st.integers(1, 9), st.integers(0, 3))
def test_the_nearest_entry_is_that_of_torch_cdist(seed: int, entries: int, leading: int) -> None:
    known, content = normal(entries, 5, seed=seed), normal(*(3, 4, 2)[:leading], 7, 5, seed=seed + 1)
    assert torch.equal(
        nearest(content, known), torch.cdist(content, known.expand(*content.shape[:-2], -1, -1)).argmin(-1)
    )


@pytest.mark.parametrize("rows", [1, 3, 20, 21])
def test_the_nearest_entries_are_the_same_however_the_rows_are_split(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, content = normal(6, 5), normal(3, 7, 5, seed=1)
    whole = nearest(content, known)
    monkeypatch.setattr("infogaze.nn.k_means._ROWS_AT_ONCE", rows)
    assert torch.equal(nearest(content, known), whole)


def test_a_single_content_has_a_nearest_entry_too() -> None:
    known = normal(6, 5)
    found = nearest(known[4] + 1e-3, known)
    assert found.shape == ()
    assert int(found) == 4


def test_the_nearest_entry_is_found_in_full_precision_where_networks_compute_in_half() -> None:
    known, content = normal(200, 8).float(), normal(500, 8, seed=1).float()
    with torch.autocast("cpu", torch.bfloat16):
        rough = nearest(content, known)
    assert torch.equal(rough, nearest(content, known))


def blobs(count: int = 6, *, spread: float = 0.05) -> tuple[Tensor, Tensor]:
    """Contents around far centres, and one content of each to begin from."""
    centres = 5.0 * normal(count, 4, seed=2)
    content = centres.repeat_interleave(30, 0) + spread * normal(30 * count, 4, seed=3)
    return content, content[::30].clone()


def distortion(content: Tensor, entries: Tensor) -> float:
    return float(torch.cdist(content, entries).amin(1).square().mean())


def test_every_iteration_of_k_means_lowers_the_distortion_until_it_stays() -> None:
    content = normal(300, 5)
    values = [distortion(content, k_means(content, content[:12], iterations=count)) for count in range(60)]
    assert all(after <= before + 1e-12 for before, after in pairwise(values))
    assert values[1] < 0.95 * values[0]
    assert values[-1] == pytest.approx(values[-2], abs=1e-12)


@pytest.mark.parametrize("iterations", [1, 3, 20])
@pytest.mark.parametrize("spread", [0.05, 4.0])
def test_k_means_is_sklearns_from_the_same_beginning(spread: float, iterations: int) -> None:
    content, begun = blobs(spread=spread)
    theirs = KMeans(len(begun), init=begun.numpy(), n_init=1, max_iter=iterations, tol=0.0).fit(content.numpy())
    ours = k_means(content, begun, iterations=iterations)
    np.testing.assert_allclose(ours.numpy(), theirs.cluster_centers_, rtol=1e-9, atol=1e-9)


def test_no_iteration_leaves_the_entries_as_they_are() -> None:
    content, begun = blobs()
    assert torch.equal(k_means(content, begun, iterations=0), begun)


def test_an_entry_that_nothing_is_near_begins_anew_with_a_generator_and_stays_without() -> None:
    content, begun = blobs()
    begun[2] = 1e6
    stayed = k_means(content, begun, iterations=5)
    assert torch.equal(stayed[2], begun[2])
    anew = k_means(content, begun, iterations=1, generator=torch.Generator().manual_seed(0))
    assert bool((content == anew[2]).all(1).any()), "at some content"
    found = k_means(content, begun, iterations=30, generator=torch.Generator().manual_seed(0))
    again = k_means(content, begun, iterations=30, generator=torch.Generator().manual_seed(0))
    assert torch.equal(found, again)
    assert distortion(content, found) < distortion(content, stayed)
