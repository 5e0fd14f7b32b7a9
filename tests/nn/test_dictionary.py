from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from infogaze import Agent, Backbone, Belief, GainPolicy, GlimpseGrid, ImageSensor, Model, ModelConfig, build
from infogaze.nn.dictionary import Dictionary
from infogaze.nn.gain import CRITERIA, Criterion, mutual_information
from tests.support.parts import normal, used
from tests.support.tiny import CONFIG, scenes

ENTRIES, LIKELY, SCENES = 6, 4, 3
PLAIN = replace(CONFIG, dictionary_entries=ENTRIES)
ATTENTIVE = replace(PLAIN, attention_hops=2, residual_belief=True)
WIDE = replace(PLAIN, height=6, width=17, stride=5)
CONFIGS = {"plain": PLAIN, "attention": ATTENTIVE, "wide": WIDE}
NO_NOISE = torch.zeros(SCENES, 0)
every_criterion = pytest.mark.parametrize("criterion", CRITERIA.values(), ids=CRITERIA.keys())
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


def model_of(config: ModelConfig = PLAIN, seed: int = 0) -> Model:
    """In float64, as if it had been trained, with weights that are not faint."""
    model = used(build(config, seed), seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model


def dictionary_of(model: Model) -> Dictionary:
    assert isinstance(model.imagination, Dictionary)
    return model.imagination


@torch.no_grad()
def belief_of(model: Model, looks: int = 2, scenes: int = SCENES) -> Belief:
    """What is held after looks at random places with random contents."""
    belief = model.backbone.start(scenes)
    generator = torch.Generator().manual_seed(looks)
    for look in range(looks):
        places = torch.randint(0, model.grid.num_locations, (scenes,), generator=generator)
        content = normal(scenes, dictionary_of(model).entries.shape[1], seed=look)
        belief = model.backbone.update(belief, content, model.grid.locations()[places])
    return belief


def in_groups(probabilities: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Of entries side by side, as many a group as it takes to have no more than so many: their probability, and the likeliest."""
    size = math.ceil(ENTRIES / min(groups, ENTRIES))
    firsts = range(0, ENTRIES, size)
    weights = torch.stack([probabilities[..., first : first + size].sum(-1) for first in firsts], -1)
    index = torch.stack([first + probabilities[..., first : first + size].argmax(-1) for first in firsts], -1)
    return weights, index


@torch.no_grad()
def one_by_one(model: Model, belief: Belief, criterion: Criterion, *, likely: int = LIKELY) -> Tensor:
    """The gain from single looks: each scene, place and entry is a look of its own, taken in as a real one is."""
    dictionary, where = dictionary_of(model), model.grid.locations()
    weights, index = in_groups(dictionary.log_probabilities(belief.hidden, where).exp(), likely)
    scene, place, _ = torch.meshgrid(*[torch.arange(size) for size in index.shape], indexing="ij")
    before = Belief(belief.hidden[scene.flatten()], belief.memory[scene.flatten()])
    features = dictionary.entries[index]
    after = model.backbone.update(before, features.flatten(0, 2), where[place.flatten()])
    lookahead = model.backbone.classify(after).unflatten(0, index.shape)
    return criterion(lookahead, weights, model.backbone.classify(belief), features=features)


@torch.no_grad()
def gain_of(model: Model, belief: Belief, criterion: Criterion = mutual_information) -> Tensor:
    return model.imagined_gain(belief, LIKELY, noise=NO_NOISE, criterion=criterion)


def test_the_grids_of_these_tests_have_irregular_last_places_and_scenes_that_are_not_square() -> None:
    for config in CONFIGS.values():
        rows, cols = config.grid.axes()
        assert config.height != config.width
        assert int(rows.diff()[-1]) != config.stride or int(cols.diff()[-1]) != config.stride
        assert config.grid.num_locations > 2


@torch.no_grad()
def test_the_probabilities_of_the_entries_add_up_to_one_and_follow_belief_and_location() -> None:
    model = model_of()
    belief, where = belief_of(model), model.grid.locations()
    probabilities = dictionary_of(model).log_probabilities(belief.hidden, where).exp()
    assert probabilities.shape == (SCENES, model.grid.num_locations, ENTRIES)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones_like(probabilities[..., 0]))
    assert probabilities.std(0).amax() > 0.01, "another belief expects another content"
    assert probabilities.std(1).amax() > 0.01, "and so does another place"


@torch.no_grad()
def test_what_a_location_holds_needs_no_other_belief_and_no_other_location() -> None:
    model = model_of()
    hidden, where = belief_of(model).hidden, model.grid.locations()
    together = dictionary_of(model).log_probabilities(hidden, where)
    for scene, place in ((0, 3), (2, model.grid.num_locations - 1)):
        alone = dictionary_of(model).log_probabilities(hidden[scene], where[place : place + 1])
        torch.testing.assert_close(alone[0], together[scene, place])


@torch.no_grad()
def test_locations_given_for_each_belief_are_those_given_for_all() -> None:
    model = model_of()
    hidden, where = belief_of(model).hidden, model.grid.locations()
    head = dictionary_of(model).log_probabilities
    together = head(hidden, where)
    torch.testing.assert_close(head(hidden, where.expand(SCENES, -1, 2)), together)
    own = torch.stack([where.roll(scene, 0) for scene in range(SCENES)])
    found = head(hidden, own)
    for scene in range(SCENES):
        torch.testing.assert_close(found[scene], together[scene].roll(scene, 0))


@torch.no_grad()
@pytest.mark.parametrize(
    ("wanted", "count"), [(1, 1), (2, 2), (4, 3), (5, 3), (ENTRIES, ENTRIES), (ENTRIES + 5, ENTRIES)]
)
def test_each_group_of_entries_stands_as_its_likeliest_with_all_its_probability(wanted: int, count: int) -> None:
    model = model_of()
    belief, dictionary = belief_of(model), dictionary_of(model)
    imagined = dictionary.imagine(belief, wanted, noise=NO_NOISE)
    assert imagined.index is not None
    weights, index = in_groups(
        dictionary.log_probabilities(belief.hidden, model.grid.locations()).exp(), min(wanted, ENTRIES)
    )
    assert index.shape[-1] == count
    np.testing.assert_array_equal(imagined.index.numpy(), index.numpy())
    np.testing.assert_allclose(imagined.weights.numpy(), weights.numpy())
    np.testing.assert_array_equal(imagined.features.numpy(), dictionary.entries.numpy()[index.numpy()])


@torch.no_grad()
def test_with_a_group_for_each_entry_nothing_is_left_out() -> None:
    model = model_of()
    belief, dictionary = belief_of(model), dictionary_of(model)
    imagined = dictionary.imagine(belief, ENTRIES, noise=NO_NOISE)
    probabilities = dictionary.log_probabilities(belief.hidden, model.grid.locations()).exp()
    torch.testing.assert_close(imagined.weights, probabilities)


@torch.no_grad()
def test_the_same_belief_gives_the_same_gain_bit_for_bit_whatever_the_noise() -> None:
    model = build(PLAIN)
    hidden, memory = normal(SCENES, PLAIN.belief_size).float(), torch.zeros(SCENES, 0)
    belief = Belief(hidden, memory)
    assert dictionary_of(model).noise_shape(20) == (0,)
    maps = [model.gain(belief, LIKELY, noise=numbers) for numbers in (NO_NOISE, NO_NOISE, torch.randn(SCENES, 0))]
    louder = model.gain(belief, LIKELY, noise=torch.randn(SCENES, 9))
    assert all(torch.equal(found, maps[0]) for found in (*maps, louder))


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


def _new_statistics(model: Model) -> None:
    model.backbone.get_submodule("belief_update.feature_norm").get_buffer("running_mean").add_(3.0)


@pytest.mark.parametrize(
    "change", [_load, _load_backbone, _assign_backbone, _step, _fused_step, _new_entries, _new_statistics]
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


@torch.no_grad()
def test_uncertainty_is_scipys_entropy_of_what_a_location_holds() -> None:
    model = model_of()
    belief, dictionary = belief_of(model), dictionary_of(model)
    probabilities = dictionary.log_probabilities(belief.hidden, model.grid.locations()).exp().numpy()
    np.testing.assert_allclose(dictionary.uncertainty(belief), stats.entropy(probabilities, axis=-1), atol=1e-12)
    some = torch.tensor([[1.5, 0.25], [3.0, 7.0]])
    elsewhere = dictionary.log_probabilities(belief.hidden, some).exp().numpy()
    np.testing.assert_allclose(dictionary.uncertainty(belief, some), stats.entropy(elsewhere, axis=-1), atol=1e-12)


def sure_of(dictionary: Dictionary, entry: int | None) -> None:
    """Of one entry at every location of every scene; of none, where all are to be equally likely."""
    with torch.no_grad():
        dictionary.keys.weight.zero_()
        dictionary.usual.weight.zero_()
        dictionary.keys.bias.zero_()
        if entry is not None:
            dictionary.keys.bias[entry] = 1e3


@torch.no_grad()
def test_uncertainty_is_log_k_where_all_entries_are_equally_likely_and_nothing_where_one_is_sure() -> None:
    model = model_of()
    for entry, nats in ((None, math.log(ENTRIES)), (2, 0.0)):
        sure_of(dictionary_of(model), entry)
        uncertain = dictionary_of(model).uncertainty(belief_of(model))
        torch.testing.assert_close(uncertain, torch.full_like(uncertain, nats))


def with_patches(model: Model) -> Dictionary:
    dictionary = dictionary_of(model)
    dictionary.patches.copy_(normal(*dictionary.patches.shape, seed=3).clamp(-1, 1))
    return dictionary


@every_config
@torch.no_grad()
def test_the_picture_is_the_mean_of_the_expected_patches_over_each_pixel_and_grey_where_no_place_is(
    config: ModelConfig,
) -> None:
    model = model_of(config)
    dictionary, belief, side = with_patches(model), belief_of(model), config.glimpse_size
    places = model.grid.locations().tolist()
    probabilities = dictionary.log_probabilities(belief.hidden, model.grid.locations()).exp().numpy()
    patches = dictionary.patches.numpy()
    expected = np.zeros((SCENES, config.channels, config.height, config.width))
    for row in range(config.height):
        for col in range(config.width):
            over = [
                probabilities[:, place] @ patches[:, :, row - top, col - left]
                for place, (top, left) in enumerate(places)
                if top <= row < top + side and left <= col < left + side
            ]
            expected[:, :, row, col] = np.mean(over, 0) if over else 0.0
    np.testing.assert_allclose(dictionary.picture(belief).numpy(), expected, atol=1e-12)


@torch.no_grad()
def test_the_picture_of_what_is_certain_is_its_patch_everywhere() -> None:
    tiled = model_of(replace(PLAIN, height=8, width=12, stride=4))
    dictionary = with_patches(tiled)
    sure_of(dictionary, 4)
    picture = dictionary.picture(belief_of(tiled))
    assert torch.equal(picture, dictionary.patches[4].repeat(1, 2, 3).expand(SCENES, -1, -1, -1))
    overlapping = model_of()
    plain = dictionary_of(overlapping)
    plain.patches.copy_(torch.tensor([-0.25, 0.75]).view(1, 2, 1, 1))
    picture = plain.picture(belief_of(overlapping))
    torch.testing.assert_close(picture, torch.tensor([-0.25, 0.75]).double().view(1, 2, 1, 1).expand_as(picture))


@torch.no_grad()
def test_a_drawn_scene_is_the_picture_in_bytes_and_the_uncertainty_on_the_grid() -> None:
    model = model_of(WIDE)
    belief, dictionary = belief_of(model), dictionary_of(model)
    dictionary.patches.uniform_(-1.0, 1.0, generator=torch.Generator().manual_seed(1))
    drawn = dictionary.draw(belief)
    expected = (dictionary.picture(belief).double() + 1.0) / 2.0 * 255.0
    assert drawn.picture.dtype == torch.uint8
    assert float((drawn.picture.double() - expected).abs().max()) <= 0.5 + 1e-3
    rows, cols = model.grid.rows, model.grid.cols
    torch.testing.assert_close(drawn.uncertainty, dictionary.uncertainty(belief).view(SCENES, rows, cols))
    finer = replace(model.grid, stride=1)
    on_finer = dictionary.draw(belief, finer)
    assert torch.equal(on_finer.picture, drawn.picture)
    torch.testing.assert_close(on_finer.uncertainty.flatten(1), dictionary.uncertainty(belief, finer.locations()))


@torch.no_grad()
def test_what_a_location_holds_changes_little_from_pixel_to_pixel() -> None:
    model = model_of()
    hidden, head = belief_of(model).hidden, dictionary_of(model).log_probabilities
    first, last = model.grid.locations()[[7, 8]].double()
    share = torch.linspace(0, 1, 201, dtype=torch.float64)[:, None]
    between = head(hidden, (1 - share) * first + share * last)
    at_places = head(hidden, model.grid.locations())
    torch.testing.assert_close(between[:, [0, -1]], at_places[:, [7, 8]], rtol=0, atol=1e-4)
    change = (between[:, -1] - between[:, 0]).abs().amax()
    steps = between.diff(dim=1).abs().amax()
    assert float(change) > 0.01
    assert float(steps) < 0.2 * float(change)
    finer = head(hidden, first + (last - first) * torch.linspace(0, 0.005, 201, dtype=torch.float64)[:, None])
    assert finer.diff(dim=1).abs().amax() < 0.02 * float(steps), "steps two hundred times smaller"


@torch.no_grad()
def test_a_finer_grid_is_told_the_same_where_both_have_a_place() -> None:
    model = model_of()
    belief, dictionary = belief_of(model), dictionary_of(model)
    finer = replace(model.grid, stride=1)
    shared = finer.nearest(model.grid.locations())
    assert torch.equal(finer.locations()[shared], model.grid.locations())
    coarse = dictionary.imagine(belief, LIKELY, noise=NO_NOISE)
    fine = dictionary.imagine(belief, LIKELY, noise=NO_NOISE, locations=finer.locations())
    assert coarse.index is not None
    assert fine.index is not None
    assert fine.weights.shape == (SCENES, finer.num_locations, coarse.weights.shape[-1])
    assert torch.equal(fine.index[:, shared], coarse.index)
    torch.testing.assert_close(fine.weights[:, shared], coarse.weights)
    gain = model.lookahead_gain(belief, fine, locations=finer.locations(), criterion=mutual_information)
    torch.testing.assert_close(gain[:, shared], gain_of(model, belief), rtol=0, atol=1e-10)


def test_a_dictionary_names_its_own_nearest_entry() -> None:
    dictionary = dictionary_of(model_of())
    order = torch.tensor([3, 0, 5, 5, 1])
    assert torch.equal(dictionary.nearest(dictionary.entries.detach()[order] + 1e-3), order)


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
    for model in (used(own_model()), model_of(), model_of(ATTENTIVE)):
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


def test_a_single_entry_is_certain() -> None:
    grid = GlimpseGrid(height=4, width=8, glimpse_size=4, stride=4)
    dictionary = used(Dictionary(grid, belief_size=3, feature_size=2, channels=1, entries=1, width=4))
    belief = Belief(normal(2, 3), normal(2, 0))
    imagined = dictionary.imagine(belief, 5, noise=torch.zeros(2, 0))
    assert torch.equal(imagined.weights, torch.ones(2, 2, 1).double())
    assert torch.equal(dictionary.uncertainty(belief), torch.zeros(2, 2).double())
