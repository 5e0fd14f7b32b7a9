from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from torch import Tensor, nn
from torch.nn import functional

from infogaze import Agent, Belief, GlimpseBackbone, GlimpseGrid, ModelConfig, build, load, preset, save
from infogaze.backbone import Backbone
from infogaze.belief import AttentiveBeliefUpdate, BeliefUpdate
from infogaze.classifier import Classifier
from infogaze.decoder import Decoder, growth
from infogaze.features import GlimpseFeatures, Residual, to_pixels
from infogaze.sensing import extract_grid

TINY = ModelConfig(
    height=12, width=12, channels=1, classes=3, glimpse=4, stride=2, glimpse_widths=(4,),
    feature_size=5, belief_size=6, latent_size=4, flow_layers=2,
)  # fmt: skip


M = TypeVar("M", bound=nn.Module)


def _normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _used(module: M, seed: int = 0) -> M:
    """The module in float64 and eval mode, with random weights and statistics: fresh ones hide what normalisations do."""
    module.double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(0.5 * torch.randn(buffer.shape, generator=generator))
            if name.endswith("running_var"):
                buffer.copy_(0.2 + torch.rand(buffer.shape, generator=generator))
    return module


# F


def _features(grid: GlimpseGrid, channels: int = 2, widths: tuple[int, ...] = (4,), size: int = 5) -> GlimpseFeatures:
    return _used(GlimpseFeatures(grid, channels, widths, size))


