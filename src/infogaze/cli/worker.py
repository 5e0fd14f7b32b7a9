"""Commands in turn, in a process that ends when the one that started it does: how a sweep runs its jobs."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from infogaze.cli import main as command_line
from infogaze.sweep.leases import LOST, Lease, keep

_DIE_WITH_PARENT = 1  # Linux: PR_SET_PDEATHSIG


def run_in_turn(parent: int, lines: Sequence[str], *, lease: Lease | None = None) -> None:
    """Run commands of `infogaze` in this process, which ends when `parent`, the one that started it, does; or when it loses its lease."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before it could take us with it
            raise SystemExit(1)
    if lease is not None:
        keep(lease, end=_end)
    for line in lines:
        command_line.main(shlex.split(line))


def _end(why: str) -> None:
    """End at once: what would be done on the way out would be written too."""
    print(f"infogaze: {why}", file=sys.stderr, flush=True)
    os._exit(LOST)


def main(arguments: Sequence[str]) -> None:
    """PARENT [--lease FILE SECONDS] LINE..., as a sweep calls it."""
    parent, *rest = arguments
    if rest[:1] == ["--lease"]:
        run_in_turn(int(parent), rest[3:], lease=Lease(Path(rest[1]), float(rest[2])))
    else:
        run_in_turn(int(parent), rest)


if __name__ == "__main__":
    main(sys.argv[1:])
