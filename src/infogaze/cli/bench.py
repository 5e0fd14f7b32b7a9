"""`infogaze bench`: how fast training, testing and a single decision are here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from infogaze.cli.names import METHOD_NAMES, PRESET_NAMES
from infogaze.devices import device_named
from infogaze.errors import InfogazeError
from infogaze.files import make_folder, write_json
from infogaze.presets import preset
from infogaze.progress import display
from infogaze.tasks.bench import ROWS, machine, measure


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Measure images a second of each phase and of the test procedure, and the time of one decision.

    On images made up. The whole data path is in it: gathering from the set, augmentation, random numbers, optimiser, EMA. On a GPU in
    bfloat16, on the CPU in float32.
    """

    preset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar=PRESET_NAMES)] = "cifar10"
    """Whose sizes to measure."""
    method: Annotated[str, tyro.conf.arg(metavar=METHOD_NAMES)] = "infogaze"
    """Whose phases and decisions."""
    device: str = "auto"
    """Where: cpu, cuda, cuda:1; auto takes a GPU if there is one."""
    rows: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="STR [STR ...]", help_behavior_hint="")] = None
    """Which measurements: 'phase 1', 'phase 2', 'phase 3', 'test'; for one scene 'decision' and 'scene', all its looks, and both by a
    'distilled' gain: 'distilled decision', 'distilled scene'. All that the method has if not given."""
    batch_size: int | None = None
    """Scenes a step; 1024 on a GPU and 64 on the CPU if not given. A decision and a scene are of one always."""
    seconds: float = 5.0
    """How long each is measured, after warming up."""
    out: Path | None = None
    """A JSON file for the numbers."""

    def run(self) -> None:
        """Measure, print, write."""
        for row in self.rows or ():
            if row not in ROWS:
                raise InfogazeError(f"no row is called {row!r}; there are {', '.join(ROWS)}")
        device = device_named(self.device)
        batch_size = self.batch_size if self.batch_size is not None else (1024 if device.type == "cuda" else 64)
        with display() as screen:
            measured = measure(
                preset(self.preset),
                device,
                method=self.method,
                batch_size=batch_size,
                seconds=self.seconds,
                rows=self.rows,
                screen=screen,
            )
        if self.out is not None:
            make_folder(self.out.parent)
            write_json(
                self.out,
                {
                    "preset": self.preset,
                    "method": self.method,
                    **machine(device),
                    "rows": [asdict(row) for row in measured],
                },
            )
            print(f"numbers: {self.out}")


def read(arguments: Sequence[str]) -> Bench:
    """The command with its options."""
    return tyro.cli(Bench, prog="infogaze bench", args=list(arguments))
