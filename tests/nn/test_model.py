from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from infogaze import Agent, Backbone, Belief, GainPolicy, ImageSensor, InfogazeError, Model, ModelConfig, build
from infogaze.nn.partial_vae import PartialVAE
from tests.support.small_model import vae_of
from tests.support.tiny import CONFIG, tiny_agent


@given(
    height=st.integers(3, 24), width=st.integers(3, 24), channels=st.integers(1, 4), num_classes=st.integers(2, 12),
    glimpse_size=st.integers(1, 9), stride=st.integers(1, 7), hops=st.integers(0, 2), layers=st.integers(0, 2), flows=st.integers(0, 2),
)  # fmt: skip
def test_any_sizes_that_fit_run_and_the_others_are_refused(
    height: int,
    width: int,
    channels: int,
    num_classes: int,
    glimpse_size: int,
    stride: int,
    hops: int,
    layers: int,
    flows: int,
) -> None:
    def config() -> ModelConfig:
        return ModelConfig(
            height=height, width=width, channels=channels, num_classes=num_classes, glimpse_size=glimpse_size,
            stride=stride, glimpse_widths=(3,) if glimpse_size > 2 else (), feature_size=3, belief_size=4, latent_size=3,
            flow_layers=flows, attention_hops=hops, token_layers=layers, token_heads=2,
        )  # fmt: skip

    if hops and layers:
        with pytest.raises(InfogazeError, match=f"attention_hops is {hops} and token_layers is {layers}"):
            config()
        return
    one_place = height == width == glimpse_size
    if glimpse_size > min(height, width) or one_place:
        with pytest.raises(InfogazeError, match="does not fit|leaves one"):
            config()
        return
    agent = tiny_agent(config(), num_looks=3, num_samples=2)
    images = torch.randint(0, 256, (2, channels, height, width)).to(torch.uint8)
    episode = agent.run(ImageSensor(images, glimpse_size), batch=2)
    assert episode.probabilities.shape == (2, num_classes)
    assert episode.gain.isfinite().all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_classes": 1}, "num_classes is 1"),
        ({"channels": 0}, "channels is 0"),
        ({"flow_layers": -1}, "flow_layers is -1"),
        ({"glimpse_widths": (4, 4)}, "2 convolutions of 3x3 .* need a glimpse of at least 5 pixels, not 4"),
        ({"glimpse_widths": (0,)}, r"glimpse_widths are \(0,\)"),
        ({"spline_bound": 0.0}, "spline_bound is 0.0"),
        ({"stride": 0}, "stride is 0"),
        ({"belief_size": 10**9}, "belief_size is 1000000000"),
        ({"flow_layers": 100_000}, "flow_layers is 100000"),
        ({"glimpse_widths": (4,) * 1000}, "glimpse_widths are 1000"),
        ({"height": 10**9, "width": 10**9}, "height is 1000000000"),
        ({"height": 100_000, "width": 100_000}, "2499900001"),
        ({"token_layers": -1}, "token_layers is -1"),
        ({"token_layers": 1000}, "token_layers is 1000"),
        ({"token_heads": 0}, "token_heads is 0"),
        ({"token_layers": 2, "token_heads": 3}, "belief_size is 8; .* a multiple of token_heads, 3"),
        ({"token_layers": 2, "token_heads": 2, "attention_hops": 1}, "attention_hops is 1 and token_layers is 2"),
        (
            {"token_layers": 2, "token_heads": 2, "residual_belief": True},
            "residual_belief is True and token_layers is 2",
        ),
    ],
)
def test_sizes_that_do_not_fit_are_refused_at_construction(change: dict[str, object], words: str) -> None:
    with pytest.raises(InfogazeError, match=words):
        replace(CONFIG, **change)  # type: ignore[arg-type]


def test_with_tokens_convolutions_are_padded_and_any_number_of_them_fits_a_glimpse() -> None:
    replace(CONFIG, glimpse_widths=(4,) * 5, token_layers=1, token_heads=1)
    replace(CONFIG, token_heads=3)  # without tokens there are no heads to share a belief out to


class CountingBackbone(Backbone):
    """A user's own network: a GRU over the mean colour of the glimpses."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.GRUCell(CONFIG.channels + 2, 6)
        self.head = torch.nn.Linear(6, 3)

    def features(self, glimpses: Tensor) -> Tensor:
        return glimpses.mean((-1, -2))

    def start(self, batch: int) -> Belief:
        return Belief(torch.zeros(batch, 6), torch.zeros(batch, 0))

    def update(self, belief: Belief, content: Tensor, locations: Tensor) -> Belief:
        shape = content.shape[:-1]
        seen = torch.cat([content, (locations / 10.0).expand(*shape, 2)], -1)
        hidden = belief.hidden.expand(*shape, 6)
        return Belief(self.cell(seen.flatten(0, -2), hidden.flatten(0, -2)).view(*shape, 6), belief.memory)

    def classify(self, belief: Belief) -> Tensor:
        return self.head(belief.hidden).log_softmax(-1)


def test_a_users_own_backbone_carries_the_same_posterior_decoder_and_gain() -> None:
    config = replace(CONFIG, feature_size=CONFIG.channels, belief_size=6)
    ours = vae_of(build(config))
    model = Model(config.grid, CountingBackbone(), imagination=PartialVAE(ours.posterior, ours.decoder))
    agent = Agent(model, ["a", "b", "c"], policy=GainPolicy(), num_looks=3)
    images = torch.randint(0, 256, (2, CONFIG.channels, CONFIG.height, CONFIG.width)).to(torch.uint8)
    episode = agent.run(ImageSensor(images, CONFIG.glimpse_size), batch=2)
    assert len(episode.history) == 3
    assert (episode.gain > -1e-5).all()


def test_what_is_received_of_a_look_far_out_in_a_large_scene_is_exact_in_half_precision_too() -> None:
    received = CountingBackbone().receive(torch.ones(3, 2, dtype=torch.bfloat16), torch.tensor([1001, 4099]))
    assert received[:, -2:].tolist() == [[1001, 4099]] * 3
