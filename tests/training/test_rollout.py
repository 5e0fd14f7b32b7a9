from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from infogaze import GlimpseClassifier, ModelConfig, build
from infogaze.data.sets import NO_LABEL
from infogaze.methods.three_phases import CLASSIFY, FINETUNE
from infogaze.nn.belief import Belief
from infogaze.training.phases import Batch, Outcome
from infogaze.training.rollout import (
    MIN_EPSILON,
    accuracy,
    classification_outcome,
    greedy_looks,
    is_taught,
    random_places,
    taught_likelihood,
    unroll_places,
    visits,
)
from infogaze.training.targets import label_targets
from tests.support.methods import LOOKS, OBJECTIVE, batch_for, still
from tests.support.small_model import model, outspoken, plain_beliefs
from tests.support.tiny import CONFIG, TOKENS

PLACES = CONFIG.grid.num_locations


def test_visits_counts_the_looks_on_each_place_or_next_to_it() -> None:
    generator = torch.Generator().manual_seed(0)
    last = torch.tensor([CONFIG.height - CONFIG.glimpse_size, CONFIG.width - CONFIG.glimpse_size])
    locations = (torch.rand(LOOKS, 50, 2, generator=generator) * (last + 1)).long()
    counts = visits(locations, CONFIG.grid)
    expected = torch.zeros(LOOKS, PLACES)
    for look in range(LOOKS):
        for scene in range(50):
            expected[look, CONFIG.grid.nearest(locations[look, scene])] += 1
    assert torch.equal(counts, expected)
    assert counts.sum(1).tolist() == [50.0] * LOOKS
    where = torch.tensor([[[0, 0], [2, 0], [0, 0], [9, 7]]])  # places are 2 apart, the last at row 8 and column 6
    assert visits(where, CONFIG.grid).nonzero().tolist() == [[0, 0], [0, CONFIG.grid.cols], [0, PLACES - 1]]


def test_dropout_hides_the_stated_share_of_the_belief_and_keeps_its_mean() -> None:
    net, seen = model().eval(), []
    net.backbone.classify = lambda belief: seen.append(belief.hidden) or torch.zeros(LOOKS, 200, 3)  # type: ignore[method-assign, func-returns-value]
    batch = batch_for(CLASSIFY, net, 200)
    for rate in (0.0, 0.5):
        CLASSIFY.loss(net, batch, objective=replace(OBJECTIVE, dropout=rate), looks=None)
    plain, dropped = seen
    assert abs(float((dropped == 0).double().mean()) - 0.5) < 0.03
    torch.testing.assert_close(dropped[dropped != 0], 2 * plain[dropped != 0])


@pytest.mark.parametrize("num_looks", [1, LOOKS, PLACES + 3])
def test_random_places_are_different_ones_and_as_many_as_there_are(num_looks: int) -> None:
    net = model()
    places = random_places(batch_for(FINETUNE, net, 5), num_looks)
    assert [len(set(scene)) for scene in places.t().tolist()] == [min(num_looks, PLACES)] * 5


@torch.no_grad()
@pytest.mark.parametrize(("explore", "progress"), [(False, 0.0), (True, 0.5), (True, 1.0)])
def test_greedy_looks_take_the_best_place_left_but_for_those_that_explore(explore: bool, progress: float) -> None:
    net = model().eval()
    batch = batch_for(FINETUNE, net, 60, progress=progress)
    wanted = torch.rand(LOOKS, 60, PLACES, generator=torch.Generator().manual_seed(5))

    def value(belief: Belief, look: int) -> torch.Tensor:
        return wanted[look]

    places, beliefs = greedy_looks(value, net, batch, num_looks=LOOKS, explore=explore)
    assert beliefs.hidden.shape[:2] == (LOOKS, 60)
    order, left = batch.noise["places"], torch.ones(60, PLACES, dtype=torch.bool)
    for look in range(LOOKS):
        at_random = torch.full((60,), look == 0)
        if explore and look:
            at_random = batch.noise["epsilon"][:, look] < max(1.0 - progress, MIN_EPSILON)
            assert at_random.any()
        values = torch.where(at_random[:, None], order, wanted[look])
        assert torch.equal(places[look], values.masked_fill(~left, -1.0).argmax(1))
        left[torch.arange(60), places[look]] = False


def test_accuracy_is_the_share_of_correct_predictions_after_each_look() -> None:
    labels = torch.tensor([0, 1, 2, 2])
    predictions = torch.tensor([[0, 1, 2, 2], [0, 1, 0, 0], [1, 0, 0, 0]])
    log_probabilities = torch.nn.functional.one_hot(predictions, 3).double().log_softmax(-1)
    assert accuracy(log_probabilities, labels).tolist() == [1.0, 0.5, 0.0]


def looked_beyond(net: GlimpseClassifier, batch: Batch, places: Tensor, *, more: int) -> Outcome:
    locations = net.grid.locations()[places]
    beliefs, _ = unroll_places(net, batch, places)
    objective = replace(OBJECTIVE, more_looks=more, dropout=0.0)
    return classification_outcome(net, beliefs, locations=locations, batch=batch, objective=objective)


@pytest.mark.parametrize("sizes", [CONFIG, TOKENS], ids=["vector", "tokens"])
def test_looks_beyond_the_budget_add_the_loss_after_each_of_them_at_places_not_seen_yet(sizes: ModelConfig) -> None:
    net = still(outspoken(build(sizes)))
    plain = batch_for(FINETUNE, net, 8)
    order, more = torch.rand(2, PLACES, generator=torch.Generator().manual_seed(0)), 5
    batch = replace(plain, more_places=order)
    places = random_places(batch, LOOKS)
    base, found = looked_beyond(net, plain, places, more=more), looked_beyond(net, batch, places, more=more)
    losses = []
    for scene in range(2):
        seen = places[:, scene].tolist()
        rest = [place for place in order[scene].argsort(descending=True).tolist() if place not in seen][:more]
        one = replace(plain, images=plain.images[scene : scene + 1], labels=plain.labels[scene : scene + 1], noise={})
        beliefs, _ = plain_beliefs(net, one, torch.tensor([*seen, *rest])[:, None])
        losses += [-net.backbone.classify(belief)[0, plain.labels[scene]].item() for belief in beliefs[LOOKS:]]
    assert (found.loss - base.loss).item() == pytest.approx(0.25 * sum(losses) / len(losses), rel=1e-3)
    assert torch.equal(found.accuracy, base.accuracy)
    assert torch.equal(found.visits, base.visits)


def test_a_batch_that_is_taught_its_labels_as_distributions_has_the_same_loss() -> None:
    net = still(model())
    batch = batch_for(CLASSIFY, net, 8)
    batch = replace(batch, labels=torch.where(torch.arange(8) < 3, NO_LABEL, batch.labels))
    soft = replace(batch, targets=label_targets(batch.labels, CONFIG.num_classes))
    one, other = (CLASSIFY.loss(net, given, objective=OBJECTIVE, looks=None) for given in (batch, soft))
    torch.testing.assert_close(one.loss, other.loss)
    torch.testing.assert_close(one.accuracy, other.accuracy)
    assert torch.equal(is_taught(batch), is_taught(soft))
    predicted = torch.randn(2, 8, CONFIG.num_classes, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    known = is_taught(batch)
    torch.testing.assert_close(
        taught_likelihood(predicted, batch)[:, known], taught_likelihood(predicted, soft)[:, known]
    )
