"""Looks that are kept as tokens: a transformer over them, against one written out in loops, and what makes it cheap to look ahead."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erf, softmax
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from infogaze import Agent, Belief, GainPolicy, ImageSensor, Model, ModelConfig, build
from infogaze.gaze.stopping import Progress
from infogaze.nn.backbone import Backbone, TokenBackbone
from infogaze.nn.gain import mutual_information
from infogaze.nn.token_features import ResidualBlock, padded_network
from tests.support.parts import normal, used
from tests.support.tiny import TOKEN_SIZES, TOKENS, scenes, tiny_agent

WIDTH = 1 + 2 * TOKENS.token_layers * TOKENS.belief_size
"""Numbers that are kept of a look."""
LAST = torch.tensor([TOKENS.height - TOKENS.glimpse_size, TOKENS.width - TOKENS.glimpse_size])
CONFIGS = {
    "two layers": TOKENS,
    "one layer, one head": replace(TOKENS, token_layers=1, token_heads=1),
    "three layers, many heads": replace(TOKENS, token_layers=3, token_heads=4),
    "content as it is": replace(TOKENS, feature_size=TOKENS.belief_size),
}
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


def backbone_of(config: ModelConfig = TOKENS) -> TokenBackbone:
    backbone = used(build(config).backbone)
    assert isinstance(backbone, TokenBackbone)
    return backbone


def looks_of(count: int, scenes: int, size: int = TOKENS.feature_size) -> tuple[Tensor, Tensor]:
    """Contents, and locations anywhere, between pixels too."""
    where = torch.rand(count, scenes, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * LAST
    return normal(count, scenes, size), where


def believed(backbone: Backbone, content: Tensor, where: Tensor) -> Belief:
    """After looks taken one at a time."""
    belief = backbone.start(content.shape[1])
    for seen, there in zip(content, where, strict=True):
        belief = backbone.update(belief, seen, there)
    return belief


def written_out(backbone: TokenBackbone, content: np.ndarray, where: np.ndarray) -> np.ndarray:
    """The hidden state after all looks [t, f] of one scene at [t, 2]: token by token and head by head."""
    weights = {name: value.numpy() for name, value in backbone.state_dict().items()}

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return np.asarray(weights[f"{name}.weight"] @ x + weights[f"{name}.bias"])

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean()
        scaled = centred / np.sqrt((centred**2).mean() + 1e-5)
        return np.asarray(scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"])

    def gelu(x: np.ndarray) -> np.ndarray:
        return np.asarray(x * 0.5 * (1.0 + erf(x / math.sqrt(2.0))))

    def token(seen: np.ndarray, there: np.ndarray) -> np.ndarray:
        row, col = 2.0 * there / LAST.numpy() - 1.0
        phases = np.array([side * math.pi / 2 * 2**octave for side in (row, col) for octave in range(4)])
        place = linear(
            "feature_network.location_network.0", np.concatenate([[row, col], np.sin(phases), np.cos(phases)])
        )
        if "feature_network.from_content.weight" in weights:
            seen = linear("feature_network.from_content", seen)
        return seen + linear("feature_network.location_network.2", gelu(place))

    tokens = [token(*look) for look in zip(content, where, strict=True)]
    size = len(tokens[0])
    for number, block in enumerate(backbone.token_belief.blocks):
        name, heads = f"token_belief.blocks.{number}", block.heads
        assert isinstance(heads, int)
        parts = [
            linear(f"{name}.to_attention", norm(f"{name}.attention_norm", x)).reshape(3, heads, -1) for x in tokens
        ]
        after = []
        for place, x in enumerate(tokens):
            attended = []
            for head in range(heads):
                query = parts[place][0, head]
                scores = np.array([query @ parts[other][1, head] for other in range(place + 1)])
                shares = softmax(scores / math.sqrt(size // heads))
                attended.append(sum(share * parts[other][2, head] for other, share in enumerate(shares)))
            x = x + linear(f"{name}.from_attention", np.concatenate(attended))
            after.append(x + linear(f"{name}.mlp.2", gelu(linear(f"{name}.mlp.0", norm(f"{name}.mlp_norm", x)))))
        tokens = after
    return norm("token_belief.norm", tokens[-1])


@every_config
@torch.no_grad()
def test_a_belief_is_the_last_token_of_a_transformer_over_the_looks_so_far(config: ModelConfig) -> None:
    backbone = backbone_of(config)
    content, where = looks_of(5, 2, config.feature_size)
    unrolled, belief = backbone.unroll(content, where), backbone.start(2)
    for look, scene in product(range(5), range(2)):
        if scene == 0:
            belief = backbone.update(belief, content[look], where[look])
        expected = written_out(backbone, content[: look + 1, scene].numpy(), where[: look + 1, scene].numpy())
        np.testing.assert_allclose(belief.hidden[scene].numpy(), expected, rtol=0, atol=1e-9)
        np.testing.assert_allclose(unrolled.hidden[look, scene].numpy(), expected, rtol=0, atol=1e-9)


@every_config
@pytest.mark.parametrize("looks", [1, 7, 49])
@torch.no_grad()
def test_unroll_is_update_look_by_look_for_any_number_of_looks(config: ModelConfig, looks: int) -> None:
    backbone = backbone_of(config)
    content, where = looks_of(looks, 3, config.feature_size)
    together, looped = backbone.unroll(content, where), Backbone.unroll(backbone, content, where)
    torch.testing.assert_close(together.hidden, looped.hidden, rtol=0, atol=1e-9)
    torch.testing.assert_close(together.memory, looped.memory, rtol=0, atol=1e-9)
    assert (together.hidden[1:] - together.hidden[:-1]).abs().amax((1, 2)).gt(1e-6).all(), "every look tells"


@torch.no_grad()
def test_every_prefix_of_an_unrolled_batch_is_a_belief_that_goes_on() -> None:
    backbone, (content, where) = backbone_of(), looks_of(6, 3)
    unrolled = backbone.unroll(content[:5], where[:5])
    for look in range(5):
        before = Belief(unrolled.hidden[look], unrolled.memory[look])
        further = backbone.update(before, content[5], where[5]).hidden
        expected = believed(
            backbone, torch.cat([content[: look + 1], content[5:]]), torch.cat([where[: look + 1], where[5:]])
        )
        torch.testing.assert_close(further, expected.hidden, rtol=0, atol=1e-9)


@torch.no_grad()
def test_a_later_look_changes_no_earlier_belief() -> None:
    backbone, (content, where) = backbone_of(), looks_of(6, 2)
    before = backbone.unroll(content, where).hidden
    content[3] += 1.0
    after = backbone.unroll(content, where).hidden
    torch.testing.assert_close(after[:3], before[:3], rtol=0, atol=1e-12)
    assert (after[3:] - before[3:]).abs().amax((1, 2)).min() > 1e-3, "but it and all that follow"
    where[2] = LAST - where[2]
    assert (backbone.unroll(content, where).hidden[2:] - after[2:]).abs().amax((1, 2)).min() > 1e-3, (
        "and so does a place"
    )


@torch.no_grad()
def test_a_look_is_one_token_more_in_memory_and_the_others_stay_as_they_are() -> None:
    backbone, (content, where) = backbone_of(), looks_of(10, 2)
    belief = backbone.start(2)
    assert belief.memory.shape == (2, 0)
    for look in range(10):
        further = backbone.update(belief, content[look], where[look])
        assert further.memory.shape == (2, (look + 1) * WIDTH)
        assert torch.equal(further.memory[:, : look * WIDTH], belief.memory)
        assert torch.equal(further.memory.unflatten(1, (-1, WIDTH))[..., 0], torch.ones(2, look + 1).double())
        belief = further


@settings(max_examples=15)
@given(running=st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=10))
@torch.no_grad()
def test_scenes_that_leave_out_looks_are_as_if_they_were_alone(running: list[list[bool]]) -> None:
    backbone, (content, where) = backbone_of(), looks_of(len(running), 3)
    belief, beliefs = backbone.start(3), []
    for look, keep in enumerate(running):
        belief = backbone.update(belief, content[look], where[look]).where(torch.tensor(keep), belief)
        beliefs.append(belief)
    stacked = Belief.stack(beliefs)
    last = backbone.update(belief, normal(3, TOKENS.feature_size, seed=8), where[0])
    for scene in range(3):
        own = [look for look, keep in enumerate(running) if keep[scene]]
        alone = believed(backbone, content[own, scene : scene + 1], where[own, scene : scene + 1])
        torch.testing.assert_close(belief.hidden[scene], alone.hidden[0], rtol=0, atol=1e-9)
        torch.testing.assert_close(stacked.hidden[-1, scene], alone.hidden[0], rtol=0, atol=1e-9)
        for before in (belief[scene : scene + 1], Belief(stacked.hidden[-1], stacked.memory[-1])[scene : scene + 1]):
            further = backbone.update(
                before, normal(3, TOKENS.feature_size, seed=8)[scene : scene + 1], where[0, scene]
            )
            torch.testing.assert_close(further.hidden[0], last.hidden[scene], rtol=0, atol=1e-9)
        expected = backbone.update(alone, normal(3, TOKENS.feature_size, seed=8)[scene : scene + 1], where[0, scene])
        torch.testing.assert_close(last.hidden[scene], expected.hidden[0], rtol=0, atol=1e-9)


@torch.no_grad()
def test_where_and_stack_fill_a_shorter_memory_with_looks_that_are_not_there() -> None:
    backbone, (content, where) = backbone_of(), looks_of(5, 4)
    short, long = (believed(backbone, content[:count], where[:count]) for count in (2, 5))
    keep = torch.tensor([True, False, False, True])
    for one, other in ((short, long), (long, short)):
        mixed = one.where(keep, other)
        for scene in range(4):
            source = (one if keep[scene] else other).memory[scene]
            assert mixed.memory.shape == long.memory.shape
            assert torch.equal(mixed.memory[scene, len(mixed.memory[scene]) - len(source) :], source)
            assert not mixed.memory[scene, : len(mixed.memory[scene]) - len(source)].any()
    assert torch.equal(Belief.stack([short, long]).memory[1], long.memory)
    assert torch.equal(Belief.stack([long, short]).memory[1, :, -short.memory.shape[1] :], short.memory)


@torch.no_grad()
def test_a_memory_that_is_filled_up_is_the_same_belief_in_one_of_a_few_sizes() -> None:
    backbone, (content, where) = backbone_of(), looks_of(17, 2)
    sizes = []
    for count in range(17):
        belief = believed(backbone, content[:count], where[:count])
        rounded = backbone.rounded(belief)
        sizes.append(rounded.memory.shape[1] // WIDTH)
        assert torch.equal(rounded.hidden, belief.hidden)
        one, other = (backbone.update(before, content[16], where[16]).hidden for before in (belief, rounded))
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)
    assert sizes == [8] * 9 + [16] * 8


@torch.no_grad()
def test_a_scene_among_others_is_as_it_is_alone() -> None:
    backbone, (content, where) = backbone_of(), looks_of(6, 5)
    together = backbone.unroll(content, where)
    for scene in range(5):
        alone = backbone.unroll(content[:, scene : scene + 1], where[:, scene : scene + 1])
        torch.testing.assert_close(alone.hidden[:, 0], together.hidden[:, scene], rtol=0, atol=1e-9)
        torch.testing.assert_close(alone.memory[:, 0], together.memory[:, scene], rtol=0, atol=1e-9)


@pytest.mark.parametrize("looks", [0, 1, 9])
@torch.no_grad()
def test_foreseen_looks_are_what_taking_them_would_make_and_leave_the_memory_alone(looks: int) -> None:
    backbone, (content, where) = backbone_of(), looks_of(looks, 2)
    belief, places = believed(backbone, content, where), TOKENS.grid.locations()
    imagined = normal(2, len(places), 3, TOKENS.feature_size, seed=5)
    received = backbone.receive(imagined, places[:, None])
    ahead = backbone.foresee(belief.unsqueeze(1).unsqueeze(1), received)
    assert ahead.memory.data_ptr() == belief.memory.data_ptr()
    taken = backbone.advance(belief.unsqueeze(1).unsqueeze(1), received)
    torch.testing.assert_close(ahead.hidden, taken.hidden, rtol=0, atol=1e-9)
    for place, m in product(range(len(places)), range(3)):
        alone = backbone.update(belief, imagined[:, place, m], places[place].expand(2, 2))
        torch.testing.assert_close(ahead.hidden[:, place, m], alone.hidden, rtol=0, atol=1e-9)
        torch.testing.assert_close(taken.memory[:, place, m], alone.memory, rtol=0, atol=1e-9)


@torch.no_grad()
def test_one_belief_meets_many_looks_and_many_beliefs_one_look() -> None:
    backbone, (content, where) = backbone_of(), looks_of(3, 2)
    belief, places = believed(backbone, content, where), TOKENS.grid.locations()
    imagined = normal(4, 2, len(places), TOKENS.feature_size, seed=5)
    ahead = backbone.update(belief.unsqueeze(1), imagined, places).hidden  # [4, B, L, h]
    for p, scene, place in product(range(4), range(2), range(0, len(places), 7)):
        alone = backbone.update(belief[scene : scene + 1], imagined[p, scene, place][None], places[place]).hidden
        torch.testing.assert_close(ahead[p, scene, place], alone[0], rtol=0, atol=1e-9)
    shared = backbone.update(belief, imagined[0, 0, 0], places[0])
    each = backbone.update(belief, imagined[0, 0, 0].expand(2, -1), places[0].expand(2, 2))
    torch.testing.assert_close(shared.hidden, each.hidden, rtol=0, atol=1e-9)
    torch.testing.assert_close(shared.memory, each.memory, rtol=0, atol=1e-9)


class Largest(TorchDispatchMode):
    """Notes how many numbers the largest tensor holds that is made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for value in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(value, Tensor):
                self.numbers = max(self.numbers, value.untyped_storage().nbytes() // value.element_size())
        return made


@pytest.mark.parametrize("sizes", [TOKENS, TOKEN_SIZES], ids=["vae", "dictionary"])
@torch.no_grad()
def test_a_lookahead_copies_no_keys_and_values_for_what_it_imagines(sizes: ModelConfig) -> None:
    model = used(build(replace(sizes, token_heads=1)))
    belief = believed(model.backbone, *looks_of(96, 2))
    count = 4
    noise = normal(2, *model.imagination.noise_shape(count))
    model.imagined_gain(belief, count, noise=noise)  # what is kept from now on is made
    with Largest() as largest:
        model.imagined_gain(belief, count, noise=noise)
    imagined = 2 * TOKENS.grid.num_locations * count
    # Keys alone, for each of what is imagined, would be 96 tokens of 8 numbers; scores are 96, and one for itself.
    assert largest.numbers < 1.5 * imagined * 97


@torch.no_grad()
def test_before_the_first_look_there_is_a_belief_that_can_be_classified_and_looked_ahead_from() -> None:
    model = used(build(TOKEN_SIZES))
    start = model.backbone.start(2)
    assert not start.hidden.any()
    bias = model.backbone.get_submodule("classifier.linear").get_parameter("bias")
    torch.testing.assert_close(model.backbone.classify(start), bias.log_softmax(0).expand(2, -1))
    gain = model.imagined_gain(start, 3, noise=torch.zeros(2, 0), criterion=mutual_information)
    assert gain.std(1).min() > 0
    content = normal(2, TOKENS.feature_size)
    first = model.backbone.update(start, content, torch.tensor([4, 2]))
    torch.testing.assert_close(
        first.hidden, model.backbone.unroll(content[None], torch.tensor([[[4, 2]] * 2])).hidden[0]
    )


@pytest.mark.parametrize(("side", "stages"), list(product([1, 3, 4, 5, 8, 13], [0, 1, 3, 5])))
@torch.no_grad()
def test_a_padded_network_takes_glimpses_of_any_side(side: int, stages: int) -> None:
    network = padded_network(side, channels=2, widths=tuple(range(3, 3 + stages)), blocks=2, size=7).eval()
    assert network(torch.rand(5, 2, side, side)).shape == (5, 7)
    left = side
    for _ in range(stages - 1):
        left = max(1, math.ceil(left / 2))
    last = network[-1]
    assert isinstance(last, nn.Linear)
    assert last.in_features == (2 + stages if stages else 2) * left**2
    assert sum(isinstance(part, ResidualBlock) for part in network) == 2 * stages


@torch.no_grad()
def test_a_residual_block_adds_two_convolutions_to_what_goes_past_them() -> None:
    x = normal(2, 3, 5, 5)
    for block in (used(ResidualBlock(3, 3)), used(ResidualBlock(3, 4, 2))):
        one, norm, _, other, again = block.change
        made = again(other(norm(one(x)).relu()))
        assert torch.equal(block(x), (made + (x if made.shape == x.shape else block.past(x))).relu())
        assert made.shape[-1] == (5 if made.shape[1] == 3 else 3)


@torch.no_grad()
def test_content_is_of_the_glimpse_alone_with_any_leading_dimensions() -> None:
    backbone = backbone_of()
    glimpses = normal(3, 4, TOKENS.channels, 4, 4)
    content = backbone.features(glimpses)
    assert content.shape == (3, 4, TOKENS.feature_size)
    for one, other in product(range(3), range(4)):
        torch.testing.assert_close(backbone.features(glimpses[one, other][None])[0], content[one, other])
    assert content.flatten(0, 1).std(0).min() > 1e-3


def test_a_gradient_reaches_every_weight_and_every_look() -> None:
    backbone = backbone_of().train()
    glimpses = normal(5, 3, TOKENS.channels, 4, 4).requires_grad_()
    beliefs = backbone.unroll(backbone.features(glimpses), looks_of(5, 3)[1])
    backbone.classify(beliefs)[-1, :, 0].sum().backward()
    assert glimpses.grad is not None
    assert glimpses.grad.abs().amax((1, 2, 3, 4)).min() > 0
    for name, parameter in backbone.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def stop_some(episode: Progress) -> Tensor:
    return torch.tensor([True, False, False])


# On some processors oneDNN's bfloat16 products of small shapes fail; switching it off warns about TF32, which is not used.
@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_in_half_precision_keys_and_values_are_kept_in_it_and_all_else_agrees() -> None:
    agent = tiny_agent(TOKENS)
    half = Agent(agent.model, agent.classes, policy=GainPolicy(3), num_looks=4, precision="bfloat16", flip_tta=True)
    whole = Agent(agent.model, agent.classes, policy=GainPolicy(3), num_looks=4, flip_tta=True)
    with torch.backends.mkldnn.flags(enabled=False):
        episode = half.episode(3, stop=stop_some)
        same = whole.episode(3, stop=stop_some)
        sensor = ImageSensor(scenes(3), TOKENS.glimpse_size)
        while not episode.done:
            where = episode.next_location()
            episode.observe(sensor.look(where))
            same.observe(sensor.look(where), at=where)
        assert episode.belief.memory.dtype == torch.bfloat16
        assert episode.belief.hidden.dtype == episode.probabilities.dtype == episode.gain.dtype == torch.float32
        torch.testing.assert_close(episode.probabilities, same.probabilities, rtol=0, atol=0.1)
        with torch.no_grad():
            further = agent.model.backbone.update(
                episode.belief, torch.randn(3, TOKENS.feature_size), torch.tensor([0, 0])
            )
        assert further.memory.dtype == torch.float32


@torch.no_grad()
def test_many_looks_go_on_telling() -> None:
    agent = tiny_agent(TOKENS, num_looks=TOKENS.grid.num_locations, num_samples=2)
    episode = agent.run(ImageSensor(scenes(2), TOKENS.glimpse_size), batch=2)
    assert len(episode.history) == TOKENS.grid.num_locations == 30
    assert episode.belief.memory.shape == (2, 30 * WIDTH)
    told = torch.stack([look.probabilities for look in episode.history])
    assert (told[1:] - told[:-1]).abs().amax((1, 2)).min() > 0


def test_a_model_has_tokens_where_its_sizes_say_so() -> None:
    assert isinstance(build(TOKENS).backbone, TokenBackbone)
    assert not isinstance(build(replace(TOKENS, token_layers=0, glimpse_widths=(4,))).backbone, TokenBackbone)
    assert isinstance(build(TOKEN_SIZES), Model)
