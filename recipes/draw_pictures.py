"""python recipes/draw_pictures.py FOLDER: draw the pictures that the page offers beside the sample. They are ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter
from script import called

_SIZE = 768  # drawn large, so that edges come out smooth
_SIDE = 128
Colour = tuple[int, int, int]


def _sloping(top: Colour, bottom: Colour, height: int) -> np.ndarray:
    down = np.linspace(0.0, 1.0, height)[:, None, None]
    return np.broadcast_to(np.array(top) * (1 - down) + np.array(bottom) * down, (height, _SIZE, 3))


def _ground(*bands: tuple[Colour, Colour, int]) -> Image.Image:
    """Bands one below the other, each from one colour to another."""
    return Image.fromarray(np.concatenate([_sloping(*band) for band in bands]).astype(np.uint8))


def _tufts(pen: ImageDraw.ImageDraw, *, top: int, colour: Colour, seed: int) -> None:
    """Grass."""
    rng = np.random.default_rng(seed)
    for _ in range(900):
        x, y = rng.integers(0, _SIZE), rng.integers(top, _SIZE)
        light = int(rng.integers(-28, 28))
        shade = tuple(int(np.clip(value + light, 0, 255)) for value in colour)
        pen.line([(x, y), (x + int(rng.integers(-8, 8)), y - int(rng.integers(14, 40)))], fill=shade, width=5)


def _wheel(pen: ImageDraw.ImageDraw, x: int, y: int, radius: int) -> None:
    pen.ellipse([x - radius, y - radius, x + radius, y + radius], fill=(28, 28, 30))
    inner = radius * 11 // 20
    pen.ellipse([x - inner, y - inner, x + inner, y + inner], fill=(168, 170, 174))


def airplane() -> Image.Image:
    """An airliner against the sky."""
    picture = _ground(((92, 148, 214), (178, 208, 236), _SIZE))
    pen = ImageDraw.Draw(picture)
    pen.polygon([(330, 380), (470, 370), (300, 610), (240, 616)], fill=(150, 158, 168))  # the near wing
    pen.polygon([(380, 350), (470, 345), (560, 190), (520, 188)], fill=(176, 184, 194))  # the far one
    pen.polygon([(70, 420), (60, 330), (96, 322), (180, 396)], fill=(36, 74, 140))  # fin
    pen.polygon([(60, 400), (170, 390), (150, 430), (50, 452)], fill=(140, 148, 160))
    pen.polygon(
        [(60, 404), (180, 380), (610, 318), (690, 326), (716, 352), (690, 372), (600, 392), (190, 436), (80, 430)],
        fill=(238, 240, 242),
    )
    pen.polygon([(80, 430), (190, 436), (600, 392), (690, 372), (600, 380), (190, 420)], fill=(176, 184, 194))
    for x in range(220, 620, 34):
        y = 398 - int((x - 220) * 0.125)
        pen.rectangle([x, y - 18, x + 14, y - 4], fill=(52, 70, 96))
    pen.polygon([(640, 330), (684, 334), (694, 346), (640, 344)], fill=(44, 58, 80))
    pen.ellipse([330, 470, 420, 516], fill=(96, 104, 116))
    return picture


def automobile() -> Image.Image:
    """A red car on a road."""
    picture = _ground(
        ((176, 196, 214), (206, 216, 222), 330),
        ((92, 122, 78), (108, 132, 88), 130),
        ((120, 120, 122), (86, 86, 90), 308),
    )
    pen = ImageDraw.Draw(picture)
    pen.ellipse([50, 560, 720, 640], fill=(58, 58, 62))
    pen.polygon(
        [
            (60, 470),
            (80, 400),
            (200, 370),
            (280, 270),
            (480, 262),
            (590, 366),
            (700, 392),
            (722, 470),
            (716, 566),
            (60, 566),
        ],
        fill=(190, 30, 32),
    )
    pen.polygon([(226, 368), (292, 290), (380, 286), (380, 366)], fill=(58, 76, 94))
    pen.polygon([(398, 366), (398, 286), (472, 284), (552, 362)], fill=(70, 90, 110))
    pen.polygon([(60, 520), (720, 520), (716, 566), (60, 566)], fill=(126, 18, 22))
    pen.ellipse([676, 412, 722, 448], fill=(244, 236, 196))
    pen.rectangle([60, 424, 84, 458], fill=(240, 120, 60))
    pen.line([(388, 372), (388, 540)], fill=(140, 20, 24), width=6)
    for x in (194, 584):
        _wheel(pen, x, 562, 76)
    return picture


def truck() -> Image.Image:
    """A lorry with a large white box."""
    picture = _ground(((150, 182, 214), (206, 218, 228), 430), ((140, 136, 128), (98, 96, 94), 338))
    pen = ImageDraw.Draw(picture)
    pen.ellipse([30, 620, 740, 690], fill=(66, 66, 68))
    pen.rectangle([40, 180, 500, 560], fill=(236, 236, 232))
    pen.rectangle([40, 180, 500, 204], fill=(200, 202, 204))
    pen.rectangle([40, 330, 500, 400], fill=(206, 120, 36))
    pen.polygon(
        [(516, 560), (516, 286), (640, 286), (706, 420), (730, 440), (730, 600), (516, 600)], fill=(38, 84, 156)
    )
    pen.polygon([(548, 414), (548, 314), (626, 314), (676, 414)], fill=(172, 202, 222))
    pen.rectangle([40, 560, 730, 606], fill=(48, 50, 54))
    pen.rectangle([696, 496, 730, 530], fill=(246, 234, 180))
    for x in (140, 260, 620):
        _wheel(pen, x, 606, 62)
    return picture


def horse() -> Image.Image:
    """A brown horse on a meadow."""
    picture = _ground(((150, 190, 222), (206, 222, 226), 330), ((112, 148, 76), (82, 118, 54), 438))
    pen = ImageDraw.Draw(picture)
    _tufts(pen, top=360, colour=(92, 130, 60), seed=4)
    dark, coat, light = (58, 34, 22), (124, 74, 42), (150, 94, 56)
    for x, sway in ((214, -14), (270, 6), (480, -8), (534, 14)):
        pen.polygon([(x, 430), (x + 56, 430), (x + 38 + sway, 650), (x + 8 + sway, 650)], fill=coat)
        pen.rectangle([x + 4 + sway, 642, x + 44 + sway, 668], fill=dark)
    pen.ellipse([180, 300, 420, 490], fill=coat)
    pen.ellipse([330, 300, 600, 480], fill=coat)
    pen.rectangle([280, 306, 500, 470], fill=coat)
    pen.ellipse([240, 310, 520, 380], fill=light)
    pen.polygon([(500, 420), (470, 320), (570, 150), (640, 170), (620, 260), (590, 430)], fill=coat)
    pen.polygon([(570, 150), (660, 150), (736, 262), (712, 300), (672, 292), (610, 232)], fill=light)
    pen.polygon([(580, 160), (586, 104), (616, 150)], fill=coat)
    pen.polygon([(462, 330), (556, 138), (596, 148), (520, 330)], fill=dark)
    pen.polygon([(196, 330), (150, 360), (120, 560), (160, 580), (216, 400)], fill=dark)
    pen.ellipse([640, 186, 656, 202], fill=(20, 14, 12))
    return picture


def deer() -> Image.Image:
    """A stag before trees."""
    picture = _ground(((98, 122, 84), (70, 96, 60), 380), ((122, 140, 82), (96, 118, 58), 388))
    pen = ImageDraw.Draw(picture)
    rng = np.random.default_rng(8)
    for _ in range(160):
        x, y, r = rng.integers(0, _SIZE), rng.integers(0, 380), rng.integers(20, 60)
        g = int(rng.integers(60, 130))
        pen.ellipse([x - r, y - r, x + r, y + r], fill=(g - 24, g, g - 40))
    _tufts(pen, top=400, colour=(112, 136, 70), seed=5)
    coat, dark, pale = (158, 112, 70), (96, 62, 38), (206, 178, 142)
    for x, sway in ((250, -10), (296, 6), (468, -6), (512, 10)):
        pen.polygon(
            [(x, 440), (x + 40, 440), (x + 28 + sway, 668), (x + 8 + sway, 668)], fill=dark if sway > 0 else coat
        )
    pen.ellipse([214, 336, 560, 492], fill=coat)
    pen.ellipse([260, 430, 520, 500], fill=pale)
    pen.polygon([(488, 430), (470, 360), (548, 216), (604, 230), (560, 440)], fill=coat)
    pen.polygon([(540, 214), (610, 200), (676, 262), (660, 290), (590, 280)], fill=coat)
    pen.ellipse([644, 256, 680, 290], fill=(52, 40, 34))
    pen.polygon([(548, 222), (496, 196), (540, 246)], fill=coat)
    pen.ellipse([598, 224, 612, 238], fill=(24, 18, 14))
    for lean in (-1, 1):
        root = (572 + 12 * lean, 206)
        pen.line([root, (560 + 60 * lean, 130), (560 + 90 * lean, 40)], fill=pale, width=14, joint="curve")
        pen.line([(560 + 60 * lean, 130), (570 + 10 * lean, 70)], fill=pale, width=11)
        pen.line([(560 + 76 * lean, 86), (560 + 130 * lean, 60)], fill=pale, width=11)
    pen.ellipse([206, 360, 244, 420], fill=(236, 226, 206))
    return picture


def frog() -> Image.Image:
    """A green frog from above, on brown leaves."""
    picture = _ground(((116, 92, 62), (86, 66, 44), _SIZE))
    pen = ImageDraw.Draw(picture)
    rng = np.random.default_rng(3)
    for _ in range(420):
        x, y = rng.integers(0, _SIZE, 2)
        w, h = rng.integers(16, 80), rng.integers(10, 40)
        light = int(rng.integers(-34, 40))
        pen.ellipse([x, y, x + w, y + h], fill=(112 + light, 88 + light, 58 + light))
    green, dark, pale = (96, 146, 48), (56, 98, 30), (176, 196, 108)
    pen.ellipse([96, 420, 320, 600], fill=dark)
    pen.ellipse([470, 430, 700, 604], fill=dark)
    pen.polygon([(110, 560), (60, 650), (220, 640), (250, 570)], fill=green)
    pen.polygon([(680, 560), (728, 650), (560, 640), (540, 570)], fill=green)
    pen.ellipse([190, 250, 600, 610], fill=green)
    pen.ellipse([210, 170, 580, 430], fill=green)
    pen.ellipse([286, 420, 506, 606], fill=pale)
    pen.polygon([(236, 520), (180, 660), (290, 660), (320, 560)], fill=dark)
    pen.polygon([(556, 520), (612, 660), (500, 660), (470, 560)], fill=dark)
    for x in (220, 480):
        pen.ellipse([x, 130, x + 96, 226], fill=green)
        pen.ellipse([x + 18, 146, x + 78, 206], fill=(222, 190, 70))
        pen.ellipse([x + 34, 158, x + 62, 196], fill=(18, 18, 14))
    pen.arc([250, 250, 540, 400], 20, 160, fill=dark, width=10)
    for _ in range(26):
        x, y = rng.integers(240, 540), rng.integers(250, 420)
        pen.ellipse([x, y, x + 22, y + 16], fill=dark)
    return picture


def cat() -> Image.Image:
    """The head of a grey cat."""
    picture = _ground(((164, 136, 112), (132, 104, 84), _SIZE))
    pen = ImageDraw.Draw(picture)
    coat, dark, pale = (136, 128, 122), (74, 68, 66), (222, 214, 206)
    pen.ellipse([120, 430, 650, 1000], fill=coat)
    for x in (200, 290, 470, 560):
        pen.line([(x, 560), (x + 10, 760)], fill=dark, width=22)
    pen.polygon([(170, 330), (176, 70), (360, 210)], fill=coat)
    pen.polygon([(600, 330), (594, 70), (410, 210)], fill=coat)
    pen.polygon([(200, 270), (206, 126), (310, 216)], fill=(206, 154, 142))
    pen.polygon([(570, 270), (564, 126), (460, 216)], fill=(206, 154, 142))
    pen.ellipse([150, 170, 620, 580], fill=coat)
    pen.ellipse([270, 400, 500, 580], fill=pale)
    for x in (330, 385, 440):
        pen.line([(x, 180), (x, 270)], fill=dark, width=20)
    for side in (-1, 1):
        for y in (390, 430, 470):
            pen.line([(385 + side * 160, y), (385 + side * 226, y - 10)], fill=dark, width=14)
            pen.line([(385 + side * 60, y + 40), (385 + side * 270, y + 60)], fill=(240, 238, 236), width=4)
        pen.ellipse([385 + side * 100 - 48, 316, 385 + side * 100 + 48, 396], fill=(196, 200, 84))
        pen.ellipse([385 + side * 100 - 15, 320, 385 + side * 100 + 15, 394], fill=(16, 16, 14))
    pen.polygon([(352, 430), (418, 430), (385, 466)], fill=(196, 120, 116))
    pen.line([(385, 466), (385, 496), (340, 520)], fill=dark, width=7)
    pen.line([(385, 496), (430, 520)], fill=dark, width=7)
    return picture


def bird() -> Image.Image:
    """A robin on a branch."""
    picture = _ground(((170, 190, 160), (136, 160, 122), _SIZE))
    pen = ImageDraw.Draw(picture)
    pen.line([(0, 640), (300, 600), (_SIZE, 620)], fill=(92, 72, 52), width=44)
    brown, dark, red = (112, 92, 70), (70, 56, 44), (206, 98, 44)
    pen.polygon([(180, 470), (40, 590), (80, 620), (250, 530)], fill=dark)
    pen.ellipse([170, 260, 560, 590], fill=brown)
    pen.ellipse([320, 320, 570, 590], fill=(226, 216, 200))
    pen.ellipse([400, 160, 620, 380], fill=brown)
    pen.ellipse([430, 220, 620, 460], fill=red)
    pen.polygon([(612, 250), (684, 272), (612, 296)], fill=(60, 52, 44))
    pen.ellipse([540, 214, 572, 246], fill=(16, 14, 12))
    pen.polygon([(190, 380), (420, 350), (400, 470), (150, 520)], fill=dark)
    for x in (360, 430):
        pen.line([(x, 570), (x - 6, 632)], fill=(96, 66, 46), width=14)
    return picture


def dog() -> Image.Image:
    """The head of a brown dog with hanging ears."""
    picture = _ground(((150, 176, 134), (112, 146, 92), _SIZE))
    pen = ImageDraw.Draw(picture)
    coat, dark, pale = (176, 122, 70), (104, 66, 38), (236, 222, 200)
    pen.ellipse([140, 500, 630, 1000], fill=coat)
    pen.ellipse([280, 560, 490, 900], fill=pale)
    pen.ellipse([190, 130, 580, 560], fill=coat)
    pen.polygon([(236, 170), (120, 230), (100, 470), (190, 510), (250, 330)], fill=dark)
    pen.polygon([(534, 170), (650, 230), (670, 470), (580, 510), (520, 330)], fill=dark)
    pen.polygon([(360, 140), (410, 140), (430, 400), (340, 400)], fill=pale)
    pen.ellipse([280, 360, 490, 590], fill=pale)
    for x in (300, 470):
        pen.ellipse([x - 30, 290, x + 30, 350], fill=(30, 20, 14))
        pen.ellipse([x - 6, 298, x + 10, 314], fill=(230, 230, 226))
    pen.ellipse([336, 390, 436, 462], fill=(28, 22, 22))
    pen.line([(385, 462), (385, 510)], fill=dark, width=9)
    pen.arc([310, 450, 385, 530], 10, 120, fill=dark, width=9)
    pen.arc([385, 450, 460, 530], 60, 170, fill=dark, width=9)
    pen.ellipse([356, 520, 414, 600], fill=(214, 110, 112))
    return picture


DRAWINGS: dict[str, Callable[[], Image.Image]] = {
    draw.__name__: draw for draw in (airplane, automobile, truck, horse, deer, frog, cat, bird, dog)
}


def photographed(picture: Image.Image, seed: int) -> Image.Image:
    """Small, with soft edges and the grain of a photograph."""
    small = picture.filter(ImageFilter.GaussianBlur(6)).resize((_SIDE, _SIDE), Image.Resampling.LANCZOS)
    grain = np.random.default_rng(seed).normal(0.0, 5.0, (_SIDE, _SIDE, 1))
    return Image.fromarray((np.asarray(small) + grain).clip(0, 255).astype(np.uint8))


def main(folder: str) -> None:
    """Draw each into a file."""
    for seed, (name, draw) in enumerate(DRAWINGS.items()):
        photographed(draw(), seed).save(Path(folder) / f"{name}.png", optimize=True)


if __name__ == "__main__":
    called(main, __doc__)
