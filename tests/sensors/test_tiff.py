"""A large TIFF as a sensor: the same pixels as the whole image would give, and only those tiles read."""

from __future__ import annotations

import io
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from infogaze import GlimpseGrid, ImageSensor, InfogazeError, LookFailed, TiffSensor
from tests.support.paths import ROOT
from tests.support.tiny import CONFIG, tiny_agent

GRID = GlimpseGrid(height=32, width=32, glimpse_size=8, stride=4)
RANDOM = np.random.default_rng(0)


def noise(*shape: int, kind: type = np.uint8) -> np.ndarray:
    return RANDOM.integers(0, np.iinfo(kind).max, shape, dtype=kind, endpoint=True)


WAYS: dict[str, dict[str, Any]] = {
    "one strip": {},
    "strips": {"rowsperstrip": 5, "compression": "deflate"},
    "tiles": {"tile": (16, 32), "compression": "deflate"},
    "tiles with a predictor": {"tile": (16, 16), "compression": "deflate", "predictor": True},
    "plain tiles": {"tile": (16, 16)},
    "big-endian": {"tile": (16, 16), "byteorder": ">"},
    "BigTIFF": {"tile": (16, 16), "bigtiff": True},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 3])
def test_at_its_own_scale_a_file_is_as_the_array_it_was_written_from(
    way: str, kind: type, channels: int, tmp_path: Path
) -> None:
    pixels = noise(32, 32, 3, kind=kind)
    options = WAYS[way]
    if channels == 3:
        options = {"photometric": "rgb", **options}
    tifffile.imwrite(tmp_path / "a.tif", pixels if channels == 3 else pixels[..., 0], **options)
    whole = torch.from_numpy(pixels.transpose(2, 0, 1)[None, :channels] / np.iinfo(kind).max).float()
    with TiffSensor(tmp_path / "a.tif", GRID) as sensor:
        assert sensor.scale == 1.0
        for where in ([[0, 0]], [[24, 24]], [[4, 12]], [[3.25, 7.5]], [[24.0, 11.75]]):
            expected = ImageSensor(whole, 8).look(where)
            torch.testing.assert_close(sensor.look(where), expected, atol=1e-6, rtol=1e-5)
        assert len(sensor.log) == 5


@pytest.mark.parametrize(
    ("pixels", "options"),
    [
        (noise(3, 32, 32), {"photometric": "rgb", "planarconfig": "separate"}),
        (
            noise(3, 32, 32),
            {"photometric": "rgb", "planarconfig": "separate", "tile": (16, 16), "compression": "deflate"},
        ),
        (noise(3, 32, 32), {"photometric": "minisblack", "metadata": {"axes": "CYX"}, "ome": True, "tile": (16, 16)}),
    ],
    ids=["planes in one page", "tiled planes", "a page a channel"],
)
def test_channels_may_be_planes(pixels: np.ndarray, options: dict[str, Any], tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.ome.tif", pixels, **options)
    with TiffSensor(tmp_path / "a.ome.tif", GRID, channels=(2, 0)) as sensor:
        seen = sensor.look([[4, 8]])
    np.testing.assert_allclose(seen[0].numpy(), pixels[[2, 0], 4:12, 8:16] / 255, atol=1e-6)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    scale=st.floats(0.7, 9.0),
    top=st.floats(-20, 60),
    left=st.floats(-20, 60),
    row=st.floats(0, 24),
    col=st.floats(0, 24),
)
def test_a_pixel_of_a_glimpse_is_the_mean_over_its_area_and_black_outside_the_file(
    *, scale: float, top: float, left: float, row: float, col: float, tmp_path: Path
) -> None:
    path = tmp_path / "a.tif"
    pixels = np.random.default_rng(1).random((70, 90))
    if not path.exists():
        tifffile.imwrite(path, pixels, tile=(16, 16), compression="deflate")
    total = np.pad(pixels, 1).cumsum(0).cumsum(1)[:-1, :-1]  # [71, 91]: the sum over all above and left of a corner

    def over(corner_row: float, corner_col: float) -> float:
        """The integral of the image up to a corner, whose sum runs bilinearly from corner to corner."""
        y, x = np.clip(corner_row, 0, 70), np.clip(corner_col, 0, 90)
        i, j = min(int(y), 69), min(int(x), 89)
        f, g = y - i, x - j
        upper = (1 - g) * total[i, j] + g * total[i, j + 1]
        return float((1 - f) * upper + f * ((1 - g) * total[i + 1, j] + g * total[i + 1, j + 1]))

    with TiffSensor(path, GRID, scale=scale, top=top, left=left) as sensor:
        seen = sensor.look([[row, col]])[0, 0]
    begin_row, begin_col = top + row * scale, left + col * scale
    for i, j in ((0, 0), (7, 7), (3, 5)):
        y, x = begin_row + i * scale, begin_col + j * scale
        area = over(y + scale, x + scale) - over(y, x + scale) - over(y + scale, x) + over(y, x)
        assert float(seen[i, j]) == pytest.approx(area / scale**2, abs=1e-5)


