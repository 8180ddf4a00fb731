"""The libraries that kernels are compared with: each makes a call without arguments from the case's arrays.

Outputs are preallocated wherever the library takes one; weights are given to ONNX Runtime as initializers, so
that it may pack them once (as ours are declared constant).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Arrays = Sequence[np.ndarray]
Call = Callable[[], object]
Peer = Callable[[Arrays], Call]


def numpy_into(function: Callable[..., object], shape: Sequence[int]) -> Peer:
    """``function(*arrays, out=out)``."""

    def peer(arrays: Arrays) -> Call:
        out = np.empty(shape, np.float32)
        return lambda: function(*arrays, out=out)

    return peer


def torch_call(function: Callable[..., object]) -> Peer:
    """``function(*tensors)``."""

    def peer(arrays: Arrays) -> Call:
        import torch

        tensors = [torch.from_numpy(array) for array in arrays]
        return lambda: function(*tensors)

    return peer


def torch_into(function: Callable[..., object], shape: Sequence[int]) -> Peer:
    """``function(*tensors, out=out)``."""

    def peer(arrays: Arrays) -> Call:
        import torch

        tensors, out = [torch.from_numpy(array) for array in arrays], torch.empty(tuple(shape))
        return lambda: function(*tensors, out=out)

    return peer


def onnx_node(
    op: str, shape: Sequence[int], *, weights: Sequence[int] = (), constants: Sequence[np.ndarray] = (),
    opset: int = 20, **attributes: Any,
) -> Peer:  # fmt: skip
    """One node of ONNX Runtime; `weights`: which arrays are initializers; `constants`: further inputs."""

    def peer(arrays: Arrays) -> Call:
        return _onnx_session(op, arrays, shape, weights, constants, opset, attributes)

    return peer


def _onnx_session(
    op: str, arrays: Arrays, shape: Sequence[int], weights: Sequence[int], constants: Sequence[np.ndarray], opset: int,
    attributes: Mapping[str, Any],
) -> Call:  # fmt: skip
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    names = [f"x{n}" for n in range(len(arrays) + len(constants))]
    given = [n for n in range(len(arrays)) if n not in weights]
    values = [helper.make_tensor_value_info(names[n], TensorProto.FLOAT, arrays[n].shape) for n in given]
    kept = [numpy_helper.from_array(arrays[n], names[n]) for n in weights]
    kept += [numpy_helper.from_array(array, names[len(arrays) + n]) for n, array in enumerate(constants)]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, list(shape))
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attributes)], "graph", values, [out], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for n in given:
        binding.bind_ortvalue_input(names[n], onnxruntime.OrtValue.ortvalue_from_numpy(arrays[n]))
    binding.bind_ortvalue_output("y", onnxruntime.OrtValue.ortvalue_from_numpy(np.empty(shape, np.float32)))
    return lambda: session.run_with_iobinding(binding)
