"""R as a small transformer over the looks taken, so that none is forgotten: pre-norm blocks, causal, so every prefix of looks is a belief.

A look is a token. What the blocks need of a token to let later ones attend to it, a key and a value a block, is kept in the belief's
memory, which grows by one token a look: a flag, one where a token is and zero where none is, then keys and values block by block. Tokens
have no order but that none sees a later one, so tokens that are not there may stand anywhere.
"""

from __future__ import annotations

from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from infogaze.nn.belief import Belief
from infogaze.nn.precision import precise

_MLP = 4
"""How many times wider a block's MLP is than its tokens."""
_ROUND = 8
"""A memory is filled up to a multiple of so many tokens where something is compiled or captured for its size."""


class TokenBlock(nn.Module):
    """Attention to the tokens so far and to oneself, then an MLP, each added to the token."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.size, self.heads = size, heads
        self.attention_norm = nn.LayerNorm(size)
        self.to_attention = nn.Linear(size, 3 * size)
        """Query, key and value."""
        self.from_attention = nn.Linear(size, size)
        self.mlp_norm = nn.LayerNorm(size)
        self.mlp = nn.Sequential(nn.Linear(size, _MLP * size), nn.GELU(), nn.Linear(_MLP * size, size))

    def all_at_once(self, tokens: Float[Tensor, "B T d"]) -> tuple[Float[Tensor, "B T d"], Float[Tensor, "B T kv"]]:
        """T tokens, each after those before it; and the key and value of each."""
        query, made = self._projected(tokens)
        key, value = self._in_heads(made)
        attended = functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True
        )  # [B, heads, T, e]
        return self._renewed(tokens, attended.transpose(1, 2)), made

    def one_more(
        self, tokens: Float[Tensor, "*batch d"], kept: Float[Tensor, "*wide t kv"], there: Bool[Tensor, "*wide t"]
    ) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, "*batch kv"]]:
        """Tokens that each come next after t that are kept, and do not see each other; and the key and value of each.

        Leading dimensions broadcast, and keys and values are not copied for them: that is how many imagined looks follow one belief.
        """
        query, made = self._projected(tokens)
        keys, values = self._in_heads(kept.to(made.dtype))  # [*wide, t, heads, e]
        key, value = self._in_heads(made)  # [*batch, heads, e]
        query = query * query.shape[-1] ** -0.5
        scores = torch.einsum("...he,...the->...ht", query, keys).masked_fill(~there[..., None, :], -torch.inf)
        own = (query * key).sum(-1, keepdim=True)
        weights = torch.cat([scores, own], -1).softmax(-1)  # [*batch, heads, t + 1]
        attended = torch.einsum("...ht,...the->...he", weights[..., :-1], values) + weights[..., -1:] * value
        return self._renewed(tokens, attended), made

    def _projected(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Queries in heads, and keys and values as they are kept."""
        query, made = self.to_attention(self.attention_norm(tokens)).split([self.size, 2 * self.size], -1)
        return query.unflatten(-1, (self.heads, -1)), made

    def _in_heads(self, made: Tensor) -> tuple[Tensor, Tensor]:
        key, value = made.unflatten(-1, (2, self.heads, -1)).unbind(-3)
        return key, value

    def _renewed(self, tokens: Tensor, attended: Tensor) -> Tensor:
        tokens = tokens + self.from_attention(attended.flatten(-2))
        return tokens + self.mlp(self.mlp_norm(tokens))


class TokenBelief(nn.Module):
    """The transformer. Its last token, normalised, is the hidden state."""

    def __init__(self, size: int, layers: int, heads: int) -> None:
        super().__init__()
        self.size, self.layers = size, layers
        self.token_memory = 1 + 2 * layers * size
        """Numbers that are kept of a look."""
        self.lookahead_width = _MLP * size
        """Numbers that an imagined look is at its widest."""
        self.blocks = nn.ModuleList(TokenBlock(size, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(size)

    def start(self, batch: int) -> Belief:
        """The belief before the first look: zeros, and no token."""
        zero = self.norm.weight.new_zeros
        return Belief(zero(batch, self.size), zero(batch, 0))

    def advance(self, belief: Belief, token: Float[Tensor, "*batch d"]) -> Belief:
        """The belief after one more look, which is kept."""
        hidden, made = self.follow(token, self.rounded(belief).memory)
        kept = belief.memory.to(made.dtype).expand(*made.shape[:-1], -1)
        return Belief(hidden, torch.cat([kept, made], -1))

    def foresee(self, belief: Belief, token: Float[Tensor, "*batch d"]) -> Belief:
        """The belief after one more look, which is not kept: the memory is that of before."""
        return Belief(self.follow(token, belief.memory)[0], belief.memory)

    def unroll(self, tokens: Float[Tensor, "T B d"]) -> Belief:
        """The beliefs after each of T looks, in one pass."""
        hidden, made = self.all_at_once(tokens.movedim(0, 1))
        looks, width = made.shape[1:]
        # The memory after look t is a window that ends with its token, over memory that they all share; before the first there is none.
        shared = functional.pad(made.flatten(1), ((looks - 1) * width, 0))
        return Belief(hidden.movedim(1, 0), shared.unfold(1, looks * width, width).movedim(1, 0))

    def rounded(self, belief: Belief) -> Belief:
        """The same belief, its memory filled up with tokens that are not there."""
        looks = belief.memory.shape[-1] // self.token_memory
        lacking = max(1, -(-looks // _ROUND)) * _ROUND - looks
        return Belief(belief.hidden, functional.pad(belief.memory, (lacking * self.token_memory, 0)))

    def follow(
        self, token: Float[Tensor, "*batch d"], memory: Float[Tensor, "*wide m"]
    ) -> tuple[Float[Tensor, "*both d"], Float[Tensor, "*both kept"]]:
        """The hidden state after a token that follows those in memory, and what is kept of it."""
        kept = memory.unflatten(-1, (memory.shape[-1] // self.token_memory, self.token_memory))
        there = kept[..., 0] > 0
        of_blocks = kept[..., 1:].split(2 * self.size, -1)
        token = token.expand(*torch.broadcast_shapes(token.shape[:-1], memory.shape[:-1]), -1)
        made = []
        for block, seen in zip(self._blocks, of_blocks, strict=True):
            token, own = block.one_more(token, seen, there)
            made.append(own)
        return precise(self.norm(token)), _flagged(made)

    def all_at_once(self, tokens: Float[Tensor, "B T d"]) -> tuple[Float[Tensor, "B T d"], Float[Tensor, "B T kept"]]:
        """The hidden state after each of T tokens, and what is kept of each."""
        made = []
        for block in self._blocks:
            tokens, own = block.all_at_once(tokens)
            made.append(own)
        return precise(self.norm(tokens)), _flagged(made)

    @property
    def _blocks(self) -> list[TokenBlock]:
        return cast(list[TokenBlock], list(self.blocks))

    def compile_parts(self) -> None:
        """Both ways through the blocks."""
        self.follow = torch.compile(self.follow, dynamic=False)  # type: ignore[method-assign]
        self.all_at_once = torch.compile(self.all_at_once, dynamic=False)  # type: ignore[method-assign]


def _flagged(made: list[Tensor]) -> Tensor:
    return torch.cat([torch.ones_like(made[0][..., :1]), *made], -1)
