"""Batch-norm statistics at the end of a phase, against those of the same looks computed from their definition in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from infogaze.data.augmentation import Augmentation
from infogaze.methods.three_phases import CLASSIFY, FINETUNE, IMAGINE, PHASES, ChosenLooks
from infogaze.nn.model import Model
from infogaze.nn.pixels import normalise_pixels
from infogaze.training import phase_run
from infogaze.training.loop import Stopped
from infogaze.training.phases import Batch, Objective, Phase
from infogaze.training.plan import Callbacks
from infogaze.training.rollout import random_places
from infogaze.training.statistics import refit_batch_norm
from tests.support.methods import LOOKS, OBJECTIVE, batch_for, chosen
from tests.support.small_model import model, outspoken
from tests.support.small_run import RECIPE, run, scenes
from tests.support.tiny import CONFIG

SIZE, COUNT = 6, 3
"""Scenes of a batch, and batches."""
OF_GLIMPSES, OF_FEATURES = "backbone.feature_network.glimpse_network.2", "backbone.belief_update.feature_norm"
"""The two batch norms there are."""
GATHERED = ("running_mean", "running_var", "num_batches_tracked")

every_phase = pytest.mark.parametrize("phase", PHASES, ids=[phase.name for phase in PHASES])
of_the_backbone = pytest.mark.parametrize("phase", [CLASSIFY, FINETUNE], ids=["classify", "finetune"])


def _model(*, corrected: bool = False) -> Model:
    """With statistics that are those of no image."""
    net = outspoken(model(corrected=corrected))
    generator = torch.Generator().manual_seed(3)
    for norm in _norms(net).values():
        assert norm.running_mean is not None
        assert norm.running_var is not None
        norm.running_mean.normal_(generator=generator)
        norm.running_var.uniform_(0.5, 2.0, generator=generator)
        norm.momentum = 0.3
    return net


def _norms(net: Model) -> dict[str, nn.modules.batchnorm._BatchNorm]:
    found = {name: part for name, part in net.named_modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)}
    assert set(found) == {OF_GLIMPSES, OF_FEATURES}
    return found


def _batches(phase: Phase, net: Model) -> list[Batch]:
    """With images and noise of their own."""
    found = []
    for seed in range(COUNT):
        batch = batch_for(phase, net, SIZE, seed=seed, progress=1.0)
        generator = torch.Generator().manual_seed(10 + seed)
        found.append(replace(batch, images=torch.rand(batch.images.shape, generator=generator) * 2 - 1))
    return found


def _refit(net: Model, phase: Phase, images: int = SIZE * COUNT) -> None:
    batches = _batches(phase, net)
    refit_batch_norm(net, phase, objective=OBJECTIVE, batches=lambda: iter(batches), images=images)


def _looked_at(phase: Phase, net: Model, batch: Batch) -> Tensor:
    """Where a phase looks with the model as it is, [T, B, 2]."""
    if phase is CLASSIFY:
        room = torch.tensor([CONFIG.height - CONFIG.glimpse_size, CONFIG.width - CONFIG.glimpse_size]) + 1
        return (batch.noise["anywhere"] * room).floor().long().movedim(1, 0)
    looks = chosen(phase, copy.deepcopy(net), batch)
    assert isinstance(looks, ChosenLooks)
    return CONFIG.grid.locations()[looks.places]


def _plain_statistics(net: Model, batch: Batch, locations: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Mean and variance of what both batch norms see of these looks, in float64 and from the weights alone."""
    weights = {name: value.detach().double() for name, value in net.state_dict().items()}
    seen_at = [
        image[:, row : row + 4, col : col + 4]
        for look in locations.tolist()
        for image, (row, col) in zip(batch.images, look, strict=True)
    ]
    glimpses = torch.stack(seen_at).double()  # [T * B, C, 4, 4]

    def layer(name: str) -> tuple[Tensor, Tensor]:
        return weights[f"{name}.weight"], weights[f"{name}.bias"]

    seen = functional.leaky_relu(functional.conv2d(glimpses, *layer("backbone.feature_network.glimpse_network.0")))
    across = seen.movedim(1, -1).flatten(0, -2)  # [N, channels]
    scale, shift = layer(OF_GLIMPSES)
    spread = (across.var(0, correction=0) + 1e-5).sqrt()
    normed = (seen - across.mean(0)[:, None, None]) / spread[:, None, None] * scale[:, None, None] + shift[
        :, None, None
    ]
    content = functional.conv2d(normed, *layer("backbone.feature_network.glimpse_network.3")).flatten(1)
    last = torch.tensor([CONFIG.height - CONFIG.glimpse_size, CONFIG.width - CONFIG.glimpse_size])
    places = functional.linear(
        2.0 * locations.flatten(0, 1).double() / last - 1.0, *layer("backbone.feature_network.location_network")
    )
    features = functional.leaky_relu(content + places)
    return {
        OF_GLIMPSES: (across.mean(0), across.var(0, correction=1)),
        OF_FEATURES: (features.mean(0), features.var(0, correction=1)),
    }


