"""Buffers of a tensor op, or of a stage, under other names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Buffer, Load, Take, Value, read_of, transform, with_read
from rollergen.program.rprogram import Stage


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


def renamed(buffers: Sequence[Buffer], taken: set[str]) -> dict[str, Buffer]:
    """New names for temporaries that clash with what is ``taken``, to which their names are added."""
    mapping = {}
    for buffer in buffers:
        name = buffer.name
        while name in taken:
            name += "_"
        taken.add(name)
        if name != buffer.name:
            mapping[buffer.name] = replace(buffer, name=name)
    return mapping


def with_names(stage: Stage, mapping: dict[str, Buffer]) -> Stage:
    """`stage` with the buffers that `mapping` renames under their new names."""
    if not mapping:
        return stage
    return replace(stage, op=rename_buffers(stage.op, {old: b.name for old, b in mapping.items()}))
