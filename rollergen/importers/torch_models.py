"""Models of torch: exported, decomposed to ATen, weights folded."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rollergen.errors import ArgumentError, shown
from rollergen.expr.language import Tensor
from rollergen.importers.aten import TABLE
from rollergen.importers.folding import norm_folded
from rollergen.importers.graph import Network, Node, NotExpressedError, Value
from rollergen.runtime.interop import to_torch, view

_TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", *_TRANSPOSED)
_BATCH_NORM = "_native_batch_norm_legit_no_training"


def is_module(model: object) -> bool:
    """Whether it is a `torch.nn.Module`; torch is not imported."""
    return is_a(model, "torch.nn.modules.module", "Module")


def is_exported(model: object) -> bool:
    """Whether it is a `torch.export.ExportedProgram`; torch is not imported."""
    return is_a(model, "torch.export.exported_program", "ExportedProgram")


def is_a(thing: object, module: str, name: str) -> bool:
    """Whether a class of that name is among its own."""
    return any((one.__module__, one.__qualname__) == (module, name) for one in type(thing).__mro__)


def exported(model: Any, example_inputs: Any) -> Any:
    """The `ExportedProgram` of a module for inputs of these shapes and dtypes.

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
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch about itself
        try:
            return torch.export.export(model, tensors)
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


@dataclass(frozen=True)
class _Reference:
    """A value of the model among the arguments of a call."""

    name: str


