"""Calls of ATen operators: what they are as expressions, by torch and as text, and what is folded into weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rollergen.expr.language import Tensor
from rollergen.hal.dataclass import dataclass
from rollergen.importers.aten import TABLE
from rollergen.importers.folding import norm_folded
from rollergen.importers.graph import Node, NotExpressedError, Value
from rollergen.runtime.interop import to_torch, view

_TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", *_TRANSPOSED)
_BATCH_NORM = "_native_batch_norm_legit_no_training"


@dataclass(frozen=True)
class Reference:
    """A value of the model among the arguments of a call."""

    name: str


@dataclass(frozen=True)
class Call:
    """An ATen operator with its arguments, values as `Reference`s."""

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
        replaced((self.arguments, dict(self.named)), lambda name: found.setdefault(name))
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
            made = self.target(*replaced(self.arguments, of), **replaced(dict(self.named), of))
        given = made if isinstance(made, (tuple, list)) else (made,)
        plain = (one.detach().resolve_conj().resolve_neg().contiguous() for one in given)
        return tuple(view(one, self.source, self.operator) for one in plain)

    def text(self, names: Callable[[str], str], scalars: Mapping[str, Any]) -> str:
        """`Node.alike`; ``scalars``: constants without axes."""
        of = lambda name: scalars[name] if name in scalars else Reference(names(name))
        arguments, named = replaced(self.arguments, of), replaced(dict(self.named), of)
        outputs = [(names(one.name), one.shape, one.dtype) for one in self.outputs]
        return repr((str(self.target), arguments, named, outputs))

    def express(self, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> tuple[Tensor | None, ...]:
        """Its outputs by `rg.ops`; ``scalars``: constants without axes."""
        if self.operator not in TABLE:
            raise NotExpressedError("no counterpart")
        of = lambda name: scalars[name] if name in scalars else tensors[name]
        made = TABLE[self.operator](*replaced(self.arguments, of), **replaced(dict(self.named), of))
        given = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        for one, value in zip(given, self.outputs, strict=False):
            if isinstance(one, Tensor) and (one.shape, one.dtype) != (value.shape, value.dtype):
                raise NotExpressedError(f"rg.ops gives {one.dtype}{one.shape}, torch {value.dtype}{value.shape}")
        return given


def replaced(thing: Any, of: Callable[[str], Any]) -> Any:
    """`thing` with its references replaced, inside of sequences and dicts too."""
    if isinstance(thing, Reference):
        return of(thing.name)
    if isinstance(thing, (list, tuple)):
        return type(thing)(replaced(one, of) for one in thing)
    if isinstance(thing, dict):
        return {key: replaced(one, of) for key, one in thing.items()}
    return thing


def text_of(
    inputs: Sequence[Value], calls: Sequence[Call], constants: Mapping[str, np.ndarray], results: Sequence[str]
) -> str:
    """`Network.text`: numbers of weights enter only where they are numbers of an expression (`_node`)."""
    made = [(one.source, str(one.target), one.arguments, dict(one.named), one.outputs) for one in calls]
    weights = {name: (one.shape, one.dtype.name, None if one.ndim else one.item()) for name, one in constants.items()}
    return repr(("torch", inputs, weights, made, results))


def node(call: Call, constants: Mapping[str, np.ndarray]) -> Node:
    scalars = {name: constants[name].item() for name in call.inputs if name in constants and not constants[name].ndim}
    express, alike = (lambda tensors: call.express(tensors, scalars)), (lambda names: call.text(names, scalars))
    return Node(call.source, call.operator, call.inputs, call.outputs, express, call.host, alike)


MOST_VIEWS = 8
"""Parts that an unbind gives as views; what reads one has a kernel of its own."""


def taken_apart(call: Call, constants: dict[str, np.ndarray]) -> list[Call]:
    """An unbind of many parts, such as the steps of a recurrence, as takes at places that constants hold: what reads
    the parts then differs in a constant alone, and shares its kernels.  The places are added to `constants`."""
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
        constants[place] = np.array([t], np.int64)
        taken, reshaped = torch.ops.aten.index_select.default, torch.ops.aten.squeeze.dim
        made.append(Call(rows.name, taken, (x, at, Reference(place)), {}, (rows,)))
        made.append(Call(value.name, reshaped, (Reference(rows.name), at), {}, (value,)))
    return made


def folded(
    calls: Iterable[Call], constants: Mapping[str, np.ndarray], results: Sequence[str]
) -> tuple[list[Call], dict[str, np.ndarray], list[str]]:
    """(calls, constants, results): what depends on weights alone computed by torch, batch norms written into the
    weights of the convolutions that they alone read."""
    known = dict(constants)
    kept: dict[str, Call] = {}
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


def _renamed(call: Call, names: Mapping[str, str]) -> Call:
    of = lambda name: Reference(names.get(name, name))
    return replace(call, arguments=replaced(call.arguments, of), named=replaced(dict(call.named), of))


def _with_norm(convolution: Call, norm: Call, known: dict[str, np.ndarray]) -> Call:
    """The convolution with the weights and the bias that make the norm after it needless."""
    array: Any = lambda one: None if one is None else known[one.name]
    x, w, b, *rest = (*convolution.arguments, None)[: max(3, len(convolution.arguments))]
    gamma, beta, mean, var, _, eps = norm.arguments[1:]
    names = f"{convolution.source}_weight", f"{convolution.source}_bias"
    groups = _groups(convolution) if convolution.operator in _TRANSPOSED else 0
    made = norm_folded(*map(array, (w, b, gamma, beta, mean, var)), eps=eps, transposed_groups=groups)
    known |= dict(zip(names, made, strict=True))
    return replace(convolution, arguments=(x, *map(Reference, names), *rest))


def _groups(transposed: Call) -> int:
    """After its stride, padding and output padding."""
    given: int = (*transposed.arguments[6:7], transposed.named.get("groups", 1))[0]
    return given
