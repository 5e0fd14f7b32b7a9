"""Training as TensorBoard shows it, for those who ask for it: needs the extra `track`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from infogaze.errors import InfogazeError
from infogaze.training.loop import Step


def tracker(folder: Path) -> Callable[[Step], None]:
    """Writes each notice to `folder/tensorboard`."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InfogazeError("--track needs the extra 'track': pip install 'infogaze[track]'") from None
    writer = SummaryWriter(str(folder / "tensorboard"))

    def notice(step: Step) -> None:
        if not step.fresh:
            return
        writer.add_scalar(f"{step.phase}/loss", step.loss, step.step)
        for look, share in enumerate(step.accuracy):
            writer.add_scalar(f"{step.phase}/accuracy at look {look}", share, step.step)
        writer.flush()

    return notice
