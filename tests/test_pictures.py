from __future__ import annotations

import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from infogaze.data.options import ReadOptions
from infogaze.errors import DataError
from infogaze.pictures import Fit, Form, fit_picture, open_picture, read_picture
from tests.support.sets import noise, write_image


def form(channels: int, height: int, width: int, *, convert: bool = True) -> Form:
    return Form(channels=channels, convert=convert, native=(height, width), size=(height, width), fit="resize")


def test_grey_becomes_colour_and_colour_grey_as_pillow_defines(tmp_path: Path) -> None:
    grey, colour = noise(0, 4, 5), noise(1, 4, 5, 3)
    write_image(tmp_path / "grey.png", grey)
    write_image(tmp_path / "colour.png", colour)
    assert np.array_equal(read_picture(tmp_path / "grey.png", form(3, 4, 5)), np.stack([grey] * 3))
    luma = np.asarray(Image.fromarray(colour).convert("L"))
    assert np.array_equal(read_picture(tmp_path / "colour.png", form(1, 4, 5)), luma[None])


@pytest.mark.parametrize("name", ["deep.png", "deep.tiff", "deep.pgm", "as_32_bits.tiff"])
def test_sixteen_bits_are_scaled_and_rounded(name: str, tmp_path: Path) -> None:
    deep = np.random.default_rng(0).integers(0, 65536, (40, 50), np.uint16)
    deep[0, :2] = 0, 65535
    path = write_image(tmp_path / name, deep.astype(np.int32) if name == "as_32_bits.tiff" else deep)
    expected = np.round(deep / 65535 * 255).astype(np.uint8)
    assert np.array_equal(read_picture(path, form(1, 40, 50)), expected[None])


