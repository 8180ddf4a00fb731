"""ONNX graphs as rollergen expressions: every output of a model one expression, by the product's own importer.

Inputs of the graph that decide shapes or loops (`_STATIC`: axes, pads, sizes, repeats) have to be known: there the
values of the example are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

import rollergen as rg
from rollergen.expr.language import Tensor
from rollergen.importers.graph import Network, identifier
from rollergen.importers.onnx_graphs import spelled_out
from rollergen.importers.onnx_models import imported as network_of
from rollergen.importers.refusals import OPERATORS, Refused, accepted_dtype

_SHAPES_ONLY = {"Shape": (), "Size": (), "CastLike": (0,), "EyeLike": ()}
"""Operators that read of some operands the shape or dtype alone, and the operands whose values they do read."""

_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

_STATIC: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("ConstantOfShape", "HannWindow", "HammingWindow", "BlackmanWindow"), (0,)),
    **dict.fromkeys(("Reshape", "Expand", "Squeeze", "Unsqueeze", "CenterCropPad", "Tile", "Split", "Trilu"), (1,)),
    **dict.fromkeys(("AffineGrid", "CastLike", "CumSum", "CumProd", "OneHot", "TopK"), (1,)),
    **dict.fromkeys((f"Reduce{name}" for name in _REDUCTIONS), (1,)),
    **dict.fromkeys(("Col2Im", "DFT", "Dropout"), (1, 2)),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), (2,)),
    **dict.fromkeys(("Pad", "Resize", "Upsample"), (1, 2, 3)),
    "STFT": (1, 3), "Range": (0, 1, 2), "Slice": (1, 2, 3, 4), "MelWeightMatrix": (0, 1, 2, 3, 4),
}  # fmt: skip
"""The positions of operands of which the importer needs the values."""


@dataclass
class Graph:
    """What is made of a model: ``outputs`` are tensors, or arrays where they are known; ``arrays`` are those that a
    kernel is called with."""

    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: list[Any] = field(default_factory=list)

    def given(self, name: str, array: np.ndarray, constant: bool = False) -> Tensor:
        """A tensor for `array`, which becomes an argument of the kernel."""
        made = identifier(name, self.arrays)
        self.arrays[made] = array
        return rg.tensor(made, array.shape, accepted_dtype(array.dtype), constant=constant)


def imported(model: onnx.ModelProto, examples: Sequence[Any]) -> Graph:
    """The graph's outputs as tensors (or known arrays); `examples` are one array for each input of the graph.

    Raises Refused where an operator, a dtype, or what is asked of an operator is none that rollergen has.
    """
    _check_kinds(model, examples)
    _check_operators(model.graph.node)
    arrays = {info.name: array_of(one) for info, one in zip(model.graph.input, examples, strict=True)}
    for array in arrays.values():
        accepted_dtype(array.dtype)
    static = _static_names(spelled_out(model).graph.node) & set(arrays)
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    fixed.graph.initializer.extend(onnx.numpy_helper.from_array(arrays[name], name) for name in sorted(static))
    network = network_of(fixed, [array for name, array in arrays.items() if name not in static], "node test")
    return _expressed(network, arrays)


def array_of(one: Any) -> np.ndarray:
    """A tensor of a test case: those of ONNX's narrow dtypes are protos."""
    return onnx.numpy_helper.to_array(one) if isinstance(one, onnx.TensorProto) else np.asarray(one)


def _expressed(network: Network, arrays: Mapping[str, np.ndarray]) -> Graph:
    graph = Graph()
    tensors = {one.name: graph.given(one.name, arrays[one.name]) for one in network.inputs}
    for node in network.nodes:
        for name in node.inputs:
            if name not in tensors:
                tensors[name] = graph.given(name, network.constants[name], constant=True)
        made = node.express({name: tensors[name] for name in node.inputs})
        for value, one in zip(node.outputs, made, strict=True):
            if one is None:
                raise Refused("output", f"output {value.name} of {node.operator}")
            tensors[value.name] = one
    known = network.constants
    graph.outputs = [known[name] if name in known else tensors[name] for name in network.outputs]
    return graph


def bound(tensor: Tensor) -> Tensor:
    """`tensor` as a computed one: a kernel's output cannot be its input itself."""
    return tensor if tensor.producer is not None else rg.compute(tensor.shape, lambda *i: tensor[i])


def _check_kinds(model: onnx.ModelProto, examples: Sequence[Any]) -> None:
    for info in (*model.graph.input, *model.graph.output):
        kind = info.type.WhichOneof("value")
        if kind != "tensor_type":
            raise Refused("no tensor", f"{info.name} is of {kind}")
        accepted_dtype(onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type))
    if len(examples) != len(model.graph.input):
        raise Refused("no tensor", "an optional input is left out")


def _check_operators(nodes: Iterable[onnx.NodeProto]) -> None:
    for proto in nodes:
        if proto.op_type in OPERATORS:
            reason, detail = OPERATORS[proto.op_type]
            raise Refused(reason, f"{proto.op_type}: {detail}" if detail else proto.op_type)


def _static_names(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    """Names of the values that decide what other values are: static operands, and what these are computed from."""
    needed: set[str] = set()
    for proto in reversed(nodes):
        needed |= {proto.input[n] for n in _STATIC.get(proto.op_type, ()) if n < len(proto.input)}
        if needed & set(proto.output):
            read = _SHAPES_ONLY.get(proto.op_type, range(len(proto.input)))
            needed |= {proto.input[n] for n in read}
    return needed - {""}
