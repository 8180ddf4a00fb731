"""Models of torch: exported, decomposed to ATen, weights folded."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rollergen.errors import ArgumentError, shown
from rollergen.expr.dims import Dim
from rollergen.hal.dataclass import dataclass
from rollergen.importers.aten import TABLE
from rollergen.importers.dims import Named, dims_of, numbers
from rollergen.importers.graph import Network, SizedNetwork, Value, identifier
from rollergen.importers.torch_calls import Call, Reference, folded, node, taken_apart, text_of
from rollergen.runtime.interop import to_torch, view

_TRACING = threading.RLock()
"""Torch traces one model at a time: its modes are those of the whole process."""


def is_module(model: object) -> bool:
    """Whether it is a `torch.nn.Module`; torch is not imported."""
    return is_a(model, "torch.nn.modules.module", "Module")


def is_exported(model: object) -> bool:
    """Whether it is a `torch.export.ExportedProgram`; torch is not imported."""
    return is_a(model, "torch.export.exported_program", "ExportedProgram")


def is_a(thing: object, module: str, name: str) -> bool:
    """Whether a class of that name is among its own."""
    return any((one.__module__, one.__qualname__) == (module, name) for one in type(thing).__mro__)


def exported(model: Any, example_inputs: Any, dynamic_shapes: Any = None) -> Any:
    """The `ExportedProgram` of a module for inputs of these shapes and dtypes; ``dynamic_shapes`` as torch has them.

    Raises ArgumentError for a module in training mode, without example inputs, and for one that torch cannot export.
    """
    import torch

    if example_inputs is None:
        raise ArgumentError(
            "example_inputs is None; expected a tuple of tensors, the arguments of one call of the module: their "
            "shapes and dtypes become the model's"
        )
    if model.training:
        raise ArgumentError(
            f"model is a {type(model).__name__} in training mode; expected one for inference: call model.eval() first"
        )
    arguments = example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    tensors = torch.utils._pytree.tree_map(_as_tensor, tuple(arguments))
    with _TRACING, torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch about itself
        try:
            return torch.export.export(model, tensors, dynamic_shapes=dynamic_shapes)
        except Exception as error:  # of the model's own code, or any of the exporter's many
            raise ArgumentError(_not_exported(model, error)) from error


def _not_exported(model: Any, error: Exception) -> str:
    """What torch could not do, where in the user's code, and what can be done."""
    text = str(error).strip().splitlines()
    caused = (line.strip() for line in text if line.strip().startswith("Caused by:"))
    where = next((line for line in caused if "in forward" in line), "")  # else a place in torch
    first = f"{type(error).__name__}: {text[0] if text else ''}"
    advice = (
        "; expected a model whose control flow and shapes do not depend on data (torch.compile(model, "
        "backend='rollergen') compiles what lies between such places)"
    )
    told = " ".join(filter(None, (first, where)))
    return f"torch.export cannot export {type(model).__name__}: {told}{advice * ('data-dependent' in first)}"


def _as_tensor(one: Any) -> Any:
    return to_torch(one) if isinstance(one, np.ndarray) else one


