"""What was expected of the scenes of the showcase after each look, as pictures, and how uncertain each location was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int, UInt8
from torch import Tensor

from infogaze.evaluation.measurement import Measurement, OnProgress, Subject
from infogaze.evaluation.showcase import shown_again
from infogaze.evaluation.store import Record


@dataclass(frozen=True, kw_only=True)
class ImaginedScenes(Record):
    """The expected scene after each look, of the scenes of the showcase."""

    file: ClassVar[str] = "imagined"

    scenes: Int[Tensor, " s"]
    """Their number in the test split."""
    pictures: UInt8[Tensor, "s T C H W"]
    uncertainty: Float[Tensor, "s T rows cols"]
    """The entropy of what each location holds, in nats."""


def imagined_scenes(subject: Subject, on_progress: OnProgress) -> ImaginedScenes:
    """Look once more at the scenes to be shown, with the same outcome, and keep what is expected of them."""
    chosen, looked = shown_again(subject, imagine=True)
    if looked.imagined is None or looked.uncertainty is None:
        raise ValueError("a model that imagines no pixels has no scenes to draw")
    return ImaginedScenes(scenes=chosen, pictures=looked.imagined, uncertainty=looked.uncertainty)


MEASUREMENT = Measurement(
    record=ImaginedScenes,
    measure=imagined_scenes,
    lacking="imagined scenes",
    applies=lambda method: method.imagination == "dictionary",
)
