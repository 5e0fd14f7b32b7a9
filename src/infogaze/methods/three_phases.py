"""The paper's three phases (section 4): classify, imagine, finetune; and the methods that are trained by them: the paper's own, with one
thing changed, and with our gain correction, which their names then say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infogaze.gaze.policies import GainPolicy
from infogaze.methods.method import Method
from infogaze.nn.belief import Belief
from infogaze.nn.gain import class_entropy
from infogaze.nn.model import GlimpseClassifier, Model, build_model
from infogaze.nn.partial_vae import PartialVAE
from infogaze.nn.precision import precise
from infogaze.training.losses import partial_vae_loss
from infogaze.training.phases import Batch, NoiseSpec, Objective, Outcome, Phase, normal, uniform
from infogaze.training.rollout import (
    accuracy,
    classification_outcome,
    glimpse_content,
    greedy_looks,
    hidden_size,
    is_taught,
    random_places,
    taught_likelihood,
    unroll_places,
    visits,
)

_FIRST_SPREAD = 0.25
"""Of what D imagines before it has learned anything, as a share of the features' own."""
_HOPS = 4
"""Of the self-attention in R (the appendix's section on it): how many weighted means of the earlier states are read."""


def classify_noise(model: GlimpseClassifier, objective: Objective) -> Mapping[str, NoiseSpec]:
    """Where the looks fall, as a share of the allowed rows and columns; and dropout."""
    looks = objective.num_looks
    return {"anywhere": uniform(looks, 2), "dropout": uniform(looks, hidden_size(model))}


def classify(model: GlimpseClassifier, batch: Batch, *, objective: Objective, looks: None = None) -> Outcome:
    """Phase 1: F, R and C, with looks at random anywhere."""
    grid, anywhere = model.grid, batch.noise["anywhere"]
    rows = anywhere[..., 0] * (grid.height - grid.glimpse_size + 1)
    cols = anywhere[..., 1] * (grid.width - grid.glimpse_size + 1)
    locations = torch.stack([rows, cols], -1).long().movedim(1, 0)  # [T, B, 2]
    beliefs = model.backbone.unroll(glimpse_content(model, batch, locations), locations)
    return classification_outcome(model, beliefs, locations=locations, batch=batch, objective=objective)


def imagine_noise(model: Model, objective: Objective) -> Mapping[str, NoiseSpec]:
    """The order of the grid places, and the sample of z at each look."""
    places = uniform(model.grid.num_locations)
    return {"places": places, "latent": normal(objective.num_looks, _vae(model).posterior.latent_size)}


def imagine(model: Model, batch: Batch, *, objective: Objective, looks: None = None) -> Outcome:
    """Phase 2: S and D, with looks at random grid places and the rest frozen."""
    with torch.no_grad():
        places = random_places(batch, objective.num_looks)
        beliefs, content = unroll_places(model, batch, places)
        correct = accuracy(model.backbone.classify(beliefs), batch.labels)
    kl_weight = (batch.progress / objective.kl_warmup).clamp(max=1.0) if objective.kl_warmup else 1.0
    loss = objective.alpha * _vae_loss(
        model, batch, beliefs=beliefs, content=content, places=places, kl_weight=kl_weight
    )
    return Outcome(loss, correct, visits(model.grid.locations(places.device)[places], model.grid))


@torch.no_grad()
def prepare_imagination(model: Model, batches: Iterator[Batch], objective: Objective) -> None:
    """Before phase 2: set the flow's ActNorms, what D imagines at first and sigma^2, from a first batch.

    D begins near the mean of the features, and not at noise louder than they are, which would first have to be unlearned.

    sigma^2 begins at the variance of the features. From one, an optimiser would take thousands of steps down to it, and until then
    errors weigh so little that imagining anything but the mean does not pay: posterior collapse.
    """
    model.eval()
    batch = next(batches)
    beliefs, content = unroll_places(model, batch, random_places(batch, objective.num_looks))
    features = precise(content.flatten(0, 1))
    noise = batch.noise["latent"].movedim(1, 0)[: len(content)].flatten(0, 1)
    variance = features.var(0).mean().clamp(min=1e-8)
    vae, hidden = _vae(model), beliefs.hidden.flatten(0, 1)
    vae.log_variance.copy_(variance.log())
    vae.posterior.initialise(hidden, noise)
    vae.decoder.initialise(vae.posterior(hidden).rsample(noise), features.mean(0), _FIRST_SPREAD * variance.sqrt())


def finetune_noise(model: Model, objective: Objective) -> Mapping[str, NoiseSpec]:
    """Places, z and dropout as before; the imagined scenes behind each choice; and which looks explore."""
    looks, vae = objective.num_looks, _vae(model)
    return {
        "places": uniform(model.grid.num_locations),
        "imagined": normal(looks, *vae.noise_shape(objective.num_samples)),
        "latent": normal(looks, vae.posterior.latent_size),
        "dropout": uniform(looks, hidden_size(model)),
        "epsilon": uniform(looks),
    }


@dataclass(frozen=True, kw_only=True)
class ChosenLooks:
    """Looks that were chosen by gain, and what came of each but the first."""

    places: Int[Tensor, "T B"]
    gain: Float[Tensor, "_ B"]
    """Of the look, as imagined."""
    hidden: Float[Tensor, "_ B h"]
    """Of the belief before the look."""
    entropy: Float[Tensor, "_ B"]
    """Of the label before the look, in nats."""
    outcome: Float[Tensor, "_ B"]
    """How much the look lowered the loss, in nats; nothing is known of it for a scene without a label."""
    labelled: Bool[Tensor, " B"]


