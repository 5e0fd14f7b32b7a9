"""Gymnasium: an environment over any set of infogaze, which hands out nothing of an image but its glimpses. Needs the extra `gym`.

`gymnasium.make("infogaze/Scenes-v0")` makes it once this is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image, ImageDraw

from infogaze.data.options import AS_IT_IS, ReadOptions
from infogaze.data.registry import load_set
from infogaze.errors import InfogazeError
from infogaze.gaze.sensor import ImageSensor

try:
    from gymnasium import Env, register, spaces
except ImportError:
    raise InfogazeError("infogaze.adapters.gym needs the extra 'gym': pip install 'infogaze[gym]'") from None

_LEAST = 1e-7
"""What is added to each probability: a label that was ruled out costs much, not infinitely much."""
_RENDERED = 256
"""About how many pixels the longer side of a rendered scene has."""
_UNSEEN, _FRAME = 209, "#c2410c"
"""The grey of what was not looked at, and the colour around the glimpse."""


class ScenesEnv(Env[dict[str, Any], dict[str, Any]]):
    """Classify a scene that is never seen whole, with so many looks; every whole-pixel location can be reached from every other.

    An observation is a glimpse, the row and column of its top-left pixel, and how many looks are left. An action says where to look next
    (`action`), and the probabilities of the labels as far as they are known (`prediction`; they are scaled to add up to 1). The first look
    is at random. A step pays minus the cross-entropy of its prediction, in units of what knowing nothing costs, and `info` then tells the
    label, as environments of ap_gym do. In the last step no look is left: only its prediction counts. What is rendered is what was seen.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - as gymnasium declares it
        "render_modes": ["rgb_array"],
        "render_fps": 2,
    }

    def __init__(
        self,
        *,
        data: str = "digits",
        root: str | Path | None = None,
        split: str = "test",
        options: ReadOptions = AS_IT_IS,
        glimpse_size: int = 8,
        num_looks: int = 7,
        render_mode: str | None = None,
    ) -> None:
        images = load_set(data, root, options)
        splits = {"train": images.train, "test": images.test}
        if split not in splits:
            raise InfogazeError(f"split is {split!r}; {' or '.join(splits)} is allowed")
        self._scenes = splits[split]
        _, channels, height, width = self._scenes.images.shape
        if not 1 <= glimpse_size <= min(height, width):
            raise InfogazeError(f"glimpse_size is {glimpse_size}; from 1 to {min(height, width)} fits these scenes")
        if num_looks < 1:
            raise InfogazeError(f"num_looks is {num_looks}; it must be at least 1")
        if render_mode not in {None, *self.metadata["render_modes"]}:
            raise InfogazeError(f"render_mode is {render_mode!r}; rgb_array is allowed")
        self._where = spaces.MultiDiscrete([height - glimpse_size + 1, width - glimpse_size + 1])
        prediction = spaces.Box(0.0, 1.0, (len(images.classes),), np.float32)
        self.action_space = spaces.Dict({"action": self._where, "prediction": prediction})
        self.observation_space = spaces.Dict(
            {
                "glimpse": spaces.Box(0, 255, (channels, glimpse_size, glimpse_size), np.uint8),
                "location": spaces.MultiDiscrete(self._where.nvec),
                "looks_left": spaces.Discrete(num_looks),
            }
        )
        self.classes = images.classes
        """The names of the labels, in the order of a prediction."""
        self.num_looks = num_looks
        self.render_mode = render_mode
        self._glimpse_size = glimpse_size
        self._sensor: ImageSensor | None = None

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin with another scene, drawn from all of the split; `options={"scene": 3}` takes that one."""
        super().reset(seed=seed)
        count, given = len(self._scenes), dict(options or {})
        drawn, first = int(self.np_random.integers(count)), self.np_random.integers(self._where.nvec)
        scene = given.pop("scene", drawn)
        if given or not 0 <= scene < count:
            raise InfogazeError(f'options are {options}; "scene", from 0 to {count - 1}, is allowed')
        self._sensor = ImageSensor(self._scenes.images[scene : scene + 1], self._glimpse_size)
        self._label = np.int64(self._scenes.labels[scene])
        self._seen = np.full(self._scenes.images.shape[1:], _UNSEEN, np.uint8)
        self._looks_left = self.num_looks
        self._look(first)
        return self._observation(), {}

    def step(self, action: Mapping[str, Any]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Judge the prediction, then look."""
        if self._sensor is None:
            raise RuntimeError("no episode is running: reset() begins one")
        loss = self._loss(np.asarray(action["prediction"], np.float64))
        done = self._looks_left == 0
        if done:
            self._sensor = None
        else:
            self._look(np.asarray(action["action"]))
        info = {"base_reward": 0.0, "prediction": {"target": self._label, "loss": np.float64(loss)}}
        return self._observation(), -loss, done, False, info

    def render(self) -> UInt8[np.ndarray, "h w 3"] | None:
        """The scene as far as it was seen, with a frame around the glimpse; the rest is grey."""
        if self.render_mode is None:
            return None
        _, height, width = self._seen.shape
        scale = max(1, round(_RENDERED / max(height, width)))
        pixels = np.broadcast_to(self._seen.transpose(1, 2, 0), (height, width, 3))
        picture = Image.fromarray(pixels.repeat(scale, 0).repeat(scale, 1))
        top, left = self._location * scale
        low, right = self._location * scale + self._glimpse.shape[-1] * scale - 1
        ImageDraw.Draw(picture).rectangle((left, top, right, low), outline=_FRAME, width=max(1, scale // 3))
        return np.asarray(picture)

    def _look(self, where: np.ndarray) -> None:
        """Point the sensor; all that is kept of the scene for rendering is its glimpses."""
        assert self._sensor is not None
        if not np.issubdtype(where.dtype, np.integer) or not self._where.contains(where):
            last_row, last_col = self._where.nvec - 1
            raise InfogazeError(
                f"the action is {where}; whole numbers are allowed, row 0 to {last_row} and column 0 to {last_col}"
            )
        self._location = where.astype(np.int64)
        self._glimpse = self._sensor.look(torch.from_numpy(self._location)[None])[0].numpy()
        (row, col), side = self._location, self._glimpse.shape[-1]
        self._seen[:, row : row + side, col : col + side] = self._glimpse
        self._looks_left -= 1

    def _loss(self, prediction: np.ndarray) -> float:
        """The cross-entropy, where 1 is that of all labels equally likely."""
        count = len(self.classes)
        if prediction.shape != (count,) or not bool((prediction >= 0).all()) or not np.isfinite(prediction).all():
            raise InfogazeError(
                f"the prediction is {prediction}; {count} numbers of at least 0 are needed, one a label"
            )
        shares = prediction + _LEAST
        return float(-np.log(shares[self._label] / shares.sum()) / np.log(count))

    def _observation(self) -> dict[str, Any]:
        return {
            "glimpse": self._glimpse.copy(),
            "location": self._location.copy(),
            "looks_left": np.int64(self._looks_left),
        }


register(id="infogaze/Scenes-v0", entry_point="infogaze.adapters.gym:ScenesEnv")
