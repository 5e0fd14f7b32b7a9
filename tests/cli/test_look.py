"""`infogaze look`: what it writes, what it refuses before it looks, and what it says of its looks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

import infogaze
from infogaze.cli.main import main
from tests.support.tiny import CONFIG, tiny_agent


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The folder of a model of 20 places that takes colours."""
    infogaze.save(tiny_agent(replace(CONFIG, channels=3)), tmp_path / "model")
    return tmp_path / "model"


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
    main(["look", "--model", str(model), "--out", str(out), "--budget", "2"])
    assert out.read_bytes() == first, "the same looks give the same file"


@pytest.mark.parametrize("name", ["folder", "folder.png", "seen.tiff", "seen", "seen.png.txt"])
def test_where_no_picture_can_go_is_refused_before_a_look(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded(name: str) -> None:
        raise AssertionError(f"{name} was loaded")

    monkeypatch.setattr("infogaze.cli.look.load", loaded)
    for folder in ("folder", "folder.png"):
        (tmp_path / folder).mkdir()
    with pytest.raises(SystemExit) as stop:
        main(["look", "--out", str(tmp_path / name)])
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"infogaze: out is {tmp_path / name}")
    assert ("a folder" in line) == name.startswith("folder")
    assert "ends in .png, .svg, .pdf, .jpg or .jpeg is allowed" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "folder.png"], "nothing is left behind"


def test_a_budget_beyond_the_places_says_so_and_makes_no_wider_a_picture(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    widths = []
    for budget in (8, 30, 60):
        out = tmp_path / f"{budget}.png"
        main(["look", "--model", str(model), "--out", str(out), "--budget", str(budget)])
        lines = capsys.readouterr().out.splitlines()
        looks = [line for line in lines[1:] if line.split()[0].isdigit()]
        assert len(looks) == min(budget, 30)
        assert ("all 30 places were looked at, after 30 of 60 looks" in lines) == (budget == 60)
        with Image.open(out) as drawn:
            widths.append(drawn.width)
    assert len(set(widths)) == 1


def test_a_model_saved_with_a_twin_looks_without_it_only_where_it_is_asked_to(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = infogaze.load(model)
    both.twin = True
    infogaze.save(both, tmp_path / "twin")
    said = {}
    for saved in ("model", "twin"):
        for option in ("", "--twin", "--no-twin"):
            asked = ["look", "--model", str(tmp_path / saved), "--out", str(tmp_path / "look.png")]
            main([*asked, option] if option else asked)
            said[saved, option] = capsys.readouterr().out
    assert said["model", ""] == said["model", "--no-twin"] == said["twin", "--no-twin"]
    assert said["twin", ""] == said["twin", "--twin"] == said["model", "--twin"]
    assert said["model", ""] != said["twin", ""]
