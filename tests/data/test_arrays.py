from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from infogaze.data.inspection import check
from infogaze.data.options import ReadOptions
from infogaze.data.reading import in_memory
from infogaze.data.registry import load_set, read_set
from infogaze.errors import DataError
from tests.support.sets import noise


def plain() -> dict[str, Any]:
    return {
        "train_x": noise(0, 4, 6, 5, 3),
        "train_y": np.array([0, 1, 2, 0]),
        "test_x": noise(1, 2, 6, 5, 3),
        "test_y": np.array([2, 1]),
        "classes": np.array(["ant", "bee", "cow"]),
    }


def write(path: Path, arrays: dict[str, Any]) -> Path:
    np.savez(path, **arrays)
    return path


@given(
    st.sampled_from(["NHWC", "NCHW", "NHW"]),
    st.sampled_from([1, 3]),
    st.integers(4, 7),
    st.integers(4, 7),
    st.sampled_from([np.uint8, np.int16, np.int64]),
    st.booleans(),
)
def test_every_layout_comes_back_exactly(
    tmp_path_factory: pytest.TempPathFactory,
    layout: str,
    channels: int,
    height: int,
    width: int,
    dtype: type[np.integer[Any]],
    compressed: bool,
) -> None:
    channels = 1 if layout == "NHW" else channels
    images = noise(0, 6, channels, height, width)
    stored = {"NHWC": images.transpose(0, 2, 3, 1), "NCHW": images, "NHW": images[:, 0]}[layout]
    labels = np.array([1, 0, 2, 1, 0, 2], dtype)
    path = tmp_path_factory.mktemp("arrays") / "set.npz"
    save = np.savez_compressed if compressed else np.savez
    save(path, train_x=stored[:4], train_y=labels[:4], test_x=stored[4:], test_y=labels[4:])
    found = in_memory(read_set("arrays", path))
    assert np.array_equal(found.train.images.numpy(), images[:4])
    assert np.array_equal(found.test.images.numpy(), images[4:])
    assert np.array_equal(np.concatenate([found.train.labels, found.test.labels]), labels)
    assert found.classes == ("0", "1", "2")


def test_names_of_classes_are_kept(tmp_path: Path) -> None:
    assert read_set("arrays", write(tmp_path / "set.npz", plain())).classes == ("ant", "bee", "cow")


