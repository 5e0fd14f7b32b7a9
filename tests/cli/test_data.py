"""`infogaze data`: the list, the check and the contact sheet as a user sees them."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from infogaze.cli.main import main
from infogaze.data.registry import SETS
from tests.support.own import write_pictures
from tests.support.sets import noise, write_image


def checked(capsys: pytest.CaptureFixture[str], root: Path, *more: str) -> tuple[int, list[str], str]:
    """Exit code, the lines that were printed, and the line on standard error."""
    capsys.readouterr()
    code: object = 0
    try:
        main(["data", "check", "folder", "--root", str(root), *more])
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr()
    assert isinstance(code, int)
    return code, said.out.splitlines(), said.err


def test_the_list_has_every_set_and_how_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    main(["data", "list"])
    said = capsys.readouterr().out
    for name, source in SETS.items():
        assert f"{name} " in said
        assert source.get in said


def test_a_set_that_can_be_used_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pictures(tmp_path, count=10)
    code, lines, error = checked(capsys, tmp_path)
    assert (code, error) == (0, "")
    assert any("train: 16 images in 2 classes" in line for line in lines)
    assert any("test: 4 images" in line for line in lines)
    assert any("20x24 with 3 channels" in line for line in lines)
    assert "can be used" in lines[-1]


def test_200_pictures_of_different_sizes_are_one_line_that_names_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for k in range(200):
        write_image(tmp_path / "ab"[k % 2] / f"{k:03}.png", noise(k, 20, 20 + k % 9, 3))
    code, lines, error = checked(capsys, tmp_path)
    assert code == 2
    (problem,) = [line for line in lines if ".png" in line]
    assert "--read.size" in problem
    assert "files" in problem
    assert error == "infogaze: folder: 1 problem\n"
    assert checked(capsys, tmp_path, "--read.size", "20", "20")[0] == 0


def test_all_that_is_wrong_is_listed_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pictures(tmp_path, count=4)
    for name in ("one.png", "two.png"):
        (tmp_path / "dark" / name).write_text("no picture")
    code, lines, error = checked(capsys, tmp_path)
    assert code == 2
    assert sum("is no image" in line for line in lines) == 2
    assert error == "infogaze: folder: 2 problems\n"


def test_show_draws_a_sheet_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pictures(tmp_path / "pictures")
    out = tmp_path / "new" / "sheet.png"
    main(["data", "show", "folder", "--root", str(tmp_path / "pictures"), "--out", str(out), "--read.channels", "1"])
    assert capsys.readouterr().out.strip() == str(out)
    with Image.open(out) as sheet:
        assert sheet.format == "PNG"
        assert sheet.width > 300
