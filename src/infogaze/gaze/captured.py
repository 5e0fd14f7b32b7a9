"""A policy whose decision is one captured CUDA graph: the same mathematics with one launch."""

from __future__ import annotations

from threading import Lock
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool
from torch import Tensor

from infogaze.gaze.policies import Choice, Policy
from infogaze.nn.belief import Belief
from infogaze.nn.model import GlimpseClassifier
from infogaze.rng import SceneNoise


class CapturedPolicy:
    """A policy whose decision is one captured CUDA graph, for a batch of fixed size: what a single scene needs to be fast."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        """The one whose choices these are."""
        self._graphs: WeakKeyDictionary[
            GlimpseClassifier, tuple[tuple[object, ...], dict[tuple[object, ...], _Captured]]
        ] = WeakKeyDictionary()
        self._one_at_a_time = Lock()  # episodes in several threads share what a graph reads and writes

    def __call__(
        self, model: GlimpseClassifier, belief: Belief, *, candidates: Bool[Tensor, "B L"], noise: SceneNoise
    ) -> Choice:
        """The same choice as the policy's own."""
        with self._one_at_a_time:
            return self._choose(model, belief, candidates=candidates, noise=noise)

    def _choose(
        self, model: GlimpseClassifier, belief: Belief, *, candidates: Bool[Tensor, "B L"], noise: SceneNoise
    ) -> Choice:
        version, graphs = self._graphs.get(model, ((), {}))
        if version != model.weights_version:
            # What they were captured with is gone.
            graphs = {}
        self._graphs[model] = (model.weights_version, graphs)
        belief = model.backbone.rounded(belief)
        key = (belief.hidden.shape, belief.memory.shape, torch.is_autocast_enabled(belief.hidden.device.type))
        if key not in graphs:
            graphs[key] = _Captured(self.policy, model, belief, candidates=candidates, noise=noise)
        return graphs[key].replay(belief, candidates, noise)


class _Captured:
    def __init__(
        self, policy: Policy, model: GlimpseClassifier, belief: Belief, *, candidates: Tensor, noise: SceneNoise
    ) -> None:
        look = torch.as_tensor(noise.look, device=candidates.device)
        self._inputs = tuple(value.clone() for value in (belief.hidden, belief.memory, candidates, noise.seeds, look))
        hidden, memory, allowed, seeds, number = self._inputs

        def choose() -> Choice:
            return policy(model, Belief(hidden, memory), candidates=allowed, noise=SceneNoise(seeds, number))

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                choose()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._choice = choose()
        self._kept = model.kept

    def replay(self, belief: Belief, candidates: Tensor, noise: SceneNoise) -> Choice:
        hidden, memory, allowed, seeds, look = self._inputs
        hidden.copy_(belief.hidden)
        memory.copy_(belief.memory)
        allowed.copy_(candidates)
        seeds.copy_(noise.seeds)
        look.fill_(noise.look)
        self._graph.replay()
        return Choice(self._choice.location.clone(), self._choice.gain.clone(), self._choice.has_map)
