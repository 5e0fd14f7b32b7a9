"""The Random baseline (section 4.1): F, R and C, looks at random, and neither a controller nor a Partial VAE.

After phase 1, with looks anywhere, it is finetuned on what it does at test: different grid places, none twice. That phase is as long as our
phases 2 and 3 together, so that the networks that classify have had the same number of passes over the data.
"""

from __future__ import annotations

from collections.abc import Mapping

from infogaze.gaze.policies import RandomPolicy
from infogaze.methods.method import Method
from infogaze.methods.three_phases import CLASSIFY
from infogaze.nn.model import GlimpseClassifier, build_glimpse_classifier
from infogaze.training.phases import Batch, NoiseSpec, Objective, Outcome, Phase, after_phase_1, uniform
from infogaze.training.rollout import classification_outcome, hidden_size, random_places, unroll_places


def _noise(model: GlimpseClassifier, objective: Objective) -> Mapping[str, NoiseSpec]:
    return {
        "places": uniform(model.grid.num_locations),
        "dropout": uniform(objective.num_looks, hidden_size(model)),
    }


def finetune_at_random(model: GlimpseClassifier, batch: Batch, *, objective: Objective, looks: None = None) -> Outcome:
    """Equation 1 at all looks, which are at random grid places."""
    places = random_places(batch, objective.num_looks)
    beliefs, _ = unroll_places(model, batch, places)
    locations = model.grid.locations(places.device)[places]
    return classification_outcome(model, beliefs, locations=locations, batch=batch, objective=objective)


FINETUNE_AT_RANDOM = Phase(
    name="finetune",
    trained=lambda model: model.backbone.parameters(),
    noise=_noise,
    loss=finetune_at_random,
    budget=after_phase_1,
    rate=2,
    validates_by_policy=False,
)
PHASES = (CLASSIFY, FINETUNE_AT_RANDOM)

METHODS = {
    "random": Method(
        summary="looks at random",
        phases=PHASES,
        build=build_glimpse_classifier,
        policy=lambda num_samples: RandomPolicy(),
    )
}
