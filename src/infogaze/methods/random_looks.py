"""The Random baseline (section 4.1): F, R and C, looks at random, and neither a controller nor a Partial VAE.

After phase 1, with looks anywhere, it settles on what it does at test: different grid places, none twice. That phase is as long as our
phases 2 and 3 together, so the networks that name have had the same number of passes over the data.
"""

from __future__ import annotations

from infogaze.methods.three_phases import RECOGNISE
from infogaze.nn.model import Recogniser
from infogaze.training.phases import (
    Batch,
    Draw,
    Objective,
    Outcome,
    Phase,
    after_recognising,
    believe,
    classified,
    random_places,
)


def settle(model: Recogniser, batch: Batch, draw: Draw, objective: Objective) -> Outcome:
    """Equation 1 at all looks, which are at random grid places."""
    places = random_places(draw, objective.looks)
    beliefs, _ = believe(model, batch, places)
    return classified(model, beliefs, model.grid.locations(places.device)[places], batch, draw, objective)


SETTLE = Phase(
    "settle", settle, lambda model: model.backbone.parameters(), frozenset({"places", "dropout"}),
    length=after_recognising, rate=2, chooses=False,
)  # fmt: skip
PHASES = (RECOGNISE, SETTLE)
