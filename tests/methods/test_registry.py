"""Methods by name, and methods of a user's own among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import infogaze
from infogaze import METHODS, InfogazeError, RandomPolicy, RasterPolicy
from infogaze.methods import registry
from tests.support.own import write_pictures


@pytest.fixture
def raster() -> Iterator[str]:
    """A method of one's own, gone after the test."""
    method = replace(METHODS["random"], summary="row by row", policy=lambda num_samples: RasterPolicy())
    infogaze.register_method("raster", method)
    yield "raster"
    del registry._REGISTRY.added["raster"]


def test_a_name_without_a_method_is_refused_with_those_there_are() -> None:
    with pytest.raises(InfogazeError, match="'no-such'.*infogaze.*oracle"):
        METHODS["no-such"]


def test_every_name_has_its_method() -> None:
    assert len(METHODS) == len(list(METHODS))
    for name in METHODS:
        assert name in METHODS
        assert METHODS[name].summary


def test_a_method_of_ones_own_is_known_by_its_name(raster: str) -> None:
    assert raster in METHODS
    assert list(METHODS)[-1] == raster
    assert METHODS[raster].policy(1) == RasterPolicy()
    assert METHODS["random"].policy(1) == RandomPolicy(), "the one it was made of is as it was"


def test_a_name_is_given_once(raster: str) -> None:
    for name in (raster, "random"):
        with pytest.raises(InfogazeError, match=f"{name}' already"):
            infogaze.register_method(name, METHODS["random"])


def test_a_method_of_ones_own_is_trained_saved_and_loaded(raster: str, tmp_path: Path) -> None:
    write_pictures(tmp_path / "pictures")
    sizes = {"glimpse_size": 8, "stride": 8, "glimpse_widths": [4], "feature_size": 8, "belief_size": 16}
    agent = infogaze.train(
        root=tmp_path / "pictures", out=tmp_path / "run", method=raster, device="cpu", length=0.002, quiet=True,
        changes={"num_looks": 3, "model": sizes},
    )  # fmt: skip
    assert agent.policy == infogaze.load(tmp_path / "run").policy == RasterPolicy()