def test_images_of_another_size_are_resized_one_by_one_with_lanczos(tmp_path: Path) -> None:
    made = plain()
    found = in_memory(read_set("arrays", write(tmp_path / "set.npz", made), ReadOptions(size=(8, 8))))
    expected = [Image.fromarray(image).resize((8, 8), Image.Resampling.LANCZOS) for image in made["train_x"]]
    assert np.array_equal(found.train.images.numpy(), np.stack([np.asarray(e).transpose(2, 0, 1) for e in expected]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_y": None}, "test_y is missing"),
        ({"train_x": plain()["train_x"] / 255}, "train_x is float64; images are uint8"),
        ({"train_x": noise(0, 4, 6)}, "train_x has shape (4, 6); images are NHWC, NCHW or NHW"),
        ({"train_x": noise(0, 4, 6, 5, 2)}, "train_x has shape (4, 6, 5, 2); the second or the last number, not both"),
        ({"train_x": noise(0, 4, 3, 5, 3)}, "train_x has shape (4, 3, 5, 3); the second or the last number, not both"),
        ({"test_x": noise(0, 2, 6, 5, 1)}, "train_x has 3 channels and test_x 1"),
        ({"test_x": noise(0, 2, 6, 5)}, "train_x has 3 channels and test_x 1"),
        ({"test_x": noise(0, 2, 5, 6, 3)}, "train_x holds images of 6x5 and test_x of 5x6"),
        ({"test_x": noise(0, 0, 6, 5, 3), "test_y": np.array([], int)}, "test_x holds no images"),
        ({"train_y": np.array([0, 1, 2])}, "train_x holds 4 images and train_y 3 labels"),
        ({"train_y": np.array([0.0, 1, 2, 0])}, "train_y is float64 of shape (4,); labels are whole numbers"),
        ({"train_y": np.array([[0], [1], [2], [0]])}, "train_y is int64 of shape (4, 1); labels are whole numbers"),
        ({"train_y": np.array([0, 1, 2, 3])}, "train_y[3] is 3, not one of the 3 classes 0 to 2"),
        ({"test_y": np.array([-1, 0])}, "test_y[0] is -1, not one of the 3 classes 0 to 2"),
        ({"train_y": np.array([0, 1, 0, 0])}, "class 2 (cow) has no images in train_x, and test_y has it"),
        ({"train_y": np.array([0, 2, 0, 0]), "test_y": np.array([0, 0])}, "class 1 (bee) has no images in train_x"),
        ({"test_y": np.array([0, 3]), "classes": None}, "test_y[1] is 3, not one of the 3 classes 0 to 2"),
        ({"classes": np.array([["ant"], ["bee"], ["cow"]])}, "classes is <U3 of shape (3, 1); it is a row of strings"),
        ({"classes": np.array([1, 2, 3])}, "classes is int64 of shape (3,); it is a row of strings"),
        ({"classes": np.array(["ant", "bee", "ant"])}, "classes has 'ant' twice"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_file(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    made = {name: array for name, array in {**plain(), **changes}.items() if array is not None}
    path = write(tmp_path / "set.npz", made)
    with pytest.raises(DataError) as error:
        load_set("arrays", path, cache=tmp_path / "cache")
    assert str(error.value).startswith(f"{path}: {message}")
    assert "\n" not in str(error.value)


def test_check_lists_every_wrong_label(tmp_path: Path) -> None:
    path = write(tmp_path / "set.npz", {**plain(), "train_y": np.array([0, 1, 7, -2]), "test_y": np.array([9, 9])})
    assert [problem.what for problem in check("arrays", path).problems] == [
        "train_y[3] is -2, not one of the 3 classes 0 to 2",
        "train_y[2] is 7, not one of the 3 classes 0 to 2",
        "test_y[0] is 9, and 1 more are, not one of the 3 classes 0 to 2",
        "class 2 (cow) has no images in train_x",
    ]


def test_python_objects_are_refused_not_unpickled(tmp_path: Path) -> None:
    path = write(tmp_path / "set.npz", {**plain(), "classes": np.array(["ant", None, "cow"], object)})
    with pytest.raises(DataError, match=r"set\.npz: classes cannot be read: .*unpickled"):
        read_set("arrays", path)


def test_damaged_and_foreign_files_are_named(tmp_path: Path) -> None:
    whole = write(tmp_path / "set.npz", plain()).read_bytes()
    cases = {
        "cut.npz": (whole[:-300], "is damaged or no .npz file; "),
        "text.npz": (b"hello", "is damaged or no .npz file; "),
        "empty.npz": (b"", "is damaged or no .npz file; "),
        "flipped.npz": (whole[:300] + bytes([whole[300] ^ 255]) + whole[301:], "train_x cannot be read: "),
    }
    for name, (content, message) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError) as error:
            read_set("arrays", tmp_path / name)
        assert str(error.value).startswith(f"{tmp_path / name}: {message}")
    np.save(tmp_path / "one.npy", noise(0, 4))
    with pytest.raises(DataError, match=r"one\.npy: is damaged or no \.npz file; it is to hold train_x, train_y"):
        read_set("arrays", tmp_path / "one.npy")
    with pytest.raises(DataError, match=r"nowhere\.npz: no such file"):
        read_set("arrays", tmp_path / "nowhere.npz")


def test_a_header_that_announces_more_than_the_file_holds_is_refused_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "set.npz", plain())
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    announced = {"descr": "|u1", "fortran_order": False, "shape": (2**40, 3, 32, 32)}
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, announced)
    members["train_x.npy"] = header.getvalue() + b"few"
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    with pytest.raises(DataError, match=rf"train_x .*{2**40 * 3 * 32 * 32} bytes"):
        read_set("arrays", path)
    assert [str(problem).count("train_x") for problem in check("arrays", path).problems] == [1]


@pytest.mark.parametrize("label", [2**62, -1, 4])
def test_labels_beyond_all_images_are_named_at_once(label: int, tmp_path: Path) -> None:
    arrays = {**plain(), "train_y": np.array([0, 1, 0, label])}
    del arrays["classes"]
    with pytest.raises(DataError, match=rf"train_y\[3\] is {label}"):
        read_set("arrays", write(tmp_path / "set.npz", arrays))


def test_a_set_of_one_class_is_refused_by_check_and_by_load_alike(tmp_path: Path) -> None:
    arrays = {**plain(), "train_y": np.zeros(4, int), "test_y": np.zeros(2, int), "classes": np.array(["ant"])}
    path = write(tmp_path / "set.npz", arrays)
    (problem,) = check("arrays", path).problems
    assert "1 class" in str(problem)
    with pytest.raises(DataError) as caught:
        load_set("arrays", path, cache=tmp_path / "cache")
    assert str(caught.value) == str(problem)
