"""An image file, whatever its format and mode, as a uint8 array of the channels and the size that a set asks for."""

from __future__ import annotations

import stat
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps, UnidentifiedImageError

from infogaze.errors import DataError, Problem

Fit = Literal["resize", "crop", "pad"]
"""How a picture is brought to another size: stretched, its middle, or with black bars."""

_GREY = {"1", "L", "LA"}
_COLOUR = {"P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "LAB", "HSV"}
_KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe (FIFO)", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket",
}  # fmt: skip
_SIXTEEN_BITS = {"I;16", "I;16L", "I;16B", "I;16N"}


@dataclass(frozen=True, kw_only=True)
class Form:
    """What the pictures of a set must be, and what they become."""

    channels: int
    """1 or 3."""
    convert: bool
    """Whether a picture of another channel count is converted; otherwise it is a problem."""
    native: tuple[int, int] | None
    """Height and width that a file must have; None allows any."""
    size: tuple[int, int]
    """Height and width that a picture is brought to."""
    fit: Fit
    """How."""
    advice: str = ""
    """What to do about a file of another height and width."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every picture."""
        return (self.channels, *self.size)


def read_picture(path: Path, form: Form) -> UInt8[np.ndarray, "C H W"]:
    """The picture in its form; DataError where it cannot be read or has another shape than it must."""
    image = open_picture(path)
    found = channels_of(image)
    if found != form.channels and not form.convert:
        kinds = {1: "grey", 3: "colour"}
        both = f"is {kinds[found]} among {kinds[form.channels]} images"
        raise DataError(Problem(path, f"{both}; --read.channels makes all grey (1) or colour (3)", kind="channels"))
    if form.native is not None and form.native != (image.height, image.width):
        height, width = form.native
        raise DataError(
            Problem(path, f"is {image.height}x{image.width}, not {height}x{width}{form.advice}", kind="size")
        )
    return fit_picture(pixels_of(image, form.channels), form.size, form.fit)


def open_picture(path: Path) -> Image.Image:
    """The picture in 8 bits, grey or colour (mode L or RGB), upright as its camera was held, white where it is transparent.

    Deep greys are scaled by 65535, whatever their values, so that two files compare. DataError names a file that cannot be read.
    """
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            raise DataError(Problem(path, f"is {_KINDS.get(stat.S_IFMT(state.st_mode), 'no file')}, not an image"))
        if not state.st_size:
            raise DataError(Problem(path, "is an empty file"))
        with warnings.catch_warnings():
            # Pillow warns of large pictures and refuses those twice as large; the refusal is enough.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path) as file:
                image = ImageOps.exif_transpose(file)
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(Problem(path, "is missing")) from None
    except PermissionError:
        raise DataError(Problem(path, "may not be read by this user")) from None
    except Image.DecompressionBombError:
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        raise DataError(Problem(path, f"unpacks to more than {most} pixels, as a decompression bomb does")) from None
    except UnidentifiedImageError:
        raise DataError(Problem(path, "is no image that Pillow can read")) from None
    except Exception as error:  # Pillow's decoders raise whatever a damaged file leads them to.
        raise DataError(Problem(path, f"is damaged: {error}")) from None
    return as_eight_bits(image, path)


def as_eight_bits(image: Image.Image, name: Path | str) -> Image.Image:
    """A picture of any mode in 8 bits, grey or colour (mode L or RGB), white where it is transparent; DataError says `name`."""
    if image.mode in _SIXTEEN_BITS or _fits_sixteen_bits(image):
        return _scaled(image)
    if image.mode in _GREY | _COLOUR:
        return _over_white(image)
    raise DataError(
        Problem(Path(name), f"has pixels of mode {image.mode}, whose range is unknown; save it with 8 or 16 bits")
    )


def _fits_sixteen_bits(image: Image.Image) -> bool:
    """Whether these are integers of 32 bits, as which Pillow opens some files of 16, and none needs more than 16."""
    return image.mode == "I" and bool((np.asarray(image) >> 16 == 0).all())


def _scaled(image: Image.Image) -> Image.Image:
    """16 bits of grey as 8, rounded; the one grey that a file may call transparent becomes white."""
    values = np.asarray(image)
    scaled = np.rint(values / 257).astype(np.uint8)  # 257 is 65535 / 255
    if "transparency" in image.info:
        scaled[values == image.info["transparency"]] = 255
    return Image.fromarray(scaled)


def _over_white(image: Image.Image) -> Image.Image:
    """The 8 bits of any other mode, as grey or colour."""
    mode = "L" if image.mode in _GREY else "RGB"
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert(mode)


def channels_of(image: Image.Image) -> int:
    """1 for grey, 3 for colour, of a picture that `open_picture` gave."""
    return len(image.getbands())


def pixels_of(image: Image.Image, channels: int) -> UInt8[np.ndarray, "C h w"]:
    """The pixels of a picture that `open_picture` gave, in grey (1 channel) or colour (3)."""
    return _channels_first(image.convert("L" if channels == 1 else "RGB"))


def fit_picture(pixels: UInt8[np.ndarray, "C h w"], size: tuple[int, int], fit: Fit) -> UInt8[np.ndarray, "C H W"]:
    """The picture at another height and width; one that has them already stays as it is, bit by bit."""
    if pixels.shape[1:] == size:
        return pixels
    target = (size[1], size[0])
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    return _channels_first(_FITS[fit](image, target))


_FITS: dict[Fit, Callable[[Image.Image, tuple[int, int]], Image.Image]] = {
    "resize": lambda image, target: image.resize(target, Image.Resampling.LANCZOS),
    "crop": lambda image, target: ImageOps.fit(image, target, Image.Resampling.LANCZOS),
    "pad": lambda image, target: ImageOps.pad(image, target, Image.Resampling.LANCZOS),
}


def _channels_first(image: Image.Image) -> UInt8[np.ndarray, "C h w"]:
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
