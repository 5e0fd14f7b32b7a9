"""The folder that training writes to: metrics and checkpoints, one process at a time."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from infogaze.files import append, locked, write_whole


class TrainingFolder:
    """`metrics.jsonl` and `checkpoints/`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self._metrics = path / "metrics.jsonl"

    def lock(self) -> AbstractContextManager[None]:
        """While the block runs no other process trains here."""
        return locked(self.path)

    def metrics(self) -> list[dict[str, Any]]:
        """All lines written so far; a last line that was cut off is left out."""
        if not self._metrics.exists():
            return []
        lines = []
        for line in self._metrics.read_text().splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                break
        return lines

    def rewind(self, phase: int, step: int) -> None:
        """Forget the metrics of steps after this one of this phase, from 1, which will be taken again."""
        kept = [line for line in self.metrics() if (line["phase"], line["step"]) <= (phase, step)]
        write_whole(self._metrics, "".join(json.dumps(line) + "\n" for line in kept).encode())

    def note(self, line: dict[str, Any]) -> None:
        """Add a line of metrics."""
        append(self._metrics, json.dumps(line) + "\n")