@dataclass(frozen=True)
class _Call:
    """An ATen operator with its arguments, values as `_Reference`s."""

    source: str
    target: Any
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    outputs: tuple[Value, ...]

    @property
    def operator(self) -> str:
        return getattr(self.target, "_opname", "") or str(self.target)

    @property
    def inputs(self) -> tuple[str, ...]:
        found: dict[str, None] = {}
        _replaced((self.arguments, dict(self.named)), lambda name: found.setdefault(name))
        return tuple(found)

    @property
    def draws(self) -> bool:
        """Whether each call has random numbers of its own."""
        import torch

        return torch.Tag.nondeterministic_seeded in getattr(self.target, "tags", ())

    def host(self, arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        """Its outputs by torch."""
        import torch

        of = lambda name: to_torch(np.ascontiguousarray(arrays[name]).reshape(arrays[name].shape))
        with torch.no_grad():
            made = self.target(*_replaced(self.arguments, of), **_replaced(dict(self.named), of))
        given = made if isinstance(made, (tuple, list)) else (made,)
        return tuple(view(one.detach().contiguous(), self.source, self.operator) for one in given)

    def text(self, names: Callable[[str], str], scalars: Mapping[str, Any]) -> str:
        """`Node.alike`; ``scalars``: constants without axes."""
        of = lambda name: scalars[name] if name in scalars else _Reference(names(name))
        arguments, named = _replaced(self.arguments, of), _replaced(dict(self.named), of)
        outputs = [(names(one.name), one.shape, one.dtype) for one in self.outputs]
        return repr((str(self.target), arguments, named, outputs))

    def express(self, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> tuple[Tensor | None, ...]:
        """Its outputs by `rg.ops`; ``scalars``: constants without axes."""
        if self.operator not in TABLE:
            raise NotExpressedError("no counterpart")
        of = lambda name: scalars[name] if name in scalars else tensors[name]
        made = TABLE[self.operator](*_replaced(self.arguments, of), **_replaced(dict(self.named), of))
        given = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        for one, value in zip(given, self.outputs, strict=False):
            if isinstance(one, Tensor) and (one.shape, one.dtype) != (value.shape, value.dtype):
                raise NotExpressedError(f"rg.ops gives {one.dtype}{one.shape}, torch {value.dtype}{value.shape}")
        return given


def _replaced(thing: Any, of: Callable[[str], Any]) -> Any:
    """`thing` with its references replaced, inside of sequences and dicts too."""
    if isinstance(thing, _Reference):
        return of(thing.name)
    if isinstance(thing, (list, tuple)):
        return type(thing)(_replaced(one, of) for one in thing)
    if isinstance(thing, dict):
        return {key: _replaced(one, of) for key, one in thing.items()}
    return thing


class _Word(str):
    """A leaf of nested arguments, shown without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _spelled(call: tuple[tuple[Any, ...], Mapping[str, Any]]) -> str:
    """The arguments of a call as they are written."""
    arguments, named = call
    return ", ".join([*map(shown, arguments), *(f"{name}={shown(value)}" for name, value in named.items())])


def imported(program: Any, title: str) -> Network:
    """The network of an `ExportedProgram`.

    Raises ArgumentError for one whose calls change a buffer or an input, or whose inputs have extents that are not
    fixed.
    """
    import torch

    _refuse_dynamic(program, title)
    known = torch.export.default_decompositions()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            program = program.run_decompositions({one: how for one, how in known.items() if one._opname not in TABLE})
        except Exception as error:  # any of the decomposer's many
            raise ArgumentError(f"torch cannot decompose {title}: {type(error).__name__}: {error}") from error
    signature = program.graph_signature
    changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if changed:
        raise ArgumentError(
            f"model changes {', '.join(changed)} when it is called; expected one without state, for inference"
        )
    graph = _Graph(program)
    for one in program.graph.nodes:
        if one.op == "call_function":
            graph.add(one)
    results = [graph.names.get(one, one) for one in signature.user_outputs if isinstance(one, str)]
    calls = [one for call in graph.calls for one in _taken_apart(call, graph)]
    calls, constants, results = _folded(calls, graph.constants, results)
    flatten, unflatten = torch.utils._pytree.tree_flatten, torch.utils._pytree.tree_unflatten
    wanted, made_of = program.call_spec.in_spec, program.call_spec.out_spec
    takes, gives = signature.user_inputs, signature.user_outputs  # properties that take a tenth of a millisecond
    plain = {torch.Tensor, np.ndarray}
    flat = wanted == flatten(((0,) * len(takes), {}))[1] and all(isinstance(one, str) for one in takes)

    def leaves(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Sequence[Any]:
        if flat and not named and len(arguments) == len(takes) and {type(one) for one in arguments} <= plain:
            return arguments
        found, spec = flatten((arguments, dict(named)))
        if spec != wanted:
            given = _spelled(unflatten([_Word(type(one).__name__) for one in found], spec))
            like = f"{title}({_spelled(unflatten([_Word(one) for one in takes], wanted))})"
            raise ArgumentError(f"{title}({given}) is not nested as its example inputs; expected {like}")
        return [one for one, name in zip(found, takes, strict=True) if isinstance(name, str)]

    def nested(arrays: Sequence[Any]) -> Any:
        made = iter(arrays)
        return unflatten([next(made) if isinstance(one, str) else one for one in gives], made_of)

    inputs = tuple(graph.values[one] for one in takes if isinstance(one, str))
    return Network(
        title=title,
        inputs=inputs,
        outputs=tuple(results),
        constants=constants,
        nodes=tuple(_node(call, constants) for call in calls),
        leaves=leaves,
        nested=nested,
        text=lambda: _text(inputs, calls, constants, results),
    )


def _refuse_dynamic(program: Any, title: str) -> None:
    import torch

    for one in program.graph.nodes:
        value = one.meta.get("val") if one.op == "placeholder" else None
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise ArgumentError(f"input {one.name} of {title} is a number that changes; expected one that is fixed")
        shape = tuple(getattr(value, "shape", ()))
        if not all(isinstance(extent, int) for extent in shape):
            raise ArgumentError(
                f"input {one.name} of {title} has shape ({', '.join(map(str, shape))}), in which not every extent is a "
                "number; expected one of torch.export.export without dynamic_shapes, or the module itself with "
                "example_inputs, whose shapes become the model's"
            )


def _text(
    inputs: Sequence[Value], calls: Sequence[_Call], constants: Mapping[str, np.ndarray], results: Sequence[str]
) -> str:
    """`Network.text`: numbers of weights enter only where they are numbers of an expression (`_node`)."""
    made = [(one.source, str(one.target), one.arguments, dict(one.named), one.outputs) for one in calls]
    weights = {name: (one.shape, one.dtype.name, None if one.ndim else one.item()) for name, one in constants.items()}
    return repr(("torch", inputs, weights, made, results))


class _Graph:
    """The calls of a program; ``names``: of values that have another one here (elements of tuples)."""

    def __init__(self, program: Any) -> None:
        signature = program.graph_signature
        weights = {
            **signature.inputs_to_parameters, **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }  # fmt: skip
        stored = {**program.constants, **program.state_dict}
        self.constants = {name: _array(stored[target], target) for name, target in weights.items()}
        self.values = {
            one.name: _value(one.name, one.meta["val"])
            for one in program.graph.nodes
            if one.op == "placeholder" and hasattr(one.meta["val"], "dtype")
        }
        self.names: dict[str, str] = {}
        self.numbers: set[str] = set()
        self.calls: list[_Call] = []

    def add(self, one: Any) -> None:
        if getattr(one.target, "__name__", "") == "getitem":
            source, index = one.args
            self.names[one.name] = f"{source.name}.{index}"
            return
        made = one.meta.get("val")
        if made is None or not (hasattr(made, "dtype") or isinstance(made, (tuple, list))):
            self.numbers.add(one.name)  # or an assertion about shapes, which gives nothing
            return
        for read in one.all_input_nodes:
            if read.name in self.numbers:
                raise ArgumentError(
                    f"{one.name} takes {read.name}, a number that the model reads from a tensor when it runs; expected "
                    "the tensor itself, or a number that is known before"
                )
        if isinstance(made, (tuple, list)):
            outputs = tuple(_value(f"{one.name}.{n}", value) for n, value in enumerate(made) if value is not None)
        else:
            outputs = (_value(one.name, made),)
        arguments, named = self._refer(one.args), self._refer(dict(one.kwargs))
        self.calls.append(_Call(one.name, one.target, arguments, named, outputs))

    def _refer(self, thing: Any) -> Any:
        import torch

        refer: Any = lambda one: _Reference(self.names.get(one.name, one.name))
        return torch.fx.node.map_arg(thing, refer)


def _value(name: str, made: Any) -> Value:
    """Without a shape where that depends on data."""
    fixed = all(isinstance(extent, int) for extent in made.shape)
    return Value(name, tuple(made.shape) if fixed else None, str(made.dtype).removeprefix("torch."))


def _array(tensor: Any, name: str) -> np.ndarray:
    return view(tensor.detach(), name, "a weight of the model")


def _node(call: _Call, constants: Mapping[str, np.ndarray]) -> Node:
    scalars = {name: constants[name].item() for name in call.inputs if name in constants and not constants[name].ndim}
    express, alike = (lambda tensors: call.express(tensors, scalars)), (lambda names: call.text(names, scalars))
    return Node(call.source, call.operator, call.inputs, call.outputs, express, call.host, alike)


MOST_VIEWS = 8
"""Parts that an unbind gives as views; what reads one has a kernel of its own."""


def _taken_apart(call: _Call, graph: _Graph) -> list[_Call]:
    """An unbind of many parts, such as the steps of a recurrence, as takes at places that constants hold: what reads
    the parts then differs in a constant alone, and shares its kernels."""
    import torch

    if call.operator != "unbind" or len(call.outputs) <= MOST_VIEWS or None in [one.shape for one in call.outputs]:
        return [call]
    x, dim = (*call.arguments, call.named.get("dim", 0))[:2]
    made = []
    for t, value in enumerate(call.outputs):
        assert value.shape is not None
        at = dim % (len(value.shape) + 1)
        place, shape = f"{value.name} place", (*value.shape[:at], 1, *value.shape[at:])
        rows = Value(f"{value.name} rows", shape, value.dtype)
        graph.constants[place] = np.array([t], np.int64)
        taken, reshaped = torch.ops.aten.index_select.default, torch.ops.aten.squeeze.dim
        made.append(_Call(rows.name, taken, (x, at, _Reference(place)), {}, (rows,)))
        made.append(_Call(value.name, reshaped, (_Reference(rows.name), at), {}, (value,)))
    return made


def _folded(
    calls: Iterable[_Call], constants: Mapping[str, np.ndarray], results: Sequence[str]
) -> tuple[list[_Call], dict[str, np.ndarray], list[str]]:
    """(calls, constants, results): what depends on weights alone computed by torch, batch norms written into the
    weights of the convolutions that they alone read."""
    known = dict(constants)
    kept: dict[str, _Call] = {}
    for call in calls:
        if all(name in known for name in call.inputs) and not call.draws:
            known |= {value.name: array for value, array in zip(call.outputs, call.host(known), strict=True)}
        else:
            kept[call.source] = call
    readers = Counter([*results, *(name for call in kept.values() for name in call.inputs)])
    gone: dict[str, str] = {}
    for call in [one for one in kept.values() if one.operator == _BATCH_NORM]:
        before = kept.get(call.arguments[0].name)
        if before is not None and before.operator in _CONVOLUTIONS and readers[before.source] == 1:
            kept[before.source] = _with_norm(before, call, known)
            gone[call.outputs[0].name] = before.source
            del kept[call.source]
    return [_renamed(call, gone) for call in kept.values()], known, [gone.get(one, one) for one in results]


def _renamed(call: _Call, names: Mapping[str, str]) -> _Call:
    of = lambda name: _Reference(names.get(name, name))
    return replace(call, arguments=_replaced(call.arguments, of), named=_replaced(dict(call.named), of))


def _with_norm(convolution: _Call, norm: _Call, known: dict[str, np.ndarray]) -> _Call:
    """The convolution with the weights and the bias that make the norm after it needless."""
    array: Any = lambda one: None if one is None else known[one.name]
    x, w, b, *rest = (*convolution.arguments, None)[: max(3, len(convolution.arguments))]
    gamma, beta, mean, var, _, eps = norm.arguments[1:]
    names = f"{convolution.source}_weight", f"{convolution.source}_bias"
    groups = _groups(convolution) if convolution.operator in _TRANSPOSED else 0
    made = norm_folded(*map(array, (w, b, gamma, beta, mean, var)), eps=eps, transposed_groups=groups)
    known |= dict(zip(names, made, strict=True))
    return replace(convolution, arguments=(x, *map(_Reference, names), *rest))


def _groups(transposed: _Call) -> int:
    """After its stride, padding and output padding."""
    given: int = (*transposed.arguments[6:7], transposed.named.get("groups", 1))[0]
    return given
