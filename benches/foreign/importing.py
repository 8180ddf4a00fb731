"""ONNX graphs as rollergen expressions: values, nodes, and the walk that asks the tables of operators.

A value is known (a NumPy array: initializers, constants, shapes, and what follows from these) or a tensor.  A node
whose inputs are all known is folded by ONNX's reference implementation; any other is what its operator's converter
makes of it.  Operands that decide shapes or loops (``static`` in the tables: axes, pads, sizes, repeats) have to be
known; where they are inputs of the graph, the values of the example are.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from onnx.reference import ReferenceEvaluator

import rollergen as rg
from rollergen.expr.language import CALL_WORDS, Tensor
from rollergen.network.onnx_operators import TABLE
from rollergen.network.onnx_operators.table import Node
from rollergen.network.refusals import OPERATORS, Refused, accepted_dtype

_SHAPES_ONLY = {"Shape": (), "Size": (), "CastLike": (0,), "EyeLike": ()}
"""Operators that read of some operands the shape or dtype alone, and the operands whose values they do read."""


@dataclass
class Graph:
    """What is made of a model: values by name; ``inputs`` and ``constants`` are the arrays a kernel is called with."""

    values: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: list[Any] = field(default_factory=list)

    def given(self, name: str, array: np.ndarray, constant: bool = False) -> Tensor:
        """A tensor for `array`, which becomes an argument of the kernel."""
        if 0 in array.shape:
            raise Refused("empty", f"{name} has shape {array.shape}")
        identifier = self._identifier(name)
        self.arrays[identifier] = array
        return rg.tensor(identifier, array.shape, accepted_dtype(array.dtype), constant=constant)

    def constant(self, name: str, array: np.ndarray) -> Tensor:
        return self.given(name or f"c{len(self.arrays)}", array, constant=True)

    def _identifier(self, name: str) -> str:
        """ONNX names may be any text."""
        if name.isidentifier() and name.isascii() and not keyword.iskeyword(name) and name not in CALL_WORDS:
            made = name
        else:
            made = "v_" + "".join(c if c.isalnum() and c.isascii() else "_" for c in name)
        while made in self.arrays:
            made += "_"
        return made


def imported(model: onnx.ModelProto, examples: Sequence[Any]) -> Graph:
    """The graph's outputs as tensors (or known arrays); `examples` are one array for each input of the graph.

    Raises Refused where an operator, a dtype, or what is asked of an operator is none that rollergen has.
    """
    graph = Graph()
    _check_kinds(model, examples)
    model = _spelled_out(model)
    _check_operators(model.graph.node)
    static = _static_names(model.graph.node)
    for one in model.graph.initializer:
        graph.values[one.name] = onnx.numpy_helper.to_array(one)
    for info, example in zip(model.graph.input, examples, strict=True):
        known = info.name in static
        graph.values[info.name] = np.asarray(example) if known else graph.given(info.name, np.asarray(example))
    imports = list(model.opset_import)
    for proto in model.graph.node:
        _convert(graph, proto, imports)
    graph.outputs = [graph.values[info.name] for info in model.graph.output]
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
        shape = [d.dim_value if d.HasField("dim_value") else 1 for d in info.type.tensor_type.shape.dim]
        if 0 in shape and info in list(model.graph.output):
            raise Refused("empty", f"{info.name} has shape {tuple(shape)}")
    if len(examples) != len(model.graph.input):
        raise Refused("no tensor", "an optional input is left out")


def _spelled_out(model: onnx.ModelProto) -> onnx.ModelProto:
    """Operators that no table has, by the functions that ONNX defines them as."""
    unknown = {(p.domain, p.op_type) for p in model.graph.node if p.op_type not in TABLE and p.op_type not in OPERATORS}
    functions = [
        (domain, name)
        for domain, name in sorted(unknown)
        if (schema := onnx.defs.get_schema(name, domain=domain)).has_function or schema.has_context_dependent_function
    ]
    if not functions:
        return model
    return onnx.inliner.inline_selected_functions(model, functions, inline_schema_functions=True)


def _check_operators(nodes: Iterable[onnx.NodeProto]) -> None:
    for proto in nodes:
        if proto.op_type in OPERATORS:
            reason, detail = OPERATORS[proto.op_type]
            raise Refused(reason, f"{proto.op_type}: {detail}" if detail else proto.op_type)


def _static_names(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    """Names of the values that decide what other values are: static operands, and what these are computed from."""
    needed: set[str] = set()
    for proto in reversed(nodes):
        entry = TABLE.get(proto.op_type)
        needed |= {proto.input[n] for n in (entry.static if entry else ()) if n < len(proto.input)}
        if needed & set(proto.output):
            read = _SHAPES_ONLY.get(proto.op_type, range(len(proto.input)))
            needed |= {proto.input[n] for n in read}
    return needed - {""}


def _convert(graph: Graph, proto: onnx.NodeProto, imports: list[onnx.OperatorSetIdProto]) -> None:
    inputs = tuple(graph.values[name] if name else None for name in proto.input)
    if proto.op_type in ("Shape", "Size") and isinstance(inputs[0], Tensor):
        made: Any = _measured(proto, inputs[0])
    elif not any(isinstance(value, Tensor) for value in inputs):
        made = _folded(proto, inputs, imports)
    else:
        version = next(one.version for one in imports if one.domain in (proto.domain, proto.domain or "ai.onnx"))
        made = TABLE[proto.op_type].convert(Node(proto, inputs, version, graph.constant))
    made = made if isinstance(made, (tuple, list)) else (made,)
    for name, value in zip(proto.output, made, strict=False):
        if name and value is None:
            raise Refused("output", f"output {name} of {proto.op_type}")
        if name:
            graph.values[name] = value


def _measured(proto: onnx.NodeProto, x: Tensor) -> np.ndarray:
    if proto.op_type == "Size":
        return np.asarray(math.prod(x.shape), np.int64)
    ends = {one.name: one.i for one in proto.attribute}
    return np.asarray(x.shape[ends.get("start", 0) : ends.get("end")], np.int64)


def _folded(proto: onnx.NodeProto, inputs: Sequence[Any], imports: list[onnx.OperatorSetIdProto]) -> list[np.ndarray]:
    """What ONNX's reference makes of known operands."""
    given = {name: value for name, value in zip(proto.input, inputs, strict=True) if name}
    infos = [_info(name, value) for name, value in given.items()]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in proto.output if name]
    alone = onnx.helper.make_graph([proto], "folded", infos, outputs)
    model = onnx.helper.make_model(alone, opset_imports=imports)
    results: Mapping[str, Any] = dict(
        zip((o.name for o in outputs), ReferenceEvaluator(model).run(None, given), strict=True)
    )
    return [np.asarray(results[name]) if name else np.zeros(()) for name in proto.output]


def _info(name: str, value: np.ndarray) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
