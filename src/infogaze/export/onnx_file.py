"""A module from tensors to tensors as an ONNX graph, for batches of any size."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import onnx
import torch
from torch import nn

from infogaze.export.contract import Port

_OPSET = 18
_TYPES: dict[int, str] = {onnx.TensorProto.FLOAT: "float32", onnx.TensorProto.BOOL: "bool"}


def graph_of(
    module: nn.Module, example: tuple[Any, ...], *, inputs: Sequence[str], outputs: Sequence[str]
) -> onnx.ModelProto:
    """The module as a graph: `example` is what it takes, for two scenes; names are of the tensors in it, in order."""
    batch = torch.export.Dim("batch", min=1)
    shapes = torch.utils._pytree.tree_map(lambda _: {0: batch}, example)
    # What torch's exporter warns of lies inside torch.
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module.eval(), example, dynamo=True, dynamic_shapes=shapes, input_names=list(inputs),
            output_names=list(outputs), opset_version=_OPSET, verbose=False,
        )  # fmt: skip
    assert program is not None
    return tidy(program.model_proto)


def tidy(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph without inputs that nothing reads, and without what an exporter notes down about where it ran."""
    read = {name for node in model.graph.node for name in node.input} | {value.name for value in model.graph.output}
    for value in [value for value in model.graph.input if value.name not in read]:
        model.graph.input.remove(value)
    del model.graph.value_info[:], model.metadata_props[:], model.graph.metadata_props[:]
    model.doc_string = model.graph.doc_string = model.producer_version = ""
    model.graph.name = "infogaze"
    for part in (*model.graph.node, *model.graph.initializer, *model.graph.input, *model.graph.output):
        part.doc_string = ""
        del part.metadata_props[:]
    return model


def ports(values: Sequence[onnx.ValueInfoProto]) -> tuple[Port, ...]:
    """Inputs or outputs, as the contract has them."""
    return tuple(
        Port(
            value.name,
            _TYPES[value.type.tensor_type.elem_type],
            ("batch", *(size.dim_value for size in value.type.tensor_type.shape.dim[1:])),
        )
        for value in values
    )
