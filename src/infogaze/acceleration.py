"""Speed on a CUDA device, with the same mathematics: parts compiled in place, and a policy captured as one graph."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool
from torch import Tensor

from infogaze.backbone import GlimpseBackbone
from infogaze.baselines.cnn import PictureBackbone
from infogaze.belief import Belief
from infogaze.model import Model, Recogniser
from infogaze.noise import SceneNoise
from infogaze.policies import Choice, Policy


def compile_parts(model: Recogniser) -> None:
    """Compile the parts that are many small operations: splines, normalisations, lookahead. Each is compiled once, for every look."""
    if getattr(model, "_compiled", False):
        return
    # Training and looking, with and without gradient, at a few batch sizes: each is a version of its own.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if isinstance(model, Model):
        model.decoder.compile(dynamic=False)
        for layer in model.posterior.layers:
            layer.compile(dynamic=False)
            layer.sample = torch.compile(layer.sample, dynamic=False)  # type: ignore[arg-type, assignment]
        model.posterior.encode.compile(dynamic=False)
        model.worth = torch.compile(model.worth, dynamic=False)  # type: ignore[method-assign]
    backbone = model.backbone
    if isinstance(backbone, GlimpseBackbone):
        backbone.feature_network.glimpse_network.compile(dynamic=False)
        update = backbone.belief_update
        update.receive = torch.compile(update.receive, dynamic=False)  # type: ignore[method-assign]
        update.advance = torch.compile(update.advance, dynamic=False)  # type: ignore[method-assign]
    elif isinstance(backbone, PictureBackbone):
        backbone.network.compile(dynamic=False)
    model._compiled = True  # type: ignore[assignment]


class CapturedPolicy:
    """A policy whose decision is one captured CUDA graph, for a batch of fixed size: what a single scene needs to be fast."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._graphs: WeakKeyDictionary[Recogniser, dict[tuple[int, ...], _Captured]] = WeakKeyDictionary()

    def __call__(self, model: Recogniser, belief: Belief, candidates: Bool[Tensor, "B L"], noise: SceneNoise) -> Choice:
        """The same choice as the policy's own."""
        graphs = self._graphs.setdefault(model, {})
        key = (*belief.hidden.shape, torch.is_autocast_enabled(belief.hidden.device.type))
        if key not in graphs:
            graphs[key] = _Captured(self._policy, model, belief, candidates, noise)
        return graphs[key].replay(belief, candidates, noise)


class _Captured:
    def __init__(
        self, policy: Policy, model: Recogniser, belief: Belief, candidates: Tensor, noise: SceneNoise
    ) -> None:
        look = torch.as_tensor(noise.look, device=candidates.device)
        self._inputs = tuple(value.clone() for value in (belief.hidden, belief.memory, candidates, noise.seeds, look))
        hidden, memory, allowed, seeds, number = self._inputs
        given = (model, Belief(hidden, memory), allowed, SceneNoise(seeds, number))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                policy(*given)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._choice = policy(*given)

    def replay(self, belief: Belief, candidates: Tensor, noise: SceneNoise) -> Choice:
        hidden, memory, allowed, seeds, look = self._inputs
        hidden.copy_(belief.hidden)
        memory.copy_(belief.memory)
        allowed.copy_(candidates)
        seeds.copy_(noise.seeds)
        look.fill_(noise.look)
        self._graph.replay()
        return Choice(self._choice.location.clone(), self._choice.gain.clone(), self._choice.has_map)
