"""Training where few scenes have a label: they alone teach what a label is, and all teach what is imagined."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from infogaze.data.sets import NO_LABEL, Split, keep_labels
from infogaze.methods.dictionary import FINETUNE, choose_by_dictionary, own_labels
from infogaze.methods.registry import METHODS, build_for
from infogaze.methods.three_phases import ChosenLooks, correction_loss
from infogaze.nn.model import GlimpseClassifier, Model, build
from infogaze.runs import RunFolder
from infogaze.tasks.train import plan_of
from infogaze.training.loop import train
from infogaze.training.losses import classification_loss, log_likelihood, soft_classification_loss
from infogaze.training.phases import Batch
from infogaze.training.plan import Callbacks
from infogaze.training.rollout import accuracy
from tests.support.methods import LOOKS, OBJECTIVE, batch_for, in_float64, made, still
from tests.support.small_model import plain_beliefs
from tests.support.small_run import configuration, scenes
from tests.support.tiny import WITH_CORRECTION

every_method = pytest.mark.parametrize("method", METHODS)
LABELS = 8


def test_all_scenes_teach_what_is_imagined_and_labelled_ones_all_else() -> None:
    given = {name: [phase.scenes for phase in method.phases] for name, method in METHODS.items()}
    for name, method in METHODS.items():
        rest = ["all", "half labelled"] if method.imagines else ["labelled"] * (len(method.phases) - 1)
        assert given[name] == ["labelled", *rest], name


def trained(folder: Path, method: str, split: Split) -> GlimpseClassifier:
    config = configuration(method)
    model = build_for(method, config.preset.model, 0)
    train(model, plan_of(config, model), split=split, folder=RunFolder(folder, config), callbacks=Callbacks())
    return model


@every_method
def test_every_method_trains_with_few_labels_for_as_many_epochs_of_its_scenes(method: str, tmp_path: Path) -> None:
    split = keep_labels(scenes(), LABELS, seed=0)
    model = trained(tmp_path, method, split)
    assert all(bool(value.isfinite().all()) for value in model.state_dict().values())
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    steps = {line["phase"]: line["step"] for line in lines}
    for number, phase in enumerate(METHODS[method].phases, 1):
        images = LABELS if phase.scenes == "labelled" else len(split)
        assert steps[number] == phase.budget(configuration(method).recipe).num_steps(images)
    assert all(0.0 <= share <= 1.0 for line in lines for share in line["accuracy"])


@pytest.mark.parametrize("method", ["paper", "dictionary", "infogaze"])
def test_scenes_without_a_label_teach_what_is_imagined(method: str, tmp_path: Path) -> None:
    few = keep_labels(scenes(), LABELS, seed=0)
    known = few.labels != NO_LABEL
    alone = Split(few.images[known], few.labels[known])
    first, second = trained(tmp_path / "a", method, few), trained(tmp_path / "b", method, alone)
    changed = [
        name
        for name, value in first.state_dict().items()
        if name.startswith("imagination.") and not torch.equal(value, second.state_dict()[name])
    ]
    assert changed


def test_the_classification_loss_is_that_of_the_labelled_scenes() -> None:
    generator = torch.Generator().manual_seed(0)
    predicted = torch.randn(3, 6, 4, generator=generator, dtype=torch.float64).log_softmax(-1).requires_grad_()
    labels = torch.tensor([2, NO_LABEL, 0, NO_LABEL, 3, 1])
    known = labels != NO_LABEL
    loss = classification_loss(predicted, labels)
    torch.testing.assert_close(loss, classification_loss(predicted[:, known], labels[known]))
    loss.backward()
    assert predicted.grad is not None
    assert float(predicted.grad[:, ~known].abs().max()) == 0.0
    assert bool(log_likelihood(predicted, labels).isfinite().all())
    torch.testing.assert_close(
        log_likelihood(predicted, labels)[:, known], log_likelihood(predicted[:, known], labels[known])
    )


def test_accuracy_is_that_of_the_labelled_scenes_and_none_without_any() -> None:
    predicted = torch.eye(4).log()[torch.tensor([[0, 1, 2, 3, 0], [0, 0, 0, 0, 0]])]
    labels = torch.tensor([0, NO_LABEL, 2, 1, NO_LABEL])
    torch.testing.assert_close(accuracy(predicted, labels), torch.tensor([2 / 3, 1 / 3]))
    assert accuracy(predicted, torch.full((5,), NO_LABEL)).tolist() == [0.0, 0.0]


def test_the_correction_learns_from_labelled_scenes_alone() -> None:
    model = build(WITH_CORRECTION).double()
    generator = torch.Generator().manual_seed(1)
    looks, batch, size = 3, 5, WITH_CORRECTION.belief_size

    def numbers(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    known = torch.tensor([True, False, True, True, False])
    chosen = ChosenLooks(
        places=torch.randint(0, WITH_CORRECTION.grid.num_locations, (looks + 1, batch), generator=generator),
        gain=numbers(looks, batch),
        hidden=numbers(looks, batch, size),
        entropy=numbers(looks, batch),
        outcome=numbers(looks, batch),
        labelled=known,
    )
    alone = ChosenLooks(
        places=chosen.places[:, known],
        gain=chosen.gain[:, known],
        hidden=chosen.hidden[:, known],
        entropy=chosen.entropy[:, known],
        outcome=chosen.outcome[:, known],
        labelled=known[known],
    )
    found, expected = correction_loss(model, chosen), correction_loss(model, alone)
    assert isinstance(found, torch.Tensor)
    torch.testing.assert_close(found, expected)
    assert model.correction is not None
    at = model.correction.at(alone.places[1:], gain=alone.gain, hidden=alone.hidden, entropy=alone.entropy)
    torch.testing.assert_close(found, (at - alone.outcome).square().mean())


def half_labelled() -> tuple[Model, Batch, torch.Tensor]:
    """In float64, in evaluation mode; and which scenes have a label."""
    faint = made("infogaze")
    assert isinstance(faint, Model)
    with torch.no_grad():
        for parameter in faint.backbone.parameters():
            parameter.mul_(3.0)
    net, batch = in_float64(still(faint), batch_for(FINETUNE, faint))
    known = torch.arange(len(batch.labels)) % 2 == 0
    return net, replace(batch, labels=torch.where(known, batch.labels, NO_LABEL)), known


@torch.no_grad()
def test_a_scene_without_a_label_is_given_what_is_believed_of_it_after_more_looks() -> None:
    net, batch, known = half_labelled()
    places = torch.stack([torch.randperm(net.grid.num_locations)[:LOOKS] for _ in batch.labels], 1)
    labels, outcome = own_labels(net, batch, places)
    order = batch.noise["asked"].argsort(1, descending=True)
    rest = [
        [place for place in row if place not in seen]
        for row, seen in zip(order.tolist(), places.t().tolist(), strict=True)
    ]
    more = torch.tensor([row[:20] for row in rest]).t()
    beliefs, _ = plain_beliefs(net, batch, torch.cat([places, more]))
    predicted = [net.backbone.classify(belief).exp() for belief in beliefs]
    sharp = predicted[-1].square() / predicted[-1].square().sum(1, keepdim=True)
    for scene, label in enumerate(batch.labels.tolist()):
        expected = torch.eye(labels.shape[1], dtype=labels.dtype)[label] if known[scene] else sharp[scene]
        torch.testing.assert_close(labels[scene], expected, rtol=0, atol=1e-9)
        for look in range(LOOKS - 1):
            lowered = sum(
                float(
                    labels[scene, kind] * (predicted[look + 1][scene, kind].log() - predicted[look][scene, kind].log())
                )
                for kind in range(labels.shape[1])
            )
            assert float(outcome[look, scene]) == pytest.approx(lowered, abs=1e-9)


@torch.no_grad()
def test_phase_3_learns_from_labels_of_its_own_where_some_are_missing_and_only_there() -> None:
    net, batch, _ = half_labelled()
    assert choose_by_dictionary(net, batch, OBJECTIVE).labels is None
    found = choose_by_dictionary(net, batch, replace(OBJECTIVE, some_unlabelled=True))
    assert found.labels is not None
    assert bool(found.looks.labelled.all())
    plain = FINETUNE.loss(net, batch, objective=OBJECTIVE, looks=replace(found, labels=None)).loss
    taught = FINETUNE.loss(net, batch, objective=OBJECTIVE, looks=found).loss
    beliefs, _ = plain_beliefs(net, batch, found.looks.places)
    kept = (batch.noise["dropout"].movedim(1, 0) >= OBJECTIVE.dropout) / (1.0 - OBJECTIVE.dropout)
    predicted = torch.stack(
        [net.backbone.classify(replace(b, hidden=b.hidden * k)) for b, k in zip(beliefs, kept, strict=True)]
    )
    change = soft_classification_loss(predicted, found.labels) - classification_loss(predicted, batch.labels)
    assert abs(float(change)) > 1e-3
    torch.testing.assert_close(taught - plain, change, rtol=0, atol=1e-9)


def test_soft_labels_that_are_certain_are_labels() -> None:
    generator = torch.Generator().manual_seed(0)
    predicted = torch.randn(3, 6, 4, generator=generator, dtype=torch.float64).log_softmax(-1)
    labels = torch.tensor([2, 1, 0, 3, 3, 1])
    certain = torch.eye(4, dtype=torch.float64)[labels]
    torch.testing.assert_close(soft_classification_loss(predicted, certain), classification_loss(predicted, labels))


@pytest.mark.parametrize(("num_labels", "some"), [(None, False), (LABELS, True)])
def test_a_run_says_whether_some_scenes_have_no_label(num_labels: int | None, some: bool) -> None:
    config = replace(configuration("infogaze"), num_labels=num_labels)
    assert plan_of(config, build_for("infogaze", config.preset.model, 0)).objective.some_unlabelled is some
