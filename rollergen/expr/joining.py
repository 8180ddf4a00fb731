"""Copies of what other copies compute: both in one, so that what is between them is never stored."""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.dots import number_beyond
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Cast, Load, Value, substitute_axes, transform


def joined(copies: tuple[TensorOp, ...], op: TensorOp) -> tuple[TensorOp, ...]:
    """The copies before `op`, with what is computed and only copied on computed where it is copied; what nothing reads
    then is left out."""
    found = list(copies)
    for made in copies:
        if isinstance(made.result, Load) or made.reductions:
            continue
        for at, reader in enumerate(found):
            load = reader.result
            value = _read_through(load, made) if isinstance(load, Load) and load.buffer == made.output else None
            found[at] = reader if value is None else replace(reader, result=value)
    read = {load.buffer.name for one in (*found, op) for load in one.loads()}
    return tuple(one for one in found if one.output.name in read)


def _read_through(load: Load, made: TensorOp) -> Value | None:
    """What `load` finds in the tensor that `made` writes, converted elements or words; None where these need
    two fills, and of words around which an image is padded: what guards cut is read one by one, here four times."""
    converted = isinstance(made.result, Cast)
    fill = load.fill if converted else number_beyond(made, load)
    if load.guard and any(one.guard and one.fill != fill for one in made.loads()):
        return None
    if not converted and any(bound.index.const < 0 for bound in load.guard):
        return None
    places = {axis.name: index for axis, index in zip(made.axes, load.indices, strict=True)}

    def guarded(value: Value) -> Value | None:
        if not load.guard or not isinstance(value, Load):
            return None
        return replace(value, guard=(*load.guard, *value.guard), fill=fill)

    return transform(substitute_axes(made.result, places), guarded)
