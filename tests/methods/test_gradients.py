"""What each phase of each method teaches, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from infogaze import METHODS, Model
from infogaze.methods import discriminative, ram, ram_plus
from infogaze.methods.registry import build_for
from infogaze.training import phases
from infogaze.training.phases import Phase
from tests.support.methods import LOOKS, OBJECTIVE, batch, drawn, made, reached, under
from tests.support.tiny import CONFIG

ALL = ("",)
OURS = ("infogaze", "no-hindsight", "gaussian", "gaussian-no-hindsight", "attention")
IMAGINING = ("posterior.", "decoder.", "log_variance")
TAUGHT: dict[tuple[str, str], tuple[str, ...]] = {
    **{(name, "recognise"): ("backbone.",) for name in METHODS if name != "cnn"},
    **{(name, "imagine"): IMAGINING for name in OURS},
    **{(name, "refine"): ALL for name in OURS},
    **{(name, "settle"): ALL for name in ("random", "oracle")},
    **{(name, "attend"): ALL for name in ("ram", "ram-plus")},
    ("discriminative", "estimate"): ALL,
    ("cnn", "see all"): ALL,
}
UNFELT = {"backbone.belief_update.score.2.bias"}
"""A number added to all scores of a softmax: no gradient but of rounding."""


@pytest.mark.parametrize(
    ("method", "phase"), [pytest.param(name, phase, id=f"{name}-{phase.name}") for name in METHODS for phase in METHODS[name].phases]
)  # fmt: skip
def test_a_phase_teaches_exactly_what_it_should(method: str, phase: Phase) -> None:
    model = made(method).train()
    outcome = phase.loss(model, batch(), drawn(phase, model), OBJECTIVE)
    expected = under(model, *TAUGHT[method, phase.name])
    assert reached(outcome.loss, model) - UNFELT == expected - UNFELT
    handed = {id(parameter) for parameter in phase.trained(model)}
    assert {name for name, parameter in model.named_parameters() if id(parameter) in handed} == expected


@pytest.mark.parametrize("method", METHODS)
def test_a_method_has_the_parts_it_is_said_to_have_and_no_others(method: str) -> None:
    model = made(method)
    parts = {name.partition(".")[0] for name, _ in model.named_parameters()}
    own = {
        "ram": {"controller", "baseline"}, "ram-plus": {"controller", "baseline"}, "discriminative": {"head"},
    }  # fmt: skip
    imagining = {"posterior", "decoder", "log_variance"} if METHODS[method].imagines else set()
    hindsight = {"hindsight"} if METHODS[method].imagines and "no-hindsight" not in method else set()
    assert parts == {"backbone"} | imagining | hindsight | own.get(method, set())
    assert isinstance(model, Model) == METHODS[method].imagines


@pytest.mark.parametrize("method", METHODS)
def test_only_methods_named_after_it_go_without_flows_or_hindsight(method: str) -> None:
    sizes = METHODS[method].sizes(replace(CONFIG, flow_layers=2, hindsight=True))
    assert sizes.flow_layers == (0 if method.startswith("gaussian") else 2)
    assert sizes.hindsight == (not method.endswith("no-hindsight"))


def test_every_method_begins_a_seed_with_the_same_networks_that_see_and_name() -> None:
    ours = build_for("infogaze", CONFIG, 5).backbone.state_dict()
    for method in (
        "no-hindsight",
        "gaussian",
        "gaussian-no-hindsight",
        "random",
        "ram",
        "ram-plus",
        "discriminative",
        "oracle",
    ):
        theirs = build_for(method, METHODS[method].sizes(CONFIG), 5).backbone.state_dict()
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours), method


def _nothing(log_probabilities: Tensor, *rest: object) -> Tensor:
    return 0.0 * log_probabilities.detach().sum()


def _policy_alone(log_density: Tensor, reward: Tensor, expected: Tensor) -> Tensor:
    return -(log_density * (reward - expected).detach()).mean()


def _baseline_alone(log_density: Tensor, reward: Tensor, expected: Tensor) -> Tensor:
    return (reward - expected).square().mean()


def _attend(method: str, patch: pytest.MonkeyPatch, *, classify: bool, reinforce: object) -> tuple[set[str], ram.Ram]:
    """What RAM's second phase teaches when some of its loss is left out."""
    for module in (ram, ram_plus):
        patch.setattr(module, "reinforce_loss", reinforce)
    if not classify:
        patch.setattr(ram, "classification_loss", _nothing)
        patch.setattr(phases, "classification_loss", _nothing)
    phase, model = METHODS[method].phases[1], made(method)
    assert isinstance(model, ram.Ram)
    return reached(phase.loss(model, batch(), drawn(phase, model), OBJECTIVE).loss, model), model


