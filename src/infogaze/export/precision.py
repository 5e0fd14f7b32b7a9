"""A graph's weights in fewer bytes: kept as float16, or products in int8."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from infogaze.export.contract import Precision

_SMALL = 1024
"""Elements of a tensor that stays as it is: norms, biases and constants cost nothing."""


def in_precision(model: onnx.ModelProto, precision: Precision) -> onnx.ModelProto:
    """The graph with its weights in this precision; what goes in and comes out stays float32."""
    if precision == "float16":
        return _kept_as_half(model)
    # What is not a factor of such a product, convolutions among it, is kept as half.
    return _kept_as_half(_products_in_eight_bits(model)) if precision == "int8" else model


def _kept_as_half(model: onnx.ModelProto) -> onnx.ModelProto:
    """Weights are float16 in the file, and made float32 once, when the file is opened: a CPU has no products in half precision."""
    casts = []
    for tensor in model.graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT or len(tensor.dims) < 2 or np.prod(tensor.dims) < _SMALL:
            continue
        values = numpy_helper.to_array(tensor)
        if np.abs(values).max() > np.finfo(np.float16).max:
            continue
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), f"{name}.half"))
        casts.append(onnx.helper.make_node("Cast", [tensor.name], [name], to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def _products_in_eight_bits(model: onnx.ModelProto) -> onnx.ModelProto:
    """Products of matrices with weights in int8; the range of the other factor is read off it anew each time."""
    _untransposed(model)
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)  # it advises to prepare the graph first, and says what it leaves out
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "graph.onnx"
            quantize_dynamic(
                model,
                path,
                op_types_to_quantize=["MatMul", "Gemm"],
                per_channel=True,
                weight_type=QuantType.QInt8,
                extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
            )
            return onnx.load(path)
    finally:
        logger.setLevel(level)


def _untransposed(model: onnx.ModelProto) -> None:
    """Weights as products take them: the quantiser turns one over once for every product that it is in."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    turned: dict[str, str] = {}
    for node in model.graph.node:
        over = [attribute for attribute in node.attribute if attribute.name == "transB" and attribute.i]
        if node.op_type != "Gemm" or not over or node.input[1] not in weights:
            continue
        name = node.input[1]
        if name not in turned:
            turned[name] = f"{name}.T"
            values = np.ascontiguousarray(numpy_helper.to_array(weights[name]).T)
            model.graph.initializer.append(numpy_helper.from_array(values, turned[name]))
        node.input[1], over[0].i = turned[name], 0
    read = {name for node in model.graph.node for name in node.input}
    for name in turned:
        if name not in read:
            model.graph.initializer.remove(weights[name])
