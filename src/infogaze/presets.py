"""The paper's settings for its five sets (tables 1 and 2, appendix B), ours for CIFAR-10, for own pictures and for the embedded set."""

from __future__ import annotations

from dataclasses import dataclass, replace

from infogaze.errors import InfogazeError
from infogaze.nn.config import ModelConfig


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A model's sizes and the hyper-parameters that belong to its data set: where one begins."""

    name: str = "own"
    """What it is called where runs are compared."""
    data: str = "own"
    """The image set it is for, as `infogaze data list` names it; own is none of them."""
    model: ModelConfig
    """Sizes of all networks."""
    num_looks: int = 7
    """T, the budget of looks."""
    num_samples: int = 20
    """P, the samples of z behind a gain map at test time."""
    num_entries: int = 64
    """M, the entries of a dictionary behind each location of a gain map at test time."""
    beta: float
    """Weight of the classification loss in phase 3."""
    learning_rates: tuple[float, float, float] = (1e-3, 1e-3, 1e-3)
    """Of phases 1, 2 and 3, for Adam at batch size 64, where the recipe gives none."""
    dropout: float = 0.5
    """Share of the belief that the classifier does not see, in training."""
    horizontal_flip: bool
    """Whether a mirrored scene has the same label, so that training may flip it; digits have not."""
    recipe: str = "fast"
    """The recipe that it is trained by, if no other is named."""
    val_fraction: float = 0.0
    """Share of the training split that is the validation split, if no other is given."""
    flip_tta: bool = False
    """Whether the trained model uses horizontal-flip test-time augmentation (see `infogaze.Agent`)."""

    def __post_init__(self) -> None:
        for name in ("num_looks", "num_samples", "num_entries"):
            if not 1 <= getattr(self, name) <= 1_000_000:
                raise InfogazeError(f"{name} is {getattr(self, name)}; it must be from 1 to 1000000")
        if not 0.0 <= self.dropout < 1.0:
            raise InfogazeError(f"dropout is {self.dropout}; it must be at least 0 and below 1")
        if not self.beta >= 0.0:
            raise InfogazeError(f"beta is {self.beta}; it must be at least 0")
        if not all(rate > 0.0 for rate in self.learning_rates):
            raise InfogazeError(f"learning_rates are {self.learning_rates}; each must be above 0")
        if self.flip_tta and not self.horizontal_flip:
            raise InfogazeError("flip_tta is on and horizontal_flip is off: a mirrored scene has another label here")

    def num_contents(self, imagination: str | None) -> int:
        """How many contents of each location are imagined at test time: P samples, or M entries of a dictionary."""
        return self.num_entries if imagination == "dictionary" else self.num_samples

    @property
    def alpha(self) -> float:
        """Weight of the Partial VAE's loss in phase 3, one over the dimensions of z."""
        return 1.0 / self.model.latent_size


_SMALL = ModelConfig(
    height=32, width=32, channels=3, num_classes=10, glimpse_size=8, stride=4, glimpse_widths=(64, 128, 256),
    feature_size=128, belief_size=512, latent_size=256, flow_layers=4, dictionary_entries=1024,
)  # fmt: skip
_LARGE = replace(_SMALL, num_classes=100, feature_size=512, belief_size=2048, latent_size=1024, flow_layers=6)
_TINY_IMAGENET = replace(
    _LARGE, height=64, width=64, num_classes=200, glimpse_size=16, stride=8, glimpse_widths=(64, 128, *[256] * 5)
)
_PLUS = replace(_SMALL, glimpse_widths=(128, 256, 512), glimpse_residuals=1, residual_belief=True, latent_size=128)
_OWN = replace(
    _SMALL, glimpse_widths=(32, 48, 64), feature_size=64, belief_size=256, latent_size=64, flow_layers=2, residual_belief=True,
    dictionary_entries=256,
)  # fmt: skip
_DIGITS = ModelConfig(
    height=32, width=32, channels=1, num_classes=10, glimpse_size=8, stride=4, glimpse_widths=(16, 24, 32),
    feature_size=32, belief_size=128, latent_size=32, flow_layers=4, dictionary_entries=128,
)  # fmt: skip
_CLUTTERED = replace(_OWN, height=40, width=40, channels=1, num_classes=10, glimpse_size=8, stride=4)

_ALL = (
    Preset(name="svhn", data="svhn", model=_SMALL, beta=32.0, horizontal_flip=False),
    Preset(name="cifar10", data="cifar10", model=_SMALL, beta=16.0, horizontal_flip=True),
    Preset(name="cifar10-plus", data="cifar10", model=_PLUS, beta=16.0, horizontal_flip=True, dropout=0.2, flip_tta=True),
    Preset(name="cinic10", data="cinic10", model=_SMALL, beta=16.0, horizontal_flip=True),
    Preset(
        name="cifar100", data="cifar100", model=_LARGE, beta=8.0, horizontal_flip=True, learning_rates=(1e-3, 1e-4, 1e-4)
    ),
    Preset(
        name="tinyimagenet", data="tinyimagenet", model=_TINY_IMAGENET, beta=8.0, horizontal_flip=True,
        learning_rates=(1e-3, 1e-4, 1e-4),
    ),
    Preset(
        name="own", data="folder", model=_OWN, beta=16.0, horizontal_flip=True, dropout=0.2, num_samples=10, recipe="own", val_fraction=0.1
    ),
    Preset(name="cluttered", data="cluttered", model=_CLUTTERED, beta=16.0, horizontal_flip=False, dropout=0.2, num_looks=10),
    Preset(name="digits", data="digits", model=_DIGITS, beta=16.0, horizontal_flip=False, recipe="quickstart"),
)  # fmt: skip

PRESETS: dict[str, Preset] = {settings.name: settings for settings in _ALL}
"""By name."""


def preset(name: str) -> Preset:
    """The preset of this name."""
    if name not in PRESETS:
        raise InfogazeError(f"no preset is called {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name]
