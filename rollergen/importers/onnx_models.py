"""Models of ONNX: shapes and what follows from weights known, nodes by the table of operators, the rest by ONNX's
reference implementation."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from rollergen import ops
from rollergen.errors import ArgumentError, RollergenError, ShapeError
from rollergen.expr.dims import Dim
from rollergen.expr.dtypes import PACKED, numpy_dtype
from rollergen.expr.language import Tensor, compute, tensor
from rollergen.expr.nibbles import element, pack
from rollergen.hal.dataclass import dataclass
from rollergen.importers.dims import dims_of, numbers
from rollergen.importers.graph import (
    Network,
    Node,
    NotExpressedError,
    SizedNetwork,
    Value,
    identifier,
    leaves_by_name,
    one_or_several,
)
from rollergen.importers.onnx_graphs import (
    check,
    inputs_of,
    named_extents,
    names_read,
    sized_inputs,
    spelled_out,
    with_norms_folded,
)
from rollergen.importers.onnx_loops import Loop
from rollergen.importers.onnx_operators import TABLE
from rollergen.importers.onnx_operators.table import Node as Operation
from rollergen.importers.onnx_recurrences import VERSION, written_out
from rollergen.importers.refusals import OPERATORS, Refused, accepted_dtype

_DRAWS = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
"""Operators of which each call has a result of its own."""


_NOBODYS = "which no input, initializer or node before makes; expected a model that onnx.checker.check_model passes"


def loaded(model: str | Path | onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    """(the model, its title), read from a file with the weights beside it where it is a path.

    Raises ArgumentError where there is no file, or one that holds no model.
    """
    if isinstance(model, onnx.ModelProto):
        return model, model.graph.name or "onnx model"
    path = Path(model)
    try:
        return onnx.load(path), path.stem
    except Exception as error:  # of the file system or of protobuf
        raise ArgumentError(f"model is {str(path)!r}; expected a file with an ONNX model: {error}") from None


def imported(model: onnx.ModelProto, example_inputs: Any, title: str) -> Network:
    """The network of a model; `example_inputs`: arrays in the order of its inputs, which need them where their shapes
    are not fixed.

    Raises ArgumentError, ShapeError or DtypeError for inputs that are no tensors, of unknown shape or of a dtype that
    NumPy lacks, and ArgumentError for an operator that neither the table nor ONNX's reference knows.
    """
    model, weights = _read(model, title)
    return _network(model, weights, inputs_of(model.graph, example_inputs, title), title)


def _read(model: onnx.ModelProto, title: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """(the model with its functions written out, its weights).  Raises ArgumentError as `check`."""
    check(model.graph, title)
    model = spelled_out(model)
    return model, {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}


def _network(
    model: onnx.ModelProto, weights: Mapping[str, np.ndarray], inputs: tuple[Value, ...], title: str
) -> Network:
    """The network for inputs of these shapes."""
    walk = _Walk(list(model.opset_import), dict(weights), {one.name: one for one in inputs})
    for number, proto in enumerate(with_norms_folded(model.graph, walk.known)):
        walk.add(number, proto)
    outputs = [one.name for one in model.graph.output]
    for name in outputs:
        if name not in walk.known and name not in walk.values:
            raise ArgumentError(f"{title} gives {name}, {_NOBODYS}")
    results = {name: walk.known[name] for name in outputs if name in walk.known}
    return Network(
        title=title,
        inputs=inputs,
        outputs=tuple(outputs),
        constants={**walk.constants, **results},
        nodes=tuple(call.node() for call in walk.calls),
        leaves=leaves_by_name(title, [one.name for one in inputs]),
        nested=one_or_several,
        text=lambda: _text(inputs, outputs, walk),
    )


def imported_with_dims(model: onnx.ModelProto, ranges: Any, title: str) -> SizedNetwork:
    """The networks of a model whose extents with a name (``dim_param``) are dims; ``ranges`` as `dims_of` has them.

    Raises as `imported`, and ArgumentError for ranges that are missing or none.
    """
    model, weights = _read(model, title)
    extents = dims_of(named_extents(model.graph), ranges, title)
    dims = {one.name: one for one in extents.values() if isinstance(one, Dim)}

    def at(sizes: Mapping[str, int]) -> Network:
        examples = sized_inputs(model.graph, numbers(extents, sizes), title)
        return _network(model, weights, inputs_of(model.graph, examples, title), title)

    return SizedNetwork(title, dims, at)


def _text(inputs: tuple[Value, ...], outputs: list[str], walk: _Walk) -> str:
    """`Network.text`: what is known is read for shapes, axes and scales, so that weights enter with all their bytes."""
    hashes: dict[int, str] = {}

    def known(array: np.ndarray) -> tuple[Any, ...]:
        if id(array) not in hashes:
            told = repr(array.tolist()).encode() if array.dtype == object else np.ascontiguousarray(array).tobytes()
            hashes[id(array)] = hashlib.sha256(told).hexdigest()
        return array.shape, array.dtype.name, hashes[id(array)]

    calls = [
        (
            one.source, one.proto.SerializeToString(deterministic=True), [(i.domain, i.version) for i in one.imports],
            {name: known(array) for name, array in one.known.items()}, dict(one.values), one.outputs, one.constants,
            str(one.refusal),
        )
        for one in walk.calls
    ]  # fmt: skip
    return repr(("onnx", inputs, outputs, calls))


@dataclass
class _Walk:
    """What is made of a model: ``known`` arrays by name, ``values`` that calls compute, and the ``calls``."""

    imports: list[onnx.OperatorSetIdProto]
    known: dict[str, np.ndarray]
    values: dict[str, Value]
    calls: list[_Call] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    sources: set[str] = field(default_factory=set)

    def add(self, number: int, proto: onnx.NodeProto) -> None:
        """Makes the node a call or known arrays; a recurrence is written out before."""
        source = self._named(number, proto)
        if (written := written_out(proto, source, self._operands(source, proto))) is None:
            self._add_node(source, proto, tuple(self.imports))
            return
        nodes, constants = written
        self.known |= constants
        for node in nodes:
            self._add_node(node.name, node, (onnx.helper.make_opsetid("", VERSION),))

    def _named(self, number: int, proto: onnx.NodeProto) -> str:
        source = proto.name or f"{proto.op_type}_{number}"
        source = source if source not in self.sources else f"{source} ({number})"
        self.sources.add(source)
        return source

    def _operands(self, source: str, proto: onnx.NodeProto) -> dict[str, Value | np.ndarray]:
        """What the node reads, by name: arrays where they are known."""
        found: dict[str, Value | np.ndarray] = {}
        for name in names_read(proto):
            if name not in self.known and name not in self.values:
                raise ArgumentError(f"{source} reads {name}, {_NOBODYS}")
            found[name] = self.known[name] if name in self.known else self.values[name]
        return found

    def _add_node(self, source: str, proto: onnx.NodeProto, imports: tuple[onnx.OperatorSetIdProto, ...]) -> None:
        operands = self._operands(source, proto)
        known = {name: one for name, one in operands.items() if isinstance(one, np.ndarray)}
        values = {name: one for name, one in operands.items() if isinstance(one, Value)}
        dynamic = tuple(values)
        call = _Call(source, proto, imports, known, dynamic, values)
        shape = call.values[dynamic[0]].shape if dynamic else None
        if proto.op_type in ("Shape", "Size") and shape is not None:
            self.known[proto.output[0]] = _measured(proto, shape)
        elif dynamic or proto.op_type in _DRAWS or self._stays_packed(proto) or not self._folded(call):
            self._add(call)

    def _stays_packed(self, proto: onnx.NodeProto) -> bool:
        """Whether its weights have four bits, of which kernels are to read no more."""
        return proto.op_type == "DequantizeLinear" and self.known[proto.input[0]].dtype.name in PACKED

    def _folded(self, call: _Call) -> bool:
        """Whether the outputs are arrays, which then are known: rg.ops has some that ONNX's reference lacks, such as
        DequantizeLinear before operator set 19."""
        try:
            made = call.host({})
        except ArgumentError:
            return False
        arrays = all(isinstance(one, np.ndarray) for one in made.values())
        self.known |= made if arrays else {}
        return arrays

    def _add(self, call: _Call) -> None:
        constants: dict[str, np.ndarray] = {}
        made: dict[str, Any] = {}
        try:
            tensors = {name: given(call.values[name]) for name in call.dynamic}
            made = call.converted(tensors, lambda name, array: _kept(constants, name, array))
        except (RollergenError, NotExpressedError, TypeError) as error:
            call.refusal = error
            constants.clear()
        known = {name: one for name, one in made.items() if isinstance(one, np.ndarray)}
        self.known |= known
        left = [name for name in call.proto.output if name and name not in known]
        expressed = {n: Value(n, one.shape, one.dtype) for n, one in made.items() if isinstance(one, Tensor)}
        inferred = {} if set(left) <= set(expressed) else call.inferred()
        call.outputs = tuple(expressed.get(name) or inferred.get(name) or Value(name, None, "") for name in left)
        call.constants = tuple(constants)
        self.constants |= constants
        self.values |= {value.name: value for value in call.outputs}
        self.calls.append(call)


def given(value: Value) -> Tensor:
    """A tensor that stands for a value of the model.  Raises NotExpressedError where its shape depends on data, Refused
    for a dtype that rollergen has not."""
    if value.shape is None:
        raise NotExpressedError(f"the shape of {value.name} depends on data")
    return tensor(identifier(value.name), value.shape, accepted_dtype(value.dtype))


def _kept(constants: dict[str, np.ndarray], name: str, array: np.ndarray) -> Tensor:
    """`array` as a constant of the model: one without axes has one, as numbers of a text are no arguments, and of
    int4 and uint4 it is their bytes."""
    dtype = accepted_dtype(array.dtype)
    held = pack(array) if dtype in PACKED else array if array.ndim else array.reshape(1)
    constants[_row(name, array)] = held
    return _read_as(array, tensor(identifier(name), held.shape, held.dtype, constant=True))


def _read_as(array: np.ndarray, held: Tensor) -> Tensor:
    """The elements of `array` in the constant that `_kept` made of it."""
    if array.dtype.name in PACKED:
        return compute(array.shape, lambda *i: element(held, array.dtype.name, i))
    return held if array.ndim else ops.reshape(held, ())


def _row(name: str, array: np.ndarray) -> str:
    return name if array.ndim else f"{name}: row"


def _measured(proto: onnx.NodeProto, shape: tuple[int, ...]) -> np.ndarray:
    if proto.op_type == "Size":
        return np.asarray(math.prod(shape), np.int64)
    ends = {one.name: one.i for one in proto.attribute}
    return np.asarray(shape[ends.get("start", 0) : ends.get("end")], np.int64)


@dataclass
class _Call:
    """A node with what is known of its operands; ``dynamic``: names of the others, whose ``values`` are of the model;
    ``constants``: names of the arrays that its expression reads; ``refusal``: why it has none."""

    source: str
    proto: onnx.NodeProto
    imports: tuple[onnx.OperatorSetIdProto, ...]
    known: Mapping[str, np.ndarray]
    dynamic: tuple[str, ...]
    values: Mapping[str, Value]
    outputs: tuple[Value, ...] = ()
    constants: tuple[str, ...] = ()
    refusal: Exception | None = None

    def node(self) -> Node:
        read = (*self.dynamic, *self.constants)
        return Node(self.source, self.proto.op_type, read, self.outputs, self._express, self._by_host)

    def converted(self, tensors: Mapping[str, Tensor], constant: Callable[[str, np.ndarray], Tensor]) -> dict[str, Any]:
        """The outputs by name, tensors or known arrays; ``constant``: as `Operation.given`, all names unlike."""
        if self.proto.op_type in OPERATORS:
            raise Refused(*OPERATORS[self.proto.op_type])
        if self.proto.op_type not in TABLE or self.proto.op_type in _DRAWS:
            raise NotExpressedError("no counterpart")
        if any(one.name == "broadcast" for one in self.proto.attribute):
            raise Refused("attribute", "broadcast, of operator sets before 7")
        count = iter(range(1000000))
        named = lambda name, array: constant(name or f"{self.source}: {next(count)}", array)
        inputs = tuple(self.known.get(name, tensors.get(name)) if name else None for name in self.proto.input)
        domains = (self.proto.domain, self.proto.domain or "ai.onnx")
        version = next(one.version for one in self.imports if one.domain in domains)
        made = TABLE[self.proto.op_type](Operation(self.proto, inputs, version, named))
        made = made if isinstance(made, (tuple, list)) else (made,)
        return {name: one for name, one in zip(self.proto.output, made, strict=False) if name}

    def _express(self, tensors: Mapping[str, Tensor]) -> list[Tensor | None]:
        if self.refusal is not None:
            raise self.refusal

        def constant(name: str, array: np.ndarray) -> Tensor:
            return _read_as(array, tensors[_row(name, array)])

        made = self.converted(tensors, constant)
        return [made.get(value.name) for value in self.outputs]

    @cached_property
    def _reference(self) -> ReferenceEvaluator:
        try:
            return ReferenceEvaluator(self._alone(self.proto.output), new_ops=[Loop])
        except RollergenError:
            raise
        except Exception as error:  # of many kinds
            domain = f"{self.proto.domain}." if self.proto.domain else ""
            raise ArgumentError(
                f"{self.source} is {domain}{self.proto.op_type}, which neither rg.ops nor ONNX's reference has; "
                f"expected operators of ONNX: {error}"
            ) from None

    def host(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """All outputs by ONNX's reference, of the dynamic operands; ArgumentError where it does not run the node."""
        names = [name for name in self.proto.output if name]
        try:
            made = self._reference.run(None, {**self.known, **arrays})
        except RollergenError:
            raise
        except Exception as error:  # of many kinds
            why = f"{type(error).__name__}: {error}"
            raise ArgumentError(f"ONNX's reference cannot run {self.source}, {self.proto.op_type}: {why}") from error
        return {name: np.asarray(one) if np.isscalar(one) else one for name, one in zip(names, made, strict=True)}

    def _by_host(self, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        made = self.host({name: arrays[name] for name in self.dynamic})
        return [made[value.name] for value in self.outputs]

    def inferred(self) -> dict[str, Value]:
        """The outputs whose shapes ONNX can tell without running the node."""
        self._reference  # noqa: B018  an operator that nothing can run is refused here
        model = self._alone(self.proto.output)
        model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in self.known.items())
        try:
            found = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph.output
        except onnx.shape_inference.InferenceError:
            if isinstance(self.refusal, (ShapeError, ArgumentError)):
                raise ArgumentError(f"{self.source} does not fit what it reads: {self.refusal}") from None
            return {}
        except Exception:  # of many kinds: then nothing is known
            return {}
        return {one.name: value for one in found if (value := _inferred(one)) is not None}

    def _alone(self, outputs: Iterable[str]) -> onnx.ModelProto:
        """A model of this node."""
        infos = [_info(value) for value in self.values.values()]
        infos += [_info(Value(name, one.shape, one.dtype.name)) for name, one in self.known.items()]
        results = [onnx.helper.make_empty_tensor_value_info(name) for name in outputs if name]
        graph = onnx.helper.make_graph([self.proto], "alone", infos, results)
        return onnx.helper.make_model(graph, opset_imports=self.imports, ir_version=10)


def _inferred(info: onnx.ValueInfoProto) -> Value | None:
    fixed = info.type.tensor_type
    if info.type.WhichOneof("value") != "tensor_type" or not fixed.HasField("shape"):
        return None
    if not all(d.HasField("dim_value") for d in fixed.shape.dim):
        return None
    dtype = onnx.helper.tensor_dtype_to_np_dtype(fixed.elem_type).name
    return Value(info.name, tuple(d.dim_value for d in fixed.shape.dim), dtype)


def _info(value: Value) -> onnx.ValueInfoProto:
    if value.shape is None or not value.dtype:
        return onnx.helper.make_empty_tensor_value_info(value.name)
    return onnx.helper.make_tensor_value_info(value.name, _number(value.dtype), value.shape)


def _number(dtype: str) -> int:
    return int(onnx.helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype)))
