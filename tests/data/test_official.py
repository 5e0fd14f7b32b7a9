from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from infogaze.data.inspection import check
from infogaze.data.options import ReadOptions
from infogaze.data.reading import in_memory
from infogaze.data.registry import read_set
from infogaze.errors import DataError
from tests.support.sets import CINIC10, noise, write_cinic10, write_image, write_tinyimagenet

UNMERGED = ReadOptions(merge_validation=False)


def nchw(images: np.ndarray) -> np.ndarray:
    return images.transpose(0, 3, 1, 2)


@pytest.mark.parametrize("folder", ["", "CINIC-10"])
def test_cinic10_comes_back_exactly_with_valid_in_the_training_split(tmp_path: Path, folder: str) -> None:
    made = write_cinic10(tmp_path / folder)
    found = in_memory(read_set("cinic10", tmp_path))
    assert found.classes == CINIC10
    pairs = [part[2 * label : 2 * label + 2] for label in range(10) for part in (made["train"], made["valid"])]
    assert np.array_equal(found.train.images.numpy(), nchw(np.concatenate(pairs)))
    assert found.train.labels.tolist() == [label for label in range(10) for _ in range(4)]
    assert np.array_equal(found.test.images.numpy(), nchw(made["test"]))


def test_cinic10_can_leave_valid_out_and_do_without_it(tmp_path: Path) -> None:
    made = write_cinic10(tmp_path)
    assert np.array_equal(in_memory(read_set("cinic10", tmp_path, UNMERGED)).train.images.numpy(), nchw(made["train"]))
    (tmp_path / "valid").rename(tmp_path / ".elsewhere")
    assert np.array_equal(in_memory(read_set("cinic10", tmp_path)).train.images.numpy(), nchw(made["train"]))


def test_all_that_is_wrong_with_cinic10_is_listed(tmp_path: Path) -> None:
    write_cinic10(tmp_path)
    (tmp_path / "train" / "bird").rename(tmp_path / "train" / "birds")
    for file in (tmp_path / "test" / "cat").iterdir():
        file.unlink()
    write_image(tmp_path / "valid" / "dog" / "0.png", noise(0, 31, 32, 3))
    (tmp_path / "valid" / "frog" / "1.png").write_text("no image")
    assert {str(problem) for problem in check("cinic10", tmp_path).problems} == {
        f"{tmp_path}/train/bird: missing class folder",
        f"{tmp_path}/train/birds: is no class of CINIC-10",
        f"{tmp_path}/test/cat: is a class without images",
        f"{tmp_path}/valid/dog/0.png: is 31x32, not 32x32",
        f"{tmp_path}/valid/frog/1.png: is no image that Pillow can read",
    }


@pytest.mark.parametrize("folder", ["", "tiny-imagenet-200"])
def test_tinyimagenet_has_the_jpegs_of_both_splits_in_the_order_of_wnids(tmp_path: Path, folder: str) -> None:
    home = tmp_path / "root" / folder
    write_tinyimagenet(home)
    found = in_memory(read_set("tinyimagenet", tmp_path / "root"))
    assert found.classes == ("pier", "crane (n01)", "crane (n02)")
    assert found.train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert found.test.labels.tolist() == [2, 0, 1, 2]
    with Image.open(home / "train" / "n01" / "images" / "n01_1.JPEG") as file:
        assert np.array_equal(found.train.images[3].numpy(), np.asarray(file).transpose(2, 0, 1))
    with Image.open(home / "val" / "images" / "val_3.JPEG") as file:
        assert np.array_equal(found.test.images[3].numpy(), np.asarray(file).transpose(2, 0, 1))
    with Image.open(home / "train" / "n03" / "images" / "n03_0.JPEG") as file:
        assert file.mode == "L"
        assert np.array_equal(found.train.images[0].numpy(), np.stack([np.asarray(file)] * 3))


def test_tinyimagenet_without_words_names_its_classes_by_wnid(tmp_path: Path) -> None:
    write_tinyimagenet(tmp_path / "root")
    (tmp_path / "root" / "words.txt").unlink()
    assert read_set("tinyimagenet", tmp_path / "root").classes == ("n03", "n01", "n02")


def test_all_that_is_wrong_with_tinyimagenet_is_listed(tmp_path: Path) -> None:
    home = tmp_path / "root"
    write_tinyimagenet(home)
    truncated = home / "train" / "n01" / "images" / "n01_0.JPEG"
    truncated.write_bytes(truncated.read_bytes()[:800])
    for file in (home / "train" / "n02" / "images").iterdir():
        file.unlink()
    (home / "val" / "images" / "val_1.JPEG").unlink()
    annotations = home / "val" / "val_annotations.txt"
    annotations.write_text(annotations.read_text().replace("n01", "n77"))
    problems = [str(problem) for problem in check("tinyimagenet", home).problems]
    assert problems[:2] == [
        f"{home}/train/n02/images: is a class without images",
        f"{annotations}: line 3: 'n77' is not a class of wnids.txt",
    ]
    assert problems[2].startswith(f"{truncated}: is damaged: ")
    assert problems[3:] == [f"{home}/val/images/val_1.JPEG: is missing"]


@pytest.mark.parametrize("name", ["wnids.txt", "val/val_annotations.txt"])
def test_a_missing_list_of_tinyimagenet_is_named(tmp_path: Path, name: str) -> None:
    write_tinyimagenet(tmp_path / "root")
    (tmp_path / "root" / name).unlink()
    with pytest.raises(DataError, match=f"{name}: is missing"):
        read_set("tinyimagenet", tmp_path / "root")
