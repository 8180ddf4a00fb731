"""What a definition says of a row: values that are known from the reductions over it."""

from __future__ import annotations

from rollergen.expr.combiners import named_combiner
from rollergen.expr.definition import Definition
from rollergen.expr.values import Binary, Partial, Value


def is_below_its_row(definition: Definition, value: Value) -> bool:
    """Whether the value is an element of a row less the largest one of that row: never above 0, and 0 at least once."""
    if not (isinstance(value, Binary) and value.op == "sub" and isinstance(value.b, Partial)):
        return False
    row = next((one for one in definition.reductions if one.name == value.b.name), None)
    if row is None or value.a != row.bodies[value.b.component]:
        return False
    return row.combiner == named_combiner("max", value.a.dtype)
