from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infogaze.data.folder import split_by_seed
from infogaze.data.inspection import check
from infogaze.data.options import ReadOptions
from infogaze.data.reading import in_memory
from infogaze.data.registry import load_set, read_set
from infogaze.errors import DataError
from tests.support.sets import noise, write_image


def write_classes(folder: Path, names: tuple[str, ...] = ("cat", "dog"), count: int = 4) -> dict[str, np.ndarray]:
    made = {name: noise(seed, count, 6, 5, 3) for seed, name in enumerate(names)}
    for name, images in made.items():
        for k, pixels in enumerate(images):
            write_image(folder / name / f"{k}.png", pixels)
    return made


def test_given_splits_come_back_exactly(tmp_path: Path) -> None:
    train, test = write_classes(tmp_path / "train"), write_classes(tmp_path / "test", ("dog",))
    found = in_memory(read_set("folder", tmp_path))
    assert found.classes == ("cat", "dog")
    assert np.array_equal(found.train.images.numpy(), np.concatenate([*train.values()]).transpose(0, 3, 1, 2))
    assert found.train.labels.tolist() == [0] * 4 + [1] * 4
    assert np.array_equal(found.test.images.numpy(), test["dog"].transpose(0, 3, 1, 2))
    assert found.test.labels.tolist() == [1] * 4


def test_a_folder_without_splits_is_split_into_all_its_images(tmp_path: Path) -> None:
    made = write_classes(tmp_path)
    found = in_memory(read_set("folder", tmp_path, ReadOptions(test_share=0.25, seed=3)))
    assert found.train.labels.tolist() == [0] * 3 + [1] * 3
    assert found.test.labels.tolist() == [0, 1]
    together = np.concatenate([found.train.images.numpy(), found.test.images.numpy()])
    everything = np.concatenate([*made.values()]).transpose(0, 3, 1, 2)
    assert sorted(image.tobytes() for image in together) == sorted(image.tobytes() for image in everything)


class_sizes = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 30), min_size=1, max_size=5)


@given(class_sizes, st.floats(0.01, 0.99), st.integers(0, 5))
def test_a_split_by_seed_shares_out_every_class(sizes: dict[str, int], share: float, seed: int) -> None:
    files = {name: [Path(f"{name}/{k:03}.png") for k in range(count)] for name, count in sizes.items()}
    train, test = split_by_seed(files, share, seed)
    assert (train, test) == split_by_seed(files, share, seed)
    for name, paths in files.items():
        assert sorted([*train[name], *test[name]]) == paths
        assert abs(len(test[name]) - share * len(paths)) <= 1
        assert bool(train[name]) == bool(paths)
        assert bool(test[name]) == (len(paths) > 1)


def test_another_seed_splits_otherwise_and_one_more_image_moves_at_most_one() -> None:
    files = {"a": [Path(f"a/{k:03}.png") for k in range(100)]}
    more = {"a": [*files["a"], Path("a/100.png")]}
    test = set(split_by_seed(files, 0.2, 0)[1]["a"])
    assert test != set(split_by_seed(files, 0.2, 1)[1]["a"])
    assert len(test - set(split_by_seed(more, 0.2, 0)[1]["a"])) <= 1


def test_images_of_any_size_and_mode_become_what_was_asked_for(tmp_path: Path) -> None:
    write_image(tmp_path / "a" / "colour.png", noise(0, 9, 7, 3))
    write_image(tmp_path / "a" / "grey.bmp", noise(1, 30, 4))
    write_image(tmp_path / "b" / "alpha.webp", noise(2, 3, 3, 4))
    write_image(tmp_path / "b" / "photo.jpg", noise(3, 50, 60, 3))
    for channels in (1, 3):
        options = ReadOptions(size=(8, 10), fit="crop", channels=channels, test_share=0.5)
        found = in_memory(read_set("folder", tmp_path, options))
        assert found.train.images.shape == found.test.images.shape == (2, channels, 8, 10)


def test_hidden_files_and_files_beside_the_classes_are_left_alone(tmp_path: Path) -> None:
    write_classes(tmp_path)
    (tmp_path / "README.txt").write_text("about this set")
    (tmp_path / "cat" / ".DS_Store").write_text("")
    (tmp_path / ".git").mkdir()
    assert check("folder", tmp_path).problems == ()


