"""Arguments of operators: their names, tensors, axes, broadcasting, and settings given once or for each dimension.

Names are torch's, NumPy's where torch takes them too; of those that have gone an error says what came instead.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import rollergen.expr.language as rg
from rollergen.errors import (
    DtypeError,
    ExpressionError,
    ShapeError,
    UnknownNameError,
    array_advice,
    name_advice,
    shown,
)
from rollergen.expr.dtypes import is_float
from rollergen.expr.language import Tensor
from rollergen.expr.scalars import is_scalar, python_scalar
from rollergen.expr.slots import IndexExpr
from rollergen.hal.dtypes import DTYPES

Axes = int | Sequence[int] | None
Setting = int | Sequence[int]
Number = float | int

NUMPY = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other", "b": "other"}
"""torch takes these for its own names (``numpy_compatibility_arg_names`` of its argument parser); `b` follows `a`."""

_GONE = {
    ("clip", "low"): "min", ("clip", "high"): "max",
    ("transpose", "axes"): "rg.ops.permute(input, dims)",
    ("pad", "widths"): "pad, (before, after) of the last axis first",
    ("slice", "index"): "rg.ops.getitem(input, index)",
    ("expand", "shape"): "extents by position",
    ("scaled_dot_product_attention", "causal"): "is_causal", ("attention", "causal"): "is_causal",
}  # fmt: skip
"""Names of arguments of version 0.1 by operator, and what 0.2 has instead."""

_SEVERAL = ("broadcast_to", "expand", "flip", "permute", "repeat", "reshape", "tile")
"""Operators whose last argument is a tuple, or its elements one by one, as torch's methods take them."""

_INSTEAD = {"transpose": "rg.ops.permute(input, dims) takes all axes"}
"""What else to say where the arguments of version 0.1 are too few or too many."""

F = TypeVar("F", bound=Callable[..., Any])

_DIRECTIONS = {
    1: "one in a tuple",
    2: "two (vertical, horizontal)",
    3: "three (depth, vertical, horizontal)",
}


def require_tensor(x: Any, operation: str, what: str = "") -> None:
    """ExpressionError unless `x`, argument `what` where that is not clear, is a whole tensor."""
    if isinstance(x, rg.Expr):
        instead = f"; rg.{operation} takes elements" if operation in rg.__all__ else ""
        raise ExpressionError(f"rg.ops.{operation} takes whole tensors; got one element, {shown(x)}{instead}")
    if not isinstance(x, Tensor):
        given = f"rg.ops.{operation}: {what} is" if what else f"rg.ops.{operation} of"
        raise ExpressionError(f"{given} {shown(x)}; expected a rollergen tensor{array_advice(x)}")


def require_float(x: Tensor, operation: str) -> None:
    """DtypeError unless `x` is a tensor of floating values."""
    require_tensor(x, operation)
    if not is_float(x.dtype):
        raise DtypeError(
            f'{operation}: {x.label} has dtype {x.dtype}; expected a floating dtype, e.g. rg.ops.cast(x, "float32")'
        )


def require_vector(x: Any, extent: int, operation: str, what: str, of: str) -> None:
    """ShapeError unless the tensor `x`, argument `what`, is a vector of `extent` elements (the extent `of`)."""
    require_tensor(x, operation, what)
    if x.shape != (extent,):
        raise ShapeError(f"{operation}: {what} {x.label} has shape {x.shape}; expected ({extent},), {of}")


def integer(value: Any) -> int | None:
    """`value` as a Python integer if it is one, or one of NumPy's; None for anything else, truth values among them."""
    if isinstance(value, (bool, IndexExpr)):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def integers(value: Any) -> tuple[int, ...] | None:
    """`value` as integers: one, or a collection of them; None for anything else."""
    parts = tuple(value) if isinstance(value, (tuple, list, set, frozenset, range)) else (value,)
    found = tuple(integer(part) for part in parts)
    return None if None in found else found  # type: ignore[return-value]


def axes_of(axis: Axes, x: Tensor, operation: str) -> tuple[int, ...]:
    """Positions from 0, in rising order; None stands for all."""
    if axis is None:
        return tuple(range(x.ndim))
    given = integers(axis)
    if given is None or not all(-x.ndim <= one < x.ndim for one in given):
        raise ShapeError(f"{operation}: axis is {shown(axis)}; {x.label} has axes {-x.ndim} to {x.ndim - 1}")
    positions = sorted(one % x.ndim for one in given)
    if len(set(positions)) != len(positions):
        raise ShapeError(f"{operation}: axis={shown(axis)} names an axis twice")
    return tuple(positions)


def axis_of(axis: int, x: Tensor, operation: str) -> int:
    """The position of one axis, from 0."""
    if integer(axis) is None:
        raise ShapeError(f"{operation}: axis is {shown(axis)}; expected one of {-x.ndim} to {x.ndim - 1}")
    return axes_of(axis, x, operation)[0]


