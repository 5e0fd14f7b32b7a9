"""What each phase of each method teaches, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from infogaze import METHODS, Model
from infogaze.methods import dictionary, discriminative, ram, ram_plus, three_phases
from infogaze.methods.registry import build_for
from infogaze.training import rollout
from infogaze.training.phases import Phase
from infogaze.training.step import TrainStep
from tests.support.methods import LOOKS, OBJECTIVE, batch_for, chosen, made, outcome, reached, under
from tests.support.small_run import RECIPE, scenes
from tests.support.tiny import CONFIG, PRESET_SIZES

ALL = ("",)
BY_VAE = ("paper", "gaussian", "paper-corrected", "gaussian-corrected", "attention")
BY_DICTIONARY = ("infogaze", "dictionary")
BY_GAIN = (*BY_DICTIONARY, *BY_VAE)
CORRECTED = ("infogaze", "paper-corrected", "gaussian-corrected")
HEAD = tuple(f"imagination.{part}." for part in ("read", "locate", "steer", "mix", "keys", "usual"))
"""Of a dictionary: all but the entries, which are means of what glimpses hold."""
TAUGHT: dict[tuple[str, str], tuple[str, ...]] = {
    **{(name, "classify"): ("backbone.",) for name in METHODS},
    **{(name, "imagine"): ("imagination.",) for name in BY_VAE},
    **{(name, "imagine"): HEAD for name in BY_DICTIONARY},
    **{(name, "finetune"): ALL for name in (*BY_GAIN, "random", "oracle")},
    **{(name, "reinforce"): ALL for name in ("ram", "ram-plus")},
    ("discriminative", "estimate"): ALL,
}
UNFELT = {"backbone.belief_update.score.2.bias"}
"""A number added to all scores of a softmax: no gradient but of rounding."""


every_phase = pytest.mark.parametrize(
    ("method", "phase"), [pytest.param(name, phase, id=f"{name}-{phase.name}") for name in METHODS for phase in METHODS[name].phases]
)  # fmt: skip


@every_phase
def test_a_phase_teaches_exactly_what_it_should(method: str, phase: Phase) -> None:
    model = made(method)
    loss = outcome(phase, model, batch_for(phase, model)).loss
    expected = under(model, *TAUGHT[method, phase.name])
    assert reached(loss, model) - UNFELT == expected - UNFELT
    handed = {id(parameter) for parameter in phase.trained(model)}
    assert {name for name, parameter in model.named_parameters() if id(parameter) in handed} == expected


@pytest.mark.parametrize("method", METHODS)
def test_a_method_has_the_parts_it_is_said_to_have_and_no_others(method: str) -> None:
    model = made(method)
    parts = {name.partition(".")[0] for name, _ in model.named_parameters()}
    own = {
        "ram": {"controller", "baseline"}, "ram-plus": {"controller", "baseline"}, "discriminative": {"head"},
    }  # fmt: skip
    imagination = {"imagination"} if METHODS[method].imagines else set()
    correction = {"correction"} if method in CORRECTED else set()
    assert parts == {"backbone"} | imagination | correction | own.get(method, set())
    assert isinstance(model, Model) == METHODS[method].imagines


@pytest.mark.parametrize("method", METHODS)
def test_only_the_gaussian_methods_go_without_flows(method: str) -> None:
    sizes = METHODS[method].sizes(replace(CONFIG, flow_layers=2))
    assert sizes.flow_layers == (0 if "gaussian" in method else 2)


def test_every_method_begins_a_seed_with_the_same_networks_that_see_and_name() -> None:
    ours = build_for("infogaze", METHODS["infogaze"].sizes(PRESET_SIZES), 5).backbone.state_dict()
    for method in set(METHODS) - {"infogaze", "attention", "cnn"}:
        theirs = build_for(method, METHODS[method].sizes(PRESET_SIZES), 5).backbone.state_dict()
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours), method


def _nothing(log_probabilities: Tensor, *rest: object) -> Tensor:
    return 0.0 * log_probabilities.detach().sum()


def _policy_alone(log_density: Tensor, reward: Tensor, expected: Tensor) -> Tensor:
    return -(log_density * (reward - expected).detach()).mean()


def _baseline_alone(log_density: Tensor, reward: Tensor, expected: Tensor) -> Tensor:
    return (reward - expected).square().mean()


def _reinforce(
    method: str, patch: pytest.MonkeyPatch, *, classify: bool, reinforce: object
) -> tuple[set[str], ram.Ram]:
    """What RAM's second phase teaches when some of its loss is left out."""
    for module in (ram, ram_plus):
        patch.setattr(module, "reinforce_loss", reinforce)
    if not classify:
        patch.setattr(rollout, "classification_loss", _nothing)
    phase, model = METHODS[method].phases[1], made(method)
    assert isinstance(model, ram.Ram)
    return reached(outcome(phase, model, batch_for(phase, model)).loss, model), model


