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
from infogaze.models import load


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a model as ONNX graphs with contract.json, which says all that a host needs to run them.

    Batches may have any size. docs/export.md describes the files, and examples/onnx_loop.py runs a whole episode with them.
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A bundled model's name, or a folder that `quickstart`, `train` or `infogaze.save` wrote."""
    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """The folder for the graphs; it is made."""
    precision: Precision = "float32"
    """Of the weights: float16 halves the files, int8 quarters most of them and multiplies in int8; what goes in and comes out stays
    float32."""
    max_looks: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """The most looks that the belief has room for, where looks are kept as tokens; 32, or the budget if that is larger, if not given."""
    overwrite: bool = False
    """Write over an export that is there already."""

    def run(self) -> None:
        """Write, and say what was written."""
        if self.out.exists() and not self.out.is_dir():
            raise InfogazeError(f"{self.out}: a file, and a folder is needed")
        if (self.out / CONTRACT).exists() and not self.overwrite:
            raise InfogazeError(f"{self.out} holds an export already; --overwrite writes over it")
        contract = export_onnx(load(self.model), self.out, precision=self.precision, max_looks=self.max_looks)
        for graph in contract.graphs.values():
            print(f"{self.out / graph.file}: {graph.bytes / 1e6:.1f} MB, {len(graph.inputs)} inputs")
        print(f"{self.out / CONTRACT}: {contract.method}, {len(contract.classes)} classes, {contract.num_looks} looks")


def read(arguments: Sequence[str]) -> Export:
    """The command with its options."""
    return tyro.cli(Export, prog="infogaze export", args=list(arguments))
