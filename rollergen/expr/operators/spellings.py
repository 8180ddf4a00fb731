"""Names of arguments: torch's, NumPy's where torch takes them too, and those that have gone, with what came instead."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from rollergen.errors import ExpressionError, UnknownNameError, name_advice, shown

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


def torch_spellings(operator: F) -> F:
    """`operator` of rg.ops, whose arguments may have the names that torch takes beside its own.

    The result raises ExpressionError where an argument comes under both names, UnknownNameError for one that it does
    not have;
    ExpressionError also for too many arguments and too few.

    >>> import rollergen as rg
    >>> rg.ops.sum(rg.tensor("x", (2, 3)), axis=1, keepdims=True).shape
    (2, 1)
    """
    signature = inspect.signature(operator)
    positions = {name: position for position, name in enumerate(signature.parameters)}
    called = f"rg.ops.{operator.__name__}"

    @functools.wraps(operator)
    def spelled(*arguments: Any, **named: Any) -> Any:
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
