"""python recipes/draw_sample.py PNG: draw the sample picture that comes with the package, a cargo ship at sea. The picture is ours."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageFilter
from script import called

_SIZE = 768  # drawn large, so that edges come out smooth
_HORIZON = 500


def _gradient(top: tuple[int, int, int], bottom: tuple[int, int, int], height: int) -> np.ndarray:
    down = np.linspace(0.0, 1.0, height)[:, None, None]
    return np.broadcast_to(np.array(top) * (1 - down) + np.array(bottom) * down, (height, _SIZE, 3))


def draw() -> Image.Image:
    """Sky, sea, ship, and the grain of a photograph."""
    draw_from = np.random.default_rng(0)
    sky = _gradient((96, 148, 205), (205, 222, 236), _HORIZON)
    sea = _gradient((70, 110, 140), (28, 58, 84), _SIZE - _HORIZON)
    picture = Image.fromarray(np.concatenate([sky, sea]).astype(np.uint8))
    pen = ImageDraw.Draw(picture)
    for _ in range(240):  # waves
        x, y = draw_from.integers(0, _SIZE), draw_from.integers(_HORIZON + 10, _SIZE)
        length, light = draw_from.integers(20, 110), int(draw_from.integers(90, 170))
        pen.line([(x, y), (x + length, y)], fill=(light - 40, light, light + 15), width=4)
    pen.polygon([(70, 440), (700, 420), (650, 555), (130, 560)], fill=(52, 48, 58))  # hull
    pen.polygon([(108, 520), (664, 508), (650, 555), (130, 560)], fill=(150, 42, 36))  # its red belly
    pen.rectangle([150, 270, 300, 440], fill=(236, 236, 230))  # bridge
    pen.rectangle([165, 210, 285, 275], fill=(225, 226, 222))
    for row in (290, 340, 390):
        for column in range(165, 290, 32):
            pen.rectangle([column, row, column + 18, row + 20], fill=(70, 84, 98))
    pen.rectangle([205, 130, 250, 215], fill=(196, 64, 44))  # funnel
    pen.rectangle([205, 130, 250, 150], fill=(30, 30, 34))
    colours = [(176, 92, 44), (70, 110, 150), (150, 150, 146), (60, 120, 90)]
    for column in range(320, 640, 64):  # containers
        for level in range(2 + (column // 64) % 2):
            bottom = 428 - 58 * level
            pen.rectangle([column, bottom - 54, column + 60, bottom], fill=colours[(column // 64 + level) % 4])
    pen.line([(660, 430), (660, 250)], fill=(60, 60, 66), width=9)  # mast
    pen.polygon([(90, 562), (690, 552), (740, 574), (60, 584)], fill=(196, 212, 220))  # foam
    picture = picture.filter(ImageFilter.GaussianBlur(6)).resize((128, 128), Image.Resampling.LANCZOS)
    grain = draw_from.normal(0.0, 5.0, (128, 128, 1))
    return Image.fromarray((np.asarray(picture) + grain).clip(0, 255).astype(np.uint8))


def main(path: str) -> None:
    """Draw it into a file."""
    draw().save(path, optimize=True)


if __name__ == "__main__":
    called(main, __doc__)
