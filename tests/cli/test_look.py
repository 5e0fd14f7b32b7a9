"""`infogaze look`: what it writes, what it refuses before it looks, and what it says of its looks."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from PIL import Image

import infogaze
from infogaze import Agent, CalibratedStop, GainPolicy, Origin, Policy, RandomPolicy, RasterPolicy
from infogaze.cli.main import main
from infogaze.data.options import ReadOptions
from infogaze.data.reading import in_memory
from infogaze.data.registry import read_set
from infogaze.gaze.classification import scene_of
from infogaze.methods.registry import build_for
from infogaze.models import make_agent, store_stop
from infogaze.nn.typicality import Typicality
from tests.support.calls import refused
from tests.support.tiny import CONFIG, tiny_agent

STOP: Any = {"rule": "confidence", "budget": 4, "gap": 0.01, "delta": 0.05, "by_look": False, "scenes": 900}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The folder of a model of 30 locations that takes colours."""
    infogaze.save(tiny_agent(replace(CONFIG, channels=3)), tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path / "picture.png"
    Image.fromarray(rng.integers(0, 255, (40, 60), dtype=np.uint8)).save(path)
    return path


def looks_told(said: str) -> list[list[str]]:
    """Number, row, column, label, probability and entropy of each look that was printed."""
    lines = said.splitlines()
    (head,) = [number for number, line in enumerate(lines) if line.startswith("look ")]
    return [line.split() for line in lines[head + 1 :] if line.split()[0].isdigit()]


@pytest.mark.parametrize(
    ("ending", "begin"),
    [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("jpg", b"\xff\xd8\xff"), ("JPEG", b"\xff\xd8\xff")],
)
def test_the_picture_is_of_the_kind_that_its_name_says(ending: str, begin: bytes, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / f"seen.{ending}"
    main(["look", "--model", str(model), "--out", str(out), "--budget", "2"])
    first = out.read_bytes()
    assert first.startswith(begin)
    assert ending != "svg" or b"<svg" in first
    main(["look", "--model", str(model), "--out", str(out), "--budget", "2", "--overwrite"])
    assert out.read_bytes() == first, "the same looks give the same file"


def test_a_picture_that_is_there_is_written_over_only_where_that_is_asked_for(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "seen.png"
    out.write_bytes(b"a picture of my own")
    with monkeypatch.context() as patch:
        patch.setattr("infogaze.cli.look.load", lambda name, **given: pytest.fail(f"{name} was loaded"))
        line = refused(capsys, "look", "--model", model, "--out", out, "--budget", "2")
    assert all(word in line for word in (str(out), "--overwrite", "--out"))
    assert out.read_bytes() == b"a picture of my own"
    main(["look", "--model", str(model), "--out", str(out), "--budget", "2", "--overwrite"])
    assert out.read_bytes().startswith(b"\x89PNG")


def test_look_prints_the_labels_it_knows(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["look", "--model", str(model), "--out", str(tmp_path / "seen.png"), "--budget", "1"])
    said = " ".join(capsys.readouterr().out.split())
    assert "3 labels" in said
    assert "class 0, class 1, class 2" in said


@pytest.mark.parametrize("threshold", [0.0, 1e9])
def test_look_warns_of_a_scene_unlike_those_of_training(
    threshold: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = tiny_agent(replace(CONFIG, channels=3))
    agent.typicality = Typicality(torch.zeros(CONFIG.feature_size), torch.eye(CONFIG.feature_size), threshold)
    infogaze.save(agent, tmp_path / "model")
    main(["look", "--model", str(tmp_path / "model"), "--out", str(tmp_path / "seen.png"), "--budget", "2"])
    warned = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning")]
    assert len(warned) == (threshold == 0.0)
    assert not warned or "unlike" in warned[0]


@pytest.mark.parametrize("name", ["folder", "folder.png", "seen.tiff", "seen", "seen.png.txt"])
def test_where_no_picture_can_go_is_refused_before_a_look(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded(name: str, **given: object) -> None:
        raise AssertionError(f"{name} was loaded")

    monkeypatch.setattr("infogaze.cli.look.load", loaded)
    for folder in ("folder", "folder.png"):
        (tmp_path / folder).mkdir()
    line = refused(capsys, "look", "--out", tmp_path / name)
    assert str(tmp_path / name) in line
    assert ("a folder" in line) == name.startswith("folder")
    assert all(ending in line for ending in (".png", ".svg", ".pdf", ".jpg", ".jpeg"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "folder.png"], "nothing is left behind"


def test_a_budget_beyond_the_locations_says_so_and_makes_no_wider_a_picture(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    widths = []
    for budget in (8, 30, 60):
        out = tmp_path / f"{budget}.png"
        main(["look", "--model", str(model), "--out", str(out), "--budget", str(budget)])
        said = capsys.readouterr().out
        assert len(looks_told(said)) == min(budget, 30)
        assert ("all 30 locations were looked at, after 30 of 60 looks" in said) == (budget == 60)
        with Image.open(out) as drawn:
            widths.append(drawn.width)
    assert len(set(widths)) == 1


def test_a_model_saved_with_flip_tta_looks_without_it_only_where_it_is_asked_to(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = infogaze.load(model)
    both.flip_tta = True
    infogaze.save(both, tmp_path / "flip")
    said = {}
    for saved in ("model", "flip"):
        for option in ("", "--flip-tta", "--no-flip-tta"):
            asked = ["look", "--model", str(tmp_path / saved), "--out", str(tmp_path / "look.png"), "--overwrite"]
            main([*asked, option] if option else asked)
            said[saved, option] = looks_told(capsys.readouterr().out)
    assert said["model", ""] == said["model", "--no-flip-tta"] == said["flip", "--no-flip-tta"]
    assert said["flip", ""] == said["flip", "--flip-tta"] == said["model", "--flip-tta"]
    assert said["model", ""] != said["flip", ""]


def test_look_refuses_what_is_no_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path, picture: Path) -> None:
    text = tmp_path / "notes.png"
    text.write_text("no picture")
    assert "notes.png: is no image" in refused(capsys, "look", str(text))
    half = tmp_path / "half.png"
    half.write_bytes(picture.read_bytes()[:200])
    assert "half.png: is damaged" in refused(capsys, "look", str(half))
    empty = tmp_path / "empty.jpg"
    empty.write_bytes(b"")
    assert "empty.jpg: is an empty file" in refused(capsys, "look", str(empty))
    assert "nowhere.png: is missing" in refused(capsys, "look", str(tmp_path / "nowhere.png"))
    assert "is a folder, not an image" in refused(capsys, "look", str(tmp_path))
    small = tmp_path / "small.png"
    Image.new("L", (20, 7)).save(small)
    assert "small.png: 7x20 pixels, smaller than a glimpse of 8x8" in refused(capsys, "look", str(small))
    floats = tmp_path / "floats.tiff"
    Image.new("F", (40, 40)).save(floats)
    assert "floats.tiff: has pixels of mode F" in refused(capsys, "look", str(floats))
    assert "no such folder" in refused(capsys, "look", str(picture), "--model", str(tmp_path / "no-model"))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I", "I;16"])
@pytest.mark.parametrize("size", [(8, 8), (500, 300), (31, 97)])
def test_look_takes_pictures_of_any_mode_and_size(mode: str, size: tuple[int, int], tmp_path: Path) -> None:
    path = tmp_path / ("picture.tiff" if mode in {"CMYK", "YCbCr", "I"} else "picture.png")
    values = np.random.default_rng(1).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    source = Image.fromarray(values)
    (source.convert("L").convert("I").convert("I;16") if mode == "I;16" else source.convert(mode)).save(path)
    main(["look", str(path), "--out", str(tmp_path / "seen.png"), "--budget", "2", "--num-samples", "2"])
    with Image.open(tmp_path / "seen.png") as drawn:
        assert drawn.size[0] > 300


@pytest.mark.parametrize("ending", ["png", "jpg", "webp"])
def test_look_prints_a_line_a_look_and_draws_the_rollout(
    ending: str, tmp_path: Path, picture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"other.{ending}"
    with Image.open(picture) as opened:
        opened.save(path)
    out = tmp_path / "new" / "seen.png"
    main(["look", str(path), "--out", str(out), "--budget", "3", "--num-samples", "2", "--model", "digits"])
    said = capsys.readouterr().out
    assert [look[0] for look in looks_told(said)] == ["0", "1", "2"]
    assert f"% of the scene; drawn in {out}" in said
    with Image.open(out) as drawn:
        assert drawn.format == "PNG"


def test_look_opens_a_folder_and_fits_the_picture_to_its_scenes(tmp_path: Path, picture: Path) -> None:
    infogaze.save(tiny_agent(replace(CONFIG, channels=3)), tmp_path / "model")
    main(["look", str(picture), "--model", str(tmp_path / "model"), "--out", str(tmp_path / "seen.png")])
    assert (tmp_path / "seen.png").stat().st_size > 1000


def seen(path: Path, agent: Agent) -> torch.Tensor:
    """The scene that a picture becomes."""
    assert agent.origin is not None
    return scene_of(path, agent.model.grid, channels=agent.origin.config.channels, fit=agent.fit)


def deep(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 65536, (40, 60), dtype=np.uint16)


def transparent(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 256, (40, 60, 4), dtype=np.uint8)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("drawn", [deep, transparent])
def test_look_and_a_set_read_the_same_pixels(
    drawn: Callable[[np.random.Generator], np.ndarray], channels: Literal[1, 3], tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    for name in ("one/a", "one/b", "other/a", "other/b"):
        path = tmp_path / "set" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(drawn(rng)).save(path)
    agent = tiny_agent(replace(CONFIG, channels=channels))
    grid = agent.model.grid
    options = ReadOptions(size=(grid.height, grid.width), fit="crop", channels=channels, test_share=0.5)
    pictures = in_memory(read_set("folder", tmp_path / "set", options))
    in_the_set = sorted(pictures.train.images.tolist() + pictures.test.images.tolist())
    looked_at = [seen(path, agent).tolist() for path in (tmp_path / "set").rglob("*.png")]
    assert sorted(looked_at) == in_the_set


def test_a_sideways_photograph_is_turned_upright(tmp_path: Path) -> None:
    agent = infogaze.load("digits")
    upright = Image.new("L", (64, 64))
    upright.paste(255, (0, 0, 64, 32))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned a quarter to the left
    sideways = io.BytesIO()
    upright.rotate(90).save(sideways, "png", exif=exif)
    (tmp_path / "photo.png").write_bytes(sideways.getvalue())
    scene = seen(tmp_path / "photo.png", agent)
    assert scene[0, :12].float().mean() > 240
    assert scene[0, 20:].float().mean() < 15


@pytest.mark.parametrize("method", ["ram", "discriminative", "cnn"])
def test_look_chooses_as_the_models_own_method_does(
    method: str, tmp_path: Path, picture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = infogaze.preset("digits").model
    origin = Origin(method=method, config=sizes, num_samples=5)
    infogaze.save(
        make_agent(build_for(method, sizes), tuple("0123456789"), origin=origin, num_looks=7), tmp_path / "model"
    )
    asked = ["look", str(picture), "--model", str(tmp_path / "model"), "--out", str(tmp_path / "look.png")]
    main(asked)
    assert (tmp_path / "look.png").exists()
    line = refused(capsys, *asked, "--overwrite", "--policy", "gain")
    assert all(word in line for word in ("'gain'", method, "own, random or raster"))


def test_flip_tta_changes_what_is_believed_and_not_where_is_looked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    for options in (["--no-flip-tta"], ["--flip-tta"], []):
        main(["look", "--out", str(tmp_path / "look.png"), "--overwrite", *options])
        told.append(looks_told(capsys.readouterr().out))
    alone, flipped, as_saved = told
    assert [look[:3] for look in alone] == [look[:3] for look in flipped], "looks are at the same locations"
    assert alone[0] != flipped[0], "and tell something else"
    assert as_saved == flipped, "cifar10-plus has it on"


def test_look_without_a_picture_looks_at_the_sample_with_the_bundled_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["look", "--seed", "3", "--out", str(tmp_path / "look.png")])
    assert (tmp_path / "look.png").exists()
    said = capsys.readouterr().out.splitlines()
    assert any(line.startswith("ship, from ") for line in said)
    assert not any(line.startswith("warning") for line in said)


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        ([], GainPolicy(5)),
        (["--num-samples", "9"], GainPolicy(9)),
        (["--policy", "gain", "--num-samples", "2"], GainPolicy(2)),
        (["--policy", "random"], RandomPolicy()),
        (["--policy", "raster"], RasterPolicy()),
    ],
)
def test_looks_are_chosen_as_asked_and_else_as_the_model_was_saved(
    options: list[str], policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = tiny_agent(replace(CONFIG, channels=3), num_samples=5)
    monkeypatch.setattr("infogaze.cli.look.load", lambda name, **given: agent)
    chosen_by, classify = [], Agent.classify

    def noted(looking: Agent, *given: Any, **options: Any) -> infogaze.Classification:
        chosen_by.append(looking.policy)
        return classify(looking, *given, **options)

    monkeypatch.setattr(Agent, "classify", noted)
    main(["look", "--out", str(tmp_path / "look.png"), *options])
    assert chosen_by == [policy]


def test_a_model_with_a_calibrated_rule_stops_by_it_unless_told_otherwise(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_stop(model, CalibratedStop(**STOP, thresholds=(None, 0.01, 0.01)))

    def looked(*options: str) -> str:
        main(["look", "--model", str(model), "--out", str(tmp_path / "look.png"), "--overwrite", *options])
        return capsys.readouterr().out

    said = looked()
    assert len(looks_told(said)) == 2
    assert "the rule said to stop after 2 of 4 looks" in said
    for options in (["--no-stop"], ["--policy", "random"], ["--num-samples", "3"], ["--flip-tta"], ["--budget", "5"]):
        said = looked(*options)
        assert len(looks_told(said)) == (5 if "--budget" in options else 4)
        assert "the rule" not in said