def count_of(x: Tensor, axis: Axes, operation: str) -> int:
    """Elements of `x` that are reduced to one over `axis`."""
    x = with_axes(x)
    return math.prod(x.shape[position] for position in axes_of(axis, x, operation) or range(x.ndim))


def require_elements(x: Tensor, dim: Axes, operation: str) -> None:
    """ShapeError where nothing is reduced: of no elements none is the largest."""
    require_tensor(x, operation)
    if not count_of(x, dim, operation):
        raise ShapeError(f"{operation}: dim is {shown(dim)} of {x.label} {x.shape}; expected axes with elements")


def setting(value: Setting, operation: str, what: str, count: int, least: int) -> tuple[int, ...]:
    """`value` for each of `count` dimensions: one integer of at least `least` for all, or one each."""
    one = integer(value[0] if isinstance(value, (tuple, list)) and len(value) == 1 else value)
    parts = (one,) * count if one is not None else integers(value) if isinstance(value, (tuple, list)) else None
    if parts is None or len(parts) != count or not all(part >= least for part in parts):
        raise ShapeError(
            f"{operation}: {what} is {shown(value)}; expected an integer of at least {least}, or {_DIRECTIONS[count]}"
        )
    return parts


def number(value: Any, operation: str, what: str) -> Number:
    """`value` as a Python number; ExpressionError for anything else."""
    if not is_scalar(value) or isinstance(python_scalar(value), bool):
        raise ExpressionError(f"{operation}: {what} is {shown(value)}; expected a number")
    return python_scalar(value)


def flag(value: Any, operation: str, what: str) -> bool:
    """`value`, which must be True or False."""
    if not isinstance(value, bool):
        raise ExpressionError(f"{operation}: {what} is {shown(value)}; expected True or False")
    return value


def broadcast_shape(operation: str, *tensors: Tensor) -> tuple[int, ...]:
    """The shape that `tensors` have together by NumPy's rule; ShapeError where there is none."""
    return broadcast_extents(operation, *((tensor, tensor.shape) for tensor in tensors))


def broadcast_extents(operation: str, *parts: tuple[Tensor, tuple[int, ...]]) -> tuple[int, ...]:
    """As `broadcast_shape`, of some extents of each tensor."""
    rank = builtins.max(len(own) for _, own in parts)
    shape = []
    for extents in zip(*((1,) * (rank - len(own)) + own for _, own in parts), strict=True):
        extent = next((e for e in extents if e != 1), 1)
        if any(e not in (1, extent) for e in extents):
            shapes = " and ".join(f"{t.label} {t.shape}" for t, _ in parts)
            raise ShapeError(f"{operation}: {shapes} do not broadcast; expected extents equal or 1, last axes first")
        shape.append(extent)
    return tuple(shape)


def broadcast_index(shape: Sequence[int], indices: Sequence[Any]) -> tuple[Any, ...]:
    """Where a tensor of `shape` is read for the element at `indices` of what it was broadcast to."""
    own = indices[len(indices) - len(shape) :]
    return tuple(0 if extent == 1 else index for extent, index in zip(shape, own, strict=True))


def elementwise(
    operation: str, function: Callable[..., Any], *operands: Any, name: str | None, floating: bool = False,
    numeric: bool = False,
) -> Tensor:  # fmt: skip
    """`function` of the elements of `operands`: tensors, broadcast together, and numbers; one tensor at least.

    They come in the dtype that torch promotes them to; with `floating`, integers and conditions as float32; with
    `numeric`, conditions as int32.
    """
    for operand in operands:
        if not is_scalar(operand):
            require_tensor(operand, operation)
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]
    if not tensors:
        raise ExpressionError(
            f"rg.ops.{operation} of {', '.join(map(repr, operands))}; expected at least one rollergen tensor"
        )
    wanted = promoted_dtype(*operands)
    if floating and not is_float(wanted):
        wanted = "float32"
    if numeric and wanted == "bool":
        wanted = "int32"

    def element(*i: Any) -> Any:
        read = lambda o: rg.cast(o[broadcast_index(o.shape, i)], wanted)
        return function(*(read(o) if isinstance(o, Tensor) else as_number(o, wanted) for o in operands))

    return rg.compute(broadcast_shape(operation, *tensors), element, name)


def promoted_dtype(*operands: Any) -> str:
    """The dtype of torch's arithmetic on tensors and numbers.

    Floats come before integers, these before conditions; of two of a kind the wider one (of float16 and bfloat16
    float32).  Tensors without axes, and numbers even less, only change the kind (torch.result_type).

    >>> promoted_dtype(rg.tensor("x", (3,), "int8"), 0.5), promoted_dtype(rg.tensor("h", (3,), "float16"), 0.5)
    ('float32', 'float16')
    """
    weak = [_number_dtype(python_scalar(one)) for one in operands if not isinstance(one, Tensor)]
    scalars = [one.dtype for one in operands if isinstance(one, Tensor) and not one.ndim]
    found = ""
    for dtypes in ([one.dtype for one in operands if isinstance(one, Tensor) and one.ndim], scalars, weak):
        common = functools.reduce(_common_dtype, dtypes) if dtypes else ""
        if not found or (common and _rank(common) > _rank(found)):
            found = common
    return found


