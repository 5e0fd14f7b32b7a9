"""Imagination by dictionary: what its phases teach, where its entries come from, and that its looks are worth something."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import infogaze
from infogaze import METHODS, Agent, GainPolicy, InfogazeError, RandomPolicy
from infogaze.data.options import ReadOptions
from infogaze.data.sets import Split
from infogaze.evaluation.rollouts import roll_out
from infogaze.methods import dictionary as method
from infogaze.methods.dictionary import FINETUNE, IMAGINE, Chosen, entry_loss, held_entries
from infogaze.methods.registry import build_for
from infogaze.methods.three_phases import ChosenLooks
from infogaze.nn.belief import Belief
from infogaze.nn.config import ModelConfig
from infogaze.nn.dictionary import Dictionary
from infogaze.nn.gain import coherent_information
from infogaze.nn.k_means import k_means
from infogaze.nn.model import Model
from infogaze.presets import Preset
from infogaze.runs import DataChoice, RunConfig, RunFolder
from infogaze.tasks.train import plan_of
from infogaze.training.loop import train
from infogaze.training.phases import Batch, Objective
from infogaze.training.plan import Callbacks
from infogaze.training.recipe import RECIPES, Recipe
from infogaze.training.rollout import classification_outcome, random_places, unroll_places
from infogaze.training.step import TrainStep
from tests.support.calls import refused
from tests.support.looks import looked_alike
from tests.support.methods import (
    LOOKS,
    OBJECTIVE,
    agent_of,
    batch_for,
    chosen,
    gradients,
    in_float64,
    made,
    outcome,
    sizes,
    still,
    under,
)
from tests.support.small_model import plain_beliefs
from tests.support.small_run import RECIPE, epochs, scenes
from tests.support.tiny import CONFIG, PRESET_SIZES

ENTRIES = PRESET_SIZES.dictionary_entries
FEW = replace(OBJECTIVE, num_entries=3)


def model() -> Model:
    """One whose predictions and choices differ from scene to scene."""
    net = made("dictionary")
    assert isinstance(net, Model)
    with torch.no_grad():
        for part in (net.backbone, net.imagination):
            for name, parameter in part.named_parameters():
                parameter.mul_(1.0 if name.endswith("bias") else 3.0)
    return net


def dictionary_of(net: Model) -> Dictionary:
    assert isinstance(net.imagination, Dictionary)
    return net.imagination


def exact(net: Model, batch: Batch, objective: Objective = FEW) -> tuple[Model, Batch, Chosen]:
    """In float64, with batch norms that stay as they are, and the looks chosen for the batch."""
    net, batch = in_float64(still(net), batch)
    return net, batch, chosen(FINETUNE, net, batch, objective)


def glimpses_of(batch: Batch, places: Tensor) -> Tensor:
    """Cut one by one, [B, q, C, g, g]."""
    side, where = CONFIG.glimpse_size, CONFIG.grid.locations()
    cut = [
        torch.stack([image[:, r : r + side, c : c + side] for r, c in where[some].tolist()])
        for image, some in zip(batch.images, places, strict=True)
    ]
    return torch.stack(cut)


@torch.no_grad()
def content_of(net: Model, batch: Batch, places: Tensor) -> Tensor:
    """What F makes of them in evaluation mode, one at a time, [B q, f]."""
    net.eval()
    return torch.cat([net.backbone.features(glimpse[None]) for glimpse in glimpses_of(batch, places).flatten(0, 1)])


def plain_nearest(content: Tensor, entries: Tensor) -> Tensor:
    """By the distances themselves."""
    rows = [[float((one - other).square().sum()) for other in entries] for one in content]
    return torch.tensor(rows).argmin(1)


@pytest.mark.parametrize("steps", [1, 3])
def test_phase_2_changes_the_head_and_neither_the_backbone_nor_the_entries(steps: int) -> None:
    net = model()
    step = TrainStep(net, IMAGINE, objective=OBJECTIVE, recipe=RECIPE, augmentation=None, batch_size=16, seed=0)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    for _ in range(steps):
        step(scenes(16).images, scenes(16).labels, learning_rate=1e-2)
    changed = {name for name, value in net.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == under(net, "imagination.") - {"imagination.entries"}


def test_the_loss_of_phase_2_is_the_surprise_at_the_entries_of_some_places_after_every_look() -> None:
    net = still(model())
    net, batch = in_float64(net, batch_for(IMAGINE, net, 3))
    dictionary, places = dictionary_of(net), batch.noise["asked"].argsort(1, descending=True)[:, :12]
    wanted = plain_nearest(content_of(net, batch, places), dictionary.entries.detach()).view(3, 12)
    beliefs, _ = plain_beliefs(net, batch, batch.noise["places"].argsort(1, descending=True)[:, :LOOKS].t())
    surprises = []
    for belief in beliefs:
        for scene in range(3):
            for place, entry in zip(places[scene], wanted[scene], strict=True):
                where = net.grid.locations()[place][None]
                surprises.append(-dictionary.log_probabilities(belief.hidden[scene], where)[0, entry])
    torch.testing.assert_close(outcome(IMAGINE, net, batch).loss, torch.stack(surprises).mean(), rtol=1e-9, atol=1e-9)


def test_a_tenth_of_the_gradient_of_what_the_head_is_asked_reaches_the_belief() -> None:
    net = model()
    net, batch = in_float64(net.eval(), batch_for(FINETUNE, net))
    held = held_entries(net, batch)
    hidden = torch.randn(LOOKS, 6, CONFIG.belief_size, requires_grad=True, dtype=torch.float64)
    loss = entry_loss(net, Belief(hidden, torch.zeros(LOOKS, 6, 0)), held)
    (found,) = torch.autograd.grad(loss, hidden)
    locations = net.grid.locations()[held.places]
    surprise = -dictionary_of(net).log_probabilities(hidden, locations)  # [T, B, q, K]
    whole = surprise.gather(3, held.entries[None, :, :, None].expand(LOOKS, -1, -1, 1)).mean()
    torch.testing.assert_close(loss, whole, rtol=0, atol=1e-12)
    (full,) = torch.autograd.grad(whole, hidden)
    assert float(full.abs().max()) > 0
    torch.testing.assert_close(found, 0.1 * full, rtol=0, atol=1e-12)


def test_labels_are_nothing_to_phase_2() -> None:
    net = model()
    batch = batch_for(IMAGINE, net)
    other = replace(batch, labels=(batch.labels + 1) % CONFIG.num_classes)
    one, two = outcome(IMAGINE, net, batch), outcome(IMAGINE, net, other)
    assert torch.equal(one.loss, two.loss)
    assert not torch.equal(one.accuracy, two.accuracy), "which are told, not learned from"
    before = gradients(one.loss, net)
    assert all(torch.equal(value, before[name]) for name, value in gradients(two.loss, net).items())


def test_phase_3_teaches_everything() -> None:
    net = model()
    found = gradients(outcome(FINETUNE, net, batch_for(FINETUNE, net)).loss, net)
    assert {name for name, gradient in found.items() if not bool(gradient.abs().sum() > 0)} == set()


def test_in_phase_3_classification_and_what_the_head_is_asked_teach_the_backbone() -> None:
    net = model()
    net, batch, found = exact(net, batch_for(FINETUNE, net))
    whole = gradients(FINETUNE.loss(net, batch, objective=FEW, looks=found).loss, net)
    places = found.looks.places
    beliefs, _ = unroll_places(net, batch, places)
    locations = net.grid.locations()[places]
    classified = classification_outcome(net, beliefs, locations=locations, batch=batch, objective=FEW).loss
    for name, gradient in gradients(classified + entry_loss(net, beliefs, found.held), net).items():
        if name.startswith("backbone."):
            torch.testing.assert_close(whole[name], gradient, rtol=0, atol=1e-12)


def test_in_phase_3_the_entries_follow_what_is_seen_and_hear_of_nothing_else() -> None:
    net = model()
    net, batch, found = exact(net, batch_for(FINETUNE, net))
    _, seen = plain_beliefs(net, batch, found.looks.places)
    content = torch.cat(seen).detach()
    entries = dictionary_of(net).entries.detach()
    pull = torch.zeros_like(entries)
    for one, own in zip(content, plain_nearest(content, entries), strict=True):
        pull[own] += 2 * (entries[own] - one) / content.numel()
    loss = FINETUNE.loss(net, batch, objective=FEW, looks=found).loss
    torch.testing.assert_close(gradients(loss, net)["imagination.entries"], pull, rtol=0, atol=1e-12)


def test_entries_that_follow_come_nearer_to_what_f_makes_of_glimpses() -> None:
    net = model()
    places = torch.arange(CONFIG.grid.num_locations).expand(6, -1)

    def distance() -> float:
        content = content_of(net, batch_for(FINETUNE, net), places)
        return float(torch.cdist(content, dictionary_of(net).entries.detach()).amin(1).square().mean())

    before = distance()
    optimiser = torch.optim.SGD([dictionary_of(net).entries], 2.0)
    for seed in range(20):
        optimiser.zero_grad()
        outcome(FINETUNE, still(net), batch_for(FINETUNE, net, seed=seed)).loss.backward()
        optimiser.step()
    assert distance() < 0.7 * before


def test_batch_norm_hears_of_the_looks_of_phase_3_and_of_no_place_that_the_head_is_asked_for() -> None:
    net, told_of = model(), list[tuple[Batch, ChosenLooks]]()
    alone = deepcopy(net)

    def listening(model: Model, batch: Batch, objective: Objective) -> Chosen:
        found = method.choose_by_dictionary(model, batch, objective)
        told_of.append((batch, found.looks))
        return found

    phase = replace(FINETUNE, choose=listening)
    step = TrainStep(net, phase, objective=OBJECTIVE, recipe=RECIPE, augmentation=None, batch_size=16, seed=0)
    step(scenes(16).images, scenes(16).labels, learning_rate=1e-3)
    ((batch, looks),) = told_of
    alone.train()
    with torch.no_grad():
        unroll_places(alone, batch, looks.places)
    statistics = {name: value for name, value in net.named_buffers() if "running" in name or "num_batches" in name}
    assert len(statistics) >= 6
    for name, value in statistics.items():
        torch.testing.assert_close(value, alone.get_buffer(name))
        assert not torch.equal(value, model().get_buffer(name))


@torch.no_grad()
def test_held_entries_are_those_of_the_places_that_chance_puts_first() -> None:
    net = model()
    net, batch = in_float64(net.eval(), batch_for(FINETUNE, net))
    held = held_entries(net, batch)
    first = batch.noise["asked"].argsort(1, descending=True)[:, :12]
    assert torch.equal(held.places, first)
    nearest = plain_nearest(content_of(net, batch, first), dictionary_of(net).entries)
    assert torch.equal(held.entries.flatten(), nearest)
    assert len(nearest.unique()) > 1


def test_on_a_grid_of_few_places_all_are_asked_for() -> None:
    config = replace(sizes("dictionary"), stride=9)
    net = build_for("dictionary", config).eval()
    assert isinstance(net, Model)
    assert config.grid.num_locations == 4
    held = held_entries(net, batch_for(FINETUNE, net))
    assert torch.equal(held.places.sort(1).values, torch.arange(4).expand(6, 4))


@torch.no_grad()
def test_phase_3_looks_where_the_coherent_information_of_its_entries_is_largest() -> None:
    net = model()
    net, batch, found = exact(net, batch_for(FINETUNE, net, 20))
    looks = found.looks
    beliefs, _ = plain_beliefs(net, batch, looks.places)
    assert torch.equal(looks.places[0], random_places(batch, 1)[0])
    for look in range(1, LOOKS):
        gain = net.imagined_gain(beliefs[look - 1], 3, noise=torch.zeros(20, 0), criterion=coherent_information)
        best = gain.scatter(1, looks.places[:look].t(), -torch.inf).argmax(1)
        assert torch.equal(looks.places[look], best)
    assert len(looks.places[1:].t().unique(dim=0)) > 3, "which differs from scene to scene"


def test_a_step_of_phase_3_computes_what_r_makes_of_the_entries_once(monkeypatch: pytest.MonkeyPatch) -> None:
    net = model()
    real, tables = net.entry_table, list[Tensor]()

    def entry_table() -> Tensor:
        table = real()
        assert table is not None
        tables.append(table)
        return table

    monkeypatch.setattr(net, "entry_table", entry_table)
    step = TrainStep(net, FINETUNE, objective=OBJECTIVE, recipe=RECIPE, augmentation=None, batch_size=16, seed=0)
    for _ in range(3):
        step(scenes(16).images, scenes(16).labels, learning_rate=1e-2)
    assert len(tables) == 3
    assert not torch.equal(tables[0], tables[1]), "and with the weights as they are"


def prepared(net: Model, *batches: Batch) -> Tensor:
    method.prepare_dictionary(net, iter(batches), OBJECTIVE)
    return dictionary_of(net).entries.detach().clone()


def some_content(net: Model, batches: list[Batch]) -> Tensor:
    """Of the eight places that chance puts first, scene by scene."""
    return torch.cat([content_of(net, b, b.noise["asked"].argsort(1, descending=True)[:, :8]) for b in batches])


def test_preparation_is_the_same_every_time_and_leaves_all_but_the_entries() -> None:
    net = model()
    batches = [batch_for(IMAGINE, net, 20, seed=seed) for seed in range(3)]
    before = {name: value.clone() for name, value in net.state_dict().items()}
    first = prepared(net, *batches)
    changed = {name for name, value in net.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"imagination.entries"}
    assert torch.equal(prepared(model(), *batches), first)
    torch.randn(10)
    assert torch.equal(prepared(net, *batches), first), "whatever the entries were"


def test_the_entries_begin_as_the_means_of_what_f_makes_of_glimpses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method, "_ITERATIONS", 200)
    net = model()
    batches = [in_float64(net, batch_for(IMAGINE, net, 20, seed=seed))[1] for seed in range(3)]
    entries = prepared(net.train(), *batches)
    content = some_content(net, batches)
    own = plain_nearest(content, entries)
    assert len(own.unique()) == ENTRIES
    for entry in range(ENTRIES):
        torch.testing.assert_close(entries[entry], content[own == entry].mean(0))


def test_each_of_a_few_kinds_of_glimpses_has_an_entry_of_its_own() -> None:
    net = still(model())
    batch = batch_for(IMAGINE, net, 60)
    kinds = torch.linspace(-1, 1, ENTRIES)
    images = kinds[torch.arange(60) % ENTRIES].view(-1, 1, 1, 1).expand_as(batch.images).contiguous()
    entries = prepared(net, replace(batch, images=images))
    with torch.no_grad():
        content = net.backbone.features(images[:ENTRIES, :, :4, :4])
    assert torch.cdist(content, entries).amin(1).max() < 1e-4


@pytest.mark.parametrize("needed", [1, 20, 21, 1000])
def test_no_more_scenes_are_seen_than_the_entries_need(needed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method, "_SCENES", needed)
    net = model()
    batches = iter([batch_for(IMAGINE, net, 20, seed=seed) for seed in range(3)])
    method.prepare_dictionary(net, batches, OBJECTIVE)
    assert len(list(batches)) == {1: 2, 20: 2, 21: 1, 1000: 0}[needed]


def test_fewer_glimpses_than_entries_suffice() -> None:
    net = build_for("dictionary", replace(sizes("dictionary"), dictionary_entries=50))
    assert isinstance(net, Model)
    batch = batch_for(IMAGINE, net, 2)
    assert prepared(net, batch).isfinite().all()
    method.conclude_dictionary(net, iter([batch]), OBJECTIVE)
    assert all(bool(value.isfinite().all()) for value in net.state_dict().values())


@torch.no_grad()
def test_in_the_end_each_patch_is_the_mean_of_the_glimpses_that_its_entry_is_nearest_to() -> None:
    net = model()
    dictionary = dictionary_of(net)
    batches = [batch_for(IMAGINE, net, 20, seed=seed) for seed in range(3)]
    prepared(net, *batches)
    dictionary.entries[2] = 1e3
    begun = dictionary.entries.clone()
    method.conclude_dictionary(net.train(), iter(batches), OBJECTIVE)
    content = some_content(net, batches)
    torch.testing.assert_close(dictionary.entries.detach(), k_means(content, begun, iterations=3))
    assert torch.equal(dictionary.entries[2], begun[2]), "nothing is near it"
    glimpses = torch.cat(
        [glimpses_of(b, b.noise["asked"].argsort(1, descending=True)[:, :8]).flatten(0, 1) for b in batches]
    )
    own = plain_nearest(content, dictionary.entries)
    for entry in range(ENTRIES):
        mean = glimpses[own == entry].mean(0) if entry != 2 else glimpses.mean(0)
        torch.testing.assert_close(dictionary.patches[entry], mean, rtol=0, atol=1e-3)


@pytest.mark.parametrize("method", ["infogaze", "dictionary"])
def test_without_entries_the_method_is_refused_in_one_line(
    method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--method", method, "--model.dictionary-entries", "0", "--device", "cpu", "--out", tmp_path / "run")
    line = refused(capsys, "train", "digits", *given)
    assert line == "infogaze: dictionary_entries is 0; imagination by dictionary needs some"
    assert not (tmp_path / "run").exists()
    with pytest.raises(InfogazeError, match="dictionary_entries is 0; imagination by dictionary needs some"):
        build_for(method, replace(sizes(method), dictionary_entries=0))


def test_no_method_has_what_it_does_without() -> None:
    for name in METHODS:
        assert (METHODS[name].sizes(PRESET_SIZES).dictionary_entries == 0) == (METHODS[name].imagination == "vae")


@pytest.mark.parametrize("method", ["infogaze", "dictionary"])
def test_both_methods_look_by_coherent_information_and_one_corrects_it(method: str) -> None:
    assert METHODS[method].policy(7) == GainPolicy(7, criterion="coherent-information")
    net = made(method)
    assert isinstance(net, Model)
    assert isinstance(net.imagination, Dictionary)
    assert (net.correction is not None) == (method == "infogaze")


def test_a_saved_dictionary_looks_as_it_did(tmp_path: Path) -> None:
    net = model()
    dictionary_of(net).patches.uniform_(-1, 1)
    agent = agent_of("dictionary", net)
    infogaze.save(agent, tmp_path / "model")
    again = infogaze.load(tmp_path / "model")
    state = again.model.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    one, other = (roll_out(which, scenes(12)) for which in (agent, again))
    assert torch.equal(one.locations, other.locations)
    assert torch.equal(one.gains, other.gains)
    assert torch.equal(one.probabilities, other.probabilities)


def test_decisions_are_the_same_every_time_and_in_any_batch() -> None:
    agent = agent_of("dictionary", model())
    one, again, other = (roll_out(agent, scenes(24), seed=3, batch_size=size) for size in (24, 24, 5))
    assert torch.equal(one.gains, again.gains)
    assert torch.equal(one.locations, again.locations)
    alike = looked_alike(one.locations, other.locations)
    torch.testing.assert_close(one.gains[alike], other.gains[alike], rtol=1e-4, atol=1e-5)


# A world of nine places, of which one tells the label.
WORLD = ModelConfig(
    height=12, width=12, channels=1, num_classes=2, glimpse_size=4, stride=4, glimpse_widths=(6,), feature_size=12,
    belief_size=32, latent_size=4, flow_layers=0, dictionary_entries=8,
)  # fmt: skip
TELLS = 5


def told(count: int, seed: int) -> Split:
    """Scenes in which one place is bright or dark with the label, and the others are grey, all with a little noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (count,), generator=generator)
    images = 118 + torch.randint(0, 20, (count, 1, WORLD.height, WORLD.width), generator=generator)
    row, col = WORLD.grid.locations()[TELLS].tolist()
    images[:, :, row : row + 4, col : col + 4] += 80 * (2 * labels - 1).view(-1, 1, 1, 1)
    return Split(images.to(torch.uint8), labels)