class _Word(str):
    """A leaf of nested arguments, shown without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _spelled(call: tuple[tuple[Any, ...], Mapping[str, Any]]) -> str:
    """The arguments of a call as they are written."""
    arguments, named = call
    return ", ".join([*map(shown, arguments), *(f"{name}={shown(value)}" for name, value in named.items())])


def imported(program: Any, title: str, ranges: Any = None) -> Network | SizedNetwork:
    """The network of an `ExportedProgram`; of one with dynamic shapes, for all sizes in the ranges that it was exported
    for: what is called x_0 is then dimension 0 of its input x.  ``ranges``: narrower ones, as `dims_of` has them.

    Raises ArgumentError for one whose calls change a buffer or an input, or take numbers that change, and for sizes
    without an upper bound.
    """
    _refuse_numbers(program, title)
    program = _decomposed(program, title)
    symbols = _symbols(program)
    if not symbols and ranges is None:
        return _network(program, title, {})
    known = {name: _bounds(program, place, one) for name, (place, one) in symbols.items()}
    extents = dims_of(known, {} if ranges is None else ranges, title)
    dims = {one.name: one for one in extents.values() if isinstance(one, Dim)}

    def at(sizes: Mapping[str, int]) -> Network:
        return _network(program, title, {symbols[name][1]: size for name, size in numbers(extents, sizes).items()})

    return SizedNetwork(title, dims, at)


def _decomposed(program: Any, title: str) -> Any:
    """The program without operators that have no counterpart, as far as torch can decompose them."""
    import torch

    stay = {*TABLE, "multilabel_margin_loss_forward"}  # torch 2.13 decomposes it into sums over its padding, too
    known = torch.export.default_decompositions()
    with _TRACING, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            return program.run_decompositions({one: how for one, how in known.items() if one._opname not in stay})
        except Exception as error:  # any of the decomposer's many
            raise ArgumentError(f"torch cannot decompose {title}: {type(error).__name__}: {error}") from error


def _symbols(program: Any) -> dict[str, tuple[str, Any]]:
    """The symbols of the inputs' extents, by names made of where they stand first, and these places in words."""
    found: dict[Any, tuple[str, str]] = {}
    inputs = set(_of_calls(program.graph_signature.input_specs))
    extents = [
        (extent.node.expr, f"{one.name}_{axis}", f"dimension {axis} of input {one.name}")
        for one in program.graph.nodes
        if one.op == "placeholder" and one.name in inputs
        for axis, extent in enumerate(getattr(one.meta["val"], "shape", ()))
        if not isinstance(extent, int)
    ]
    for expression, name, place in sorted(extents, key=lambda extent: not extent[0].is_Symbol):
        for n, symbol in enumerate(sorted(expression.free_symbols - set(found), key=str)):
            called = f"{name}{f'_{n}' if n else ''}"
            found[symbol] = identifier(called, [one for one, _ in found.values()]), place
    return {name: (place, symbol) for symbol, (name, place) in found.items()}


def _bounds(program: Any, place: str, symbol: Any) -> Named:
    """The range that torch has exported the program for."""
    known = program.range_constraints.get(symbol)
    finite = known is not None and known.upper.is_Integer
    return Named(place, 1 if known is None else max(1, int(known.lower)), int(known.upper) if finite else None)


def _number(one: Any, sizes: Mapping[Any, int]) -> int | float | bool | None:
    """A number of torch's at these sizes of its symbols; None for one that depends on data, and for what is none."""
    import torch

    if isinstance(one, (int, float)):
        return one
    kinds = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
    if type(one) not in kinds:
        return None
    found = one.node.expr.subs(sizes)
    return None if found.free_symbols else kinds[type(one)](found)  # type: ignore[no-any-return]