def _plain_mean(net: Model, batches: list[Batch], locations: list[Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
    """The mean of the statistics of several batches."""
    found = [_plain_statistics(net, batch, where) for batch, where in zip(batches, locations, strict=True)]
    return {
        name: (
            torch.stack([one[name][0] for one in found]).mean(0),
            torch.stack([one[name][1] for one in found]).mean(0),
        )
        for name in found[0]
    }


def _assert_statistics(net: Model, expected: dict[str, tuple[Tensor, Tensor]]) -> None:
    for name, norm in _norms(net).items():
        mean, variance = expected[name]
        assert norm.running_mean is not None
        assert norm.running_var is not None
        torch.testing.assert_close(norm.running_mean.double(), mean, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(norm.running_var.double(), variance, rtol=1e-4, atol=1e-5)


@of_the_backbone
@pytest.mark.parametrize("corrected", [False, True], ids=["plain", "corrected"])
def test_the_statistics_are_those_of_the_images_as_they_are_along_the_looks_of_the_phase(
    phase: Phase, corrected: bool
) -> None:
    net = _model(corrected=corrected)
    batches = _batches(phase, net)
    locations = [_looked_at(phase, net, batch) for batch in batches]
    expected = _plain_mean(net, batches, locations)
    _refit(net, phase)
    _assert_statistics(net, expected)


def test_looks_are_chosen_with_the_statistics_from_before() -> None:
    net = _model()
    batches = _batches(FINETUNE, net)
    before = [_looked_at(FINETUNE, net, batch) for batch in batches]
    by_chance = _plain_mean(net, batches, [CONFIG.grid.locations()[random_places(batch, LOOKS)] for batch in batches])
    expected = _plain_mean(net, batches, before)
    _refit(net, FINETUNE)
    # Else the test above would see no difference between these looks and others.
    afterwards = [_looked_at(FINETUNE, net, batch) for batch in batches]
    assert any(not torch.equal(one, other) for one, other in zip(before, afterwards, strict=True))
    for others in (by_chance, _plain_mean(net, batches, afterwards)):
        assert not torch.allclose(others[OF_FEATURES][0], expected[OF_FEATURES][0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("images", "used"), [(1, 1), (SIZE, 1), (2 * SIZE, 2), (2 * SIZE + 1, 2), (10**6, COUNT)])
def test_about_as_many_images_are_used_as_are_asked_for_and_no_more_than_there_are(images: int, used: int) -> None:
    net = _model()
    batches = _batches(CLASSIFY, net)[:used]
    expected = _plain_mean(net, batches, [_looked_at(CLASSIFY, net, batch) for batch in batches])
    _refit(net, CLASSIFY, images)
    _assert_statistics(net, expected)
    assert [int(norm.num_batches_tracked or 0) for norm in _norms(net).values()] == [used, used]


@every_phase
def test_nothing_but_the_statistics_of_what_the_phase_trains_changes(phase: Phase) -> None:
    net = _model(corrected=True)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    learns = [parameter.requires_grad for parameter in net.parameters()]
    drawn = torch.get_rng_state()
    _refit(net, phase)
    changed = {name for name, value in net.state_dict().items() if not torch.equal(value, before[name])}
    trained = phase is not IMAGINE  # which leaves the backbone as it is
    assert changed == ({f"{norm}.{part}" for norm in _norms(net) for part in GATHERED} if trained else set())
    assert [parameter.requires_grad for parameter in net.parameters()] == learns
    assert all(parameter.grad is None for parameter in net.parameters())
    assert [norm.momentum for norm in _norms(net).values()] == [0.3, 0.3]
    assert torch.equal(torch.get_rng_state(), drawn)


def test_a_part_that_is_frozen_keeps_its_statistics_and_the_others_are_refitted() -> None:
    net = _model()
    phase = replace(CLASSIFY, frozen=lambda model: [model.backbone.belief_update])
    before = {name: value.clone() for name, value in net.state_dict().items()}
    batches = _batches(phase, net)
    expected = _plain_mean(net, batches, [_looked_at(CLASSIFY, net, batch) for batch in batches])[OF_GLIMPSES]
    _refit(net, phase)
    norm = _norms(net)[OF_GLIMPSES]
    torch.testing.assert_close(norm.running_mean, expected[0].float(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(norm.running_var, expected[1].float(), rtol=1e-4, atol=1e-5)
    assert all(
        torch.equal(net.state_dict()[f"{OF_FEATURES}.{part}"], before[f"{OF_FEATURES}.{part}"]) for part in GATHERED
    )


@every_phase
def test_no_images_leave_the_statistics_as_they_are_and_none_are_read(phase: Phase) -> None:
    def none() -> Iterator[Batch]:
        raise AssertionError("nothing is to be read")

    net = _model()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    refit_batch_norm(net, phase, objective=OBJECTIVE, batches=none, images=0)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert [norm.momentum for norm in _norms(net).values()] == [0.3, 0.3]


@of_the_backbone
def test_the_same_model_gets_the_same_statistics_every_time(phase: Phase) -> None:
    one = _model()
    other = copy.deepcopy(one)
    _refit(one, phase)
    _refit(other, phase)
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


def test_where_looks_are_not_chosen_statistics_do_not_depend_on_those_from_before() -> None:
    net = _model()
    _refit(net, CLASSIFY)
    once = {name: value.clone() for name, value in net.state_dict().items()}
    _refit(net, CLASSIFY)
    assert all(torch.equal(value, once[name]) for name, value in net.state_dict().items())


@of_the_backbone
def test_in_eval_mode_the_same_images_are_then_normalised_as_in_training(phase: Phase) -> None:
    # With one batch its own statistics and the refitted ones differ by n / (n - 1) alone.
    net = _model()
    (batch, *_) = _batches(phase, net)
    looks = chosen(phase, net, batch)
    _refit(net, phase, SIZE)
    assert not net.training
    evaluated = phase.loss(net, batch, objective=OBJECTIVE, looks=looks).loss
    phase.set_modes(net)
    trained = phase.loss(net, batch, objective=OBJECTIVE, looks=looks).loss
    torch.testing.assert_close(evaluated, trained, rtol=0.05, atol=0.0)


REFITTED = replace(RECIPE, batch_norm_images=40, augmentation=Augmentation(flip=False, brightness=0.5))


def test_a_run_refits_at_the_end_of_every_phase_on_training_images_that_are_not_augmented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {image.numpy().tobytes() for image in normalise_pixels(scenes().images)}
    told: list[tuple[str, int]] = []

    def listening(
        net: Model, phase: Phase, *, objective: Objective, batches: Callable[[], Iterator[Batch]], images: int
    ) -> None:
        told.append((phase.name, images))
        once, again = list(batches()), list(batches())
        assert [len(batch.labels) for batch in once] == [16] * 6
        seen = {image.numpy().tobytes() for batch in once for image in batch.images}
        assert seen == known, "one pass over all of them"
        for batch, same in zip(once, again, strict=True):
            assert torch.equal(batch.images, same.images)
            assert all(torch.equal(numbers, same.noise[name]) for name, numbers in batch.noise.items())
            assert float(batch.progress) == 1.0

    monkeypatch.setattr(phase_run, "refit_batch_norm", listening)
    run(tmp_path / "run", REFITTED)
    assert told == [(phase.name, 40) for phase in PHASES]


def test_a_run_that_refits_ends_with_statistics_of_the_refit_alone(tmp_path: Path) -> None:
    refitted = run(tmp_path / "refitted", REFITTED, method="random").state_dict()
    as_gathered = run(tmp_path / "gathered", replace(REFITTED, batch_norm_images=0), method="random").state_dict()
    gathered = {name for name in refitted if name.endswith(GATHERED[:2])}
    assert len(gathered) == 4
    assert not any(torch.equal(refitted[name], as_gathered[name]) for name in gathered)
    tracked = {int(value) for name, value in refitted.items() if name.endswith(GATHERED[2])}
    assert tracked == {round(40 / 16)}, "the batches of the refit, and none before"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    return run(tmp_path_factory.mktemp("undisturbed") / "run", REFITTED).state_dict()


@pytest.mark.parametrize("stop_at", [7, 18, 19, 30, 31, 41, 42])
def test_a_run_that_refits_and_is_stopped_ends_bit_for_bit_where_it_would_have(
    stop_at: int, undisturbed: dict[str, Tensor], tmp_path: Path
) -> None:
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == stop_at

    with pytest.raises(Stopped, match="stopped in phase"):
        run(tmp_path / "run", REFITTED, callbacks=Callbacks(should_stop=stop))
    resumed = run(tmp_path / "run", REFITTED).state_dict()
    assert all(torch.equal(value, resumed[name]) for name, value in undisturbed.items())


def test_a_run_that_refits_and_is_validated_is_resumed_bit_for_bit_too(tmp_path: Path) -> None:
    straight = run(tmp_path / "straight", REFITTED, val_fraction=0.25).state_dict()
    asked = iter(range(1, 10**6))
    with pytest.raises(Stopped):
        run(tmp_path / "run", REFITTED, val_fraction=0.25, callbacks=Callbacks(should_stop=lambda: next(asked) == 14))
    resumed = run(tmp_path / "run", REFITTED, val_fraction=0.25).state_dict()
    assert all(torch.equal(value, resumed[name]) for name, value in straight.items())
