"""ONNX Runtime: one node, weights as initializers, so that it may pack them once (as ours are declared constant)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benches.peers.interface import Arrays, Call, Library, NotOfferedError, Operation, missing, offered
from rollergen.expr.dtypes import numpy_dtype
from rollergen.gate.arrays import aligned_empty

_THREADS = [1]


def set_threads(count: int) -> None:
    _THREADS[0] = count


@dataclass(frozen=True)
class Node:
    """``op`` of ONNX with its attributes, and further constant inputs (None: left out)."""

    op: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: tuple[np.ndarray | None, ...] = ()


def _axes(op: str) -> Callable[[Mapping[str, Any]], Node]:
    def node(settings: Mapping[str, Any]) -> Node:
        dims = settings["dim"]
        axes = np.array(dims if isinstance(dims, (tuple, list)) else [dims])
        return Node(op, {"keepdims": 0}, (axes,))

    return node


def _pool(op: str) -> Callable[[Mapping[str, Any]], Node]:
    def node(settings: Mapping[str, Any]) -> Node:
        attributes: dict[str, Any] = {
            "kernel_shape": [settings["kernel_size"]] * 2, "strides": [settings["stride"]] * 2,
            "pads": [settings["padding"]] * 4,
        }  # fmt: skip
        return Node(op, {**attributes, "count_include_pad": 1} if op == "AveragePool" else attributes)

    return node


def _conv(settings: Mapping[str, Any]) -> Node:
    strides, pads = [settings["stride"]] * 2, [settings["padding"]] * 4
    return Node("Conv", {"strides": strides, "pads": pads, "group": settings["groups"]})


def _layer_norm(settings: Mapping[str, Any]) -> Node:
    (size,) = settings["normalized_shape"]
    return Node("LayerNormalization", {}, (np.ones(size, np.float32), np.zeros(size, np.float32)))


def _group_norm(settings: Mapping[str, Any], shape: tuple[int, ...]) -> Node:
    constants = (np.ones(shape[1], np.float32), np.zeros(shape[1], np.float32))
    return Node("GroupNormalization", {"num_groups": settings["num_groups"]}, constants)


def _resize(settings: Mapping[str, Any], shape: tuple[int, ...]) -> Node:
    attributes = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    return Node("Resize", attributes, (None, None, np.array(shape, np.int64)))


def _plain(op: str, **attributes: Any) -> Callable[[Mapping[str, Any]], Node]:
    return lambda settings: Node(op, attributes)


def _transposed(sides: int) -> Callable[[Mapping[str, Any]], Node]:
    return lambda settings: Node(
        "ConvTranspose", {"strides": [settings["stride"]] * sides, "pads": [settings["padding"]] * 2 * sides}
    )


_TABLE: Mapping[str, Callable[[Mapping[str, Any]], Node]] = {
    "matmul": _plain("MatMul"), "batch_matmul": _plain("MatMul"), "linear": _plain("Gemm", transB=1), "conv2d": _conv,
    "max_pool2d": _pool("MaxPool"), "avg_pool2d": _pool("AveragePool"), "mean": _axes("ReduceMean"),
    "sum": _axes("ReduceSum"), "amax": _axes("ReduceMax"), "layer_norm": _layer_norm, "relu": _plain("Relu"),
    "softmax": lambda settings: Node("Softmax", {"axis": settings["dim"]}),
    "log_softmax": lambda settings: Node("LogSoftmax", {"axis": settings["dim"]}),
    "add": _plain("Add"), "gelu": _plain("Gelu"), "sigmoid": _plain("Sigmoid"), "tanh": _plain("Tanh"),
    "transpose": lambda settings: Node("Transpose", {"perm": list(settings["dims"])}), "hardswish": _plain("HardSwish"),
    "conv_transpose1d": _transposed(1), "conv_transpose2d": _transposed(2), "int_matmul": _plain("MatMulInteger"),
    "mul": _plain("Mul"), "argmax": lambda settings: Node("ArgMax", {"axis": settings["dim"], "keepdims": 0}),
}  # fmt: skip


_BY_SHAPE: Mapping[str, Callable[[Mapping[str, Any], tuple[int, ...]], Node]] = {
    "group_norm": _group_norm, "interpolate": _resize,
}  # fmt: skip
"""Nodes with constants of the result's shape."""


def call(operation: Operation, arrays: Arrays) -> Call:
    import onnxruntime

    if operation.name in _BY_SHAPE:
        node = _BY_SHAPE[operation.name](operation.settings, operation.shape)
    else:
        node = offered(_TABLE, operation, "ONNX Runtime")(operation.settings)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = _THREADS[0]
    try:
        session = onnxruntime.InferenceSession(
            _model(node, operation, arrays), settings, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # of its own types: those that a node has no kernel for say so in the text
        if "NOT_IMPLEMENTED" not in str(error):
            raise
        raise NotOfferedError(f"ONNX Runtime has no kernel: {str(error).splitlines()[0][:200]}") from None
    binding, out = session.io_binding(), aligned_empty(operation.shape, operation.dtype)
    for n, array in enumerate(arrays):
        if n not in operation.weights:
            binding.bind_ortvalue_input(f"x{n}", onnxruntime.OrtValue.ortvalue_from_numpy(array))
    result = onnxruntime.OrtValue.ortvalue_from_numpy(out)
    binding.bind_ortvalue_output("y", result)

    def run() -> Any:
        session.run_with_iobinding(binding)
        return result

    return run


def _model(node: Node, operation: Operation, arrays: Arrays) -> bytes:
    from onnx import helper, numpy_helper

    of = lambda dtype: helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype))

    every = [*arrays, *node.constants]
    kept = {*operation.weights, *range(len(arrays), len(every))}
    names = ["" if one is None else f"x{n}" for n, one in enumerate(every)]
    given = [
        helper.make_tensor_value_info(names[n], of(array.dtype.name), array.shape)
        for n, array in enumerate(arrays) if n not in kept
    ]  # fmt: skip
    constants = [numpy_helper.from_array(every[n], names[n]) for n in sorted(kept) if names[n]]
    out = helper.make_tensor_value_info("y", of(operation.dtype), list(operation.shape))
    nodes = [helper.make_node(node.op, names, ["y"], **node.attributes)]
    graph = helper.make_graph(nodes, "graph", given, [out], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(made.SerializeToString())


LIBRARY = Library("ONNX Runtime", "cpu", lambda: missing("onnxruntime", "onnx"), set_threads, call)
