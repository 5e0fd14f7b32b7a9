"""`infogaze init`: the settings it writes fit the pictures, and training takes them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import infogaze
from infogaze.cli.main import main
from infogaze.cli.settings import read_run_file, resolved_changes, resolved_options, resolved_preset, resolved_recipe
from infogaze.data.registry import load_set
from infogaze.errors import InfogazeError
from infogaze.presets import preset
from infogaze.runs import read_config
from infogaze.tasks.init import describe_pictures, run_file, scene_size
from infogaze.tasks.sizes import MANY_LOCATIONS, suggest_sizes
from infogaze.training.recipe import recipe
from infogaze.typed import override
from tests.support.calls import refused
from tests.support.own import QUICK, write_pictures
from tests.support.sets import noise, write_image


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFOGAZE_CACHE", str(tmp_path / "cache"))


def init(folder: Path, out: Path, *more: str) -> dict[str, Any]:
    """What the file says that is written."""
    main(["init", str(folder), "--out", str(out), *more])
    return tomllib.loads(out.read_text())


def alike(root: Path) -> Path:
    return write_pictures(root)


def mixed(root: Path) -> Path:
    return write_pictures(root, sizes=((20, 24), (40, 30), (20, 24)))


def all_differ(root: Path) -> Path:
    return write_pictures(root, sizes=tuple((16 + 2 * k, 40 - 2 * k) for k in range(10)))


def split(root: Path) -> Path:
    write_pictures(root / "train")
    write_pictures(root / "test", count=4, first=100)
    return root


def grey(root: Path) -> Path:
    return write_pictures(root, channels=1)


@pytest.mark.parametrize("make", [alike, mixed, all_differ, split, grey])
def test_training_takes_the_file_as_it_is_and_trains_by_it(make: Any, tmp_path: Path) -> None:
    said = init(make(tmp_path / "pictures"), tmp_path / "run.toml")
    run = tmp_path / "run"
    main(["train", "--config", str(tmp_path / "run.toml"), "--out", str(run), *QUICK])
    agent, config = infogaze.load(run), read_config(run)
    assert agent.origin is not None
    sizes = agent.origin.config
    assert [sizes.height, sizes.width] == said["read"]["size"]
    assert sizes.channels == said["read"]["channels"] == (1 if make is grey else 3)
    assert (sizes.glimpse_size, sizes.stride) == (said["model"]["glimpse_size"], said["model"]["stride"])
    assert agent.classes == ("dark", "light")
    assert agent.num_looks == said["num_looks"]
    assert agent.fit == said["read"]["fit"]
    assert config.val_fraction == said["val_fraction"] == 0.1
    assert (config.method, config.seed, config.preset.name) == ("infogaze", 0, "own")


@pytest.mark.parametrize("make", [alike, mixed, all_differ, split, grey])
def test_the_pictures_can_be_read_by_the_file_and_have_the_sizes_that_fit_them(make: Any, tmp_path: Path) -> None:
    said = init(make(tmp_path / "pictures"), tmp_path / "run.toml")
    file = read_run_file(tmp_path / "run.toml")
    images = load_set("folder", file.root, resolved_options(file, {}))
    height, width = said["read"]["size"]
    assert images.train.images.shape[1:] == (said["read"]["channels"], height, width)
    sizes = suggest_sizes(height, width)
    assert (said["model"]["glimpse_size"], said["model"]["stride"]) == (sizes.glimpse_size, sizes.stride)
    assert said["num_looks"] == sizes.num_looks


def test_the_size_of_all_is_their_own_or_the_most_frequent_or_the_middle_one(tmp_path: Path) -> None:
    found = [scene_size(describe_pictures(make(tmp_path / make.__name__))) for make in (alike, mixed, all_differ)]
    assert found == [(20, 24), (20, 24), (26, 32)]


def test_large_pictures_are_brought_to_a_size_that_can_be_imagined(tmp_path: Path) -> None:
    write_pictures(tmp_path / "pictures", count=1, sizes=((900, 1200),))
    said = init(tmp_path / "pictures", tmp_path / "run.toml")
    height, width = said["read"]["size"]
    assert max(height, width) <= 256
    assert height / width == pytest.approx(900 / 1200, rel=0.02)
    assert suggest_sizes(height, width).num_locations <= MANY_LOCATIONS


def test_the_file_changes_only_what_it_says_in_preset_and_recipe(tmp_path: Path) -> None:
    said = init(alike(tmp_path / "pictures"), tmp_path / "run.toml")
    file = read_run_file(tmp_path / "run.toml")
    assert resolved_recipe(file, said["recipe"]["name"], {}) == recipe("own")
    ours, own = override(resolved_preset(file, None), resolved_changes(file, {})), preset("own")
    assert ours.model.latent_size == own.model.latent_size
    assert (ours.beta, ours.learning_rates, ours.dropout) == (own.beta, own.learning_rates, own.dropout)


def test_what_is_known_of_the_pictures_stands_in_the_file(tmp_path: Path) -> None:
    write_pictures(tmp_path / "pictures", [f"class {k}" for k in range(9)], count=2)
    init(tmp_path / "pictures", tmp_path / "run.toml")
    text = (tmp_path / "run.toml").read_text()
    assert "18 pictures of 9 classes" in text
    assert "class 0" in text
    assert "class 8" not in text, "a long list is cut"
    assert all("#" in line for line in text.splitlines() if line.startswith(("preset", "num_looks", "size", "stride")))


def test_the_command_says_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init(alike(tmp_path / "pictures"), tmp_path / "new" / "run.toml")
    assert f"infogaze train --config {tmp_path / 'new' / 'run.toml'} --out RUN" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["pictures", 'my "best" pictures', "ein Ordner/päckchen", "back\\slash", "it's"])
def test_the_root_is_found_from_the_file_whatever_it_is_called(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alike(tmp_path / name)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    init(Path(name), Path("settings") / "run.toml")
    monkeypatch.chdir(tmp_path / "elsewhere")
    root = read_run_file(Path("..") / "settings" / "run.toml").root
    assert root is not None
    assert Path(root).samefile(tmp_path / name)


def test_a_file_that_is_there_is_written_over_only_where_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alike(tmp_path / "pictures")
    (tmp_path / "run.toml").write_text("seed = 7\n")
    line = refused(capsys, "init", tmp_path / "pictures", "--out", tmp_path / "run.toml")
    assert all(word in line for word in (str(tmp_path / "run.toml"), "--overwrite", "--out"))
    assert (tmp_path / "run.toml").read_text() == "seed = 7\n"
    assert init(tmp_path / "pictures", tmp_path / "run.toml", "--overwrite")["seed"] == 0


def test_what_is_no_folder_of_pictures_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def line() -> str:
        said = refused(capsys, "init", tmp_path / "pictures", "--out", tmp_path / "run.toml")
        assert not (tmp_path / "run.toml").exists()
        return said

    assert "pictures: no such folder" in line()
    (tmp_path / "pictures").mkdir()
    assert "holds no class folders" in line()
    (tmp_path / "pictures" / "dark").mkdir()
    assert "dark" in line()
    write_image(tmp_path / "pictures" / "dark" / "0.png", noise(0, 20, 20))
    (tmp_path / "pictures" / "dark" / "notes.txt").write_text("no picture")
    assert "notes.txt" in line()


@pytest.mark.parametrize(("height", "width"), [(1, 1), (6, 40), (8, 8)])
def test_pictures_too_small_to_look_around_in_are_refused_with_their_size(
    height: int, width: int, tmp_path: Path
) -> None:
    write_pictures(tmp_path, count=2, sizes=((height, width),))
    with pytest.raises(InfogazeError, match=f"{height}x{width}"):
        run_file(tmp_path, describe_pictures(tmp_path))
