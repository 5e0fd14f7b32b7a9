"""`infogaze look` with a mask, and with a sensor that has to get to where it looks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import infogaze
from infogaze import Stage, Travel
from infogaze.cli.main import main
from infogaze.cli.travel import TravelOptions
from infogaze.gaze.classification import allowed_of
from tests.support.calls import refused
from tests.support.tiny import CONFIG, tiny_agent

GRID = CONFIG.grid
L = GRID.num_locations


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The folder of a model of 30 locations that takes colours."""
    infogaze.save(tiny_agent(replace(CONFIG, channels=3)), tmp_path / "model")
    return tmp_path / "model"


def told(capsys: pytest.CaptureFixture[str], model: Path, *options: object) -> tuple[list[list[str]], str]:
    """The words of each line about a look, and all that was said."""
    capsys.readouterr()
    out = str(model.parent / "seen.png")
    main(["look", "--model", str(model), "--out", out, "--overwrite", *map(str, options)])
    said = capsys.readouterr().out
    lines = said.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("look "))
    return [line.split() for line in lines[head + 1 :] if line.split()[0].isdigit()], said


def test_look_says_the_seconds_of_each_look_as_an_episode_does(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    looks, said = told(
        capsys, model, "--speed", 6, 2, "--settle", 0.25, "--exposure", 0.5, "--start", 0, 3, "--seconds", 8
    )
    assert "entropy, nats  seconds" in said
    travel = Travel(way=Stage(speed=(6.0, 2.0), settle=0.25), exposure=0.5, start=(0.0, 3.0))
    episode = infogaze.load(model).classify(infogaze.sample_picture(), travel=travel, seconds=8.0).episode
    assert [float(words[-1]) for words in looks] == [
        pytest.approx(float(look.seconds[0]), abs=0.006) for look in episode.history if look.seconds is not None
    ]
    assert f"no other location can be reached in time, after {len(episode.history)} looks" in said


def test_without_an_option_of_the_way_nothing_is_timed(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "seconds" not in told(capsys, model)[1]
    assert TravelOptions().travel() is None


def test_a_matrix_comes_from_a_file(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = GRID.locations().double()
    np.savetxt(tmp_path / "way.csv", torch.cdist(places, places) / 3.0, delimiter=",")
    looks, _ = told(capsys, model, "--way", tmp_path / "way.csv", "--budget", 3)
    where = torch.tensor([[float(words[1]), float(words[2])] for words in looks])
    taken = torch.tensor([float(words[-1]) for words in looks])
    torch.testing.assert_close(taken.diff(), 1.0 + where.diff(dim=0).norm(dim=1) / 3.0, rtol=0, atol=0.012)


def mask(path: Path, dark: tuple[int, int, int, int], size: tuple[int, int] = (CONFIG.width, CONFIG.height)) -> Path:
    picture = Image.new("L", size, 255)
    picture.paste(0, dark)
    picture.save(path)
    return path


def test_no_glimpse_touches_what_a_mask_has_in_black(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = mask(tmp_path / "mask.png", (0, 0, CONFIG.width, 5))
    looks, said = told(capsys, model, "--allowed", path, "--budget", 30)
    rows = {int(words[1]) for words in looks}
    assert rows == {row for row in GRID.axes()[0].tolist() if row >= 5}
    assert f"all that may be were looked at, after {len(looks)} of 30 looks" in said


def test_a_mask_allows_what_pixel_by_pixel_is_white(tmp_path: Path) -> None:
    path = mask(tmp_path / "mask.png", (4, 6, 6, 9))
    found = allowed_of(path, GRID, fit="crop")
    for place, (row, col) in enumerate(GRID.locations().tolist()):
        touches = row < 9 and row + 4 > 6 and col < 6 and col + 4 > 4
        assert bool(found.flatten()[place]) == (not touches)


def test_bars_beside_a_mask_are_not_dark(tmp_path: Path) -> None:
    wide = mask(tmp_path / "mask.png", (0, 0, 0, 0), size=(44, 13))
    assert bool(allowed_of(wide, GRID, fit="pad").all())


def test_what_makes_no_sense_is_refused(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def line(*options: object) -> str:
        return refused(capsys, "look", "--model", model, "--out", tmp_path / "seen.png", *options)

    assert "--speed has 3 numbers" in line("--speed", 1, 2, 3)
    assert "speed is 0.0" in line("--speed", 0)
    assert "seconds is 0.5; the first look takes 1 at least" in line("--seconds", 0.5)
    assert "nowhere.csv: no such file" in line("--way", tmp_path / "nowhere.csv")
    (tmp_path / "words.csv").write_text("far,near\n")
    assert "words.csv: not lines of numbers" in line("--way", tmp_path / "words.csv")
    np.savetxt(tmp_path / "small.csv", np.zeros((3, 3)), delimiter=",")
    assert f"matrix of 3 places; the grid has {L}" in line("--way", tmp_path / "small.csv")
    assert "--speed and --settle do not go with it" in line("--way", tmp_path / "small.csv", "--speed", 2)
    black = mask(tmp_path / "black.png", (0, 0, CONFIG.width, CONFIG.height))
    assert "black.png: leaves no location" in line("--allowed", black)
