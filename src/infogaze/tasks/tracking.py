"""Training as TensorBoard shows it, for those who ask for it: needs the extra `track`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from infogaze.errors import InfogazeError
from infogaze.training.plan import Progress


def tracker(folder: Path) -> Callable[[Progress], None]:
    """Writes what is read of the meters to `folder/tensorboard`."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InfogazeError("--track needs the extra 'track': pip install 'infogaze[track]'") from None
    writer = SummaryWriter(str(folder / "tensorboard"))

    def on_step(progress: Progress) -> None:
        if not progress.fresh:
            return
        writer.add_scalar(f"{progress.name}/loss", progress.reading.loss, progress.step)
        for name, accuracy in (("accuracy", progress.reading.accuracy), ("val_accuracy", progress.val_accuracy)):
            for look, share in enumerate(accuracy):
                writer.add_scalar(f"{progress.name}/{name} at look {look}", share, progress.step)
        writer.flush()

    return on_step
