"""python recipes/ship.py RUN src/infogaze/bundled/NAME: put a trained run into the package, in half precision and small files."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import infogaze

_LARGEST_FILE = 4 << 20  # bytes


def main(run: str, out: str) -> None:
    """Load and save again."""
    folder = Path(out)
    infogaze.save(infogaze.load(run), folder, torch.float16, _LARGEST_FILE)
    print(f"{folder}: {sum(file.stat().st_size for file in folder.iterdir()) / 1e6:.1f} MB")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print("usage: python recipes/ship.py RUN src/infogaze/bundled/NAME", file=sys.stderr)
        raise SystemExit(2)
    try:
        main(*sys.argv[1:])
    except (ValueError, OSError) as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
