"""What sets a method apart: its networks, how it chooses looks, and how it is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from infogaze.gaze.policies import Policy
from infogaze.nn.config import ModelConfig
from infogaze.nn.model import GlimpseClassifier
from infogaze.training.phases import Phase

_OF_F_R_AND_C = {
    "glimpse_widths",
    "feature_size",
    "belief_size",
    "attention_hops",
    "glimpse_residuals",
    "residual_belief",
    "token_layers",
    "token_heads",
}


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method, as values over the same engine."""

    summary: str
    """What it is, in a line."""
    phases: tuple[Phase, ...]
    """How it is trained."""
    build: Callable[[ModelConfig], GlimpseClassifier]
    """Its networks, of a preset's sizes."""
    policy: Callable[[int], Policy]
    """How it chooses looks, given how many contents of each location it may imagine."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """What it changes in a preset's sizes: an ablation is another method with one thing changed."""
    sees: Literal["looks", "scene", "everything"] = "looks"
    """looks; the scene when it chooses, which cannot be deployed; or everything, at once. A method that sees more is a bound."""
    imagination: Literal["vae", "dictionary"] | None = None
    """What it imagines with, if it does."""

    def sizes(self, config: ModelConfig) -> ModelConfig:
        """The preset's sizes with what this method changes."""
        return replace(config, **self.overrides)

    @property
    def imagines(self) -> bool:
        """Whether its gains follow from what it imagines."""
        return self.imagination is not None

    @property
    def has_plain_backbone(self) -> bool:
        """Whether its F, R and C are those of the preset, so that a phase 1 of another such method can be its own."""
        return self.sees != "everything" and not _OF_F_R_AND_C & set(self.overrides)
