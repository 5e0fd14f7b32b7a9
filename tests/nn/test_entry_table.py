"""The gain by table: what R makes of each entry at each place is computed once, kept while it holds, and gives the same gain."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import Tensor

from infogaze import Agent, Backbone, Belief, GainPolicy, ImageSensor, Model, ModelConfig, build
from infogaze.nn.dictionary import Dictionary, Places
from infogaze.nn.gain import CRITERIA, Criterion, mutual_information
from tests.support.dictionaries import (
    ATTENTIVE,
    ENTRIES,
    LIKELY,
    NO_NOISE,
    PLAIN,
    SCENES,
    TOKENS,
    belief_of,
    dictionary_of,
    every_config,
    every_criterion,
    gain_of,
    model_of,
    one_by_one,
)
from tests.support.parts import normal, used
from tests.support.tiny import CONFIG, scenes


@every_config
@every_criterion
@pytest.mark.parametrize("looks", [0, 1, 3])
def test_the_gain_by_table_is_that_of_every_content_taken_in_as_a_look(
    config: ModelConfig, criterion: Criterion, looks: int
) -> None:
    model = model_of(config)
    belief = belief_of(model, looks)
    found = gain_of(model, belief, criterion)
    assert model._table is not None
    expected = one_by_one(model, belief, criterion)
    assert expected.std() > 1e-6, "gains that do not differ would hide a mistaken place"
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@every_config
@torch.no_grad()
def test_the_gain_by_table_is_that_of_the_features(config: ModelConfig) -> None:
    model = model_of(config)
    belief, where = belief_of(model), model.grid.locations()
    imagined = model.imagination.imagine(belief, LIKELY, noise=NO_NOISE)
    for criterion in CRITERIA.values():
        plain = model.lookahead_gain(belief, imagined, locations=where, criterion=criterion)
        torch.testing.assert_close(gain_of(model, belief, criterion), plain, rtol=0, atol=1e-10)


@pytest.mark.parametrize("elements", [1, 200, 1 << 20])
@torch.no_grad()
def test_the_gain_by_table_in_pieces_is_the_whole_gain(elements: int) -> None:
    model = model_of()
    belief = belief_of(model)
    pieces = model.imagined_gain(belief, LIKELY, noise=NO_NOISE, criterion=mutual_information, elements=elements)
    torch.testing.assert_close(pieces, gain_of(model, belief), rtol=0, atol=1e-12)


def counted(model: Model, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One element for every time that the table was computed."""
    real, calls = model.entry_table, list[None]()

    def entry_table() -> Tensor | None:
        calls.append(None)
        return real()

    monkeypatch.setattr(model, "entry_table", entry_table)
    return calls


def test_the_table_is_computed_once_for_all_looks_of_all_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(PLAIN)
    calls = counted(model, monkeypatch)
    agent = Agent(model, ["a", "b", "c"], policy=GainPolicy(LIKELY), num_looks=5)
    for _ in range(2):
        agent.run(ImageSensor(scenes(SCENES), PLAIN.glimpse_size), batch=SCENES)
    assert len(calls) == 1


def _load(model: Model) -> None:
    model.load_state_dict(model_of(seed=7).state_dict())


def _load_backbone(model: Model) -> None:
    model.backbone.load_state_dict(model_of(seed=7).backbone.state_dict())


def _assign_backbone(model: Model) -> None:
    model.backbone.load_state_dict(model_of(seed=7).backbone.state_dict(), assign=True)


def _step(model: Model) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.1)
    torch.optim.SGD(model.parameters(), 1.0).step()


def _fused_step(model: Model) -> None:
    """A step that leaves no trace in the versions of the weights, from one mode to the other and back as training goes."""
    model.train()
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.optim.AdamW(model.parameters(), 0.5, fused=True).step()
    model.eval()


def _new_entries(model: Model) -> None:
    with torch.no_grad():
        dictionary_of(model).entries.mul_(-2.0)


def _new_head(model: Model) -> None:
    """What the dictionary's head makes of places is kept too."""
    with torch.no_grad():
        dictionary_of(model).usual.weight.mul_(-1.5)


def _other_head(model: Model) -> None:
    dictionary_of(model).locate.load_state_dict(dictionary_of(model_of(seed=7)).locate.state_dict(), assign=True)


def _new_statistics(model: Model) -> None:
    model.backbone.get_submodule("belief_update.feature_norm").get_buffer("running_mean").add_(3.0)


