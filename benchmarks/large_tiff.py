"""What looking at a scene of 50,000 x 50,000 pixels costs in memory and time: python benchmarks/large_tiff.py

The file is of tiles of one grey each: 2.5 GB unpacked, a few MB on the disk. Needs Linux or macOS and the extra `slides`.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import tifffile

import infogaze

TILE = 512


def write(path: Path, side: int, levels: int) -> None:
    """A pyramid of so many levels, tile by tile."""
    packed = [zlib.compress(bytes([grey]) * TILE**2) for grey in range(251)]

    def tiles(length: int) -> Iterator[bytes]:
        return (packed[index % 251] for index in range((-(-length // TILE)) ** 2))

    with tifffile.TiffWriter(path, bigtiff=True) as file:
        for level in range(levels):
            length = side >> level
            kind = {"subfiletype": 1} if level else {"subifds": levels - 1}
            file.write(
                tiles(length), shape=(length, length), dtype="uint8", tile=(TILE, TILE), compression="deflate",
                photometric="minisblack", **kind,
            )  # fmt: skip


def peak() -> float:
    """The most memory that this process had so far, in MiB."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 2**10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=50_000)
    parser.add_argument("--looks", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for levels in (1, 6):
            path = Path(folder) / f"{levels}.tif"
            write(path, options.side, levels)
            for scale in (1.0, 10.0, options.side / 32):
                height = max(32, int(options.side / scale))
                grid = infogaze.GlimpseGrid(height=height, width=height, glimpse_size=8, stride=max(4, height // 64))
                with infogaze.TiffSensor(path, grid, scale=scale) as sensor:
                    step = max(1, grid.num_locations // options.looks)
                    places = grid.locations()[::step]
                    if scale > 100:  # each reads much of the file where there is no pyramid
                        places = places[: 4 if levels == 1 else None]
                    before, began = peak(), time.perf_counter()
                    for place in places:
                        sensor.look(place[None])
                    seconds = (time.perf_counter() - began) / len(places)
                    print(
                        f"{options.side}x{options.side}, {levels} levels, scale {scale:g}: {len(places)} looks, {1000 * seconds:.1f} ms "
                        f"and {sensor.bytes_read / len(places) / 2**10:.0f} KiB of the file each; peak memory "
                        f"{before:.0f} MiB before, {peak():.0f} MiB after",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
