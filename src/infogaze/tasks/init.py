"""Settings for a folder of own pictures: what they are, and a commented file that `infogaze train --config` takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from infogaze.data.folder import class_files
from infogaze.errors import DataError, InfogazeError, Problem
from infogaze.pictures import channels_of, open_picture
from infogaze.tasks.sizes import suggest_sizes
from infogaze.training.recipe import recipe

_LOOKED_AT = 2000
"""Pictures that are opened, of a larger set."""
_LARGEST_SIDE = 256
"""Pixels of a scene; larger pictures would have more locations than can be imagined."""
_SMALLEST_SIDE = 7
"""Pixels that the networks of the preset need of a glimpse."""


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """What is in a folder."""

    classes: tuple[str, ...]
    count: int
    split: bool
    """Whether it has train/ and test/."""
    sizes: tuple[tuple[tuple[int, int], int], ...]
    """Height and width, and how many have them, the most frequent first."""
    channels: int
    """1 where all are grey."""


def describe_pictures(root: Path) -> Pictures:
    """Open the pictures of a folder, or of many enough."""
    split = (root / "train").is_dir() and (root / "test").is_dir()
    problems: list[Problem] = []
    files = class_files(root / "train" if split else root, problems)
    paths = [path for of_class in files.values() for path in of_class]
    if problems or not paths:
        raise DataError(*(problems or [Problem(root, "holds no pictures")]))
    found: Counter[tuple[int, int]] = Counter()
    channels = set()
    for path in paths[:: max(1, len(paths) // _LOOKED_AT)]:
        picture = open_picture(path)
        found[picture.height, picture.width] += 1
        channels.add(channels_of(picture))
    return Pictures(
        classes=tuple(files), count=len(paths), split=split, sizes=tuple(found.most_common()), channels=max(channels)
    )


def scene_size(pictures: Pictures) -> tuple[int, int]:
    """One size for all: their own if they share one, else the most frequent, or the median side where all differ; not too large."""
    height, width = _usual_size(pictures)
    larger = max(height, width, _LARGEST_SIDE) / _LARGEST_SIDE
    return round(height / larger), round(width / larger)


def _usual_size(pictures: Pictures) -> tuple[int, int]:
    (most, count), *others = pictures.sizes
    if not others or count > sum(number for _, number in pictures.sizes) // 2:
        return most
    heights = sorted(height for (height, _), number in pictures.sizes for _ in range(number))
    widths = sorted(width for (_, width), number in pictures.sizes for _ in range(number))
    return heights[len(heights) // 2], widths[len(widths) // 2]


def run_file(root: Path, pictures: Pictures) -> str:
    """The text of a run.toml for these pictures."""
    height, width = scene_size(pictures)
    if min(height, width) < _SMALLEST_SIDE:
        raise InfogazeError(
            f"{root}: pictures of {height}x{width} leave no room to look around; {_SMALLEST_SIDE} pixels are the least"
        )
    sizes, way = suggest_sizes(height, width), recipe("own")
    seen = min(1.0, sizes.num_looks * sizes.glimpse_size**2 / (height * width))
    alike = [size for size, _ in pictures.sizes] == [(height, width)]
    where = "in train/; test/ is the test split" if pictures.split else "a fifth of each class becomes the test split"
    size_note = "all pictures have this size" if alike else "pictures have other sizes; all are brought to this one"
    return f"""# Settings for `infogaze train --config THIS --out RUN`.
# Every line can be changed, left out, or given as an option instead.
# {pictures.count} pictures of {len(pictures.classes)} classes ({_few(pictures.classes)}); {where}.

preset = "own"          # where the other values come from: infogaze train own --help shows them all
data = "folder"
root = "{_escaped(str(root))}"   # as seen from this file
method = "infogaze"     # or random, ram-plus, discriminative, cnn, ...: see docs/methods.md
seed = 0
val_fraction = 0.1      # of the training pictures; the weights that do best on them are kept

num_looks = {sizes.num_looks}           # the budget; so many looks show at most {100 * seen:.0f} % of a scene
horizontal_flip = true  # false where a mirrored picture has another label: digits, letters, left and right hands

[read]
size = [{height}, {width}]       # {size_note}
fit = "crop"            # how: "crop" (the middle), "resize" (stretched) or "pad" (black bars)
channels = {pictures.channels}            # {"all are grey" if pictures.channels == 1 else "colour; 1 makes all grey"}

[model]
glimpse_size = {sizes.glimpse_size}       # what one look shows: {sizes.glimpse_size}x{sizes.glimpse_size} pixels
stride = {sizes.stride}             # apart: {sizes.num_locations} locations to choose from

[recipe]
name = "own"            # counts steps, so that small sets are trained long enough

[recipe.phase1]         # F, R and C: what is seen
steps = {way.phase1.steps}

[recipe.phase2]         # S and D: what is imagined
steps = {way.phase2.steps}

[recipe.phase3]         # everything, along the looks it chooses
steps = {way.phase3.steps}
"""


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= 6 else f"{', '.join(names[:5])} and {len(names) - 5} more"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
