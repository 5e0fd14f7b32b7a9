"""What unseen places may hold, behind one small protocol: contents with weights, however they come about."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from jaxtyping import Float, Int, Num, UInt8
from torch import Tensor, nn

from infogaze.grid import GlimpseGrid
from infogaze.nn.belief import Belief


@dataclass(frozen=True)
class Imagined:
    """M contents that each location may hold, and how likely each is."""

    weights: Float[Tensor, "B L M"]
    """They add up to one at each location."""
    content: Float[Tensor, "B L M f"] | Float[Tensor, "K f"]
    """The imagined features, or the entries of a dictionary."""
    index: Int[Tensor, "B L M"] | None = None
    """Which entry each is, of a dictionary."""

    def __getitem__(self, part: tuple[slice, slice]) -> Imagined:
        """Some scenes, and some locations."""
        if self.index is None:
            return Imagined(self.weights[part], self.content[part])
        return Imagined(self.weights[part], self.content, self.index[part])

    @property
    def features(self) -> Float[Tensor, "B L M f"]:
        """The imagined features."""
        return self.content if self.index is None else self.content[self.index]


@dataclass(frozen=True, kw_only=True)
class ImaginedScene:
    """What is expected of scenes, to be looked at."""

    picture: UInt8[Tensor, "B C H W"]
    """The expected pixels."""
    uncertainty: Float[Tensor, "B rows cols"]
    """The entropy of what each location holds, in nats."""


class Imagination(nn.Module):
    """From a belief to what each location may hold."""

    grid: GlimpseGrid
    """The locations that it imagines if none are given."""

    @abstractmethod
    def noise_shape(self, num_samples: int) -> tuple[int, ...]:
        """How many standard normal numbers a scene takes."""

    @abstractmethod
    def imagine(
        self,
        belief: Belief,
        num_samples: int,
        *,
        noise: Float[Tensor, "B ..."],
        locations: Num[Tensor, "L 2"] | None = None,
    ) -> Imagined:
        """`num_samples` contents of each location, of the grid if none are given: so many samples, or so many entries."""

    def draw(self, belief: Belief, grid: GlimpseGrid | None = None) -> ImaginedScene | None:
        """What is expected of the scenes, with the uncertainty on this grid, its own if none is given; None where what is imagined has no
        pixels."""
        return None

    def compile_parts(self) -> None:
        """Compile what gains from it; an imagination of the user's own need not."""
