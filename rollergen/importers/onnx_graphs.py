"""Graphs of ONNX before they are walked: what is refused, the inputs, and what is written out or folded."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnx.inliner

from rollergen.errors import ArgumentError, ShapeError
from rollergen.importers.dims import Named
from rollergen.importers.folding import norm_folded
from rollergen.importers.graph import Value, leaves_by_name
from rollergen.importers.onnx_operators import TABLE
from rollergen.importers.refusals import OPERATORS

NO_SIZES: Mapping[str, int] = MappingProxyType({})


def check(graph: onnx.GraphProto, title: str) -> None:
    """ArgumentError for a graph without outputs, and for one with sparse weights."""
    if not graph.output:
        raise ArgumentError(f"{title} has no output, as an empty or cut file has none; expected a whole ONNX model")
    if graph.sparse_initializer:
        name = graph.sparse_initializer[0].values.name
        raise ArgumentError(f"weight {name} of {title} is sparse; expected dense initializers")


def inputs_of(graph: onnx.GraphProto, example_inputs: Any, title: str) -> tuple[Value, ...]:
    """The inputs that are no weights, with the shapes of the examples, in their order or by name, where there are such.

    Raises ArgumentError or ShapeError for examples that are missing or do not fit, and for an input that is no tensor.
    """
    weights = {one.name for one in graph.initializer}
    infos = [info for info in graph.input if info.name not in weights]
    if example_inputs is None:
        return tuple(_input(info, None, title) for info in infos)
    if isinstance(example_inputs, Mapping):
        examples = leaves_by_name("example_inputs", [info.name for info in infos])((), example_inputs)
    else:
        examples = list(example_inputs) if isinstance(example_inputs, (tuple, list)) else [example_inputs]
    if len(examples) != len(infos):
        wanted = ", ".join(info.name for info in infos)
        raise ArgumentError(f"example_inputs has {len(examples)} arrays; expected one for each of {title}'s: {wanted}")
    return tuple(_input(info, np.shape(one), title) for info, one in zip(infos, examples, strict=True))


def sized_inputs(graph: onnx.GraphProto, sizes: Mapping[str, int], title: str) -> tuple[np.ndarray, ...]:
    """Example inputs of which only the shapes count, an extent with a name as large as ``sizes`` says.

    Raises ArgumentError for a size that no input has, and for an extent without a size.
    """
    named = {d.dim_param for info in graph.input for d in info.type.tensor_type.shape.dim if d.dim_param}
    if unknown := sorted(set(sizes) - named):
        have = f"expected {', '.join(sorted(named))}" if named else "all its extents are numbers"
        raise ArgumentError(f"no input of {title} has an extent {unknown[0]!r}; {have}")
    weights = {one.name for one in graph.initializer}
    found = (_input(info, None, title, sizes) for info in graph.input if info.name not in weights)
    return tuple(np.broadcast_to(np.float32(0), one.shape or ()) for one in found)


def named_extents(graph: onnx.GraphProto) -> dict[str, Named]:
    """The extents of inputs that have a name, and where each stands first."""
    found: dict[str, Named] = {}
    for info in graph.input:
        for axis, one in enumerate(info.type.tensor_type.shape.dim):
            if one.dim_param and not one.HasField("dim_value"):
                found.setdefault(one.dim_param, Named(f"dimension {axis} of input {info.name}", 1, None))
    return found


def _input(
    info: onnx.ValueInfoProto, example: tuple[int, ...] | None, title: str, sizes: Mapping[str, int] = NO_SIZES
) -> Value:
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        raise ArgumentError(f"input {info.name} of {title} is of {kind}; expected tensors")
    fixed = info.type.tensor_type
    dims = [d.dim_value if d.HasField("dim_value") else _extent(d.dim_param, sizes) for d in fixed.shape.dim]
    if not fixed.HasField("shape"):  # of any number of axes
        if example is None:
            raise ArgumentError(f"input {info.name} of {title} has no shape; expected example_inputs, which have one")
        dims = list(example)
    text = f"({', '.join(map(str, dims))})"
    if example is None and not all(isinstance(d, int) for d in dims):
        name = next(d for d in dims if isinstance(d, str))
        words = "" if name == "?" else (
            f", or dims={{{name!r}: (1, 64)}} for all sizes between (rollergen run and explain take sizes, such as "
            f"{name}=1)"
        )  # fmt: skip
        wanted = f"expected example_inputs, whose shapes become the model's{words}"
        raise ArgumentError(f"input {info.name} of {title} has shape {text}; {wanted}")
    shape = tuple(dims) if example is None else example
    if len(shape) != len(dims) or any(isinstance(d, int) and d != n for d, n in zip(dims, shape, strict=True)):
        raise ShapeError(f"example input {info.name} of {title} has shape {shape}; expected {text}")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(fixed.elem_type)
    return Value(info.name, tuple(map(int, shape)), dtype.name)


def _extent(name: str, sizes: Mapping[str, int]) -> int | str:
    return sizes.get(name, name) or "?"


def spelled_out(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its own functions, and those operators that no table has, written out as ONNX defines them."""
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    unknown = {(p.domain, p.op_type) for p in model.graph.node if p.op_type not in TABLE and p.op_type not in OPERATORS}
    functions = [(domain, name) for domain, name in sorted(unknown) if _defined(domain, name)]
    if not functions:
        return model
    return onnx.inliner.inline_selected_functions(model, functions, inline_schema_functions=True)