def test_all_that_is_wrong_is_listed_at_once_and_loading_names_the_first(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", ("cat", "dog"))
    write_classes(tmp_path / "test", ("cat", "emu"))
    train = tmp_path / "train"
    (train / "fox").mkdir()
    (train / "cat" / "more").mkdir()
    (train / "cat" / "notes.txt").write_text("not an image")
    (train / "cat" / "nothing.png").write_bytes(b"")
    write_image(train / "dog" / "grey.png", noise(0, 6, 5))
    write_image(train / "dog" / "large.png", noise(0, 60, 50, 3))
    half = write_image(train / "dog" / "half.jpg", noise(0, 6, 5, 3))
    half.write_bytes(half.read_bytes()[:-40])
    findings = check("folder", tmp_path)
    found = {str(problem.path.relative_to(tmp_path)): problem.what for problem in findings.problems}
    assert found.pop("train/dog/half.jpg").startswith("is damaged: ")
    assert re.search("grey among colour.*--read.channels", found.pop("train/dog/grey.png"))
    assert re.search("60x50, not 6x5.*--read.size", found.pop("train/dog/large.png"))
    assert found == {
        "train/fox": "is a class without images",
        "train/cat/more": "is a folder within a class; images lie in the class folder itself",
        "train/cat/notes.txt": "is no image that Pillow can read",
        "train/cat/nothing.png": "is an empty file",
        "test/emu": "is a class that train/ lacks",
    }
    assert findings.counts["train"] == {"cat": 6, "dog": 7, "fox": 0}
    assert findings.counts["test"] == {"cat": 4, "dog": 0, "fox": 0}
    with pytest.raises(DataError) as error:
        load_set("folder", tmp_path, cache=tmp_path / "cache")
    assert str(error.value) == f"{findings.problems[0]} (+7 more)"
    assert error.value.problems == findings.problems


def test_many_images_of_different_sizes_are_one_problem_that_names_the_option(tmp_path: Path) -> None:
    for k in range(200):
        write_image(tmp_path / "ab"[k % 2] / f"{k:03}.png", noise(k, 6, 6 + k % 7, 3))
    (problem,) = check("folder", tmp_path).problems
    assert re.search(r"6x\d+, not 6x\d+.*--read.size.*\b\d+ files", str(problem))
    with pytest.raises(DataError) as error:
        load_set("folder", tmp_path, cache=tmp_path / ".cache")
    assert str(error.value) == str(problem)
    assert check("folder", tmp_path, ReadOptions(size=(6, 6))).problems == ()


def test_problems_of_one_kind_are_told_together_and_others_each_for_itself(tmp_path: Path) -> None:
    write_classes(tmp_path)
    for k in range(3):
        write_image(tmp_path / "cat" / f"large {k}.png", noise(k, 9, 9, 3))
        write_image(tmp_path / "dog" / f"grey {k}.png", noise(k, 6, 5))
        (tmp_path / "dog" / f"text {k}.png").write_text("no image")
    problems = [str(problem) for problem in check("folder", tmp_path).problems]
    assert len(problems) == 5
    assert sum("--read.size" in line and "(3 files" in line for line in problems) == 1
    assert sum("--read.channels" in line and "(3 files" in line for line in problems) == 1
    assert sum("is no image" in line for line in problems) == 3


def test_a_folder_of_no_readable_image_still_lists_them_all(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for k in range(2):
            (tmp_path / name / f"{k}.png").write_text("no image")
    assert len(check("folder", tmp_path).problems) == 4


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ([], "root: no such folder"),
        (["root/.hidden"], "root: holds no class folders"),
        (["root/train/cat"], "root: has train/ but no test/; add it, or give train/ itself as the root"),
        (["root/test/cat"], "root: has test/ but no train/"),
        (["root/train", "root/test"], "root/train: holds no class folders"),
    ],
)
def test_a_folder_that_is_no_set_is_refused_in_one_line(tmp_path: Path, made: list[str], message: str) -> None:
    for folder in made:
        (tmp_path / folder).mkdir(parents=True)
    with pytest.raises(DataError) as error:
        read_set("folder", tmp_path / "root")
    assert str(error.value).startswith(f"{tmp_path}/{message}")


def test_classes_of_one_image_leave_nothing_to_test_on(tmp_path: Path) -> None:
    write_classes(tmp_path, count=1)
    [problem] = check("folder", tmp_path).problems
    assert str(problem) == f"{tmp_path}: has too few images to split off a test set: no class has two"
