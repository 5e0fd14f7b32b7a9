"""A large TIFF looked at window by window: of the file, only the tiles that a glimpse lies on are ever read. Needs the extra `slides`."""

from __future__ import annotations

import io
import math
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Num
from PIL import Image
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.gaze.sensor import LookFailed
from infogaze.grid import GlimpseGrid, Location, require_inside, tensor_of
from infogaze.sensors.area import averaged, shares

if TYPE_CHECKING:
    from tifffile import TiffPage

_LARGEST_SEGMENT = 1 << 28
"""Bytes that a tile or strip may unpack to: each is read whole."""
_AT_ONCE = 1 << 20
"""Pixels that are averaged at once."""
_JPEG, _MIN_IS_WHITE, _PALETTE, _YCBCR, _SEPARATE = 7, 0, 3, 6, 2  # numbers of the TIFF standard


@dataclass(frozen=True)
class _Level:
    """One resolution of the image."""

    pages: tuple[TiffPage, ...]
    """One, or one a channel."""

    @property
    def height(self) -> int:
        return int(self.pages[0].imagelength)

    @property
    def width(self) -> int:
        return int(self.pages[0].imagewidth)


class TiffSensor:
    """A sensor over one TIFF of any size, plain or a pyramid, as the one scene of an episode.

    `scale` is how many pixels of the file, at its full resolution, a pixel of the model covers; None brings all of the file into the scene.
    A pixel of a glimpse is the mean over the area that it covers, read off the coarsest level of the pyramid that is fine enough. What is
    outside the file is black. A tile that cannot be read is a look that fails.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        grid: GlimpseGrid,
        *,
        scale: float | None = None,
        top: float = 0.0,
        left: float = 0.0,
        channels: Sequence[int] | None = None,
        white: float | None = None,
        series: int = 0,
    ) -> None:
        """`top` and `left` are where in the file the scene begins. `channels` are those to read, all if None. `white` is the value that
        is white: of integers, the largest of their type if None. `series` is the image, of a file that holds several."""
        self._path, self._grid = Path(path), grid
        self._file = _opened(self._path)
        try:
            self._levels = _levels(self._file, self._path, series)
            for page in (page for level in self._levels for page in level.pages):
                _require_readable(page, self._path)
            full = self._levels[0]
            self.height, self.width = full.height, full.width
            whole = max(self.height / grid.height, self.width / grid.width)
            self.scale = whole if scale is None else scale
            """Pixels of the file that a pixel of the model covers."""
            if not 0.0 < self.scale < math.inf:
                raise InfogazeError(f"scale is {scale}; it must be above 0")
            self._corner = (top, left)
            self._white = _white(full.pages[0].dtype, self._path) if white is None else white
            if not 0.0 < self._white < math.inf:
                raise InfogazeError(f"white is {white}; it must be above 0")
            self._clipped = white is not None
            count = len(full.pages) * full.pages[0].samplesperpixel
            self._channels = tuple(range(count)) if channels is None else tuple(channels)
            if (
                not self._channels
                or len(set(self._channels)) < len(self._channels)
                or not all(0 <= channel < count for channel in self._channels)
            ):
                raise InfogazeError(
                    f"channels are {list(self._channels)}; {self._path} has 0 to {count - 1}, each once"
                )
            if not bool(self.allowed.any()):
                raise InfogazeError(f"the scene begins at ({top:g}, {left:g}), outside {self._path}: {self.size_words}")
        except BaseException:
            self._file.close()
            raise
        self._reading = threading.Lock()
        self.bytes_read = 0
        """Of the file, for glimpses: what tiles and strips take there."""
        self.log: list[Num[Tensor, "1 2"]] = []
        """The locations asked for, in order."""

    @property
    def size_words(self) -> str:
        """Height and width of the file, to be read."""
        return f"{self.height}x{self.width} pixels"

    @property
    def allowed(self) -> Bool[Tensor, "rows cols"]:
        """The locations of the grid that show some of the file, for `allowed=` of an episode."""
        grid, side = self._grid, self._grid.glimpse_size * self.scale
        inside = []
        for starts, corner, length in zip(grid.axes(), self._corner, (self.height, self.width), strict=True):
            begin = corner + starts.double() * self.scale
            inside.append((begin < length) & (begin + side > 0))
        return inside[0][:, None] & inside[1][None]

    def look(self, where: Location) -> Float32[Tensor, "1 C g g"]:
        """The glimpse at `where`, in [0, 1]."""
        where = tensor_of(where)
        if where.shape != (1, 2):
            raise InfogazeError(f"locations have shape {tuple(where.shape)}; (1, 2) is expected, of the one scene")
        grid, side = self._grid, self._grid.glimpse_size
        require_inside(where, grid.height - side, grid.width - side)
        self.log.append(where.clone())
        row, col = where[0].tolist()
        level = self._level()
        down, across = self.height / level.height, self.width / level.width
        window = _Window(
            top=(self._corner[0] + row * self.scale) / down,
            left=(self._corner[1] + col * self.scale) / across,
            height=self.scale / down,
            width=self.scale / across,
            side=side,
        )
        values = self._values(level, window)
        if level.pages[0].photometric == _MIN_IS_WHITE:
            values = window.covered(level) - values
        if self._clipped:
            values = values.clip(0.0, 1.0)
        return torch.from_numpy(values.astype(np.float32))[None].to(where.device)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> TiffSensor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _level(self) -> _Level:
        """The coarsest that is no coarser than the scene."""
        fine = [level for level in self._levels if self.height / level.height <= self.scale * (1 + 1e-3)]
        return min(fine, key=lambda level: level.height, default=self._levels[0])

    def _values(self, level: _Level, window: _Window) -> Float[np.ndarray, "C g g"]:
        """The glimpse in the file's own numbers, as a share of white; each tile is read once for all its channels."""
        values = np.zeros((len(self._channels), window.side, window.side))
        samples = level.pages[0].samplesperpixel
        separate = level.pages[0].planarconfig == _SEPARATE
        together: dict[tuple[int, int], list[int]] = {}  # what lies in the same tiles: a page, or a plane of it
        for channel in self._channels:
            page, sample = divmod(channel, samples)
            together.setdefault((page, sample if separate else 0), []).append(channel)
        for (page, plane), channels in together.items():
            own = [0 if separate else channel % samples for channel in channels]
            places = [self._channels.index(channel) for channel in channels]
            for top, left, block in self._blocks(level.pages[page], plane, window):
                rows, cols = window.shares(top, left, block.shape)
                step = max(1, _AT_ONCE // block.shape[1])
                for first in range(0, len(block), step):
                    part = block[first : first + step][..., own].astype(np.float64)
                    values[places] += averaged(part, rows[:, first : first + step], cols).transpose(2, 0, 1)
        return values / self._white

    def _blocks(self, page: TiffPage, plane: int, window: _Window) -> Iterator[tuple[int, int, np.ndarray]]:
        """Top, left and pixels [h, w, samples] of the parts of a page, or of a plane of it, that the window touches."""
        (top, bottom), (left, right) = window.span(page.imagelength, page.imagewidth)
        if bottom <= top or right <= left:
            return
        if page.is_memmappable and page.planarconfig != _SEPARATE:
            kind = np.dtype(page.dtype).newbyteorder(page.parent.byteorder)
            shape = (page.imagelength, page.imagewidth, page.samplesperpixel)
            pixels = np.memmap(self._path, dtype=kind, mode="r", offset=page.dataoffsets[0], shape=shape)
            step = max(1, _AT_ONCE // (right - left))
            for first in range(top, bottom, step):
                block = pixels[first : min(bottom, first + step), left:right]
                self.bytes_read += block.nbytes
                yield first, left, block
            return
        high, wide = _segment_size(page)
        across, down = -(-page.imagewidth // wide), -(-page.imagelength // high)
        for row in range(top // high, -(-bottom // high)):
            for col in range(left // wide, -(-right // wide)):
                segment = self._segment(page, (plane * down + row) * across + col)
                if segment is not None:
                    yield (
                        row * high,
                        col * wide,
                        segment[: page.imagelength - row * high, : page.imagewidth - col * wide],
                    )

    def _segment(self, page: TiffPage, index: int) -> np.ndarray | None:
        """The pixels of a tile or strip, [h, w, samples]; None where the file left it out."""
        offset, count = page.dataoffsets[index], page.databytecounts[index]
        if not count:
            return None
        with self._reading:
            self._file.filehandle.seek(offset)
            data = self._file.filehandle.read(count)
            self.bytes_read += count
        try:
            if len(data) < count:
                raise ValueError("the file ends before it")
            if page.compression == _JPEG:
                return _from_jpeg(data, page)
            pixels = page.decode(data, index)[0]
            return None if pixels is None else pixels[0]
        except Exception as error:  # decoders raise whatever damaged data lead them to
            raise LookFailed(f"{self._path}: tile or strip {index} cannot be read: {error}") from error


@dataclass(frozen=True, kw_only=True)
class _Window:
    """A glimpse in the pixels of a level."""

    top: float
    left: float
    height: float
    """Of one pixel of the glimpse."""
    width: float
    side: int
    """Pixels of the glimpse."""

    def span(self, height: int, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """First and last rows, first and last columns that it touches, of an image of this size."""

        def within(start: float, step: float, length: int) -> tuple[int, int]:
            return max(0, math.floor(start)), min(length, math.ceil(start + step * self.side))

        return within(self.top, self.height, height), within(self.left, self.width, width)

    def shares(self, top: int, left: int, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """How much of each row and column of the glimpse lies on those of a block."""
        rows = shares(self.top, self.height, self.side, first=top, last=top + shape[0])
        return rows, shares(self.left, self.width, self.side, first=left, last=left + shape[1])

    def covered(self, level: _Level) -> np.ndarray:
        """How much of each pixel of the glimpse lies on the image."""
        rows, cols = self.shares(0, 0, (level.height, level.width))
        return rows.sum(1)[:, None] * cols.sum(1)[None]


def _opened(path: Path) -> Any:
    try:
        import tifffile
    except ImportError:
        raise InfogazeError("TiffSensor needs the extra 'slides': pip install 'infogaze[slides]'") from None
    try:
        return tifffile.TiffFile(path)
    except OSError as error:
        raise InfogazeError(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception as error:  # a damaged header leads it anywhere
        raise InfogazeError(f"{path}: not a TIFF that can be read: {' '.join(str(error).split())}") from None


def _levels(file: Any, path: Path, number: int) -> list[_Level]:
    """All resolutions of an image, the full one first."""
    try:
        found = list(file.series)
        if not found:
            raise InfogazeError(f"{path}: not a TIFF that can be read: it holds no image")
        if not 0 <= number < len(found):
            raise InfogazeError(f"series is {number}; {path} has 0 to {len(found) - 1}")
        series = found[number]
        plain = series.axes.replace("S", "").replace("C", "")
        if plain != "YX":
            raise InfogazeError(f"{path}: its axes are {series.axes}; an image of rows, columns and channels is needed")
        levels = [_Level(tuple(page.aspage() for page in level.pages)) for level in series.levels]
    except InfogazeError:
        raise
    except Exception as error:
        raise InfogazeError(f"{path}: not a TIFF that can be read: {' '.join(str(error).split())}") from None
    return sorted(levels, key=lambda level: -level.height)


def _require_readable(page: TiffPage, path: Path) -> None:
    from tifffile import TIFF

    if page.photometric == _PALETTE or page.dtype is None or page.imagedepth > 1:
        raise InfogazeError(f"{path}: holds {page.dtype} with a palette or in depth; pixels of numbers are needed")
    name = getattr(page.compression, "name", page.compression)
    if page.compression != _JPEG:
        try:
            TIFF.DECOMPRESSORS[page.compression]
        except KeyError:
            raise InfogazeError(f"{path}: to unpack {name} needs another package: pip install imagecodecs") from None
    elif page.dtype != np.uint8:
        raise InfogazeError(f"{path}: holds JPEG of {page.dtype}; 8 bits are read")
    high, wide = _segment_size(page)
    size = high * wide * page.samplesperpixel * np.dtype(page.dtype).itemsize
    if size > _LARGEST_SEGMENT and not page.is_memmappable:
        raise InfogazeError(
            f"{path}: a strip or tile unpacks to {size >> 20} MiB; at most 256 are read, so write it tiled"
        )


def _segment_size(page: TiffPage) -> tuple[int, int]:
    """Rows and columns of a tile, or of a strip."""
    if page.is_tiled:
        return int(page.tilelength), int(page.tilewidth)
    return min(int(page.rowsperstrip), int(page.imagelength)), int(page.imagewidth)


def _white(kind: Any, path: Path) -> float:
    kind = np.dtype(kind)
    if kind.kind == "b" or kind.kind == "f":
        return 1.0
    if kind.kind in "iu":
        return float(np.iinfo(kind).max)
    raise InfogazeError(f"{path}: holds {kind}; integers or floats are needed")


def _from_jpeg(data: bytes, page: TiffPage) -> np.ndarray:
    """A JPEG tile, whose tables are kept once for all, and whose colours are what the page says, not what a decoder guesses."""
    tables = page.jpegtables or b"\xff\xd8\xff\xd9"
    marker = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00" + bytes([page.photometric == _YCBCR])
    with Image.open(io.BytesIO(b"\xff\xd8" + marker + tables[2:-2] + data[2:]), formats=["JPEG"]) as image:
        high, wide = _segment_size(page)
        if image.width != wide or image.height > high:
            raise ValueError(f"holds {image.height}x{image.width} pixels, not {high}x{wide}")
        pixels = np.asarray(image)
    return pixels[..., None] if pixels.ndim == 2 else pixels
