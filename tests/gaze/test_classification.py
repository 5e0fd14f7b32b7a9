from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from infogaze import Agent, ImageSensor, InfogazeError, ModelFolderError, RandomPolicy, load, sample_picture, save
from infogaze.errors import DataError
from infogaze.gaze.agent import Picture
from infogaze.nn.typicality import fit_typicality
from infogaze.pictures import Fit, fit_picture
from tests.support.tiny import CONFIG, tiny_agent

SIZE = (CONFIG.height, CONFIG.width)


def agent_for(channels: int) -> Agent:
    return tiny_agent(replace(CONFIG, channels=channels))


def pixels(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def test_a_path_may_be_a_string() -> None:
    agent = agent_for(3)
    assert torch.equal(agent.classify(str(sample_picture())).scene, agent.classify(sample_picture()).scene)


@pytest.mark.parametrize("fit", ["crop", "resize", "pad"])
def test_a_picture_is_brought_to_size_as_in_training(fit: Fit, tmp_path: Path) -> None:
    marked = np.zeros((20, 60, 3), np.uint8)
    marked[:, :15] = 255  # a mark at the far left
    Image.fromarray(marked).save(tmp_path / "wide.png")
    agent = agent_for(3)
    agent.fit = fit
    save(agent, tmp_path / "model")
    scene = load(tmp_path / "model").classify(tmp_path / "wide.png").scene
    assert np.array_equal(scene.numpy(), fit_picture(marked.transpose(2, 0, 1), SIZE, fit))
    assert bool((scene == 255).any()) == (fit != "crop"), "only the middle of it, without the mark"


def test_a_fit_that_does_not_exist_is_no_valid_description(tmp_path: Path) -> None:
    save(tiny_agent(), tmp_path)
    (tmp_path / "model.json").write_text((tmp_path / "model.json").read_text().replace('"crop"', '"squeeze"'))
    with pytest.raises(ModelFolderError, match="fit is 'squeeze'"):
        load(tmp_path)


def test_a_missing_picture_is_named_however_it_was_given(tmp_path: Path) -> None:
    agent = agent_for(3)
    for path in (tmp_path / "none.png", str(tmp_path / "none.png")):
        with pytest.raises(DataError, match="missing") as error:
            agent.classify(path)
        assert str(tmp_path / "none.png") in str(error.value)


Given = Callable[[np.ndarray], Picture]
GREY: dict[str, Given] = {
    "PIL": Image.fromarray,
    "[H, W]": lambda grey: grey,
    "[H, W, C]": lambda grey: grey[..., None],
    "[C, H, W]": lambda grey: grey[None],
    "float": lambda grey: grey / 255,
    "tensor": torch.from_numpy,
    "a view": lambda grey: np.ascontiguousarray(grey[:, ::-1])[:, ::-1],
}
COLOUR: dict[str, Given] = {
    "PIL": Image.fromarray,
    "[H, W, C]": lambda colour: colour,
    "[C, H, W]": lambda colour: colour.transpose(2, 0, 1),
    "float": lambda colour: colour.astype(np.float32) / 255,
    "tensor": lambda colour: torch.from_numpy(colour).permute(2, 0, 1),
    "a view": lambda colour: np.ascontiguousarray(colour[::-1])[::-1],
}


@pytest.mark.parametrize("size", [SIZE, (40, 23)], ids=["its own size", "another size"])
@pytest.mark.parametrize(
    ("channels", "given"),
    [pytest.param(1, given, id=f"grey {form}") for form, given in GREY.items()]
    + [pytest.param(3, given, id=f"colour {form}") for form, given in COLOUR.items()],
)
def test_a_picture_is_the_same_from_a_file_from_memory_and_in_any_layout(
    channels: int, given: Given, size: tuple[int, int], tmp_path: Path
) -> None:
    drawn = pixels(*size) if channels == 1 else pixels(*size, 3)
    Image.fromarray(drawn).save(tmp_path / "picture.png")
    agent = agent_for(channels)
    from_file, from_memory = agent.classify(tmp_path / "picture.png"), agent.classify(given(drawn))
    assert torch.equal(from_memory.scene, from_file.scene)
    assert from_memory.label == from_file.label
    torch.testing.assert_close(from_memory.probabilities, from_file.probabilities)


def test_a_grey_array_is_colour_for_a_model_of_colour() -> None:
    grey, agent = pixels(*SIZE), agent_for(3)
    assert torch.equal(agent.classify(grey).scene, agent.classify(np.stack([grey] * 3, -1)).scene)


def test_a_classification_is_the_episode_over_the_scene() -> None:
    agent = agent_for(3)
    found = agent.classify(pixels(*SIZE, 3), budget=3, seed=7, first=(2, 4))
    episode = agent.run(ImageSensor(found.scene[None], CONFIG.glimpse_size), 3, seed=7, first=(2, 4))
    for look, same in zip(found.episode.history, episode.history, strict=True):
        assert torch.equal(look.location, same.location)
    torch.testing.assert_close(found.probabilities, episode.probabilities[0])
    assert found.label == agent.classes[int(episode.probabilities[0].argmax())]
    covered = {(row + i, col + j) for row, col in (look.location[0].tolist() for look in found.episode.history)
               for i in range(CONFIG.glimpse_size) for j in range(CONFIG.glimpse_size)}  # fmt: skip
    assert found.seen == pytest.approx(len(covered) / (CONFIG.height * CONFIG.width))


def test_a_classification_says_whether_the_scene_is_like_those_of_training() -> None:
    agent = agent_for(3)
    assert not agent.classify(pixels(*SIZE, 3)).out_of_distribution, "who cannot tell says no"
    generator = torch.Generator().manual_seed(0)
    dark = torch.randint(0, 60, (300, 3, CONFIG.glimpse_size, CONFIG.glimpse_size), generator=generator)
    with torch.no_grad():
        agent.typicality = fit_typicality(agent.model.backbone.features(dark / 127.5 - 1.0).view(100, 3, -1))
    assert not agent.classify(pixels(*SIZE, 3) % 60).out_of_distribution
    assert agent.classify(255 - pixels(*SIZE, 3) % 60).out_of_distribution


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (pixels(2, 3, 13, 11), r"\(2, 3, 13, 11\).*\[H, W\], \[H, W, C\] or \[C, H, W\]"),
        (pixels(5, 13, 11), r"\(5, 13, 11\)"),
        (pixels(13, 11, 3).astype(np.int64), "int64"),
        (pixels(13, 11, 3).astype(np.float64), r"\[0, 1\]"),
        (np.full((13, 11, 3), np.nan), "NaN"),
        (pixels(3, 3, 3), "3x3 pixels, smaller than a glimpse of 4x4"),
    ],
    ids=["a batch", "five channels", "integers", "floats above 1", "NaN", "too small"],
)
def test_bad_arrays_are_refused_by_name(given: np.ndarray, words: str) -> None:
    with pytest.raises(InfogazeError, match=words):
        agent_for(3).classify(given)


