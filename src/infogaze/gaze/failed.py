"""Looks that failed, or ended elsewhere than they were asked for: which places are given up, and which choices stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Num
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.gaze.policies import Choice
from infogaze.grid import GlimpseGrid, Location, tensor_of


@dataclass(frozen=True)
class FailedLooks:
    """What was asked for and not seen there."""

    asked: Choice
    """Of the whole batch."""
    scenes: Bool[Tensor, " B"]
    """Those whose looks failed."""

    def places(self, grid: GlimpseGrid, candidates: Bool[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
        """The places that are given up: those asked for, where they are on the grid; else the candidates nearest to them.

        So an episode ends, however often looks fail and wherever they are asked for.
        """
        exact = grid.at(self.asked.location)
        apart = (self.asked.location[:, None] - grid.locations(candidates.device)).square().sum(-1).double()  # [B, L]
        nearest = apart.masked_fill(~candidates, torch.inf).argmin(1, keepdim=True)
        near = torch.zeros_like(candidates).scatter(1, nearest, True)
        left = (exact & candidates).any(1, keepdim=True)
        return torch.where(left, exact, near) & self.scenes[:, None]

    def replaced_by(self, choice: Choice) -> Choice:
        """A new choice for the scenes whose looks failed; the others are looked at where they were asked for."""
        failed = self.scenes[:, None]
        return Choice(
            torch.where(failed, choice.location, self.asked.location),
            torch.where(failed, choice.gain, self.asked.gain),
            choice.has_map or self.asked.has_map,
        )


def scenes_of(scenes: Bool[Tensor, " B"] | Sequence[bool] | None, running: Bool[Tensor, " B"]) -> Bool[Tensor, " B"]:
    """Which of the scenes that go on are meant; None means all."""
    if scenes is None:
        return running
    given = torch.as_tensor(scenes, device=running.device)
    if given.dtype != torch.bool or given.shape != running.shape:
        raise InfogazeError(
            f"scenes are {given.dtype} of shape {tuple(given.shape)}; bool of shape ({len(running)},) is needed"
        )
    return given & running


def within(location: Location, grid: GlimpseGrid) -> Num[Tensor, "*batch 2"]:
    """The location inside the scene that is nearest to it."""
    given = tensor_of(location)
    if given.shape[-1:] != (2,):
        raise InfogazeError(f"a location has shape {tuple(given.shape)}; row, column is needed")
    last = torch.tensor([grid.height - grid.glimpse_size, grid.width - grid.glimpse_size], device=given.device)
    return torch.minimum(given.clamp(min=0), last.to(given.dtype))
