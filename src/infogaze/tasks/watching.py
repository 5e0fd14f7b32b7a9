"""Training as it is shown to a person: a bar a phase."""

from __future__ import annotations

from collections.abc import Sequence

from infogaze.progress import Bar, Display
from infogaze.training.plan import Progress


class TrainingBars:
    """Turns the progress of training into bars, with loss, training accuracy and validation accuracy by look."""

    def __init__(self, screen: Display) -> None:
        self._screen = screen
        self._bars: dict[int, Bar] = {}

    def on_step(self, progress: Progress) -> None:
        """Show where training stands."""
        if progress.phase not in self._bars:
            total, done = progress.steps * progress.batch_size, progress.step * progress.batch_size
            self._bars[progress.phase] = self._screen.bar(f"phase {progress.phase}, {progress.name}", total, begin=done)
            return
        read = progress.reading
        parts = [f"loss {read.loss:.2f}"] if read.accuracy else []
        parts += [f"training accuracy {_percent(read.accuracy)}"] if read.accuracy else []
        parts += [f"validation accuracy {_percent(progress.val_accuracy)}"] if progress.val_accuracy else []
        self._bars[progress.phase].advance(progress.batch_size, ", ".join(parts))


def _percent(accuracy: Sequence[float]) -> str:
    """By look; of more than seven, the first, the middle and the last."""
    looks = accuracy if len(accuracy) <= 7 else (accuracy[0], accuracy[len(accuracy) // 2], accuracy[-1])
    return " ".join(f"{100 * share:.0f}" for share in looks) + " %"
