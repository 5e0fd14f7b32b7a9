from __future__ import annotations

import pickle
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
from torchvision.datasets import CIFAR10

from infogaze.data.registry import load_set
from infogaze.data.sets import ImageSet
from infogaze.errors import DataError
from tests.support.sets import write_cifar10, write_cifar100, write_svhn


def same(found: ImageSet, made: dict[str, np.ndarray]) -> bool:
    pairs = [
        (found.train.images, made["train_x"]),
        (found.train.labels, made["train_y"]),
        (found.test.images, made["test_x"]),
        (found.test.labels, made["test_y"]),
    ]
    return all(np.array_equal(tensor.numpy(), array) for tensor, array in pairs)


def test_cifar10_comes_back_exactly_from_its_batch_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = write_cifar10(tmp_path, monkeypatch)
    found = load_set("cifar10", tmp_path, cache=tmp_path / "cache")
    assert same(found, made)
    assert found.classes[3] == "class 3"


def test_the_folder_of_the_batch_files_itself_is_a_root_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = write_cifar10(tmp_path, monkeypatch)
    assert same(load_set("cifar10", tmp_path / "cifar-10-batches-py", cache=tmp_path / "cache"), made)


def test_cifar100_comes_back_exactly_with_its_fine_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = write_cifar100(tmp_path, monkeypatch)
    found = load_set("cifar100", tmp_path, cache=tmp_path / "cache")
    assert same(found, made)
    assert found.classes[17] == "fine 17"


def test_svhn_comes_back_exactly_with_label_ten_as_the_digit_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = write_svhn(tmp_path, monkeypatch)
    assert same(load_set("svhn", tmp_path, cache=tmp_path / "cache"), made)


def test_missing_and_damaged_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10(tmp_path, monkeypatch)
    missing, damaged = (tmp_path / "cifar-10-batches-py" / name for name in ("data_batch_2", "test_batch"))
    missing.unlink()
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(DataError) as error:
        load_set("cifar10", tmp_path, cache=tmp_path / "cache")
    assert str(error.value) == f"{missing}: is missing (+1 more)"
    assert str(error.value.problems[1]) == f"{damaged}: is damaged: its checksum is not the published one"


class _Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("a file of unknown checksum was unpickled",)


def test_a_file_of_unknown_checksum_is_never_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10(tmp_path, monkeypatch)
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps(_Bomb()))
    with pytest.raises(DataError, match="test_batch: is damaged"):
        load_set("cifar10", tmp_path, cache=tmp_path / "cache")


def test_nothing_is_downloaded_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CIFAR10, "download", lambda self: pytest.fail("a download began"))
    with pytest.raises(DataError, match=r"data_batch_1: is missing \(\+6 more\)"):
        load_set("cifar10", tmp_path, cache=tmp_path / "cache")


def test_a_download_that_fails_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(self: object) -> None:
        raise URLError("Name or service not known")

    monkeypatch.setattr(CIFAR10, "download", unreachable)
    with pytest.raises(DataError, match=r"root: could not be filled by a download: .*not known") as error:
        load_set("cifar10", tmp_path / "root", download=True, cache=tmp_path / "cache")
    assert "\n" not in str(error.value)


def test_a_download_fills_the_root_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {}

    def fetch(self: object) -> None:
        made.update(write_cifar10(tmp_path / "root", monkeypatch))

    monkeypatch.setattr(CIFAR10, "download", fetch)
    found = load_set("cifar10", tmp_path / "root", download=True, cache=tmp_path / "cache")
    assert same(found, made)
