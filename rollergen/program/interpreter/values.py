"""Interpreter: values over whole arrays of points, each node in its own dtype."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

import numpy as np

from rollergen.errors import ProgramError
from rollergen.expr.dtypes import rounded
from rollergen.expr.index import Index
from rollergen.expr.places import Put
from rollergen.expr.primitives import PRIMITIVES
from rollergen.expr.takes import positions
from rollergen.expr.values import Binary, Cast, Const, IndexValue, Load, Partial, Select, Take, Unary, Value, Var
from rollergen.hal.dataclass import dataclass
from rollergen.program.interpreter.points import Array, both


def _no_load(load: Load, wanted: Array) -> Array:
    raise ProgramError(f"a load of {load.buffer.name} where none may stand: in a combiner")


def _no_take(take: Take, positions: tuple[Array, ...], wanted: Array) -> Array:
    raise ProgramError(f"a take of {take.row.buffer.name} where none may stand: in a combiner")


def _no_index(index: Index) -> Array:
    raise ProgramError(f"the index {index} where none may stand: in a combiner")


@dataclass(frozen=True)
class Scope:
    """What the leaves of a value mean: ``names`` are its variables, ``partials`` finished reductions
    by (name, component).  Only points where ``wanted`` holds may raise errors."""

    names: Mapping[str, Array] = field(default_factory=dict)
    partials: Mapping[tuple[str, int], Array] = field(default_factory=dict)
    load: Callable[[Load, Array], Array] = _no_load
    index: Callable[[Index], Array] = _no_index
    take: Callable[[Take, tuple[Array, ...], Array], Array] = _no_take
    wanted: Array = True
    known: dict[int, Array] = field(default_factory=dict)

    def narrowed(self, condition: Array) -> Scope:
        """The scope of one side of a select."""
        return replace(self, wanted=both(self.wanted, condition), known={})


def evaluate(value: Value, scope: Scope) -> Array:
    """`value` as an array of its dtype; nodes that occur twice (as objects) are evaluated once."""
    found = scope.known.get(id(value))
    if found is None:
        found = scope.known[id(value)] = as_dtype(_node(value, scope), value.dtype)
    return found


def as_dtype(x: Any, dtype: str) -> Array:
    """`x` as `dtype`: floats to integers lose their fraction, integers wrap around; each is rounded once."""
    array = np.asarray(x)
    return array != 0 if dtype == "bool" and array.dtype != bool else rounded(array, dtype)


def _node(value: Value, scope: Scope) -> Array:
    match value:
        case Const():
            return value.value
        case Load():
            return scope.load(value, scope.wanted)
        case Put():
            return evaluate(value.value, scope)
        case Take():
            return scope.take(value, tuple(evaluate(one, scope) for one in positions(value)), scope.wanted)
        case Var():
            return scope.names[value.name]
        case Partial():
            return scope.partials[value.name, value.component]
        case IndexValue():
            return scope.index(value.index)
        case Cast():
            return evaluate(value.x, scope)
        case Unary():
            return PRIMITIVES[value.op].on_arrays()(evaluate(value.x, scope))
        case Binary():
            return PRIMITIVES[value.op].on_arrays()(evaluate(value.a, scope), evaluate(value.b, scope))
        case Select():
            condition = evaluate(value.cond, scope)
            chosen = evaluate(value.a, scope.narrowed(condition))
            return np.where(condition, chosen, evaluate(value.b, scope.narrowed(np.logical_not(condition))))
    raise ProgramError(f"{type(value).__name__} in a stage; expected the nodes of rollergen.expr.values")
