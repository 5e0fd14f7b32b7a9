"""The graph behind another question: *decide* with the groups of classes as one more input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import onnx
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from infogaze.export.graphs import Decide, Layout, layout_of
from infogaze.export.onnx_file import graph_of
from infogaze.export.precision import in_precision
from infogaze.gaze.agent import Agent
from infogaze.nn.model import Model
from infogaze.nn.question import AskedBackbone, Groups


@dataclass
class _Given:
    """The groups of the call that is under way: what a module holds may not change while it is traced."""

    groups: Float[Tensor, "B groups classes"] | None = None


class GivenGroups(Groups):
    """Groups that come with every call, [B, groups, classes]: one where a class belongs to a group, else zero. A group may be empty."""

    def __init__(self, classes: int, given: _Given) -> None:
        super().__init__([*range(classes)])
        self.given = given

    def forward(self, log_probabilities: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch groups"]:
        """The probability of a group is that of its classes together; an empty one has next to none."""
        groups = self.given.groups
        assert groups is not None
        for _ in range(log_probabilities.dim() - 2):
            groups = groups[:, None]
        together = (log_probabilities.exp()[..., None, :] * groups).sum(-1)
        return together.clamp(min=torch.finfo(together.dtype).tiny).log()


class Ask(nn.Module):
    """From the belief and a question to the gain of each place and the location that the policy chooses for it; as `Agent.ask`."""

    def __init__(self, agent: Agent, layout: Layout) -> None:
        super().__init__()
        model = agent.model
        assert isinstance(model, Model)
        self.given = _Given()
        groups = GivenGroups(len(agent.classes), self.given)
        asked = agent.ask({name: [name] for name in agent.classes})
        backbone = AskedBackbone(model.backbone, groups=groups)
        asked.model = Model(model.grid, backbone, imagination=model.imagination).eval()
        self.decide = Decide(asked, layout)

    def forward(
        self,
        belief: list[Tensor],
        asked: tuple[Bool[Tensor, "B L"], Float[Tensor, "B groups classes"]],
        numbers: Float[Tensor, "B n"] | None = None,
    ) -> list[Tensor]:
        """The policy's choice among the places that are allowed, for these groups."""
        allowed, self.given.groups = asked
        return self.decide(belief, allowed, numbers)


def ask_graph(agent: Agent, contract: dict[str, Any]) -> onnx.ModelProto:
    """The graph of an agent that imagines, its weights in the precision of the contract of its others."""
    layout = layout_of(agent, contract["max_looks"] or 1)
    classes, places = len(agent.classes), agent.model.grid.num_locations
    belief = [torch.zeros(2, part.size) for part in layout.parts]
    noise = (torch.full((2, contract["noise"]["count"]), 0.5),) if contract["noise"] else ()
    asked = (torch.ones(2, places, dtype=torch.bool), torch.eye(classes).expand(2, -1, -1))
    example = (belief, asked, *noise)
    inputs = [*(f"belief.{name}" for name in layout.names), "allowed", "groups", *(["noise"] if noise else [])]
    graph = graph_of(Ask(agent, layout), example, inputs=inputs, outputs=["gain", "location"])
    return in_precision(graph, contract["precision"])
