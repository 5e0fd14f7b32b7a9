"""`contract.json`: all that a host needs to run exported graphs. `docs/export.md` describes it, with the loop that it is for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from infogaze.gaze.stopping import CalibratedStop
from infogaze.pictures import Fit

FORMAT = 1
Precision = Literal["float32", "float16", "int8"]


@dataclass(frozen=True, kw_only=True)
class BeliefPart:
    """One tensor of the belief, [batch, size]."""

    name: str
    size: int
    start: float | tuple[float, ...]
    """Before the first look: one number for all elements, or one for each."""


@dataclass(frozen=True)
class NoiseNeed:
    """Random numbers that a decision takes for each scene."""

    kind: Literal["normal", "uniform"]
    count: int


@dataclass(frozen=True)
class Port:
    """An input or output of a graph."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    """`batch` stands for any number of scenes."""


@dataclass(frozen=True, kw_only=True)
class GraphFile:
    """A graph, and how to tell that it is whole."""

    file: str
    sha256: str
    bytes: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What `contract.json` says."""

    format: int
    infogaze: str
    """The version that wrote it."""
    method: str
    precision: Precision
    """Of the weights; what goes in and comes out is float32."""
    height: int
    width: int
    channels: int
    glimpse_size: int
    rows: tuple[int, ...]
    """Top rows of the places of the grid."""
    cols: tuple[int, ...]
    """Left columns of them."""
    classes: tuple[str, ...]
    num_looks: int
    max_looks: int | None
    """The most looks that the belief has room for; None: any number."""
    num_samples: int
    fit: Fit
    """How a picture of another size becomes a scene."""
    normalisation: str
    """What the graph does with pixels, in words."""
    flip_tta: bool
    temperatures: tuple[float, ...] | None
    belief: tuple[BeliefPart, ...]
    noise: NoiseNeed | None
    has_map: bool
    """Whether a map of gains chooses the location."""
    ood_threshold: float | None
    stop: CalibratedStop | None
    graphs: dict[str, GraphFile]
    """By name: `see`, `decide`, and `imagine` where pixels are imagined."""