@pytest.mark.parametrize(
    "change",
    [
        _load,
        _load_backbone,
        _assign_backbone,
        _step,
        _fused_step,
        _new_entries,
        _new_head,
        _other_head,
        _new_statistics,
    ],
)
def test_the_table_is_computed_anew_when_what_it_follows_from_has_changed(
    change: Callable[[Model], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of()
    calls, belief = counted(model, monkeypatch), belief_of(model)
    before = gain_of(model, belief)
    assert torch.equal(gain_of(model, belief), before)
    assert len(calls) == 1
    change(model)
    after = gain_of(model, belief)
    assert len(calls) == 2
    assert (after - before).abs().max() > 1e-6
    torch.testing.assert_close(after, one_by_one(model, belief, mutual_information), rtol=0, atol=1e-10)


def test_the_table_is_forgotten_when_the_mode_is_set() -> None:
    model = model_of()
    for mode in (True, False):
        gain_of(model, belief_of(model))
        assert model._table is not None
        assert model.train(mode) is model
        assert model._table is None
        assert model.training is model.imagination.training is mode


def test_what_the_head_makes_of_places_is_kept_for_decisions_and_forgotten_with_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = model_of()
    dictionary, belief, calls = dictionary_of(model), belief_of(model), list[None]()
    real = dictionary.places

    def places(locations: Tensor) -> Places:
        calls.append(None)
        return real(locations)

    monkeypatch.setattr(dictionary, "places", places)
    for _ in range(3):
        gain_of(model, belief)
    assert len(calls) == 1
    dictionary.imagine(belief, LIKELY, noise=NO_NOISE)
    assert len(calls) == 2, "where gradients may be wanted they are those of the weights as they are"
    model.eval()
    gain_of(model, belief)
    assert len(calls) == 3


def test_a_copy_of_a_model_has_a_table_of_its_own() -> None:
    model = model_of()
    belief = belief_of(model)
    before, copied = gain_of(model, belief), deepcopy(model)
    _new_entries(copied)
    torch.testing.assert_close(
        gain_of(copied, belief), one_by_one(copied, belief, mutual_information), rtol=0, atol=1e-10
    )
    assert torch.equal(gain_of(model, belief), before)


def test_a_model_taken_to_another_precision_computes_its_table_there() -> None:
    model = model_of()
    belief = belief_of(model)
    exact = gain_of(model, belief)
    rough = gain_of(model.float(), Belief(belief.hidden.float(), belief.memory.float()))
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough.double(), exact, rtol=0, atol=1e-4)


@every_config
def test_a_table_that_is_too_large_is_not_kept_and_the_gain_is_the_same(
    config: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(config)
    belief = belief_of(model)
    kept = gain_of(model, belief)
    elements = model.grid.num_locations * ENTRIES * config.belief_size
    monkeypatch.setattr("infogaze.nn.model._LARGEST_TABLE", elements)
    assert model.entry_table() is not None
    monkeypatch.setattr("infogaze.nn.model._LARGEST_TABLE", elements - 1)
    model.eval()
    assert model.entry_table() is None
    torch.testing.assert_close(gain_of(model, belief), kept, rtol=0, atol=1e-10)
    assert model._table is None


def test_a_model_without_a_dictionary_has_no_table() -> None:
    model = build(CONFIG)
    assert model.entry_table() is None
    assert model.weights_version == ()


class OwnBackbone(Backbone):
    """A user's own networks, with an update and nothing about its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.GRUCell(CONFIG.channels + 2, 6)
        self.head = torch.nn.Linear(6, 3)

    def features(self, glimpses: Tensor) -> Tensor:
        return glimpses.mean((-1, -2))

    def start(self, batch: int) -> Belief:
        return Belief(self.head.weight.new_zeros(batch, 6), self.head.weight.new_zeros(batch, 0))

    def update(self, belief: Belief, content: Tensor, locations: Tensor) -> Belief:
        shape = content.shape[:-1]
        seen = torch.cat([content, (locations.to(content.dtype) / 10.0).expand(*shape, 2)], -1)
        hidden = belief.hidden.expand(*shape, 6)
        return Belief(self.cell(seen.flatten(0, -2), hidden.flatten(0, -2)).view(*shape, 6), belief.memory)

    def classify(self, belief: Belief) -> Tensor:
        return self.head(belief.hidden).log_softmax(-1)


def own_model() -> Model:
    dictionary = Dictionary(
        CONFIG.grid, belief_size=6, feature_size=CONFIG.channels, channels=CONFIG.channels, entries=ENTRIES, width=8
    )
    return Model(CONFIG.grid, OwnBackbone(), imagination=dictionary)


@every_criterion
def test_a_users_own_backbone_with_an_update_alone_has_the_gain_of_its_update(criterion: Criterion) -> None:
    model = used(own_model())
    belief = belief_of(model)
    found = gain_of(model, belief, criterion)
    assert model._table is not None
    torch.testing.assert_close(found, one_by_one(model, belief, criterion), rtol=0, atol=1e-10)


@torch.no_grad()
def test_both_halves_of_an_update_are_the_update() -> None:
    for model in (used(own_model()), model_of(), model_of(ATTENTIVE), model_of(TOKENS)):
        belief, where = belief_of(model), model.grid.locations()[[3, 29, 14]]
        content = normal(SCENES, dictionary_of(model).entries.shape[1], seed=9)
        backbone = model.backbone
        halves = backbone.advance(belief, backbone.receive(content, where))
        whole = backbone.update(belief, content, where)
        torch.testing.assert_close(halves.hidden, whole.hidden)
        torch.testing.assert_close(halves.memory, whole.memory)
        shared = backbone.receive(content, where[1])
        torch.testing.assert_close(shared, backbone.receive(content, where[1].expand(SCENES, 2)))


def test_a_users_own_backbone_looks_by_dictionary() -> None:
    torch.manual_seed(0)
    agent = Agent(own_model(), ["a", "b", "c"], policy=GainPolicy(LIKELY, criterion="mutual-information"), num_looks=3)
    episode = agent.run(ImageSensor(scenes(SCENES), CONFIG.glimpse_size), batch=SCENES)
    assert len(episode.history) == 3
    assert (episode.gain > -1e-6).all()
    assert episode.gain.std() > 0
