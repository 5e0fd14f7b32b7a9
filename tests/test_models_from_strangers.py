"""Model folders from strangers: whatever their files say, a load ends in an error of one line, at once and in little memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import infogaze
from infogaze import ModelFolderError
from infogaze.methods.registry import build_for
from tests.support.tiny import TOKENS, tiny_agent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    infogaze.save(tiny_agent(), tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def of_tokens(tmp_path: Path) -> Path:
    infogaze.save(tiny_agent(TOKENS), tmp_path / "tokens")
    return tmp_path / "tokens"


def told(folder: Path, change: dict[str, Any]) -> str:
    """The error of a load after a change of the description; a nested field is named with a point."""
    path = folder / "model.json"
    description = json.loads(path.read_text())
    for name, value in change.items():
        *outer, last = name.split(".")
        table = description
        for part in outer:
            table = table[part]
        table[last] = value
    path.write_text(json.dumps(description))
    with pytest.raises(ModelFolderError) as caught:
        infogaze.load(folder)
    line = str(caught.value)
    assert "\n" not in line
    assert "model.json" in line or "model" in line
    return line


@pytest.mark.parametrize(
    "name", ["../outside.safetensors", "/tmp/outside.safetensors", "a/b.safetensors", ".hidden.safetensors", ""]
)
def test_weights_outside_of_the_folder_are_not_followed(folder: Path, name: str) -> None:
    (folder.parent / "outside.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    assert repr(name) in told(folder, {"weights": {name: "0" * 64}})


def test_weights_behind_a_link_are_not_followed(folder: Path) -> None:
    outside = folder.parent / "outside.safetensors"
    (folder / "model.safetensors").rename(outside)
    (folder / "model.safetensors").symlink_to(outside)
    assert "model.safetensors" in told(folder, {})


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ({"model.belief_size": 10**9}, "1000000000"),
        ({"model.flow_layers": 100_000}, "100000"),
        ({"model.height": 2**62}, str(2**62)),
        ({"model.glimpse_widths": [4] * 100_000}, "100000"),
        ({"model.latent_size": 65_536}, "posterior"),
        ({"model.feature_size": 65_536}, "shape"),
        ({"num_looks": -1}, "-1"),
        ({"num_samples": 0}, "0"),
        ({"num_samples": 10**12}, str(10**12)),
    ],
)
def test_sizes_out_of_range_are_refused_before_a_network_is_made(
    folder: Path, change: dict[str, Any], value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infogaze.models.build_for", on_no_memory)
    assert value in told(folder, change)


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ({"model.token_layers": 10**9}, "1000000000"),
        ({"model.token_layers": 64, "model.belief_size": 65_536}, "one side only"),
        ({"model.token_layers": 1}, "one side only"),
        ({"model.token_layers": 0, "model.glimpse_widths": [4]}, "one side only"),
        ({"model.token_heads": 3}, "multiple of token_heads, 3"),
        ({"model.token_heads": 0}, "token_heads is 0"),
        ({"model.token_heads": 2.0}, "model.token_heads is 2.0"),
        ({"model.attention_hops": 2}, "attention_hops is 2 and token_layers is 2"),
        ({"model.residual_belief": True}, "residual_belief is True and token_layers is 2"),
        ({"model.belief_size": 65_536}, "shape"),
        ({"model.glimpse_widths": [65_536] * 3}, "one side only"),
    ],
)
def test_tokens_that_the_weights_do_not_hold_are_refused_before_a_network_is_made(
    of_tokens: Path, change: dict[str, Any], value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infogaze.models.build_for", on_no_memory)
    assert value in told(of_tokens, change)


def on_no_memory(*given: Any) -> Any:
    assert torch.empty(0).is_meta, "a network was made before its sizes were held to its weights"
    return build_for(*given)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"flip_tta": "no"}, "flip_tta is 'no'"),
        ({"flip_tta": 1}, "flip_tta is 1"),
        ({"num_looks": 7.5}, "num_looks is 7.5"),
        ({"num_looks": "7"}, "num_looks is '7'"),
        ({"fit": "stretch"}, "fit is 'stretch'"),
        ({"classes": ["a", "b", "a"]}, "'a'"),
        ({"classes": ["a", "b"]}, "2 names"),
        ({"classes": "abc"}, "classes is 'abc'"),
        ({"classes": [1, 2, 3]}, "1"),
        ({"weights": {"model.safetensors": "abc"}}, "'abc'"),
        ({"weights": []}, "weights is"),
        ({"model": []}, "model is"),
        ({"model.height": True}, "model.height is True"),
        ({"model.spline_bound": "wide"}, "model.spline_bound is 'wide'"),
        ({"model.colour": "red"}, "colour"),
        ({"licence": "mine"}, "licence"),
        ({"looks": 7}, "looks"),
        ({"ood_threshold": "high"}, "ood_threshold is 'high'"),
        ({"ood_threshold": 2.0}, "typicality"),
        ({"typicality": "abc", "ood_threshold": 2.0}, "'abc'"),
    ],
)
def test_a_field_of_another_type_or_range_is_named_with_its_value(
    folder: Path, change: dict[str, Any], named: str
) -> None:
    assert named in told(folder, change)


def test_deep_nesting_is_one_line(folder: Path) -> None:
    (folder / "model.json").write_text("[" * 200_000)
    with pytest.raises(ModelFolderError, match=r"model\.json: .*JSON"):
        infogaze.load(folder)


def test_tensors_of_any_number_and_shape_are_held_to_the_model(folder: Path) -> None:
    from tests.test_models import reweigh

    reweigh(folder, {"backbone.classifier.linear.bias": torch.zeros(1, 3)})
    assert "linear.bias" in told(folder, {})
