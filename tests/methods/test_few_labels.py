"""Training where few scenes have a label: they alone teach what a label is, and all teach what is imagined."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from infogaze.data.sets import NO_LABEL, Split, keep_labels
from infogaze.methods.registry import METHODS, build_for
from infogaze.methods.three_phases import ChosenLooks, correction_loss
from infogaze.nn.model import GlimpseClassifier, build
from infogaze.runs import RunFolder
from infogaze.tasks.train import plan_of
from infogaze.training.loop import train
from infogaze.training.losses import classification_loss, log_likelihood
from infogaze.training.plan import Callbacks
from infogaze.training.rollout import accuracy
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
