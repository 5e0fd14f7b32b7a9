"""The looks of a training batch: what is seen at given locations, beliefs after each look, and looks that a model chooses.

Time is not a loop over the heavy parts: all looks of a batch pass F at once, and only the state itself goes look by look. Looks that the
model chooses are first chosen without gradient, which no gradient passes through anyway, and then seen again with it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor

from infogaze.data.sets import NO_LABEL
from infogaze.grid import GlimpseGrid, extract
from infogaze.nn.belief import Belief
from infogaze.nn.model import GlimpseClassifier
from infogaze.nn.precision import precise
from infogaze.training.losses import classification_loss, log_likelihood, soft_classification_loss
from infogaze.training.phases import Batch, Objective, Outcome

MIN_EPSILON = 0.05
"""The share of looks that stays at random to the end of training, where a method learns what looks are worth from its own."""


_MORE_WEIGHT = 0.25
"""Of the mean loss of looks beyond the budget, where there are any, beside that of looks within it."""


def glimpse_content(model: GlimpseClassifier, batch: Batch, locations: Int[Tensor, "T B 2"]) -> Float[Tensor, "T B f"]:
    """The content of the glimpses at these locations. They pass scene by scene, as they lie in memory, with no copy between."""
    return model.backbone.features(glimpses_at(model.grid, batch, locations.movedim(0, 1))).movedim(1, 0)


def glimpses_at(grid: GlimpseGrid, batch: Batch, locations: Int[Tensor, "B q 2"]) -> Float[Tensor, "B q C g g"]:
    """What the sensor gives when it is asked for these locations, which is not quite what is there where it has that fault."""
    if batch.displacement is not None:
        nearest = grid.nearest(locations)[..., None].expand(*locations.shape)  # [B, q, 2]
        rows, cols = (locations + batch.displacement.gather(1, nearest)).unbind(-1)
        inside = (rows.clamp(0, grid.height - grid.glimpse_size), cols.clamp(0, grid.width - grid.glimpse_size))
        locations = torch.stack(inside, -1)
    return extract(batch.images, locations, grid.glimpse_size)


def unroll_places(
    model: GlimpseClassifier, batch: Batch, places: Int[Tensor, "T B"]
) -> tuple[Belief, Float[Tensor, "T B f"]]:
    """The beliefs after looks at these grid places, and the content that was seen there."""
    locations = model.grid.locations(places.device)[places]
    content = glimpse_content(model, batch, locations)
    return model.backbone.unroll(content, locations), content


def look_at(model: GlimpseClassifier, batch: Batch, belief: Belief, *, location: Int[Tensor, "B 2"]) -> Belief:
    """The belief after one more look."""
    return model.backbone.update(belief, glimpse_content(model, batch, location[None])[0], location)


def greedy_looks(
    value: Callable[[Belief, int], Float[Tensor, "B L"]],
    model: GlimpseClassifier,
    batch: Batch,
    *,
    num_looks: int,
    explore: bool,
) -> tuple[Int[Tensor, "T B"], Belief]:
    """Looks at the places that `value` puts highest before each look, none twice and the first at random; and the beliefs after them, to
    be classified: without their memory, which may be larger with every look.

    With `explore` it is epsilon-greedy, and epsilon falls from 1 to `MIN_EPSILON` as training goes on, so that a method that learns what
    looks are worth hears of every place. Uses the noise `places`, and `epsilon` where it explores.
    """
    order = batch.noise["places"]
    epsilon = (1.0 - batch.progress).clamp(min=MIN_EPSILON)
    belief = model.backbone.start(len(batch.labels))
    candidates = torch.ones_like(order, dtype=torch.bool)
    places: list[Tensor] = []
    beliefs: list[Belief] = []
    for look in range(min(num_looks, model.grid.num_locations)):
        values = value(belief, look) if look else order
        if look and explore:
            values = torch.where(batch.noise["epsilon"][:, look, None] < epsilon, order, values)
        place = values.masked_fill(~candidates, -torch.inf).argmax(1)  # [B]
        candidates = candidates.scatter(1, place[:, None], False)
        belief = look_at(model, batch, belief, location=model.grid.locations(place.device)[place])
        places.append(place)
        beliefs.append(Belief(belief.hidden, belief.memory[:, :0]))
    return torch.stack(places), Belief.stack(beliefs)


def random_places(batch: Batch, num_looks: int) -> Int[Tensor, "T B"]:
    """Different grid places, at random. Uses the noise `places`."""
    order = batch.noise["places"]
    return order.topk(min(num_looks, order.shape[1])).indices.t()


def classification_outcome(
    model: GlimpseClassifier,
    beliefs: Belief,
    *,
    locations: Num[Tensor, "T B 2"],
    batch: Batch,
    objective: Objective,
    labels: Float[Tensor, "B classes"] | None = None,
) -> Outcome:
    """The classification loss after all looks (equation 1), with dropout on the belief; by these labels, or the batch's."""
    log_probabilities = classify_with_dropout(model, beliefs, batch, objective=objective)
    loss = taught_loss(log_probabilities, batch, labels)
    if batch.more_places is not None:
        loss = loss + _MORE_WEIGHT * _loss_of_more_looks(model, batch, locations, labels=labels, objective=objective)
    return Outcome(loss, accuracy(log_probabilities, batch.labels), visits(locations, model.grid))


