from __future__ import annotations

from pathlib import Path

import pytest
import torch

from infogaze.data.digits import digits
from infogaze.data.options import ReadOptions
from infogaze.data.registry import SETS, load_set
from infogaze.errors import DataError, Problem, collapsed


def test_the_digits_need_no_root_and_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFOGAZE_CACHE", str(tmp_path))
    found, made = load_set("digits", options=ReadOptions(seed=4)), digits(seed=4)
    assert torch.equal(found.train.images, made.train.images)
    assert torch.equal(found.test.labels, made.test.labels)
    assert found.classes == made.classes
    assert not list(tmp_path.iterdir())


def test_unknown_names_options_roots_and_downloads_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no set is called 'mnist'; there are digits, cluttered, svhn, cifar10"):
        load_set("mnist")
    with pytest.raises(
        ValueError, match=r"cifar10 needs --root: a root to --download into, or one that holds cifar-10-batches-py/"
    ):
        load_set("cifar10")
    with pytest.raises(ValueError, match=r"svhn has no option 'channels'; it has size, fit"):
        load_set("svhn", tmp_path, ReadOptions(channels=1))
    with pytest.raises(ValueError, match=r"tinyimagenet cannot be downloaded by infogaze; unpack"):
        load_set("tinyimagenet", tmp_path, download=True)


@pytest.mark.parametrize("name", ["svhn", "cifar10", "cifar100"])
def test_a_download_without_a_root_asks_for_the_folder_to_download_into(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: --download needs --root, the folder to download into$"):
        load_set(name, download=True)


def test_a_set_that_cannot_be_downloaded_does_not_ask_for_a_folder_to_download_into() -> None:
    with pytest.raises(ValueError, match=r"^cinic10 needs --root: unpack CINIC-10"):
        load_set("cinic10", download=True)
    with pytest.raises(ValueError, match=r"^digits cannot be downloaded by infogaze; nothing to get, no root$"):
        load_set("digits", download=True)


def test_every_set_of_a_missing_root_is_refused_in_one_line_that_names_a_file_there(tmp_path: Path) -> None:
    for name, source in SETS.items():
        if source.files is not None:
            with pytest.raises(DataError) as error:
                load_set(name, tmp_path / "nowhere", cache=tmp_path / "cache")
            assert str(error.value).startswith(str(tmp_path / "nowhere")), name
            assert "\n" not in str(error.value)


def test_an_error_counts_the_problems_it_does_not_show() -> None:
    problems = [Problem(Path("a.png"), "is missing"), Problem(Path("b.png"), "two\nlines")]
    assert str(DataError(problems[0])) == "a.png: is missing"
    assert str(DataError(*problems)) == "a.png: is missing (+1 more)"
    assert str(problems[1]) == "b.png: two lines"


def test_problems_of_one_kind_count_as_one_and_say_how_many_they_are() -> None:
    sizes = [Problem(Path(f"{name}.png"), "is 3x4, not 5x5", kind="size") for name in "abc"]
    missing = Problem(Path("d.png"), "is missing")
    assert [str(problem) for problem in collapsed([sizes[0], missing])] == [str(sizes[0]), str(missing)]
    first, second = collapsed([*sizes, missing])
    assert (first.path, second) == (Path("a.png"), missing)
    assert first.what.startswith("is 3x4, not 5x5")
    assert "3" in first.what.removeprefix("is 3x4, not 5x5")
    assert collapsed([first, second]) == (first, second), "once is enough"
    assert str(DataError(*sizes, missing)) == f"{first} (+1 more)"