def write_pyramid(path: Path, pixels: np.ndarray, levels: int) -> list[np.ndarray]:
    """Each level the mean of two by two of the last, but a little darker, so that it is known which was read."""
    made = [pixels]
    with tifffile.TiffWriter(path) as file:
        file.write(pixels, tile=(16, 16), subifds=levels - 1, photometric="minisblack")
        for _ in range(levels - 1):
            half = made[-1].reshape(made[-1].shape[0] // 2, 2, -1, 2).mean((1, 3)) * 0.9
            made.append(half.astype(np.float32))
            file.write(made[-1], tile=(16, 16), subfiletype=1, photometric="minisblack")
    return made


@pytest.mark.parametrize(("scale", "level"), [(1.0, 0), (1.9, 0), (2.0, 1), (3.9, 1), (4.0, 2), (8.0, 2)])
def test_the_coarsest_level_that_is_fine_enough_is_read(scale: float, level: int, tmp_path: Path) -> None:
    made = write_pyramid(tmp_path / "a.tif", np.random.default_rng(2).random((256, 256)).astype(np.float32), 3)
    with TiffSensor(tmp_path / "a.tif", GRID, scale=scale) as sensor:
        seen = sensor.look([[0, 0]])[0, 0].numpy()
    step = scale / 2**level
    side = int(8 * step)
    assert seen.mean() == pytest.approx(made[level][:side, :side].mean(), rel=0.05 if side != 8 * step else 1e-5)


def test_a_file_of_another_shape_than_the_scene_is_brought_into_it_whole(tmp_path: Path) -> None:
    pixels = np.full((128, 64), 255, np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", pixels, tile=(16, 16))
    with TiffSensor(tmp_path / "a.tif", GRID) as sensor:
        assert sensor.scale == 4.0
        assert sensor.allowed.shape == (7, 7)
        assert sensor.allowed.tolist() == [[True] * 4 + [False] * 3] * 7
        assert sensor.look([[0, 12]])[0, 0, 0].tolist() == [1.0] * 4 + [0.0] * 4
        for place in GRID.locations()[~sensor.allowed.flatten()]:
            assert not sensor.look(place[None]).any()


def test_an_agent_looks_at_a_file_as_it_looks_at_its_array(tmp_path: Path) -> None:
    agent, grid = tiny_agent(), CONFIG.grid
    pixels = noise(CONFIG.channels, CONFIG.height * 3, CONFIG.width * 3)
    options: dict[str, Any] = {"planarconfig": "separate", "tile": (16, 16), "photometric": "minisblack"}
    tifffile.imwrite(tmp_path / "a.tif", pixels, **options)
    small = torch.nn.functional.avg_pool2d(torch.from_numpy(pixels).float()[None] / 255, 3)
    with TiffSensor(tmp_path / "a.tif", grid, scale=3.0) as sensor:
        episode = agent.run(sensor, allowed=sensor.allowed)
    plain = agent.run(ImageSensor(small.clamp(max=1.0), grid.glimpse_size))
    for look, same in zip(episode.history, plain.history, strict=True):
        assert torch.equal(look.location, same.location)
        torch.testing.assert_close(look.probabilities, same.probabilities, atol=1e-5, rtol=1e-4)


def test_white_may_be_below_the_largest_value_and_may_be_zero(tmp_path: Path) -> None:
    twelve = np.full((32, 32), 4095, np.uint16)
    twelve[:, 16:] = 5000
    tifffile.imwrite(tmp_path / "deep.tif", twelve)
    with TiffSensor(tmp_path / "deep.tif", GRID, white=4095) as sensor:
        assert (sensor.look([[0, 0]]) == 1.0).all()
        assert (sensor.look([[0, 20]]) == 1.0).all()
    pixels = noise(32, 32)
    tifffile.imwrite(tmp_path / "negative.tif", pixels, photometric="miniswhite")
    with TiffSensor(tmp_path / "negative.tif", GRID, scale=1.0, left=8.0) as sensor:
        np.testing.assert_allclose(sensor.look([[0, 0]])[0, 0], 1 - pixels[:8, 8:16] / 255, atol=1e-6)
        assert not sensor.look([[0, 24]]).any(), "what is outside is black in negatives too"


@pytest.mark.parametrize("compression", ["packbits", "tiff_adobe_deflate"])
def test_what_other_programs_compress_is_read(compression: str, tmp_path: Path) -> None:
    pixels = noise(100, 80, 3)
    Image.fromarray(pixels).save(tmp_path / "a.tif", compression=compression)
    with TiffSensor(tmp_path / "a.tif", GRID, scale=1.0, top=61, left=40) as sensor:
        np.testing.assert_allclose(sensor.look([[0, 0]])[0], pixels[61:69, 40:48].transpose(2, 0, 1) / 255, atol=1e-6)


@pytest.mark.parametrize("mode", ["RGB", "L", "YCbCr"])
def test_jpeg_is_read_as_pillow_reads_it(mode: str, tmp_path: Path) -> None:
    smooth = np.asarray(Image.fromarray(noise(10, 8, 3)).resize((80, 100), Image.Resampling.BICUBIC))
    image = Image.fromarray(smooth).convert(mode)
    image.save(tmp_path / "a.tif", compression="jpeg", quality=90)
    with Image.open(tmp_path / "a.tif") as written:
        expected = np.asarray(written.convert("L" if mode == "L" else "RGB")) / 255
    with TiffSensor(tmp_path / "a.tif", GRID, scale=1.0, top=61, left=40) as sensor:
        seen = sensor.look([[0, 0]])[0].numpy()
        assert sensor.bytes_read < (tmp_path / "a.tif").stat().st_size
    expected = expected[61:69, 40:48]
    np.testing.assert_allclose(seen, expected[None] if mode == "L" else expected.transpose(2, 0, 1), atol=3 / 255)


def sparse(path: Path, side: int) -> None:
    """A scene of so many pixels a side, of tiles of one grey each, written tile by tile: small on the disk, large in memory."""
    tile = 512
    across = -(-side // tile)
    packed = [zlib.compress(bytes([grey]) * tile**2) for grey in range(251)]
    tifffile.imwrite(
        path, (packed[index % 251] for index in range(across**2)), shape=(side, side), dtype=np.uint8, tile=(tile, tile),
        compression="deflate", photometric="minisblack",
    )  # fmt: skip


def test_a_scene_of_fifty_thousand_pixels_a_side_costs_the_memory_of_its_glimpses(tmp_path: Path) -> None:
    sparse(tmp_path / "large.tif", 50_000)
    size = (tmp_path / "large.tif").stat().st_size
    grid = GlimpseGrid(height=5000, width=5000, glimpse_size=32, stride=16)
    with TiffSensor(tmp_path / "large.tif", grid, scale=10.0) as sensor:
        tracemalloc.start()
        try:
            for place in range(0, grid.num_locations, grid.num_locations // 20):
                where = grid.locations()[place : place + 1]
                seen, (row, col) = sensor.look(where), (where[0] * 10).tolist()
                assert float(seen[0, 0, 0, 0]) == pytest.approx((row // 512 * 98 + col // 512) % 251 / 255, abs=1e-6)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert sensor.bytes_read < size / 50
    assert peak < 40 << 20, "of 2.5 GB"


LACKING = """
import sys, infogaze
agent = infogaze.load("digits")
assert "tifffile" not in sys.modules, "who looks elsewhere does not load it"
sys.modules["tifffile"] = None
try:
    infogaze.TiffSensor("a.tif", agent.model.grid)
except infogaze.InfogazeError as error:
    print(error)
"""


def test_what_reads_tiffs_is_loaded_when_it_is_used_and_its_extra_named_in_a_line() -> None:
    done = subprocess.run([sys.executable, "-c", LACKING], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "TiffSensor needs the extra 'slides': pip install 'infogaze[slides]'\n"


def test_what_cannot_be_read_is_refused_in_a_line(tmp_path: Path) -> None:
    def refused(path: Path, **options: Any) -> str:
        with pytest.raises(InfogazeError) as caught:
            TiffSensor(path, GRID, **options)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "No such file" in refused(tmp_path / "none.tif")
    (tmp_path / "text.tif").write_text("no TIFF at all")
    assert "not a TIFF" in refused(tmp_path / "text.tif")
    good = tmp_path / "a.tif"
    tifffile.imwrite(good, noise(64, 64), tile=(16, 16))
    assert "scale is 0" in refused(good, scale=0.0)
    assert "scale is nan" in refused(good, scale=float("nan"))
    assert "white is -1" in refused(good, white=-1.0)
    assert "channels are [1]" in refused(good, channels=[1])
    assert "channels are []" in refused(good, channels=[])
    assert "channels are [0, 0]" in refused(good, channels=[0, 0])
    assert "series is 3" in refused(good, series=3)
    assert "outside" in refused(good, scale=1.0, top=64.0)
    tifffile.imwrite(tmp_path / "stack.tif", noise(5, 64, 64), photometric="minisblack")
    assert "axes are QYX" in refused(tmp_path / "stack.tif")
    tifffile.imwrite(tmp_path / "complex.tif", np.zeros((64, 64), np.complex64))
    assert "complex64" in refused(tmp_path / "complex.tif")
    palette = Image.fromarray(noise(64, 64)).convert("P")
    palette.save(tmp_path / "palette.tif")
    assert "palette" in refused(tmp_path / "palette.tif")
    damaged = bytearray(good.read_bytes())
    damaged[4:8] = b"\xff\xff\xff\x7f"
    (tmp_path / "damaged.tif").write_bytes(damaged)
    assert "not a TIFF" in refused(tmp_path / "damaged.tif")


def test_a_strip_that_would_fill_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tifffile.imwrite(tmp_path / "a.tif", noise(256, 256), rowsperstrip=256, compression="deflate")
    tifffile.imwrite(tmp_path / "mapped.tif", noise(256, 256))
    monkeypatch.setattr("infogaze.sensors.tiff._LARGEST_SEGMENT", 256 * 255)
    with pytest.raises(InfogazeError, match="write it tiled"):
        TiffSensor(tmp_path / "a.tif", GRID)
    with TiffSensor(tmp_path / "mapped.tif", GRID) as sensor:
        assert sensor.look([[0, 0]]).shape == (1, 1, 8, 8)


def test_a_compression_that_needs_more_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A plain file whose header says, in tag 259, that it holds what no one knows to unpack, as JPEG 2000 without imagecodecs.
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, noise(64, 64), tile=(16, 16))
    buffer.seek(0)
    with tifffile.TiffFile(buffer) as file:
        offset = file.pages.first.tags[259].valueoffset
    data = bytearray(buffer.getvalue())
    data[offset : offset + 2] = (34712).to_bytes(2, "little")
    (tmp_path / "a.tif").write_bytes(data)
    known = {number: None for number in tifffile.TIFF.DECOMPRESSORS if number != 34712}
    monkeypatch.setattr(tifffile.TIFF, "DECOMPRESSORS", known)
    with pytest.raises(InfogazeError, match="JPEG2000.*imagecodecs"):
        TiffSensor(tmp_path / "a.tif", GRID)


def test_a_damaged_tile_is_a_look_that_fails_and_the_others_are_seen(tmp_path: Path) -> None:
    agent, grid = tiny_agent(), CONFIG.grid
    pixels = noise(2, 48, 48)
    path = tmp_path / "a.tif"
    options: dict[str, Any] = {"planarconfig": "separate", "photometric": "minisblack"}
    tifffile.imwrite(path, pixels, tile=(16, 16), compression="deflate", **options)
    with tifffile.TiffFile(path) as file:
        offset = file.pages.first.dataoffsets[0]
    data = bytearray(path.read_bytes())
    data[offset : offset + 8] = b"\0" * 8
    path.write_bytes(data)
    with TiffSensor(path, grid, scale=3.0) as sensor:
        with pytest.raises(LookFailed, match="tile or strip 0"):
            sensor.look([[0, 0]])
        episode = agent.run(sensor, budget=1000)
    assert episode.ended_by == ("no location left",)
    seen = {tuple(look.location[0].tolist()) for look in episode.history}
    hidden = {(row, col) for row, col in grid.locations().tolist() if row * 3 < 16 and col * 3 < 16}
    assert hidden
    assert seen == {tuple(place) for place in grid.locations().tolist()} - hidden


def test_a_location_outside_the_scene_or_for_many_scenes_is_refused(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", noise(64, 64))
    with TiffSensor(tmp_path / "a.tif", GRID) as sensor:
        with pytest.raises(InfogazeError, match="leaves the scene"):
            sensor.look([[25, 0]])
        with pytest.raises(InfogazeError, match=r"\(1, 2\)"):
            sensor.look([[0, 0], [0, 0]])
