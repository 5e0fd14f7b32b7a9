from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from infogaze import ModelFolderError, load, read_scene, sample_picture, save
from infogaze.data.options import Fit
from infogaze.data.problems import DataError
from infogaze.pictures import fit_picture
from tests.support.tiny import CONFIG, tiny_agent


def test_a_path_may_be_a_string() -> None:
    agent = tiny_agent(replace(CONFIG, channels=3))
    assert torch.equal(read_scene(str(sample_picture()), agent), read_scene(sample_picture(), agent))


@pytest.mark.parametrize("fit", ["crop", "resize", "pad"])
def test_a_picture_is_brought_to_size_as_in_training(fit: Fit, tmp_path: Path) -> None:
    pixels = np.zeros((20, 60, 3), np.uint8)
    pixels[:, :15] = 255  # a mark at the far left
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    agent = tiny_agent(replace(CONFIG, channels=3))
    agent.fit = fit
    save(agent, tmp_path / "model")
    scene = read_scene(tmp_path / "wide.png", load(tmp_path / "model"))
    size = (CONFIG.height, CONFIG.width)
    assert np.array_equal(scene.numpy(), fit_picture(pixels.transpose(2, 0, 1), size, fit))
    assert bool((scene == 255).any()) == (fit != "crop"), "only the middle of it, without the mark"


def test_a_fit_that_does_not_exist_is_no_valid_description(tmp_path: Path) -> None:
    save(tiny_agent(), tmp_path)
    (tmp_path / "model.json").write_text((tmp_path / "model.json").read_text().replace('"crop"', '"squeeze"'))
    with pytest.raises(ModelFolderError, match="fit is 'squeeze'"):
        load(tmp_path)


def test_a_missing_picture_is_named_however_it_was_given(tmp_path: Path) -> None:
    agent = tiny_agent(replace(CONFIG, channels=3))
    for path in (tmp_path / "none.png", str(tmp_path / "none.png")):
        with pytest.raises(DataError) as error:
            read_scene(path, agent)
        assert str(error.value) == f"{tmp_path / 'none.png'}: is missing"