def _number_dtype(value: Number) -> str:
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"


def _rank(dtype: str) -> int:
    return ("bool", "integer", "float").index(DTYPES[dtype].kind)


def _common_dtype(a: str, b: str) -> str:
    if a == b or _rank(a) != _rank(b):
        return builtins.max(a, b, key=_rank)
    if DTYPES[a].signed != DTYPES[b].signed:
        return _common_signed(a, b)
    if DTYPES[a].bits == DTYPES[b].bits:
        return "float32"
    return builtins.max(a, b, key=lambda dtype: DTYPES[dtype].bits)


def _common_signed(a: str, b: str) -> str:
    """The signed integer that holds both, of which one is unsigned."""
    bits = builtins.max(DTYPES[one].bits * (1 if DTYPES[one].signed else 2) for one in (a, b))
    if bits > 64:
        raise DtypeError(f"{a} and {b}: no integer holds both; cast one of them first")
    return f"int{bits}"


def as_number(value: Any, dtype: str) -> Any:
    """A number as one that `dtype` takes: conditions count as 0 and 1."""
    scalar = python_scalar(value)
    return int(scalar) if isinstance(scalar, bool) and dtype != "bool" else scalar


def with_axes(x: Tensor) -> Tensor:
    """`x`, a tensor without axes as one of one element."""
    return x if x.ndim else rg.compute((1,), lambda i: x[()])


def as_dtype(x: Tensor, dtype: str) -> Tensor:
    """`x` itself where it has that dtype, else converted."""
    return x if x.dtype == dtype else rg.compute(x.shape, lambda *i: rg.cast(x[i], dtype))


def floats(x: Tensor, operation: str) -> Tensor:
    """`x` with floating values: integers and conditions as float32."""
    require_tensor(x, operation)
    return x if is_float(x.dtype) else as_dtype(x, "float32")


def refuse_inplace(operation: str, inplace: bool) -> None:
    """Expressions change no tensor: ExpressionError for torch's `inplace=True`."""
    if inplace is not False:
        raise ExpressionError(f"{operation}: inplace is {shown(inplace)}; expected False: the result is a new tensor")


@functools.lru_cache(maxsize=256)
def _parameters(operator: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, int]]:
    """The signature, and the position of each parameter: of the operators that are called, few of 150."""
    signature = inspect.signature(operator)
    return signature, {name: position for position, name in enumerate(signature.parameters)}


def torch_spellings(operator: F) -> F:
    """`operator` of rg.ops, whose arguments may have the names that torch takes beside its own.

    The result raises ExpressionError where an argument comes under both names, UnknownNameError for one that it does
    not have;
    ExpressionError also for too many arguments and too few.

    >>> import rollergen as rg
    >>> rg.ops.sum(rg.tensor("x", (2, 3)), axis=1, keepdims=True).shape
    (2, 1)
    """
    called = f"rg.ops.{operator.__name__}"

    @functools.wraps(operator)
    def spelled(*arguments: Any, **named: Any) -> Any:
        signature, positions = _parameters(operator)
        for given in [name for name in named if name not in positions]:
            ours = NUMPY.get(given, "")
            if ours not in positions:
                _refuse(called, operator.__name__, given, tuple(positions))
            if ours in named or positions[ours] < len(arguments):
                first = named[ours] if ours in named else arguments[positions[ours]]
                raise ExpressionError(
                    f"{called}: {ours}={shown(first)} and {given}={shown(named[given])} are both given; they are one "
                    "argument, expected once"
                )
            named[ours] = named.pop(given)
        if len(arguments) > 2 and operator.__name__ in _SEVERAL:
            arguments = (arguments[0], arguments[1:])
        try:
            bound = signature.bind(*arguments, **named)
        except TypeError as error:
            values = ", ".join([*map(shown, arguments), *(f"{name}={shown(one)}" for name, one in named.items())])
            advice = f"; {_INSTEAD[operator.__name__]}" if operator.__name__ in _INSTEAD else ""
            wanted = f"{operator.__name__}{_shown(signature)}{advice}"
            raise ExpressionError(f"{called}({values}): {error}; expected {wanted}") from None
        bound.apply_defaults()
        return operator(*bound.args, **bound.kwargs)

    return cast(F, spelled)


def _refuse(called: str, operator: str, given: str, known: tuple[str, ...]) -> None:
    if instead := _GONE.get((operator, given)):
        raise UnknownNameError(f"{called} has no argument {given!r} any more; expected {instead}")
    also = [theirs for theirs, ours in NUMPY.items() if ours in known and len(theirs) > 2]
    near = name_advice(given, also)
    advice = near if near.startswith("did you mean") else name_advice(given, known)
    raise UnknownNameError(f"{called} has no argument {given!r}; {advice}")


def _shown(signature: inspect.Signature) -> str:
    """The signature without annotations."""
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))