def taught_loss(
    log_probabilities: Float[Tensor, "T B classes"], batch: Batch, labels: Float[Tensor, "B classes"] | None = None
) -> Float[Tensor, ""]:
    """Equation 1 by these labels, or by what the batch is taught."""
    targets = batch.targets if labels is None else labels
    if targets is None:
        return classification_loss(log_probabilities, batch.labels)
    return soft_classification_loss(log_probabilities, targets)


def taught_likelihood(log_probabilities: Float[Tensor, "T B classes"], batch: Batch) -> Float[Tensor, "T B"]:
    """The expectation of log p(y) by what the batch is taught, in nats; it means nothing for a scene that is taught nothing."""
    if batch.targets is None:
        return log_likelihood(log_probabilities, batch.labels)
    return (batch.targets * precise(log_probabilities)).sum(-1)


def is_taught(batch: Batch) -> Bool[Tensor, " B"]:
    """The scenes of which something is known."""
    return batch.labels != NO_LABEL if batch.targets is None else batch.targets.sum(-1) > 0.0


def _loss_of_more_looks(
    model: GlimpseClassifier,
    batch: Batch,
    locations: Num[Tensor, "T B 2"],
    *,
    labels: Float[Tensor, "B classes"] | None,
    objective: Objective,
) -> Float[Tensor, ""]:
    """The loss of a few scenes after each of the looks that follow the budget's, at random places of the grid."""
    assert batch.more_places is not None
    grid, looks, count = model.grid, len(locations), len(batch.more_places)
    few = Batch(
        images=batch.images[:count],
        labels=batch.labels[:count],
        noise={},
        targets=None if batch.targets is None else batch.targets[:count],
        displacement=None if batch.displacement is None else batch.displacement[:count],
    )
    before = locations[:, :count]
    seen = torch.stack([grid.at(look) for look in before]).any(0)  # [some, L]
    more = batch.more_places.masked_fill(seen, -1.0).topk(objective.more_looks).indices.t()
    every = torch.cat([before, grid.locations(more.device)[more].to(before.dtype)])
    beliefs = model.backbone.unroll(glimpse_content(model, few, every), every)
    later = Belief(beliefs.hidden[looks:], beliefs.memory[looks:])
    return taught_loss(model.backbone.classify(later), few, None if labels is None else labels[:count])


def classify_with_dropout(
    model: GlimpseClassifier, beliefs: Belief, batch: Batch, *, objective: Objective
) -> Float[Tensor, "T B classes"]:
    """log p(y | h), with dropout on h. Uses the noise `dropout`."""
    kept = (batch.noise["dropout"].movedim(1, 0)[: len(beliefs.hidden)] >= objective.dropout).to(beliefs.hidden.dtype)
    hidden = beliefs.hidden * kept / (1.0 - objective.dropout)
    return model.backbone.classify(Belief(hidden, beliefs.memory))


def accuracy(log_probabilities: Float[Tensor, "T B classes"], labels: Int[Tensor, " B"]) -> Float[Tensor, " T"]:
    """The share of correct predictions after each look, of the scenes that have a label; none is where none has."""
    right = (log_probabilities.argmax(-1) == labels).float().sum(1)
    return (right / (labels != NO_LABEL).sum().clamp(min=1)).detach()


def visits(locations: Num[Tensor, "T B 2"], grid: GlimpseGrid) -> Float[Tensor, "T L"]:
    """How many looks fell on each grid location, or next to it."""
    places = grid.nearest(locations)
    counts = torch.zeros(len(places), grid.num_locations, device=locations.device)
    return counts.scatter_add(1, places, torch.ones_like(places, dtype=counts.dtype))


def hidden_size(model: GlimpseClassifier) -> int:
    """The dimensions of the belief, which dropout needs as many numbers for."""
    return model.backbone.start(1).hidden.shape[-1]
