"""The paper's settings for its five sets (tables 1 and 2, appendix B), ours for CIFAR-10 and for the embedded set, as values."""

from __future__ import annotations

from dataclasses import dataclass, replace

from infogaze.errors import InfogazeError
from infogaze.nn.model import ModelConfig


@dataclass(frozen=True)
class Preset:
    """A model's sizes and the hyper-parameters that belong to its data set."""

    model: ModelConfig
    """Sizes of all networks."""
    beta: float
    """Weight of the classification loss in phase 3."""
    learning_rates: tuple[float, float, float]
    """Of phases 1, 2 and 3, for Adam at batch 64."""
    mirror: bool
    """Whether a scene may be mirrored in training; digits may not."""
    dropout: float = 0.5
    """Share of the belief that the classifier does not see, in training."""
    looks: int = 7
    """T, the budget of looks."""
    samples: int = 20
    """P, the samples of z behind a gain map at test time."""
    twin: bool = False
    """Whether every look is taken in mirrored too (see `infogaze.Agent`), once trained."""
    name: str = "own"
    """What it is called where runs are compared."""
    data: str = "own"
    """The image set it is for, as `infogaze data list` names it; own is none of them."""

    @property
    def alpha(self) -> float:
        """Weight of the Partial VAE's loss in phase 3, one over the dimensions of z."""
        return 1.0 / self.model.latent_size


_SMALL = ModelConfig(
    height=32, width=32, channels=3, classes=10, glimpse=8, stride=4, glimpse_widths=(64, 128, 256),
    feature_size=128, belief_size=512, latent_size=256, flow_layers=4, hindsight=True,
)  # fmt: skip
_LARGE = replace(_SMALL, classes=100, feature_size=512, belief_size=2048, latent_size=1024, flow_layers=6)

_PLUS = replace(_SMALL, glimpse_widths=(128, 256, 512), glimpse_residuals=1, keeping=True, latent_size=128)

_ALL = (
    Preset(_SMALL, beta=32.0, learning_rates=(1e-3, 1e-3, 1e-3), mirror=False, name="svhn", data="svhn"),
    Preset(_SMALL, beta=16.0, learning_rates=(1e-3, 1e-3, 1e-3), mirror=True, name="cifar10", data="cifar10"),
    Preset(
        _PLUS, beta=16.0, learning_rates=(1e-3, 1e-3, 1e-3), mirror=True, dropout=0.2, twin=True, name="cifar10-plus", data="cifar10",
    ),
    Preset(_SMALL, beta=16.0, learning_rates=(1e-3, 1e-3, 1e-3), mirror=True, name="cinic10", data="cinic10"),
    Preset(_LARGE, beta=8.0, learning_rates=(1e-3, 1e-4, 1e-4), mirror=True, name="cifar100", data="cifar100"),
    Preset(
        replace(
            _LARGE, height=64, width=64, classes=200, glimpse=16, stride=8, glimpse_widths=(64, 128, *[256] * 5)
        ),
        beta=8.0,
        learning_rates=(1e-3, 1e-4, 1e-4),
        mirror=True,
        name="tinyimagenet", data="tinyimagenet",
    ),
    Preset(
        ModelConfig(
            height=32, width=32, channels=1, classes=10, glimpse=8, stride=4, glimpse_widths=(16, 24, 32),
            feature_size=32, belief_size=128, latent_size=32, flow_layers=4,
        ),
        beta=16.0,
        learning_rates=(1e-3, 1e-3, 1e-3),
        mirror=False,
        name="digits", data="digits",
    ),
)  # fmt: skip

PRESETS: dict[str, Preset] = {settings.name: settings for settings in _ALL}
"""By name."""


def preset(name: str) -> Preset:
    """The preset of this name."""
    if name not in PRESETS:
        raise InfogazeError(f"no preset is called {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name]
