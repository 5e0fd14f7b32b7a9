"""The figures of a chapter in their order: the paper's, then ours beyond it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from infogaze.report.area import by_area
from infogaze.report.by_look import by_attention, by_common_judge, by_flows, by_look
from infogaze.report.calibration import by_calibration
from infogaze.report.coherence import by_coherence
from infogaze.report.confusion import by_confusion
from infogaze.report.corruptions import by_corruption
from infogaze.report.drawing import Drawn
from infogaze.report.early_stopping import by_early_stopping
from infogaze.report.entropy import entropy_by_look
from infogaze.report.gain_calibration import by_gain_calibration
from infogaze.report.gather import Chapter
from infogaze.report.latents import by_latents
from infogaze.report.many_looks import by_many_looks
from infogaze.report.places import by_places
from infogaze.report.sample_counts import by_sample_counts
from infogaze.report.scenes import one_scene, rollouts
from infogaze.report.travelled import by_travelled_time


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A figure of every chapter."""

    number: int
    """Of its files, which it puts in order. On a page, where some may be left out, figures have no numbers."""
    name: str
    """Of its files."""
    title: str
    paper: str
    """Which figures of the paper it can be laid beside, if any."""
    draw: Callable[[Chapter], Drawn]


ENTRIES = tuple(
    Entry(number=number, name=name, title=title, paper=paper, draw=draw)
    for number, (name, title, paper, draw) in enumerate(
        (
            ("accuracy", "Accuracy by look", "2a to 2e, 9b", by_look),
            ("judged", "The policies judged by one CNN", "3", by_common_judge),
            ("flows", "Flows against a Gaussian posterior", "2f", by_flows),
            ("rollouts", "Rollouts", "4, 11 to 13", rollouts),
            ("area", "Accuracy against the area observed", "5", by_area),
            ("entropy", "Entropy of the class distribution by look", "6", entropy_by_look),
            ("many-looks", "Many more looks than trained for", "7", by_many_looks),
            ("latents", "What is imagined, with and without flows", "8", by_latents),
            ("attention", "With and without self-attention", "9a", by_attention),
            ("confusion", "Confusion", "10", by_confusion),
            ("one-scene", "One scene seen by every method", "14 to 16", one_scene),
            ("places", "Where each policy looks", "", by_places),
            ("calibration", "Calibration by look", "", by_calibration),
            ("gain-calibration", "Gain calibration: expected against realised gain", "", by_gain_calibration),
            ("sample-counts", "What the number of imagined scenes buys", "", by_sample_counts),
            ("corruptions", "Robustness to corruptions", "", by_corruption),
            ("coherence", "What the imagined gain is made of", "", by_coherence),
            ("early-stopping", "Stopping early, with a guarantee", "", by_early_stopping),
            ("travel", "Accuracy against time with a sensor that travels", "", by_travelled_time),
        ),
        start=1,
    )
)
