"""How long a program waits before it can begin: fresh interpreters, ten of each after one that is not counted, medians."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time

PROGRAMS = {
    "import infogaze": ["-c", "import infogaze"],
    "infogaze --help": ["-m", "infogaze.cli", "--help"],
    "import torch": ["-c", "import torch"],
    'infogaze.load("digits")': ["-c", "import infogaze; infogaze.load('digits')"],
    'infogaze.load("cifar10")': ["-c", "import infogaze; infogaze.load('cifar10')"],
}
REPEATS = 10


def once(arguments: list[str]) -> tuple[float, float]:
    """Seconds by the clock, and of the processor."""
    used, began = processor(), time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began, processor() - used


def processor() -> float:
    """Seconds of the processor that all children took so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    for name, arguments in PROGRAMS.items():
        once(arguments)
        clock, used = zip(*(once(arguments) for _ in range(REPEATS)), strict=True)
        print(f"{name:<26} {statistics.median(clock):6.2f} s   processor {statistics.median(used):6.2f} s", flush=True)
