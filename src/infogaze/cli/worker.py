"""Commands in turn, in a process that ends when the one that started it does: how a sweep runs its jobs."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import sys
from collections.abc import Sequence

from infogaze.cli import main as command_line

_DIE_WITH_PARENT = 1  # Linux: PR_SET_PDEATHSIG


def run_in_turn(parent: int, lines: Sequence[str]) -> None:
    """Run commands of `infogaze` in this process, which ends when `parent`, the one that started it, does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before it could take us with it
            raise SystemExit(1)
    for line in lines:
        command_line.main(shlex.split(line))


if __name__ == "__main__":
    run_in_turn(int(sys.argv[1]), sys.argv[2:])
