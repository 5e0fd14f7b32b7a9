from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from infogaze.data.options import Fit, Options
from infogaze.data.pictures import Form, fit_picture, read_picture
from infogaze.data.problems import DataError
from tests.data.make_sets import noise, write_image


def form(channels: int, height: int, width: int, convert: bool = True) -> Form:
    return Form(channels, convert, (height, width), (height, width), "resize")


def test_grey_becomes_colour_and_colour_grey_as_pillow_defines(tmp_path: Path) -> None:
    grey, colour = noise(0, 4, 5), noise(1, 4, 5, 3)
    write_image(tmp_path / "grey.png", grey)
    write_image(tmp_path / "colour.png", colour)
    assert np.array_equal(read_picture(tmp_path / "grey.png", form(3, 4, 5)), np.stack([grey] * 3))
    luma = np.asarray(Image.fromarray(colour).convert("L"))
    assert np.array_equal(read_picture(tmp_path / "colour.png", form(1, 4, 5)), luma[None])


def test_sixteen_bits_keep_their_upper_eight(tmp_path: Path) -> None:
    deep = np.random.default_rng(0).integers(0, 65536, (4, 5), np.uint16)
    write_image(tmp_path / "deep.png", deep)
    assert np.array_equal(read_picture(tmp_path / "deep.png", form(1, 4, 5)), (deep >> 8).astype(np.uint8)[None])


def test_pixels_of_unknown_range_are_refused(tmp_path: Path) -> None:
    path = write_image(tmp_path / "float.tiff", np.ones((4, 5), np.float32))
    with pytest.raises(DataError, match=r"float\.tiff: has pixels of mode F, whose range is unknown"):
        read_picture(path, form(1, 4, 5))


def test_a_palette_with_transparency_is_read_as_colour(tmp_path: Path) -> None:
    colour = noise(0, 4, 5, 3)
    image = Image.fromarray(colour).convert("P", palette=Image.Palette.ADAPTIVE)
    image.save(tmp_path / "palette.png", transparency=bytes(range(20)))
    found = read_picture(tmp_path / "palette.png", form(3, 4, 5, convert=False))
    assert np.array_equal(found, colour.transpose(2, 0, 1))


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
        ({"size": (0, 4)}, r"size is \(0, 4\); it must be a height and a width of at least 1 pixel"),
        ({"fit": "squeeze"}, "fit is 'squeeze'; it must be one of resize, crop, pad"),
        ({"channels": 2}, "channels is 2; it must be 1 or 3"),
        ({"test_share": 1.0}, r"test_share is 1\.0; it must be between 0 and 1"),
    ],
)
def test_options_that_cannot_be_are_refused(settings: dict[str, object], message: str) -> None:
    # The check alone: in tests, and only there, the types refuse some of these before it.
    wrong: Any = SimpleNamespace(**{**asdict(Options()), **settings})
    with pytest.raises(ValueError, match=message):
        Options.__post_init__(wrong)