@pytest.mark.parametrize(
    ("glimpse", "widths"),
    [
        (1, ()), (2, ()), (3, (4,)), (4, ()), (4, (3,)), (5, (3, 4)), (6, (3,)), (7, (2, 3, 4)), (8, (2, 3, 4)),
        (9, (2, 2, 2, 2)), (9, (3,)),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("height", "width", "stride"), [(13, 13, 2), (9, 17, 3), (14, 11, 1)])
def test_features_of_the_grid_are_one_dense_pass_over_the_scene(
    glimpse: int, widths: tuple[int, ...], height: int, width: int, stride: int
) -> None:
    # F_g sees exactly one glimpse, so convolving the whole scene gives every window's features, at stride one.
    features = _features(GlimpseGrid(height, width, glimpse, stride), widths=widths)
    images = _normal(2, 2, height, width)
    dense = features.glimpse_network(images)  # [B, f, H - g + 1, W - g + 1]
    assert dense.shape[-2:] == (height - glimpse + 1, width - glimpse + 1)
    expected = dense[:, :, ::stride, ::stride].flatten(2).mT
    torch.testing.assert_close(features.content(extract_grid(images, features.grid)), expected)


def test_the_paper_ends_its_glimpse_network_with_a_convolution_of_two() -> None:
    for name in ("svhn", "cifar10", "cinic10", "cifar100", "tinyimagenet"):
        config = preset(name).model
        with torch.device("meta"):
            network = GlimpseFeatures(config.grid, 3, config.glimpse_widths, config.feature_size).glimpse_network
        kinds = [type(layer) for layer in network]
        repeats = len(config.glimpse_widths)
        assert kinds == [nn.Conv2d, nn.LeakyReLU, nn.BatchNorm2d] * repeats + [nn.Conv2d]
        kernels = [layer.kernel_size for layer in network if isinstance(layer, nn.Conv2d)]
        assert kernels == [(3, 3)] * repeats + [(2, 2)]


@given(st.integers(0, 2**31))
def test_features_are_content_plus_place(seed: int) -> None:
    grid = GlimpseGrid(9, 17, 4, 2)
    features = _features(grid)
    glimpses = _normal(3, 4, 2, 4, 4, seed=seed)
    where = torch.stack([torch.arange(12).view(3, 4) % 6, torch.arange(12).view(3, 4)], -1)
    rows, cols = where[..., :1] / 5 * 2 - 1, where[..., 1:] / 13 * 2 - 1
    weight, bias = features.location_network.weight, features.location_network.bias
    place = rows * weight[:, 0] + cols * weight[:, 1] + bias
    expected = features.glimpse_network(glimpses.flatten(0, 1)).view(3, 4, 5) + place
    # The scale of the grid is kept in float32.
    torch.testing.assert_close(features(glimpses, where), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(features(glimpses, where), features.content(glimpses) + features.place(where))


def test_content_does_not_know_its_place() -> None:
    grid = GlimpseGrid(12, 12, 4, 2)
    features = _features(grid)
    tile = _normal(1, 2, 4, 4)
    content = features.content(extract_grid(tile.repeat(1, 1, 3, 3), features.grid))
    there = grid.locations().remainder(4).sum(1) == 0
    assert there.sum() == 9
    torch.testing.assert_close(content[:, there], features.content(tile)[:, None].expand(1, 9, 5))


@pytest.mark.parametrize(("glimpse", "convolutions"), [(2, 1), (4, 2), (8, 4)])
def test_more_convolutions_than_a_glimpse_holds_are_refused(glimpse: int, convolutions: int) -> None:
    needed = 2 * convolutions + 1
    with pytest.raises(ValueError, match=rf"{convolutions} convolutions .* at least {needed} pixels, not {glimpse}"):
        GlimpseFeatures(GlimpseGrid(12, 12, glimpse, 2), 1, [4] * convolutions, 5)
    with pytest.raises(ValueError, match=rf"at least {needed} pixels, not {glimpse}"):
        replace(TINY, glimpse=glimpse, glimpse_widths=(4,) * convolutions)


def test_pixels_run_from_minus_one_to_one() -> None:
    assert to_pixels(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [-1.0, 1.0]
    assert to_pixels(torch.tensor([0.0, 0.5, 1.0])).tolist() == [-1.0, 0.0, 1.0]
    every = torch.arange(256, dtype=torch.uint8)
    torch.testing.assert_close(to_pixels(every), to_pixels(every / 255))


# R


def _update(hops: int) -> BeliefUpdate:
    return _used(AttentiveBeliefUpdate(5, 6, hops) if hops else BeliefUpdate(5, 6))


def _backbone(hops: int, keeping: bool = False) -> GlimpseBackbone:
    features = GlimpseFeatures(TINY.grid, 1, (4,), 5)
    update = AttentiveBeliefUpdate(5, 6, hops, keeping) if hops else BeliefUpdate(5, 6, keeping)
    return _used(GlimpseBackbone(features, update, Classifier(6, 3)))


every_update = pytest.mark.parametrize("hops", [0, 1, 3])
kept_or_anew = pytest.mark.parametrize("keeping", [False, True])


def _received(update: BeliefUpdate, features: Tensor) -> Tensor:
    """Table 1: F_f = linear(BN(LeakyReLU(f)))."""
    norm, linear = update.feature_norm, update.from_features
    assert norm.running_mean is not None
    assert norm.running_var is not None
    seen = (functional.leaky_relu(features) - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    return (seen * norm.weight + norm.bias) @ linear.weight.T + linear.bias


def _settled(update: BeliefUpdate, hidden: Tensor) -> Tensor:
    """LN(LeakyReLU(.))."""
    return functional.layer_norm(functional.leaky_relu(hidden), (6,), update.norm.weight, update.norm.bias)


def test_the_plain_update_is_the_one_of_the_paper() -> None:
    update = _update(0)
    hidden, features = _normal(7, 6), _normal(7, 5, seed=1)
    state = hidden @ update.from_hidden.weight.T + update.from_hidden.bias
    expected = _settled(update, state + _received(update, features))
    torch.testing.assert_close(update(Belief(hidden, torch.zeros(7, 0)), features).hidden, expected)


@pytest.mark.parametrize("hops", [1, 3])
@pytest.mark.parametrize("loudness", [1.0, 300.0])
def test_running_attention_is_the_softmax_over_all_past_states(hops: int, loudness: float) -> None:
    # Scores of hundreds overflow a softmax that is summed up without its maximum taken out.
    update = _update(hops)
    assert isinstance(update, AttentiveBeliefUpdate)
    into, _, out = update.score
    assert isinstance(into, nn.Linear)
    assert isinstance(out, nn.Linear)
    with torch.no_grad():
        out.weight.mul_(loudness)
    looks = _normal(8, 4, 5)
    belief = update.start(4)
    past = [torch.zeros(4, 6).double()]
    for features in looks:
        states = torch.stack(past)  # [t, B, h]
        scores = torch.tanh(states @ into.weight.T + into.bias) @ out.weight.T + out.bias  # [t, B, hops]
        read = torch.einsum("tbr,tbh->brh", scores.softmax(0), states).flatten(1)  # [B, hops * h]
        attended = read @ update.from_memory.weight.T + update.from_memory.bias
        state = states[-1] @ update.from_hidden.weight.T + update.from_hidden.bias
        past.append(_settled(update, state + attended + _received(update, features)))
        belief = update(belief, features)
        torch.testing.assert_close(belief.hidden, past[-1])


def _next_state(update: BeliefUpdate, past: list[np.ndarray], features: np.ndarray, keeping: bool) -> np.ndarray:
    """What R makes of the last state, given all of them: LN(LeakyReLU(.)), or LN(h + LeakyReLU(.)) where h is kept."""
    weights = {name: value.numpy() for name, value in update.state_dict().items()}

    def linear(name: str, values: np.ndarray) -> np.ndarray:
        return np.asarray(values @ weights[f"{name}.weight"].T + weights[f"{name}.bias"])

    def active(values: np.ndarray) -> np.ndarray:
        return np.where(values > 0, values, 0.01 * values)

    mean, variance = weights["feature_norm.running_mean"], weights["feature_norm.running_var"]
    seen = (active(features) - mean) / np.sqrt(variance + 1e-5)
    news = linear("from_hidden", past[-1])
    news += linear("from_features", seen * weights["feature_norm.weight"] + weights["feature_norm.bias"])
    if "score.0.weight" in weights:
        states = np.stack(past)  # [t, B, h]
        shares = softmax(linear("score.2", np.tanh(linear("score.0", states))), axis=0)  # [t, B, hops]
        news += linear("from_memory", np.einsum("tbr,tbh->brh", shares, states).reshape(len(news), -1))
    made = past[-1] + active(news) if keeping else active(news)
    made -= made.mean(-1, keepdims=True)
    made /= np.sqrt((made**2).mean(-1, keepdims=True) + 1e-5)
    return np.asarray(made * weights["norm.weight"] + weights["norm.bias"])


@every_update
@pytest.mark.parametrize("looks", [1, 7])
@kept_or_anew
@torch.no_grad()
def test_a_belief_is_made_anew_or_where_it_is_kept_added_to(hops: int, looks: int, keeping: bool) -> None:
    sizes = replace(TINY, attention_hops=hops)  # which says nothing of keeping
    backbone = build(replace(sizes, keeping=True) if keeping else sizes).backbone
    assert isinstance(backbone, GlimpseBackbone)
    update = _used(backbone.belief_update)
    # Not from nothing: to keep that is to keep nothing.
    belief = Belief(_normal(4, 6), update.start(4).memory)
    past = [belief.hidden.numpy()]
    for features in _normal(looks, 4, 5, seed=1):
        belief = update(belief, features)
        past.append(_next_state(update, past, features.numpy(), keeping))
        np.testing.assert_allclose(belief.hidden.numpy(), past[-1], rtol=0, atol=1e-12)


@every_update
def test_what_is_kept_shows_from_the_second_look_on(hops: int) -> None:
    content, where = _normal(3, 2, 5), torch.zeros(3, 2, 2, dtype=torch.int64)
    kept, anew = (_backbone(hops, keeping).unroll(content, where).hidden for keeping in (True, False))
    assert torch.equal(kept[0], anew[0])
    assert (kept[1:] - anew[1:]).abs().amax((1, 2)).min() > 1e-3


@every_update
@torch.no_grad()
def test_a_saved_model_keeps_its_belief_if_it_did_and_one_from_before_makes_it_anew(hops: int, tmp_path: Path) -> None:
    config = replace(TINY, attention_hops=hops, keeping=True)
    agent = Agent(build(config), ["a", "b", "c"], config=config)
    save(agent, tmp_path)
    content, where = _normal(3, 2, 5).float(), torch.zeros(3, 2, 2, dtype=torch.int64)
    hidden = agent.model.backbone.unroll(content, where).hidden
    again = load(tmp_path)
    assert again.config == config
    assert torch.equal(again.model.backbone.unroll(content, where).hidden, hidden)
    description = json.loads((tmp_path / "model.json").read_text())
    del description["model"]["keeping"]
    (tmp_path / "model.json").write_text(json.dumps(description))
    older = load(tmp_path)
    assert older.config == replace(config, keeping=False)
    assert not torch.allclose(older.model.backbone.unroll(content, where).hidden, hidden, atol=1e-3)


@every_update
@kept_or_anew
def test_unroll_is_update_look_by_look(hops: int, keeping: bool) -> None:
    backbone = _backbone(hops, keeping)
    content = _normal(7, 3, 5)
    where = torch.randint(0, 9, (7, 3, 2), generator=torch.Generator().manual_seed(0))
    together, looped = backbone.unroll(content, where), Backbone.unroll(backbone, content, where)
    belief = backbone.start(3)
    for look in range(7):
        belief = backbone.update(belief, content[look], where[look])
        for beliefs in (together, looped):
            torch.testing.assert_close(beliefs.hidden[look], belief.hidden)
            torch.testing.assert_close(beliefs.memory[look], belief.memory)


@every_update
@kept_or_anew
def test_one_belief_meets_many_imagined_looks_as_it_would_each_alone(hops: int, keeping: bool) -> None:
    backbone = _backbone(hops, keeping)
    belief = backbone.start(2)
    for look in range(3):
        belief = backbone.update(belief, _normal(2, 5, seed=look), torch.tensor([[look, 0], [0, look]]))
    content, where = _normal(4, 2, 25, 5, seed=9), TINY.grid.locations()
    ahead = backbone.update(belief.unsqueeze(1), content, where).hidden  # [P, B, L, h]
    for p, scene, place in product(range(4), range(2), range(25)):
        one = slice(scene, scene + 1)
        alone = backbone.update(belief[one], content[p, one, place], where[place : place + 1]).hidden
        torch.testing.assert_close(ahead[p, one, place], alone)


@every_update
def test_looks_change_the_belief_and_so_does_their_order(hops: int) -> None:
    backbone = _backbone(hops)
    content, where = _normal(2, 1, 5), torch.tensor([[[0, 0]], [[8, 4]]])
    forth = backbone.unroll(content, where).hidden
    back = backbone.unroll(content.flip(0), where.flip(0)).hidden
    assert (forth[0] - forth[1]).abs().max() > 1e-3
    assert (forth[1] - back[1]).abs().max() > 1e-3


@every_update
@given(keep=st.lists(st.booleans(), min_size=4, max_size=4))
def test_where_takes_each_scene_from_one_of_the_two(hops: int, keep: list[bool]) -> None:
    width = hops * 8
    one, other = Belief(_normal(4, 6), _normal(4, width)), Belief(_normal(4, 6, seed=1), _normal(4, width, seed=1))
    mixed = one.where(torch.tensor(keep), other)
    for scene, mine in enumerate(keep):
        source = one if mine else other
        assert torch.equal(mixed.hidden[scene], source.hidden[scene])
        assert torch.equal(mixed.memory[scene], source.memory[scene])


def test_a_slice_of_a_belief_is_the_belief_of_those_scenes() -> None:
    belief = Belief(_normal(5, 6), _normal(5, 8))
    assert torch.equal(belief[1:3].hidden, belief.hidden[1:3])
    assert torch.equal(belief[1:3].memory, belief.memory[1:3])


# C


@pytest.mark.parametrize("training", [False, True])
def test_class_probabilities_are_the_softmax_of_one_linear_layer(training: bool) -> None:
    # In training too: what dropout takes away is drawn there, not here, so a lookahead never has any.
    classifier = _used(Classifier(6, 3)).train(training)
    hidden = _normal(50, 6)
    expected = (hidden @ classifier.linear.weight.T + classifier.linear.bias).softmax(-1)
    torch.testing.assert_close(classifier(hidden).exp(), expected)


@every_update
@torch.no_grad()
def test_a_map_has_no_randomness_but_the_noise_it_is_given(hops: int) -> None:
    model = _used(build(replace(TINY, attention_hops=hops)))
    belief, noise = Belief(_normal(2, 6), model.backbone.start(2).memory), _normal(3, 2, 4, seed=1)
    before = torch.get_rng_state()
    first = model.gain(belief, noise)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(model.gain(belief, noise), first)
    assert not torch.equal(model.gain(belief, noise + 1), first)


# On some processors oneDNN's bfloat16 products of small shapes fail; switching it off warns about TF32, which is not used.
@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_class_probabilities_are_precise_in_half_precision_too(dtype: torch.dtype) -> None:
    with torch.backends.mkldnn.flags(enabled=False):
        log_probabilities = _used(Classifier(6, 3)).to(dtype)(_normal(4, 6).to(dtype))
    assert log_probabilities.dtype == torch.float32
    torch.testing.assert_close(log_probabilities.exp().sum(-1), torch.ones(4))


# D


def _decoder(rows: int, cols: int, latent: int = 4, size: int = 5) -> Decoder:
    return _used(Decoder(latent, size, GlimpseGrid(rows + 1, cols + 1, 2, 1)))


@pytest.mark.parametrize(
    ("rows", "cols"),
    [(1, 2), (1, 9), (1, 40), (9, 1), (2, 2), (3, 4), (7, 7), (8, 5), (16, 9), (2, 30), (33, 40)],
)
def test_the_decoder_fills_any_grid(rows: int, cols: int) -> None:
    decoder = _decoder(rows, cols)
    z = _normal(3, 2, 4)
    content = decoder(z)
    assert content.shape == (3, 2, rows * cols, 5)
    # Every place is imagined: it differs from sample to sample.
    assert (content[0] - content[1]).abs().amax((0, 2)).min() > 1e-6


@given(st.integers(1, 200))
def test_growth_ends_at_the_size_with_small_kernels(size: int) -> None:
    steps = growth(size)
    reached = 1
    for step in steps:
        # The output size of a transposed convolution without padding.
        assert (reached - 1) * step.stride + step.kernel == step.size
        assert step.kernel <= 4
        reached = step.size
    assert reached == size
    assert all(after.size > before.size for before, after in pairwise(steps))


def test_on_seven_by_seven_the_decoder_is_the_one_of_the_paper() -> None:
    decoder = Decoder(4, 5, GlimpseGrid(32, 32, 8, 4))
    convolutions = [m for m in decoder.modules() if isinstance(m, nn.Conv2d | nn.ConvTranspose2d)]
    assert [type(c) for c in convolutions] == [nn.ConvTranspose2d] * 3 + [nn.Conv2d] * 6
    assert {c.kernel_size for c in convolutions} == {(3, 3)}
    assert {c.stride for c in convolutions} == {(1, 1)}
    assert [c.padding for c in convolutions] == [(0, 0)] * 3 + [(1, 1)] * 6
    assert [c.in_channels for c in convolutions] == [4] + [5] * 8
    assert {c.out_channels for c in convolutions} == {5}
    assert sum(isinstance(m, nn.LayerNorm) for m in decoder.modules()) == 8


def test_on_seven_by_seven_the_decoder_computes_table_one() -> None:
    decoder = _decoder(7, 7)
    z = _normal(3, 4)
    maps = z[:, :, None, None]  # [N, channels, rows, cols]
    for block in decoder.layers:
        convolution, norm = block.convolution, block.norm
        assert isinstance(norm, nn.LayerNorm)
        if isinstance(convolution, nn.ConvTranspose2d):
            maps = functional.conv_transpose2d(maps, convolution.weight, convolution.bias)
        else:
            assert isinstance(convolution, nn.Conv2d)
            maps = functional.conv2d(maps, convolution.weight, convolution.bias, padding=1)
        maps = functional.leaky_relu(maps)
        # Over channels and places together, one mean and one variance a map.
        flat = maps.flatten(1)
        flat = (flat - flat.mean(1, keepdim=True)) / (flat.var(1, correction=0, keepdim=True) + norm.eps).sqrt()
        weight, bias = (value.view(*maps.shape[2:], -1).movedim(-1, 0) for value in (norm.weight, norm.bias))
        maps = flat.view_as(maps) * weight + bias
    maps = functional.conv2d(maps, decoder.last.weight, decoder.last.bias, padding=1)
    torch.testing.assert_close(decoder(z), maps.flatten(2).mT)


@pytest.mark.parametrize(("rows", "cols"), [(7, 7), (3, 4), (1, 9)])
@pytest.mark.parametrize("spread", [0.02, 3.0])
def test_the_decoder_begins_at_the_mean_and_the_spread_it_is_asked_for(rows: int, cols: int, spread: float) -> None:
    decoder = _decoder(rows, cols)
    z, mean = _normal(40, 4), 2 * _normal(5, seed=1)
    assert abs(float(decoder(z).detach().flatten(0, 1).var(0).mean().sqrt()) / spread - 1) > 0.1, "it has to change"
    decoder.initialise(z, mean, torch.tensor(spread).double())
    content = decoder(z).detach().flatten(0, 1).numpy()
    np.testing.assert_allclose(content.mean(0), mean.numpy(), rtol=0, atol=1e-6 * (1 + spread))
    assert np.sqrt(content.var(0, ddof=1).mean()) == pytest.approx(spread, rel=1e-6)


def test_beginning_there_scales_all_differences_between_samples_alike() -> None:
    decoder = _decoder(3, 4)
    z = _normal(40, 4)
    before = decoder(z)
    decoder.initialise(z, torch.zeros(5).double(), torch.tensor(0.25).double())
    after = decoder(z)
    ratio = (after[1:] - after[:1]) / (before[1:] - before[:1])
    torch.testing.assert_close(ratio, ratio[0, 0, 0].expand_as(ratio))


# Presets


def test_residual_blocks_deepen_f_and_leave_its_sizes() -> None:
    plain, deep = build(TINY), build(replace(TINY, glimpse_residuals=2))
    glimpses = torch.rand(3, TINY.channels, TINY.glimpse, TINY.glimpse) * 2 - 1
    assert deep.backbone.features(glimpses).shape == plain.backbone.features(glimpses).shape
    blocks = [part for part in deep.modules() if isinstance(part, Residual)]
    assert len(blocks) == 2 * len(TINY.glimpse_widths)
    deep.eval()
    before = deep.backbone.features(glimpses)
    for block in blocks:
        for parameter in block.parameters():
            parameter.data.zero_()  # a block that changes nothing hands on what it was given
    for part, same in zip(
        (
            part
            for part in deep.backbone.get_submodule("feature_network").modules()
            if type(part) is torch.nn.Conv2d and part.padding == (0, 0)
        ),
        (part for part in plain.backbone.get_submodule("feature_network").modules() if type(part) is torch.nn.Conv2d),
        strict=True,
    ):
        same.load_state_dict(part.state_dict())
    after = deep.backbone.features(glimpses)
    torch.testing.assert_close(after, plain.eval().backbone.features(glimpses))
    assert not torch.allclose(before, after)