def test_a_model_of_other_channels_takes_arrays_of_its_own_size_and_no_files() -> None:
    agent = agent_for(5)
    assert agent.classify(pixels(5, *SIZE)).scene.shape == (5, *SIZE)
    with pytest.raises(InfogazeError, match="5 channels"):
        agent.classify(sample_picture())
    with pytest.raises(InfogazeError, match="40x23.*13x11"):
        agent.classify(pixels(5, 40, 23))
    with pytest.raises(InfogazeError, match="3 channels.*5"):
        agent.classify(pixels(3, *SIZE))


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
@pytest.mark.parametrize("policy", [None, RandomPolicy()], ids=["by gain", "at random"])
def test_a_plot_is_written_where_and_as_it_is_asked_for(
    ending: str, policy: RandomPolicy | None, tmp_path: Path
) -> None:
    found, path = agent_for(3).classify(pixels(*SIZE, 3), policy=policy), tmp_path / "new" / f"look{ending}"
    figure = found.plot(path)
    assert len(figure.axes) > 0
    begins = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
    assert path.read_bytes().startswith(begins[ending])
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_plot_of_no_known_kind_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    found = agent_for(1).classify(pixels(*SIZE))
    for path in (tmp_path / "look.txt", tmp_path):
        with pytest.raises(InfogazeError, match=".png"):
            found.plot(path)
    assert not list(tmp_path.iterdir())
