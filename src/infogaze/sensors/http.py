"""A service that returns crops of a scene over HTTP, as a sensor."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import numpy as np
import torch
from jaxtyping import Num
from PIL import Image
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.gaze.sensor import LookFailed, Seen
from infogaze.grid import Location, tensor_of
from infogaze.pictures import as_eight_bits
from infogaze.sensors.crops import CropForm

_LARGEST_ANSWER = 1 << 26
_OURS_TO_MEND = (400, 401, 403, 405)
"""Of the statuses of HTTP, those that another attempt, and another place, will not change."""
_FIELDS = ("row", "col", "size")


class HttpSensor:
    """A sensor that asks a URL with `{row}`, `{col}` and `{size}` in it for a square crop: PNG, JPEG or a NumPy array (.npy).

    `scale` is how many pixels of the service a pixel of the model covers; row, column and size are in its pixels, whole numbers. A look
    fails where nothing comes for `timeout` seconds, or anything but a picture; one of another size is an error. It looks at one scene.
    """

    def __init__(
        self,
        url: str,
        glimpse_size: int,
        *,
        scale: float = 1.0,
        channels: int | None = None,
        white: float | None = None,
        timeout: float = 10.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`channels` are those of the model, for which grey crops are repeated. `white` is the value that is white, of arrays that are
        neither uint8 nor floats in [0, 1]. `headers` go with every request."""
        try:
            parts = urlsplit(url.format(row=0, col=0, size=glimpse_size))
            lacking = [name for name in _FIELDS[:2] if f"{{{name}" not in url]
        except (KeyError, IndexError, ValueError) as error:
            raise InfogazeError(f"the URL is {url!r}; its fields are {{row}}, {{col}} and {{size}}: {error}") from None
        if parts.scheme not in {"http", "https"} or not parts.netloc or lacking:
            raise InfogazeError(f"the URL is {url!r}; http or https, with {{row}} and {{col}} in it, is needed")
        if not 0.0 < scale < math.inf:
            raise InfogazeError(f"scale is {scale}; it must be above 0")
        if not 0.0 < timeout < math.inf:
            raise InfogazeError(f"timeout is {timeout}; a number of seconds above 0 is needed")
        self._url, self._scale, self._timeout = url, scale, timeout
        self._headers = dict(headers or {})
        self._size = max(1, round(glimpse_size * scale))
        if self._size < glimpse_size:
            raise InfogazeError(
                f"scale is {scale}; a glimpse of {glimpse_size} pixels needs a crop of as many at least"
            )
        self._form = CropForm(glimpse_size=glimpse_size, crop_size=self._size, channels=channels, white=white)
        self.bytes_read = 0
        """Of all answers together."""

    def look(self, where: Location) -> Num[Tensor, "1 C g g"] | Seen:
        """The glimpse at `where`, or at the whole pixel of the service that is nearest; LookFailed where the service does not give it."""
        where = tensor_of(where)
        if where.shape != (1, 2):
            raise InfogazeError(f"locations have shape {tuple(where.shape)}; (1, 2) is expected, of the one scene")
        row, col = (round(value * self._scale) for value in where[0].tolist())
        url = self._url.format(row=row, col=col, size=self._size)
        crop = self._crop(url)
        try:
            glimpse = self._form.glimpse(crop)[None]
        except InfogazeError as error:
            raise InfogazeError(f"{url}: {error}") from None
        at = torch.tensor([[row, col]], dtype=torch.float64) / self._scale
        return glimpse if torch.equal(at, where.double()) else Seen(glimpse, at)

    def _crop(self, url: str) -> np.ndarray:
        try:
            with urlopen(Request(url, headers=self._headers), timeout=self._timeout) as answer:
                data = answer.read(_LARGEST_ANSWER + 1)
        except HTTPError as error:
            with error:
                if error.code in _OURS_TO_MEND:
                    raise InfogazeError(f"{url}: the service refuses: {error.code} {error.reason}") from None
            raise LookFailed(f"{url}: {error.code} {error.reason}") from error
        except (OSError, HTTPException) as error:  # no connection, or one that ends or takes too long
            raise LookFailed(f"{url}: {error}") from error
        self.bytes_read += len(data)
        if len(data) > _LARGEST_ANSWER:
            raise LookFailed(f"{url}: the answer is longer than {_LARGEST_ANSWER >> 20} MiB")
        try:
            return _array(data) if data.startswith(b"\x93NUMPY") else _picture(data)
        except Exception as error:  # decoders raise whatever damaged data lead them to
            raise LookFailed(f"{url}: no PNG, JPEG or NumPy array: {error}") from error


def _picture(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data), formats=["PNG", "JPEG"]) as image:
        return np.asarray(as_eight_bits(image, "the answer"))


def _array(data: bytes) -> np.ndarray:
    """An array of numbers, of as many as there are bytes for: a header may promise anything."""
    file = io.BytesIO(data)
    read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, _, kind = read_header[np.lib.format.read_magic(file)](file)
    if math.prod(shape) * kind.itemsize > len(data):
        raise ValueError("the array is not all there")
    return np.load(io.BytesIO(data), allow_pickle=False)
