"""Ours: imagination by dictionary. Phase 1 is the paper's; then a dictionary and its head are learned; then everything, on own looks.

Nothing in the second phase sees a label. In the third, F, R and C learn to classify on the looks that the gain chooses, as the paper's do,
and the dictionary follows F: the head and the entries learn from the same scenes, and a small share of the head's gradient reaches F and R.

A scene without a label is given one by the model itself: what it believes after more looks than the budget has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from infogaze.errors import InfogazeError
from infogaze.gaze.policies import GainPolicy
from infogaze.methods.method import Method
from infogaze.methods.three_phases import CLASSIFY, ChosenLooks, correction_loss, looks_by
from infogaze.nn.belief import Belief
from infogaze.nn.config import ModelConfig
from infogaze.nn.dictionary import Dictionary
from infogaze.nn.gain import coherent_information
from infogaze.nn.k_means import k_means
from infogaze.nn.model import Model, build_model
from infogaze.nn.precision import precise
from infogaze.training.phases import Batch, NoiseSpec, Objective, Outcome, Phase, normal, uniform
from infogaze.training.rollout import (
    accuracy,
    classification_outcome,
    glimpses_at,
    hidden_size,
    is_taught,
    random_places,
    unroll_places,
    visits,
)
from infogaze.training.targets import label_targets

_ASKED = 12
"""Places of a scene that the head is asked for at each look of a training step."""
_BEFORE = 0.25
"""The share of a recipe's phase 2 that the head learns alone; the rest is added to phase 3, where F, R and C learn too."""
_SHARE = 0.1
"""Of the gradient of what the head is asked, that reaches the belief in phase 3."""
_MORE_LOOKS, _SHARPEN = 20, 2.0
"""Looks beyond the budget behind the label that a scene without one is given, and the power that its probabilities are raised to."""
_SCENES, _PLACES = 20_000, 8
"""How many training scenes the entries are the means of, about, and how many places of each."""
_ITERATIONS, _AGAIN = 25, 3
"""Of k-means, at first and when F has changed."""


def imagine_noise(model: Model, objective: Objective) -> Mapping[str, NoiseSpec]:
    """The order of the grid places, once for the looks and once for the places asked for."""
    places = uniform(model.grid.num_locations)
    return {"places": places, "asked": places}


@dataclass(frozen=True, kw_only=True)
class Held:
    """Some places of each scene, and which entry each holds."""

    places: Int[Tensor, "B q"]
    entries: Int[Tensor, "B q"]


def imagine(model: Model, batch: Batch, *, objective: Objective, looks: None = None) -> Outcome:
    """Phase 2: the head, with looks at random grid places and the rest frozen."""
    with torch.no_grad():
        places = random_places(batch, objective.num_looks)
        beliefs, _ = unroll_places(model, batch, places)
        correct = accuracy(model.backbone.classify(beliefs), batch.labels)
    loss = entry_loss(model, beliefs, held_entries(model, batch))
    return Outcome(loss, correct, visits(model.grid.locations(places.device)[places], model.grid))


def entry_loss(model: Model, beliefs: Belief, held: Held) -> Float[Tensor, ""]:
    """The cross-entropy of which entry some places hold, after every look. A small share of the gradient reaches the belief."""
    locations = model.grid.locations(held.places.device)[held.places]
    hidden = beliefs.hidden.detach().lerp(beliefs.hidden, _SHARE)
    log_probabilities = _dictionary(model).log_probabilities(hidden, locations)  # [T, B, q, K]
    wanted = held.entries.expand(len(log_probabilities), *held.entries.shape)
    return functional.nll_loss(log_probabilities.flatten(0, 2), wanted.flatten())


@torch.no_grad()
def held_entries(model: Model, batch: Batch) -> Held:
    """Some places of each scene, at random, and which entry each holds. Uses the noise `asked`. For a model in evaluation mode: what is
    asked for is not what is looked at, and batch norm must not see it."""
    order = batch.noise["asked"]
    asked = order.topk(min(_ASKED, order.shape[1])).indices
    return Held(places=asked, entries=_dictionary(model).nearest(_content(model, batch, asked)))