def choose_by_gain(model: Model, batch: Batch, objective: Objective) -> ChosenLooks:
    """Looks where the gain is largest, as P scenes imagined for each show it."""
    return looks_by(
        lambda belief, look: model.imagined_gain(belief, objective.num_samples, noise=batch.noise["imagined"][:, look]),
        model,
        batch,
        objective=objective,
    )


def looks_by(
    imagined_gain: Callable[[Belief, int], Float[Tensor, "B L"]], model: Model, batch: Batch, *, objective: Objective
) -> ChosenLooks:
    """Looks where this gain, corrected, is largest; with a correction to fit some explore, so that it hears of every place before it is
    believed."""
    maps: list[Tensor] = []

    def value(belief: Belief, look: int) -> Tensor:
        gain = imagined_gain(belief, look)
        maps.append(gain)
        if model.correction is None:
            return gain
        return model.correction(gain, belief.hidden, class_entropy(model.backbone.classify(belief)))

    explore = model.correction is not None
    places, beliefs = greedy_looks(value, model, batch, num_looks=objective.num_looks, explore=explore)
    predicted = model.backbone.classify(beliefs)
    likelihood = taught_likelihood(predicted, batch)
    gains = [gain.gather(1, place[:, None]).squeeze(1) for gain, place in zip(maps, places[1:], strict=True)]
    return ChosenLooks(
        places=places,
        gain=torch.stack(gains) if gains else likelihood[:0],
        hidden=beliefs.hidden[:-1],
        entropy=class_entropy(predicted[:-1]),
        outcome=likelihood[1:] - likelihood[:-1],
        labelled=is_taught(batch),
    )


def finetune(model: Model, batch: Batch, *, objective: Objective, looks: ChosenLooks) -> Outcome:
    """Phase 3: everything, with looks chosen by the gain of a few imagined scenes, or one, which is what makes them explore."""
    beliefs, content = unroll_places(model, batch, looks.places)
    locations = model.grid.locations(looks.places.device)[looks.places]
    classified = classification_outcome(model, beliefs, locations=locations, batch=batch, objective=objective)
    # The features to imagine are a target, not a way to make imagining easy: no gradient reaches them.
    imagined = _vae_loss(model, batch, beliefs=beliefs, content=content.detach(), places=looks.places)
    loss = objective.alpha * imagined + objective.beta * classified.loss + correction_loss(model, looks)
    return Outcome(loss, classified.accuracy, classified.visits)


def correction_loss(model: Model, looks: ChosenLooks) -> Float[Tensor, ""] | float:
    """How far the corrected gains of these looks are from what came of them; nothing without a correction, or with one look alone."""
    if model.correction is None or not len(looks.gain):
        return 0.0
    expected = model.correction.at(looks.places[1:], gain=looks.gain, hidden=looks.hidden, entropy=looks.entropy)
    missed = torch.where(looks.labelled, expected - looks.outcome, 0.0).square()
    return missed.sum() / (len(missed) * looks.labelled.sum().clamp(min=1))


def _vae_loss(
    model: Model,
    batch: Batch,
    *,
    beliefs: Belief,
    content: Float[Tensor, "T B f"],
    places: Int[Tensor, "T B"],
    kl_weight: float | Float[Tensor, ""] = 1.0,
) -> Float[Tensor, ""]:
    noise = batch.noise["latent"].movedim(1, 0)[: len(places)]
    vae = _vae(model)
    z, log_q = vae.posterior(beliefs.hidden).rsample_with_log_prob(noise)
    return partial_vae_loss(
        imagined=vae.decoder(z),
        seen=content,
        places=places,
        z=z,
        log_q=log_q,
        log_variance=vae.log_variance,
        kl_weight=kl_weight,
    )


def _vae(model: Model) -> PartialVAE:
    assert isinstance(model.imagination, PartialVAE)
    return model.imagination


CLASSIFY = Phase(
    name="classify",
    trained=lambda model: model.backbone.parameters(),
    noise=classify_noise,
    loss=classify,
    budget=lambda recipe: recipe.phase1,
    rate=0,
    validates_by_policy=False,
    mixes=True,
)
"""Phase 1, which all methods that look have in common."""

IMAGINE = Phase(
    name="imagine",
    trained=lambda model: model.imagination.parameters(),
    noise=imagine_noise,
    loss=imagine,
    frozen=lambda model: [model.backbone],
    budget=lambda recipe: recipe.phase2,
    rate=1,
    prepare=prepare_imagination,
    scenes="all",
)

FINETUNE = Phase(
    name="finetune",
    trained=lambda model: model.parameters(),
    noise=finetune_noise,
    choose=choose_by_gain,
    loss=finetune,
    budget=lambda recipe: recipe.phase3,
    rate=2,
    scenes="half labelled",
)

PHASES = (CLASSIFY, IMAGINE, FINETUNE)


def _method(summary: str, **overrides: object) -> Method:
    by_vae = {"dictionary_entries": 0, **overrides}
    return Method(
        summary=summary, phases=PHASES, build=build_model, policy=GainPolicy, overrides=by_vae, imagination="vae"
    )


METHODS = {
    "paper": _method(
        "the paper's: imagines by a Partial VAE with flows, looks where equation 7 is largest", gain_correction=False
    ),
    "gaussian": _method("paper without flows: what is imagined has one mode", gain_correction=False, flow_layers=0),
    "paper-corrected": _method("paper with gains corrected by the outcomes of looks", gain_correction=True),
    "gaussian-corrected": _method("paper-corrected without flows", gain_correction=True, flow_layers=0),
    "attention": _method("paper with self-attention over the looks in R", gain_correction=False, attention_hops=_HOPS),
}
