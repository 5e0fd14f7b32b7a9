"""Weights in fewer bytes: as near to the others as their type allows, and made float32 again by the graph itself."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from infogaze.export.contract import Precision
from infogaze.export.precision import in_precision


def product(weights: np.ndarray) -> onnx.ModelProto:
    """The graph of a product with a matrix, and a bias too small to be worth storing in fewer bytes."""
    inner, outer = weights.shape
    bias = np.linspace(-1, 1, outer, dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["xw"]), helper.make_node("Add", ["xw", "b"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", inner])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", outer])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def made_again(model: onnx.ModelProto, inner: int) -> np.ndarray:
    """The weights that the graph multiplies by."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    values = session.run(None, {"x": np.concatenate([np.eye(inner), np.zeros((1, inner))]).astype(np.float32)})[0]
    return np.asarray(values[:-1] - values[-1])


SPREAD = np.random.default_rng(0).normal(size=(40, 50)).astype(np.float32)
LOUD = np.geomspace(1e-3, 1e3, 50, dtype=np.float32)
"""Of columns: one scale for all of them would leave nothing of the faint ones."""


@pytest.mark.parametrize(("precision", "relative"), [("float16", 2**-11), ("int8", 0.5 / 127)])
@pytest.mark.parametrize("weights", [SPREAD * LOUD, (SPREAD.T * LOUD[:, None]).copy()], ids=["columns", "rows"])
def test_weights_are_as_near_as_their_type_allows(precision: Precision, relative: float, weights: np.ndarray) -> None:
    found = made_again(in_precision(product(weights), precision), len(weights))
    axis = 0 if weights.shape == SPREAD.shape else 1
    largest = np.abs(weights).max(axis, keepdims=True)
    np.testing.assert_array_less(np.abs(found - weights) / largest, relative * 1.01 + 1e-6)
    assert np.abs(found - weights).max() > 0.0


def test_float32_is_the_graph_as_it_is() -> None:
    model = product(SPREAD)
    assert in_precision(product(SPREAD), "float32").SerializeToString() == model.SerializeToString()


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_small_tensors_stay_as_they_are_and_columns_of_zeros_are_zeros(precision: Precision) -> None:
    weights = SPREAD.copy()
    weights[:, 3] = 0.0
    model = in_precision(product(weights), precision)
    kept = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    assert kept["b"] == TensorProto.FLOAT
    assert "w" not in kept
    assert not made_again(model, len(weights))[:, 3].any()


def test_what_half_precision_has_no_room_for_is_its_largest_number() -> None:
    weights = SPREAD.copy()
    weights[0, 0] = 1e6
    assert made_again(in_precision(product(weights), "float16"), len(weights))[0, 0] == pytest.approx(65504, rel=1e-3)