def test_dark_and_bright_files_of_sixteen_bits_share_one_scale(tmp_path: Path) -> None:
    for value in (257, 25700):
        path = write_image(tmp_path / "even.tiff", np.full((4, 5), value, np.int32))
        assert (read_picture(path, form(1, 4, 5)) == value // 257).all()


@pytest.mark.parametrize(
    ("mode", "pixels"),
    [
        ("F", np.ones((4, 5), np.float32)),
        ("I", np.full((4, 5), 65536, np.int32)),
        ("I", np.full((4, 5), -1, np.int32)),
    ],
)
def test_pixels_of_unknown_range_are_refused(mode: str, pixels: np.ndarray, tmp_path: Path) -> None:
    path = write_image(tmp_path / "deep.tiff", pixels)
    with pytest.raises(DataError, match=rf"deep\.tiff: has pixels of mode {mode}, whose range is unknown; save it"):
        read_picture(path, form(1, 4, 5))


def over_white(pixels: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    return 255 - (255 - pixels.astype(float)) * alpha / 255


@pytest.mark.parametrize("depth", [1, 3])
def test_transparency_lets_white_through(depth: int, tmp_path: Path) -> None:
    pixels, alpha = noise(0, 20, 30, depth), noise(1, 20, 30, 1)
    alpha[:5], alpha[5:10] = 0, 255
    path = write_image(tmp_path / "clear.png", np.concatenate([pixels, alpha], -1))
    found = read_picture(path, form(depth, 20, 30, convert=False)).transpose(1, 2, 0)
    assert (found[:5] == 255).all()
    assert np.array_equal(found[5:10], pixels[5:10])
    assert np.abs(found - over_white(pixels, alpha)).max() <= 1


def test_a_palette_with_transparency_is_read_as_colour_over_white(tmp_path: Path) -> None:
    colour = noise(0, 4, 5, 3)
    image = Image.fromarray(colour).convert("P", palette=Image.Palette.ADAPTIVE)
    image.save(tmp_path / "palette.png", transparency=bytes(range(0, 260, 13)))
    found = read_picture(tmp_path / "palette.png", form(3, 4, 5, convert=False)).transpose(1, 2, 0)
    alpha = 13 * np.asarray(image)[..., None]
    assert np.abs(found - over_white(colour, alpha)).max() <= 1


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_the_grey_that_a_file_calls_transparent_is_white(dtype: type[np.unsignedinteger], tmp_path: Path) -> None:
    pixels = np.array([[0, 1, 2, 3]], dtype)
    path = write_image(tmp_path / "clear.png", pixels, transparency=2)
    found = read_picture(path, form(1, 1, 4, convert=False))
    assert np.array_equal(found[0, 0] == 255, pixels[0] == 2)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB"])
def test_every_mode_that_pillow_writes_becomes_grey_or_colour(mode: str, channels: int, tmp_path: Path) -> None:
    path = tmp_path / "picture.tiff"
    if mode == "LAB":
        Image.new(mode, (5, 4)).save(path)
    else:
        Image.fromarray(noise(0, 4, 5, 3)).convert(mode).save(path)
    assert read_picture(path, form(channels, 4, 5)).shape == (channels, 4, 5)


def test_what_is_no_picture_is_named_in_one_line(tmp_path: Path) -> None:
    whole = write_image(tmp_path / "whole.png", noise(0, 40, 50)).read_bytes()
    (tmp_path / "half.png").write_bytes(whole[:200])
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.png").write_text("no picture")
    (tmp_path / "folder.png").mkdir()
    for name, what in {
        "half.png": "is damaged: ",
        "empty.png": "is an empty file",
        "text.png": "is no image that Pillow can read",
        "folder.png": "is a folder, not an image",
        "nowhere.png": "is missing",
    }.items():
        with pytest.raises(DataError) as error:
            read_picture(tmp_path / name, form(1, 40, 50))
        assert str(error.value).startswith(f"{tmp_path / name}: {what}")
        assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(("depth", "channels", "said"), [(1, 3, "grey among colour"), (3, 1, "colour among grey")])
def test_a_picture_of_other_channels_is_refused_with_the_option_that_helps(
    depth: int, channels: int, said: str, tmp_path: Path
) -> None:
    path = write_image(tmp_path / "odd.png", noise(0, 4, 5, depth).squeeze())
    with pytest.raises(DataError) as error:
        read_picture(path, form(channels, 4, 5, convert=False))
    assert str(error.value).startswith(f"{path}: is {said}")
    assert "--read.channels" in str(error.value)


def test_a_picture_of_another_size_is_refused_with_both_sizes_and_the_advice(tmp_path: Path) -> None:
    path = write_image(tmp_path / "odd.png", noise(0, 4, 5))
    with pytest.raises(DataError) as error:
        read_picture(path, replace(form(1, 6, 7), advice="; do this"))
    assert str(error.value) == f"{path}: is 4x5, not 6x7; do this"


def test_a_photo_is_turned_the_way_its_camera_was_held(tmp_path: Path) -> None:
    pixels = noise(0, 4, 6)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned a quarter clockwise
    path = write_image(tmp_path / "photo.png", pixels, exif=exif)
    assert np.array_equal(read_picture(path, form(1, 6, 4)), np.rot90(pixels, -1)[None])


sides = st.integers(1, 24)


@given(st.sampled_from([1, 3]), sides, sides, sides, sides, st.sampled_from(["resize", "crop", "pad"]))
def test_a_picture_gets_the_size_asked_for_and_an_even_one_stays_even(
    channels: int, height: int, width: int, new_height: int, new_width: int, fit: Fit
) -> None:
    pixels = np.full((channels, height, width), 200, np.uint8)
    found = fit_picture(pixels, (new_height, new_width), fit)
    assert found.shape == (channels, new_height, new_width)
    assert set(np.unique(found)) <= ({0, 200} if fit == "pad" else {200})


def test_a_picture_of_the_size_asked_for_stays_bit_by_bit() -> None:
    pixels = noise(0, 3, 7, 9)
    for fit in ("resize", "crop", "pad"):
        assert np.array_equal(fit_picture(pixels, (7, 9), fit), pixels)


def test_crop_keeps_the_middle_and_pad_keeps_all() -> None:
    wide = np.zeros((1, 8, 24), np.uint8)
    wide[:, :, :8], wide[:, :, 8:16], wide[:, :, 16:] = 50, 100, 150
    assert (fit_picture(wide, (8, 8), "crop") == 100).all()
    padded = fit_picture(wide, (24, 24), "pad")
    assert np.array_equal(padded[:, 8:16], wide)
    assert not padded[:, :8].any()
    assert not padded[:, 16:].any()


def test_resize_is_lanczos_and_stretches() -> None:
    pixels = noise(0, 3, 28, 28)
    expected = Image.fromarray(pixels.transpose(1, 2, 0)).resize((40, 32), Image.Resampling.LANCZOS)
    assert np.array_equal(fit_picture(pixels, (32, 40), "resize"), np.asarray(expected).transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": (0, 4)}, r"size is \(0, 4\); it must be a height and a width of 1 to 16384 pixels"),
        ({"fit": "squeeze"}, "fit is 'squeeze'; it must be one of resize, crop, pad"),
        ({"channels": 2}, "channels is 2; it must be 1 or 3"),
        ({"test_share": 1.0}, r"test_share is 1\.0; it must be between 0 and 1"),
    ],
)
def test_options_that_cannot_be_are_refused(settings: dict[str, object], message: str) -> None:
    # The check alone: in tests, and only there, the types refuse some of these before it.
    wrong: Any = SimpleNamespace(**{**asdict(ReadOptions()), **settings})
    with pytest.raises(ValueError, match=message):
        ReadOptions.__post_init__(wrong)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files")
def test_what_is_no_file_is_called_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    for path, name in ((tmp_path / "pipe.png", "pipe"), (Path("/dev/null"), "device"), (tmp_path, "folder")):
        with pytest.raises(DataError, match=name) as caught:
            open_picture(path)
        assert "damaged" not in str(caught.value)
        assert "empty" not in str(caught.value)


def test_a_decompression_bomb_is_called_that_and_a_large_picture_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_image(tmp_path / "large.png", noise(0, 20, 20))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300)  # Pillow warns from here on, and refuses from twice as many on
    assert open_picture(path).size == (20, 20)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(DataError, match="more than 200 pixels, as a decompression bomb"):
        open_picture(path)
