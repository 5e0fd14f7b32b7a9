"""Several graphs of one model with their weights in one file, each tensor once: *see* and *decide* share most of theirs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import onnx
from onnx import numpy_helper
from onnx.external_data_helper import set_external_data

_SMALLEST = 1024  # bytes of a tensor that is worth a place of its own
_ALIGNED = 64


def packed(graphs: Mapping[str, onnx.ModelProto], *, name: str) -> tuple[dict[str, bytes], bytes]:
    """The graphs by name without their weights, and the weights, which they look for in a file of this name beside them."""
    weights = bytearray()
    places: dict[str, int] = {}
    files = {}
    for title, graph in graphs.items():
        for tensor in graph.graph.initializer:
            data = numpy_helper.to_array(tensor).tobytes()
            if len(data) < _SMALLEST:
                continue
            digest = hashlib.sha256(data).hexdigest()
            if digest not in places:
                weights.extend(bytes(-len(weights) % _ALIGNED))
                places[digest] = len(weights)
                weights.extend(data)
            for field in ("float_data", "int32_data", "int64_data", "double_data"):
                tensor.ClearField(field)
            tensor.raw_data = data  # which must be there to be told apart from an empty tensor, and goes now
            set_external_data(tensor, location=name, offset=places[digest], length=len(data))
            tensor.ClearField("raw_data")
        files[title] = graph.SerializeToString(deterministic=True)
    return files, bytes(weights)
