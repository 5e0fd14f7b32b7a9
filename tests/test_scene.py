from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from infogaze import read_scene, sample_picture
from infogaze.data.problems import DataError
from tests.tiny import CONFIG, tiny_agent


def test_a_path_may_be_a_string() -> None:
    agent = tiny_agent(replace(CONFIG, channels=3))
    assert torch.equal(read_scene(str(sample_picture()), agent), read_scene(sample_picture(), agent))


def test_a_missing_picture_is_named_however_it_was_given(tmp_path: Path) -> None:
    agent = tiny_agent(replace(CONFIG, channels=3))
    for path in (tmp_path / "none.png", str(tmp_path / "none.png")):
        with pytest.raises(DataError) as error:
            read_scene(path, agent)
        assert str(error.value) == f"{tmp_path / 'none.png'}: is missing"