@pytest.mark.parametrize("method", ["ram", "ram-plus"])
def test_the_policys_term_teaches_the_controller_alone(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, model = _reinforce(method, monkeypatch, classify=False, reinforce=_policy_alone)
    assert found == under(model, "controller.")


@pytest.mark.parametrize("method", ["ram", "ram-plus"])
def test_the_baselines_error_teaches_the_baseline_alone(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, model = _reinforce(method, monkeypatch, classify=False, reinforce=_baseline_alone)
    assert found == under(model, "baseline.")


@pytest.mark.parametrize("method", ["ram", "ram-plus"])
def test_the_classification_loss_teaches_no_controller(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, model = _reinforce(method, monkeypatch, classify=True, reinforce=_nothing)
    assert found == under(model, "backbone.")


def test_no_gradient_passes_through_where_ram_looks() -> None:
    model = made("ram")
    assert isinstance(model, ram.Ram)
    looks = chosen(ram.REINFORCE, model, batch_for(ram.REINFORCE, model))
    assert [value.requires_grad for value in (looks.locations, looks.samples, looks.correct)] == [False] * 3


def test_the_value_heads_error_teaches_the_head_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "classification_loss", _nothing)
    phase, model = discriminative.ESTIMATE, made("discriminative")
    loss = outcome(phase, model, batch_for(phase, model)).loss
    assert reached(loss, model) == under(model, "head.")


def test_the_classification_loss_teaches_no_value_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functional, "mse_loss", _nothing)
    phase, model = discriminative.ESTIMATE, made("discriminative")
    loss = outcome(phase, model, batch_for(phase, model)).loss
    assert reached(loss, model) == under(model, "backbone.")


@pytest.mark.parametrize("method", CORRECTED)
def test_the_corrections_error_teaches_the_correction_alone(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[Tensor] = []

    def kept(model: Model, looks: three_phases.ChosenLooks) -> Tensor | float:
        error = correction_loss(model, looks)
        assert isinstance(error, Tensor)
        errors.append(error)
        return error

    correction_loss = three_phases.correction_loss
    for module in (three_phases, dictionary):
        monkeypatch.setattr(module, "correction_loss", kept)
    phase, model = METHODS[method].phases[2], made(method)
    outcome(phase, model, batch_for(phase, model))
    (error,) = errors
    assert reached(error, model) == under(model, "correction.")


@pytest.mark.parametrize("method", CORRECTED)
def test_all_else_in_phase_3_teaches_no_correction(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (three_phases, dictionary):
        monkeypatch.setattr(module, "correction_loss", lambda model, looks: 0.0)
    phase, model = METHODS[method].phases[2], made(method)
    loss = outcome(phase, model, batch_for(phase, model)).loss
    assert reached(loss, model) == under(model, "") - under(model, "correction.")


@pytest.mark.parametrize("method", [*BY_GAIN, "ram", "ram-plus", "discriminative"])
def test_looks_are_chosen_without_gradient_and_in_eval_mode(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chooser in train mode would move batch norm's statistics by what it tried, and one with gradient would keep its graph."""
    phase, model = METHODS[method].phases[-1], made(method).train()
    chooser = {"ram": "aim", "ram-plus": "aim", "discriminative": "value"}.get(method, "imagined_gain")
    real, calls = getattr(model, chooser), []

    def spy(*given: object, **named: object) -> Tensor:
        calls.append((torch.is_grad_enabled(), model.training))
        return real(*given, **named)

    monkeypatch.setattr(model, chooser, spy)
    step = TrainStep(model, phase, objective=OBJECTIVE, recipe=RECIPE, augmentation=None, batch_size=6, seed=0)
    step(scenes(6).images, scenes(6).labels, learning_rate=1e-3, progress=1.0)
    assert calls[: LOOKS - 1] == [(False, False)] * (LOOKS - 1)
    assert set(calls[LOOKS - 1 :]) <= {(True, True)}, "afterwards only what is learned from"
    assert model.training


@every_phase
@pytest.mark.parametrize("mode", ["train", "eval", "mixed"])
def test_a_loss_leaves_every_mode_as_it_was_and_changes_nothing_but_batch_norms_statistics(
    method: str, phase: Phase, mode: str
) -> None:
    model = made(method)
    looks = chosen(phase, model, batch_for(phase, model))
    for number, part in enumerate(model.modules()):
        part.training = mode == "train" or (mode == "mixed" and number % 2 == 0)
    modes = [part.training for part in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batch = batch_for(phase, model)
    loss = phase.loss(model, batch, objective=OBJECTIVE, looks=looks).loss
    loss.backward()
    assert [part.training for part in model.modules()] == modes
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert {name.rpartition(".")[2] for name in changed} <= {"running_mean", "running_var", "num_batches_tracked"}
    assert mode != "eval" or not changed
    again = batch_for(phase, model)
    assert all(torch.equal(numbers, again.noise[name]) for name, numbers in batch.noise.items())
    assert torch.equal(batch.images, again.images)
