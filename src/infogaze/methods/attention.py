"""Ours with structured self-attention in R (the appendix's section on it, after Lin et al., 2017): the state reads all states before it.

The update itself is `infogaze.nn.belief.AttentiveBeliefUpdate`.
"""

from __future__ import annotations

from dataclasses import replace

from infogaze.nn.model import ModelConfig

HOPS = 4
"""How many weighted means of the earlier states are read."""


def with_attention(config: ModelConfig) -> ModelConfig:
    """The same sizes with self-attention; all else, training too, is ours."""
    return replace(config, attention_hops=HOPS)
