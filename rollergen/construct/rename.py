"""Buffers of a tensor op under other names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Buffer, Load, Take, Value, read_of, transform, with_read


def rename_buffers(op: TensorOp, names: Mapping[str, str]) -> TensorOp:
    """`op` with each buffer named in `names` renamed, wherever it is read or written."""

    def buffer(old: Buffer) -> Buffer:
        return replace(old, name=names.get(old.name, old.name))

    def change(value: Value) -> Value | None:
        if not isinstance(value, (Load, Take)):
            return None
        read = read_of(value)
        return with_read(value, replace(read, buffer=buffer(read.buffer)))

    reductions = tuple(
        replace(r, bodies=tuple(transform(body, change) for body in r.bodies)) for r in op.reductions
    )
    return replace(
        op,
        output=buffer(op.output),
        reductions=reductions,
        result=transform(op.result, change),
    )
