"""All methods by name: ours, its ablations, the baselines, a rival and two bounds, as values over the same engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from infogaze.errors import InfogazeError
from infogaze.gaze.policies import GainPolicy, Policy, RandomPolicy
from infogaze.methods import cnn, discriminative, ram, ram_plus, random_looks
from infogaze.methods.attention import with_attention
from infogaze.methods.gaussian import without_flows
from infogaze.methods.no_hindsight import without_hindsight
from infogaze.methods.oracle import Oracle
from infogaze.methods.three_phases import PHASES
from infogaze.nn.model import ModelConfig, Recogniser, imagining, recognising, seeded
from infogaze.training.phases import Phase


@dataclass(frozen=True)
class Method:
    """What sets a method apart."""

    says: str
    """What it is, in a line."""
    phases: tuple[Phase, ...]
    """How it is trained."""
    make: Callable[[ModelConfig], Recogniser]
    """Its networks, of a preset's sizes."""
    policy: Callable[[int], Policy]
    """How it chooses looks, given P."""
    sizes: Callable[[ModelConfig], ModelConfig] = lambda config: config
    """What it changes in a preset's sizes."""
    sees: Literal["looks", "the scene when it chooses", "everything"] = "looks"
    """A method that sees more than its looks is a bound, not a rival."""
    imagines: bool = False
    """Whether it has a Partial VAE."""


METHODS: dict[str, Method] = {
    "infogaze": Method("looks where it expects to learn most", PHASES, imagining, GainPolicy, imagines=True),
    "no-hindsight": Method(
        "ours with gains as imagined, by equation 7 alone", PHASES, imagining, GainPolicy, sizes=without_hindsight, imagines=True
    ),
    "gaussian": Method(
        "ours without flows", PHASES, imagining, GainPolicy, sizes=without_flows, imagines=True
    ),
    "gaussian-no-hindsight": Method(
        "ours with gains as imagined and without flows",
        PHASES, imagining, GainPolicy, sizes=lambda config: without_flows(without_hindsight(config)), imagines=True,
    ),
    "attention": Method(
        "ours with self-attention in R", PHASES, imagining, GainPolicy, sizes=with_attention, imagines=True
    ),
    "random": Method("looks at random", random_looks.PHASES, recognising, lambda samples: RandomPolicy()),
    "ram": Method(
        "a controller trained by REINFORCE, loss and reward at the last look",
        ram.PHASES, ram.with_controller, lambda samples: ram.AimedPolicy(),
    ),
    "ram-plus": Method(
        "a controller trained by REINFORCE, loss and reward at every look",
        ram_plus.PHASES, ram.with_controller, lambda samples: ram.AimedPolicy(),
    ),
    "discriminative": Method(
        "a value head that predicts what each look is worth",
        discriminative.PHASES, discriminative.with_value_head, lambda samples: discriminative.ValuePolicy(),
    ),
    "oracle": Method(
        "not deployable: tries every place of the real scene", random_looks.PHASES, recognising, lambda samples: Oracle(),
        sees="the scene when it chooses",
    ),
    "cnn": Method(
        "sees the complete image", cnn.PHASES, cnn.picture_network, lambda samples: RandomPolicy(), sees="everything"
    ),
}  # fmt: skip


def method(name: str) -> Method:
    """The method of this name."""
    if name not in METHODS:
        raise InfogazeError(f"no method is called {name!r}; there are {', '.join(METHODS)}")
    return METHODS[name]


def build_for(name: str, config: ModelConfig, seed: int = 0) -> Recogniser:
    """A method's networks with fresh weights, which the seed fixes: those of F, R and C are the same for all methods that have them."""
    return seeded(method(name).make, config, seed)
