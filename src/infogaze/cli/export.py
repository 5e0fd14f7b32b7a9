"""`infogaze export RUN OUT`: a model as ONNX graphs with their contract, for hosts without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from infogaze.errors import InfogazeError
from infogaze.export.contract import Precision
from infogaze.export.write import CONTRACT, export_onnx
from infogaze.gaze.stopping import Gain
from infogaze.models import load


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a model as ONNX graphs with a contract, to look where there is no torch: a browser, C++, a small computer.

    contract.json says all that a host needs to run them, with batches of any size. docs/export.md describes the files, and
    examples/onnx_loop.py runs a whole episode with them.
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A bundled model's name, or a folder that `quickstart`, `train` or `infogaze.save` wrote."""
    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """The folder for the graphs; it is made."""
    precision: Precision = "float32"
    """Of the weights as they are stored: float16 halves the files, int8 makes them a quarter to a third. Products, and what
    goes in and comes out, are float32."""
    max_looks: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """The most looks that the belief has room for, where looks are kept as tokens; at least the budget; 32, or all locations if
    there are fewer, if not given."""
    gain: Gain = "exact"
    """What chooses the places: what the model imagines, or what `infogaze distil` made of it, which is smaller and faster."""
    overwrite: bool = False
    """Write over an export that is there already."""

    def run(self) -> None:
        """Write, and say what was written."""
        if self.folder.exists() and not self.folder.is_dir():
            raise InfogazeError(f"{self.folder}: a file, and a folder is needed")
        if (self.folder / CONTRACT).exists() and not self.overwrite:
            raise InfogazeError(f"{self.folder} holds an export already; --overwrite writes over it")
        contract = export_onnx(
            load(self.name, gain=self.gain), self.folder, precision=self.precision, max_looks=self.max_looks
        )
        for graph in contract.graphs.values():
            print(f"{self.folder / graph.file}: {graph.bytes / 1e6:.1f} MB, {len(graph.inputs)} inputs")
        print(
            f"{self.folder / CONTRACT}: {contract.method}, {len(contract.classes)} classes, {contract.num_looks} looks"
        )


def read(arguments: Sequence[str]) -> Export:
    """The command with its options."""
    return tyro.cli(Export, prog="infogaze export", args=list(arguments))