def _defined(domain: str, name: str) -> bool:
    """Whether ONNX defines the operator by others."""
    if not onnx.defs.has(name, domain):
        return False
    schema: Any = onnx.defs.get_schema(name, domain=domain)
    return bool(schema.has_function or schema.has_context_dependent_function)


def with_norms_folded(graph: onnx.GraphProto, known: dict[str, np.ndarray]) -> list[onnx.NodeProto]:
    """The nodes, batch norms written into the weights of the convolutions that they alone read."""
    for p in graph.node:  # exporters keep equal weights once
        if p.op_type == "Identity" and p.input[0] in known:
            known[p.output[0]] = known[p.input[0]]
    readers: dict[str, int] = {}
    for name in (*(name for p in graph.node for name in names_read(p)), *(one.name for one in graph.output)):
        readers[name] = readers.get(name, 0) + 1
    made = {p.output[0]: n for n, p in enumerate(graph.node) if p.op_type in ("Conv", "ConvTranspose")}
    nodes: list[onnx.NodeProto | None] = list(graph.node)
    for n, norm in enumerate(graph.node):
        at = made.get(norm.input[0]) if norm.op_type == "BatchNormalization" else None
        before = None if at is None else nodes[at]
        if before is None or readers[before.output[0]] > 1 or not {*before.input[1:], *norm.input[1:]} <= set(known):
            continue
        gamma, beta, mean, var = (known[name] for name in norm.input[1:])
        bias = known[before.input[2]] if len(before.input) > 2 else None
        eps = next((a.f for a in norm.attribute if a.name == "epsilon"), 1e-5)
        groups = next((a.i for a in before.attribute if a.name == "group"), 1)
        transposed = groups if before.op_type == "ConvTranspose" else 0
        names = [f"{before.output[0]}: {what}" for what in ("weight", "bias")]
        weight = known[before.input[1]]
        parameters = norm_folded(weight, bias, gamma, beta, mean, var, eps=eps, transposed_groups=transposed)
        known |= dict(zip(names, parameters, strict=True))
        folded = onnx.NodeProto()
        folded.CopyFrom(before)
        del folded.input[1:]
        folded.input.extend(names)
        folded.output[0] = norm.output[0]
        nodes[at], nodes[n] = folded, None  # type: ignore[index]
    return [one for one in nodes if one is not None]


def names_read(proto: onnx.NodeProto) -> list[str]:
    """Names of the values that a node reads, in its subgraphs too."""
    names = dict.fromkeys(name for name in proto.input if name)
    for attribute in proto.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            own = {one.name for one in (*graph.input, *graph.initializer)} | {o for p in graph.node for o in p.output}
            inside = [name for p in graph.node for name in names_read(p)] + [one.name for one in graph.output]
            names |= dict.fromkeys(name for name in inside if name not in own)
    return list(names)
