"""A graph's weights in fewer bytes. They are made float32 once, when a file is opened: products are in float32 in all precisions."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from infogaze.export.contract import Precision

_SMALL = 1024
"""Elements of a tensor that stays as it is: biases and constants cost nothing. Norms and scales have one dimension, and stay too."""
_LARGEST = 127


def in_precision(model: onnx.ModelProto, precision: Precision) -> onnx.ModelProto:
    """The graph with its weights in this precision; what goes in and comes out stays float32."""
    if precision == "float32":
        return model
    store = _as_half if precision == "float16" else _as_eight_bits
    nodes, added = [], []
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or values.ndim < 2 or values.size < _SMALL:
            continue
        more, steps = store(tensor.name, values)
        tensor.CopyFrom(more[0])
        added += more[1:]
        nodes += steps
    nodes += model.graph.node
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(added)
    return model


def _as_half(name: str, values: np.ndarray) -> tuple[list[onnx.TensorProto], list[onnx.NodeProto]]:
    """What is kept of a tensor, and how it is made again."""
    largest = np.finfo(np.float16).max
    half = values.clip(-largest, largest).astype(np.float16)
    return [numpy_helper.from_array(half, f"{name}.half")], [_cast(f"{name}.half", name)]


def _as_eight_bits(name: str, values: np.ndarray) -> tuple[list[onnx.TensorProto], list[onnx.NodeProto]]:
    """The same in int8, with a scale for each of its rows, or columns where that is nearer."""
    stored = [_rounded(values, axis) for axis in (0, values.ndim - 1)]
    whole, scale = min(stored, key=lambda one: float(np.square(one[0] * one[1] - values).sum()))
    kept = [numpy_helper.from_array(whole, f"{name}.int8"), numpy_helper.from_array(scale, f"{name}.scale")]
    scaled = onnx.helper.make_node("Mul", [f"{name}.whole", f"{name}.scale"], [name])
    return kept, [_cast(f"{name}.int8", f"{name}.whole"), scaled]


def _rounded(values: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers, and what they are multiplied by for each index of this axis."""
    others = tuple(other for other in range(values.ndim) if other != axis)
    scale = (np.abs(values).max(others, keepdims=True) / _LARGEST).clip(np.finfo(np.float32).tiny)
    return np.rint(values / scale).astype(np.int8), scale.astype(np.float32)


def _cast(given: str, made: str) -> onnx.NodeProto:
    return onnx.helper.make_node("Cast", [given], [made], to=onnx.TensorProto.FLOAT)
