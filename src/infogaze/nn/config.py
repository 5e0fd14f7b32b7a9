"""The sizes of a model, with their ranges: they may come from a user's command line or from a stranger's file."""

from __future__ import annotations

from dataclasses import dataclass

from infogaze.errors import InfogazeError
from infogaze.grid import GlimpseGrid

_WIDEST, _DEEPEST = 65_536, 64
"""The largest size, and the most layers of a kind."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The sizes of a model. Anything that fits together is allowed; what does not is refused here."""

    height: int
    """Scene height in pixels."""
    width: int
    """Scene width in pixels."""
    channels: int
    """Colour channels of a scene."""
    num_classes: int
    """Number of labels."""
    glimpse_size: int
    """Side of a glimpse in pixels."""
    stride: int
    """Distance between neighbouring grid locations in pixels."""
    glimpse_widths: tuple[int, ...]
    """Channels of the 3x3 convolutions of F_g, n_g of them, then one over what is left; with tokens, of stages that each halve the side."""
    feature_size: int
    """Dimensions of the features f."""
    belief_size: int
    """Dimensions of the hidden state h, and of tokens."""
    latent_size: int
    """Dimensions of the latent z."""
    flow_layers: int
    """n_s, how many times ActNorm, Flip and spline; 0 is the Gaussian posterior."""
    spline_bins: int = 5
    """Bins of each spline."""
    spline_bound: float = 3.0
    """The splines bend what lies between minus and plus this."""
    attention_hops: int = 0
    """Hops of structured self-attention in R; 0 is the plain update."""
    glimpse_residuals: int = 0
    """Residual blocks after each 3x3 convolution of F_g; the paper's network has none. With tokens, after the first block of each stage."""
    residual_belief: bool = False
    """Whether R adds to the belief, as a residual block does, instead of replacing it; the paper's does not."""
    gain_correction: bool = False
    """Whether gains are corrected by the outcomes of looks in phase 3; the paper's are not. A method says so."""
    dictionary_entries: int = 0
    """Entries of the dictionary that contents are imagined from; with 0 they are imagined by a Partial VAE."""
    token_layers: int = 0
    """Transformer blocks of an R that keeps its looks as tokens; 0 is the paper's R, which keeps one vector."""
    token_heads: int = 6
    """Attention heads of each of those blocks; belief_size is a multiple of them."""

    def __post_init__(self) -> None:
        ranges = {
            "channels": (1, 1024), "num_classes": (2, _WIDEST), "feature_size": (1, _WIDEST), "belief_size": (1, _WIDEST),
            "latent_size": (1, _WIDEST), "flow_layers": (0, _DEEPEST), "spline_bins": (1, 500), "attention_hops": (0, _DEEPEST),
            "glimpse_residuals": (0, _DEEPEST), "dictionary_entries": (0, _WIDEST), "token_layers": (0, _DEEPEST),
            "token_heads": (1, _WIDEST),
        }  # fmt: skip
        for name, (least, most) in ranges.items():
            if not least <= getattr(self, name) <= most:
                raise InfogazeError(f"{name} is {getattr(self, name)}; it must be from {least} to {most}")
        if len(self.glimpse_widths) > _DEEPEST:
            raise InfogazeError(f"glimpse_widths are {len(self.glimpse_widths)}; at most {_DEEPEST} are allowed")
        if not self.spline_bound > 0.0:
            raise InfogazeError(f"spline_bound is {self.spline_bound}; it must be above 0")
        if not all(1 <= width <= _WIDEST for width in self.glimpse_widths):
            raise InfogazeError(f"glimpse_widths are {self.glimpse_widths}; each must be from 1 to {_WIDEST}")
        if self.token_layers:
            self._require_tokens()
        elif 2 * len(self.glimpse_widths) >= self.glimpse_size:
            raise InfogazeError(
                f"{len(self.glimpse_widths)} convolutions of 3x3 (glimpse_widths) need a glimpse of at least "
                f"{2 * len(self.glimpse_widths) + 1} pixels, not {self.glimpse_size}"
            )
        _ = self.grid

    def _require_tokens(self) -> None:
        """Refuse what does not go with tokens."""
        if self.belief_size % self.token_heads:
            raise InfogazeError(
                f"belief_size is {self.belief_size}; with token_layers it must be a multiple of token_heads, {self.token_heads}"
            )
        for name, none in (("attention_hops", 0), ("residual_belief", False)):
            if getattr(self, name) != none:
                raise InfogazeError(
                    f"{name} is {getattr(self, name)} and token_layers is {self.token_layers}; with token_layers it must be {none}"
                )

    @property
    def grid(self) -> GlimpseGrid:
        """The locations that can be chosen."""
        return GlimpseGrid(height=self.height, width=self.width, glimpse_size=self.glimpse_size, stride=self.stride)