def finetune_noise(model: Model, objective: Objective) -> Mapping[str, NoiseSpec]:
    """Places, dropout, and which looks explore."""
    looks = objective.num_looks
    return {
        **imagine_noise(model, objective),
        "dropout": uniform(looks, hidden_size(model)),
        "epsilon": uniform(looks),
        "imagined": normal(*model.imagination.noise_shape(objective.num_entries)),
    }


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What phase 3 learns from, of a batch."""

    looks: ChosenLooks
    held: Held
    """What the head is asked for."""
    labels: Float[Tensor, "B classes"] | None
    """Of all scenes, as distributions; None where every scene has one of its own."""


def choose_by_dictionary(model: Model, batch: Batch, objective: Objective) -> Chosen:
    """Looks where label and look, as imagined, tell most of each other; and what is learned from them."""
    # Weights change from step to step: what follows from them is computed once for all looks of this one.
    table = model.entry_table()
    looks = looks_by(
        lambda belief, look: model.imagined_gain(
            belief, objective.num_entries, noise=batch.noise["imagined"], criterion=coherent_information, table=table
        ),
        model,
        batch,
        objective=objective,
    )
    held = held_entries(model, batch)
    if not objective.some_unlabelled:
        return Chosen(looks=looks, held=held, labels=None)
    labels, outcome = own_labels(model, batch, looks.places)
    taught = replace(looks, outcome=outcome, labelled=torch.ones_like(looks.labelled))
    return Chosen(looks=taught, held=held, labels=labels)


@torch.no_grad()
def own_labels(
    model: Model, batch: Batch, places: Int[Tensor, "T B"]
) -> tuple[Float[Tensor, "B classes"], Float[Tensor, "_ B"]]:
    """The label of each scene as a distribution, and how much each look but the first lowered the loss by it, in nats.

    Where a scene has no label it is what is believed after these looks and some more, sharpened. Uses the noise `asked`.
    """
    unseen = batch.noise["asked"].scatter(1, places.t(), -1.0)
    more = unseen.topk(min(_MORE_LOOKS, unseen.shape[1] - len(places))).indices.t()
    beliefs, _ = unroll_places(model, batch, torch.cat([places, more]))
    predicted = model.backbone.classify(beliefs)  # [T + more, B, classes]
    known = label_targets(batch.labels, predicted.shape[-1]) if batch.targets is None else batch.targets
    labels = torch.where(is_taught(batch)[:, None], known, (_SHARPEN * precise(predicted[-1])).softmax(-1))
    likelihood = (labels * predicted[: len(places)]).sum(-1)
    return labels, likelihood[1:] - likelihood[:-1]


def finetune(model: Model, batch: Batch, *, objective: Objective, looks: Chosen) -> Outcome:
    """Phase 3: everything, with looks chosen by gain."""
    dictionary, chosen, held = _dictionary(model), looks.looks, looks.held
    beliefs, content = unroll_places(model, batch, chosen.places)
    locations = model.grid.locations(chosen.places.device)[chosen.places]
    classified = classification_outcome(
        model, beliefs, locations=locations, batch=batch, objective=objective, labels=looks.labels
    )
    seen = precise(content.detach())
    own = functional.one_hot(dictionary.nearest(seen), len(dictionary.entries)).to(seen.dtype)
    with torch.autocast(seen.device.type, enabled=False):
        follow = functional.mse_loss(own @ precise(dictionary.entries), seen)
    loss = classified.loss + entry_loss(model, beliefs, held) + follow + correction_loss(model, chosen)
    return Outcome(loss, classified.accuracy, classified.visits)


@torch.no_grad()
def prepare_dictionary(model: Model, batches: Iterator[Batch], objective: Objective) -> None:
    """Before phase 2: the entries are the means of a k-means of what glimpses hold."""
    dictionary = _dictionary(model)
    content, _ = _many_glimpses(model, batches)
    generator = torch.Generator().manual_seed(0)
    count = len(dictionary.entries)
    drawn = torch.randint(len(content), (count,), generator=generator)
    if len(content) >= count:
        drawn = torch.randperm(len(content), generator=generator)[:count]
    begun = content[drawn.to(content.device)].to(dictionary.entries.dtype)
    dictionary.entries.copy_(k_means(content, begun, iterations=_ITERATIONS, generator=generator))


@torch.no_grad()
def conclude_dictionary(model: Model, batches: Iterator[Batch], objective: Objective) -> None:
    """At the end: the entries as they are with the final F, and the mean patch of each."""
    model.eval()
    dictionary = _dictionary(model)
    content, glimpses = _many_glimpses(model, batches)
    dictionary.entries.copy_(k_means(content, dictionary.entries, iterations=_AGAIN))
    own = dictionary.nearest(content)
    sums = torch.zeros_like(dictionary.patches).index_add_(0, own, glimpses.to(dictionary.patches.dtype))
    counts = torch.bincount(own, minlength=len(dictionary.entries)).to(sums.dtype)
    mean = glimpses.to(sums.dtype).mean(0)
    dictionary.patches.copy_(
        torch.where(counts[:, None, None, None] > 0, sums / counts.clamp(min=1.0)[:, None, None, None], mean)
    )


def _many_glimpses(model: Model, batches: Iterator[Batch]) -> tuple[Float[Tensor, "N f"], Float[Tensor, "N C g g"]]:
    """The content and the pixels of some places of many scenes."""
    model.eval()
    contents, pixels, scenes = [], [], 0
    with torch.compiler.set_stance("force_eager"):
        for batch in batches:
            places = batch.noise["asked"].topk(min(_PLACES, model.grid.num_locations)).indices
            contents.append(precise(_content(model, batch, places)).flatten(0, 1))
            locations = model.grid.locations(places.device)[places]
            pixels.append(glimpses_at(model.grid, batch, locations).flatten(0, 1).half())
            scenes += len(batch.labels)
            if scenes >= _SCENES:
                break
    return torch.cat(contents), torch.cat(pixels)


def _content(model: Model, batch: Batch, places: Int[Tensor, "B q"]) -> Float[Tensor, "B q f"]:
    locations = model.grid.locations(places.device)[places]
    return model.backbone.features(glimpses_at(model.grid, batch, locations))


def _dictionary(model: Model) -> Dictionary:
    assert isinstance(model.imagination, Dictionary)
    return model.imagination


IMAGINE = Phase(
    name="imagine",
    trained=lambda model: [value for name, value in model.imagination.named_parameters() if name != "entries"],
    noise=imagine_noise,
    loss=imagine,
    frozen=lambda model: [model.backbone],
    budget=lambda recipe: recipe.phase2.scaled(_BEFORE),
    rate=1,
    prepare=prepare_dictionary,
    conclude=conclude_dictionary,
    scenes="all",
)

FINETUNE = Phase(
    name="finetune",
    trained=lambda model: model.parameters(),
    noise=finetune_noise,
    choose=choose_by_dictionary,
    loss=finetune,
    budget=lambda recipe: recipe.phase2.scaled(1.0 - _BEFORE).followed_by(recipe.phase3),
    rate=2,
    conclude=conclude_dictionary,
    scenes="half labelled",
)


def build_dictionary_model(config: ModelConfig) -> Model:
    """F, R and C of these sizes, with a dictionary."""
    if not config.dictionary_entries:
        raise InfogazeError("dictionary_entries is 0; imagination by dictionary needs some")
    return build_model(config)


def policy(num_samples: int) -> GainPolicy:
    """The location where label and look, as imagined in so many entries, tell most of each other."""
    return GainPolicy(num_samples, criterion="coherent-information")


def _method(summary: str, **overrides: object) -> Method:
    return Method(
        summary=summary,
        phases=(CLASSIFY, IMAGINE, FINETUNE),
        build=build_dictionary_model,
        policy=policy,
        overrides=overrides,
        imagination="dictionary",
    )


METHODS = {
    "infogaze": _method(
        "ours: imagines each place by a dictionary of glimpses, looks where the label gains most; corrected by the outcomes of looks",
        gain_correction=True,
    ),
    "dictionary": _method(
        "infogaze without the correction: nothing is learned from the outcomes of looks", gain_correction=False
    ),
}
