"""What an ONNX graph would do, read from its bytes before onnxruntime opens it.

A graph in a model folder may come from a stranger. Operators that hold graphs of their own can go
round in a loop for as long as they like, and operators of other domains are other people's code, so
neither is opened. Only the names of operators are read, without a copy of the weights.
"""

from __future__ import annotations

from collections.abc import Iterator

# fields of onnx.proto: ModelProto, GraphProto, NodeProto
_GRAPH, _FUNCTIONS = 7, 25
_NODE = 1
_OPERATOR, _ATTRIBUTE, _DOMAIN = 4, 5, 7
_SUBGRAPH, _SUBGRAPHS = 6, 11  # AttributeProto
_DOMAINS = (b"", b"ai.onnx", b"com.microsoft")


def check_graph(model: memoryview) -> None:
    """Raise a ValueError unless a graph is one pass over operators that onnxruntime brings.

    Examples
    --------
    >>> check_graph(memoryview(b"\\x08\\x08"))
    >>> check_graph(memoryview(b"\\x08"))
    Traceback (most recent call last):
    ...
    ValueError: an ONNX graph that is cut short
    """
    for field, graph in _fields(model):
        if field == _FUNCTIONS:
            raise ValueError("an ONNX graph with functions of its own")
        if field == _GRAPH:
            for place, node in _fields(graph):
                if place == _NODE:
                    _check_node(node)


def _check_node(node: memoryview) -> None:
    name = b""
    for field, value in _fields(node):
        if field == _OPERATOR:
            name = bytes(value)
        elif field == _DOMAIN and bytes(value) not in _DOMAINS:
            raise ValueError(f"an ONNX graph with an operator of {bytes(value)[:60]!r}")
        elif field == _ATTRIBUTE and any(p in (_SUBGRAPH, _SUBGRAPHS) for p, _ in _fields(value)):
            shown = name.decode("utf-8", "replace")[:60]
            raise ValueError(f"an ONNX graph with another one inside an operator {shown!r}")


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The fields of a protobuf message that have a length, by their numbers."""
    at = 0
    while at < len(message):
        key, at = _number(message, at)
        kind = key & 7
        if kind == 0:
            _, at = _number(message, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        elif kind == 2:
            length, at = _number(message, at)
            if length > len(message) - at:
                raise ValueError("an ONNX graph that is cut short")
            yield key >> 3, message[at : at + length]
            at += length
        else:
            raise ValueError("an ONNX graph that cannot be read")


def _number(message: memoryview, at: int) -> tuple[int, int]:
    """A number of a few bits a byte, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError("an ONNX graph that is cut short")
        byte, at = message[at], at + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("an ONNX graph that cannot be read")