def _network(program: Any, title: str, sizes: Mapping[Any, int]) -> Network:
    """The network at these sizes of the program's symbols."""
    import torch

    signature = program.graph_signature
    changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if changed:
        raise ArgumentError(
            f"model changes {', '.join(changed)} when it is called; expected one without state, for inference"
        )
    graph = _Graph(program, sizes)
    for one in program.graph.nodes:
        if one.op == "call_function":
            graph.add(one)
    takes, gives = _of_calls(signature.input_specs), _of_calls(signature.output_specs)
    results = [graph.names.get(one, one) for one in gives if isinstance(one, str)]
    calls = [one for call in graph.calls for one in taken_apart(call, graph.constants)]
    for one in results:
        if one in graph.known:
            raise ArgumentError(f"{title} gives {one}, a number that follows from sizes; expected tensors")
    calls, constants, results = folded(calls, graph.constants, results)
    flatten, unflatten = torch.utils._pytree.tree_flatten, torch.utils._pytree.tree_unflatten
    wanted, made_of = program.call_spec.in_spec, program.call_spec.out_spec
    plain = {torch.Tensor, np.ndarray}
    flat = wanted == flatten(((0,) * len(takes), {}))[1] and all(isinstance(one, str) for one in takes)

    def leaves(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Sequence[Any]:
        if flat and not named and len(arguments) == len(takes) and {type(one) for one in arguments} <= plain:
            return arguments
        found, spec = flatten((arguments, dict(named)))
        if spec != wanted:
            given = _spelled(unflatten([_Word(type(one).__name__) for one in found], spec))
            like = f"{title}({_spelled(unflatten([_Word(str(one)) for one in takes], wanted))})"
            raise ArgumentError(f"{title}({given}) is not nested as its example inputs; expected {like}")
        for one, want in zip(found, takes, strict=True):
            if isinstance(want, _Fixed) and (type(one), repr(one)) != (type(want.value), repr(want.value)):  # NaN, -0.0
                raise ArgumentError(
                    f"{want.name} of {title} is {shown(one)}; expected {want}, as its example input (rg.compile with "
                    "another one makes a model for it)"
                )
        return [one for one, name in zip(found, takes, strict=True) if isinstance(name, str)]

    def nested(arrays: Sequence[Any]) -> Any:
        made = iter(arrays)
        return unflatten([one.value if isinstance(one, _Fixed) else next(made) for one in gives], made_of)

    inputs = tuple(graph.values[one] for one in takes if isinstance(one, str))
    return Network(
        title=title,
        inputs=inputs,
        outputs=tuple(results),
        constants=constants,
        nodes=tuple(node(call, constants) for call in calls),
        leaves=leaves,
        nested=nested,
        text=lambda: text_of(inputs, calls, constants, results),
    )


@dataclass(frozen=True, slots=True)
class _Fixed:
    """An argument or a result that is no tensor, and the same in each call."""

    name: str
    value: Any

    def __str__(self) -> str:
        return shown(self.value)


def _of_calls(specs: Sequence[Any]) -> tuple[str | _Fixed, ...]:
    """What each call takes or gives, by torch's ``specs``: the names of tensors, and what else."""
    given = [one.arg for one in specs if one.kind.name in ("USER_INPUT", "USER_OUTPUT")]
    return tuple(_Fixed(one.name, one.value) if hasattr(one, "value") else one.name for one in given)


def _refuse_numbers(program: Any, title: str) -> None:
    import torch

    for one in program.graph.nodes:
        value = one.meta.get("val") if one.op == "placeholder" else None
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise ArgumentError(f"input {one.name} of {title} is a number that changes; expected one that is fixed")


class _Graph:
    """The calls of a program at these ``sizes`` of its symbols; ``names``: of values that have another one here
    (elements of tuples); ``known``: numbers that follow from the sizes; ``numbers``: names of others."""

    def __init__(self, program: Any, sizes: Mapping[Any, int]) -> None:
        self.sizes = sizes
        signature = program.graph_signature
        weights = {
            **signature.inputs_to_parameters, **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }  # fmt: skip
        stored = {**program.constants, **program.state_dict}
        self.constants = {name: _array(stored[target], target) for name, target in weights.items()}
        self.values = {
            one.name: _value(one.name, one.meta["val"], sizes)
            for one in program.graph.nodes
            if one.op == "placeholder" and hasattr(one.meta["val"], "dtype")
        }
        self.names: dict[str, str] = {}
        self.numbers: set[str] = set()
        self.known: dict[str, int | float | bool] = {}
        self.calls: list[Call] = []

    def add(self, one: Any) -> None:
        if getattr(one.target, "__name__", "") == "getitem":
            source, index = one.args
            self.names[one.name] = f"{source.name}.{index}"
            return
        made = one.meta.get("val")
        if (number := _number(made, self.sizes)) is not None:
            self.known[one.name] = number
            return
        if made is None or not (hasattr(made, "dtype") or isinstance(made, (tuple, list))):
            self.numbers.add(one.name)  # or an assertion about shapes, which gives nothing
            return
        for read in one.all_input_nodes:
            if read.op == "get_attr":
                raise ArgumentError(
                    f"{one.name} is torch's {one.target}, which runs {read.name}, a graph of its own; expected "
                    "operators that have none, such as torch.where in place of torch.cond"
                )
            if read.name in self.numbers:
                raise ArgumentError(
                    f"{one.name} takes {read.name}, a number that the model reads from a tensor when it runs; expected "
                    "the tensor itself, or a number that is known before"
                )
        if isinstance(made, (tuple, list)):
            outputs = tuple(
                _value(f"{one.name}.{n}", value, self.sizes) for n, value in enumerate(made) if value is not None
            )
        else:
            outputs = (_value(one.name, made, self.sizes),)
        arguments, named = self._refer(one.args), self._refer(dict(one.kwargs))
        self.calls.append(Call(one.name, one.target, arguments, named, outputs))

    def _refer(self, thing: Any) -> Any:
        import torch

        refer: Any = lambda one: self.known.get(one.name, Reference(self.names.get(one.name, one.name)))
        return torch.fx.node.map_arg(thing, refer)


def _value(name: str, made: Any, sizes: Mapping[Any, int]) -> Value:
    """Without a shape where that depends on data."""
    shape = tuple(_number(extent, sizes) for extent in made.shape)
    fixed = None if None in shape else tuple(int(extent) for extent in shape if extent is not None)
    return Value(name, fixed, str(made.dtype).removeprefix("torch."))


def _array(tensor: Any, name: str) -> np.ndarray:
    return view(tensor.detach(), name, "a weight of the model")
