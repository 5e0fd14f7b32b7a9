"""Ours without normalizing flows (figure 3f): q(z | h) is its Gaussian base alone, one mode for what the unseen places may hold."""

from __future__ import annotations

from dataclasses import replace

from infogaze.nn.model import ModelConfig


def without_flows(config: ModelConfig) -> ModelConfig:
    """The same sizes with no flow layer; all else, training too, is ours."""
    return replace(config, flow_layers=0)
