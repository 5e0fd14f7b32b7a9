"""python recipes/ship.py RUN src/infogaze/bundled/NAME: put a trained run into the package, in half precision and small files."""

from __future__ import annotations

from pathlib import Path

import torch
from script import called

import infogaze

_LARGEST_FILE = 4 << 20  # bytes


def main(run: str, out: str) -> None:
    """Load and save again."""
    folder = Path(out)
    infogaze.save(infogaze.load(run), folder, dtype=torch.float16, largest_file=_LARGEST_FILE)
    print(f"{folder}: {sum(file.stat().st_size for file in folder.iterdir()) / 1e6:.1f} MB")


if __name__ == "__main__":
    called(main, __doc__)