def test_looks_by_dictionary_find_the_place_that_tells_the_label(tmp_path: Path) -> None:
    preset = Preset(model=WORLD, beta=1.0, learning_rates=(1e-3,) * 3, horizontal_flip=False, num_looks=3)
    recipe = Recipe(phase1=epochs(6), phase2=epochs(4), phase3=epochs(1, 1e-3), full_image=epochs(1), augmentation=None)
    config = RunConfig(
        method="dictionary",
        preset=replace(preset, model=METHODS["dictionary"].sizes(WORLD)),
        recipe=recipe,
        data=DataChoice("made up", None, ReadOptions()),
        seed=0,
        phases=(1, 2, 3),
        val_fraction=0.0,
    )
    net = build_for("dictionary", config.preset.model)
    train(net, plan_of(config, net), split=told(320, 0), folder=RunFolder(tmp_path, config), callbacks=Callbacks())
    test = told(200, 1)
    by_gain, at_random = (
        roll_out(Agent(net, ["dark", "bright"], policy=policy, num_looks=3), test)
        for policy in (METHODS["dictionary"].policy(8), RandomPolicy())
    )
    assert torch.equal(by_gain.locations[:, 0], at_random.locations[:, 0])
    places = WORLD.grid.nearest(by_gain.locations)
    found = (places == TELLS).any(1).double().mean()
    assert found > 0.95
    right, by_chance = (looked.correct[:, -1].double().mean() for looked in (by_gain, at_random))
    assert right > 0.95
    assert right > by_chance + 0.15


@pytest.mark.parametrize("name", ["infogaze", "dictionary"])
@pytest.mark.parametrize("recipe", ["fast", "own"])
def test_f_r_and_c_learn_nearly_as_long_as_the_baselines_do(name: str, recipe: str) -> None:
    way = RECIPES[recipe]
    alone, together = (phase.budget(way) for phase in METHODS[name].phases[1:])
    (baseline,) = (phase.budget(way) for phase in METHODS["discriminative"].phases[1:])
    assert alone == way.phase2.scaled(0.25)
    left = (together.epochs or together.steps or 0) + (alone.epochs or alone.steps or 0)
    assert left == (baseline.epochs or baseline.steps)
    assert together.batch_size == way.phase3.batch_size
