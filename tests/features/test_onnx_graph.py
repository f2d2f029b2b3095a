"""ONNX graphs of strangers: no loops, no functions, no operators from elsewhere."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install megalabel[onnx]")

from onnx import TensorProto, helper  # noqa: E402

from megalabel.features.onnx import opened_graph  # noqa: E402
from megalabel.features.onnx_graph import check_graph  # noqa: E402

OPSET = [helper.make_opsetid("", 17)]


def graph(nodes, inputs=(), outputs=("y",), constants=()):
    def number(name):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [])

    return helper.make_graph(nodes, "g", [*map(number, inputs)], [*map(number, outputs)], constants)


def model(nodes, constants=(), **more):
    made = helper.make_model(graph(nodes, (), ("y",), constants), opset_imports=OPSET, **more)
    made.ir_version = 8
    return np.frombuffer(made.SerializeToString(), np.uint8)


ONE = helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])


def looping():
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["on"], ["on_"]),
            helper.make_node("Add", ["a", "a"], ["b"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("a", TensorProto.FLOAT, []),
        ],
        [
            helper.make_tensor_value_info("on_", TensorProto.BOOL, []),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, []),
        ],
    )
    constants = [
        helper.make_tensor("times", TensorProto.INT64, [], [2**40]),
        helper.make_tensor("true", TensorProto.BOOL, [], [True]),
        ONE,
    ]
    return model([helper.make_node("Loop", ["times", "true", "one"], ["y"], body=body)], constants)


def test_a_plain_graph_is_opened():
    plain = model([helper.make_node("Add", ["one", "one"], ["y"])], [ONE])
    assert opened_graph("it", plain).run(None, {})[0] == 2


def test_a_loop_is_refused():
    with pytest.raises(ValueError, match="inside an operator 'Loop'"):
        opened_graph("it", looping())


def test_operators_from_elsewhere_are_refused():
    strange = model([helper.make_node("Add", ["one", "one"], ["y"], domain="stranger")], [ONE])
    with pytest.raises(ValueError, match="operator of b'stranger'"):
        opened_graph("it", strange)


def test_functions_are_refused():
    node = helper.make_node("Add", ["a", "a"], ["b"])
    own = helper.make_function("", "Twice", ["a"], ["b"], [node], OPSET)
    with pytest.raises(ValueError, match="functions"):
        opened_graph(
            "it", model([helper.make_node("Twice", ["one"], ["y"])], [ONE], functions=[own])
        )


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(content):
    with contextlib.suppress(ValueError):
        check_graph(memoryview(content))


@given(st.data())
def test_no_change_of_one_byte_lets_a_loop_through(data):
    """What onnx reads as a graph inside an operator, this does too."""
    content = bytearray(looping().tobytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    try:
        read = onnx.load_model_from_string(bytes(content))
    except Exception:
        return
    nested = any(a.HasField("g") or len(a.graphs) for n in read.graph.node for a in n.attribute)
    if nested:
        with pytest.raises(ValueError, match="ONNX"):
            check_graph(memoryview(bytes(content)))