@pytest.mark.parametrize("method", ["ram", "ram-plus"])
def test_the_policys_term_teaches_the_controller_alone(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, model = _attend(method, monkeypatch, classify=False, reinforce=_policy_alone)
    assert found == under(model, "controller.")


@pytest.mark.parametrize("method", ["ram", "ram-plus"])
def test_the_baselines_error_teaches_the_baseline_alone(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, model = _attend(method, monkeypatch, classify=False, reinforce=_baseline_alone)
    assert found == under(model, "baseline.")


@pytest.mark.parametrize("method", ["ram", "ram-plus"])
def test_the_classification_loss_teaches_no_controller(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, model = _attend(method, monkeypatch, classify=True, reinforce=_nothing)
    assert found == under(model, "backbone.")


def test_no_gradient_passes_through_where_ram_looks() -> None:
    model = made("ram")
    assert isinstance(model, ram.Ram)
    locations, samples, right = ram.look_around(model, batch(), drawn(ram.ATTEND, model), LOOKS)
    assert [value.requires_grad for value in (locations, samples, right)] == [False] * 3


def test_the_value_heads_error_teaches_the_head_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "classification_loss", _nothing)
    phase, model = discriminative.PHASES[1], made("discriminative")
    loss = phase.loss(model, batch(), drawn(phase, model), OBJECTIVE).loss
    assert reached(loss, model) == under(model, "head.")


def test_the_classification_loss_teaches_no_value_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functional, "mse_loss", _nothing)
    phase, model = discriminative.PHASES[1], made("discriminative")
    loss = phase.loss(model, batch(), drawn(phase, model), OBJECTIVE).loss
    assert reached(loss, model) == under(model, "backbone.")


def test_hindsights_error_teaches_hindsight_alone() -> None:
    phase, model = METHODS["infogaze"].phases[2], made("infogaze")
    loss = phase.loss(model, batch(), drawn(phase, model), replace(OBJECTIVE, alpha=0.0, beta=0.0)).loss
    assert reached(loss, model) == under(model, "hindsight.")


def test_all_else_in_phase_3_teaches_no_hindsight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functional, "mse_loss", _nothing)
    phase, model = METHODS["infogaze"].phases[2], made("infogaze")
    loss = phase.loss(model, batch(), drawn(phase, model), OBJECTIVE).loss
    assert reached(loss, model) == under(model, "") - under(model, "hindsight.")


@pytest.mark.parametrize("method", [*OURS, "ram", "ram-plus", "discriminative"])
def test_looks_are_chosen_without_gradient_and_in_eval_mode(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chooser in train mode would move batch norm's statistics by what it tried, and one with gradient would keep its graph."""
    phase, model = METHODS[method].phases[-1], made(method).train()
    chooser = {"ram": "aim", "ram-plus": "aim", "discriminative": "value"}.get(method, "imagined_gain")
    real, calls = getattr(model, chooser), []

    def spy(*given: object) -> Tensor:
        calls.append((torch.is_grad_enabled(), model.training))
        return real(*given)

    monkeypatch.setattr(model, chooser, spy)
    phase.loss(model, batch(progress=1.0), drawn(phase, model), OBJECTIVE)
    assert calls[: LOOKS - 1] == [(False, False)] * (LOOKS - 1)
    assert set(calls[LOOKS - 1 :]) <= {(True, True)}, "afterwards only what is learned from"
    assert model.training
