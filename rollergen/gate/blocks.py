"""Programs that put blocks into arguments, checked as programs whose results are the blocks.

The argument is filled with bytes that must stay as they are, the candidate runs on it, and what lies at the block's
places is compared like any other output.  The places are found from the ids by the definition, on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from rollergen.errors import CheckFailedError
from rollergen.expr.index import Index, linear
from rollergen.expr.places import Put, Updated, put_of, updated
from rollergen.expr.reference import Evaluation
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Buffer, loads
from rollergen.gate.arrays import poison, unequal_bits
from rollergen.gate.memory import HOST, Array, Memory
from rollergen.program.rprogram import RProgram

_REST = 1
"""Variant of the poison around a block."""


def blocks_of(program: RProgram) -> RProgram:
    """The program with each updated argument replaced by the block that is put into it, as an output of one axis."""
    if not updated(program.outputs):
        return program
    stages = tuple(replace(stage, op=_storing_a_block(stage.op)) for stage in program.stages)
    elements = {stage.op.output.name: stage.op.output.elements for stage in stages}
    block = lambda one: Buffer(one.name, (elements[one.name],), one.dtype, "output")
    outputs = tuple(block(one) if isinstance(one, Updated) else one for one in program.outputs)
    return replace(program, stages=stages, outputs=outputs)


def puts_of(program: RProgram) -> tuple[Put, ...]:
    """What its stages put."""
    return tuple(put for stage in program.stages if (put := put_of(stage.op)))


def running_blocks(
    program: RProgram, run: Callable[[Mapping[str, Array]], object], memory: Memory
) -> Callable[[Mapping[str, Array]], object]:
    """``run`` of the program as that of `blocks_of` it: raises CheckFailedError where anything but a block changed."""
    putting = {stage.op.output.name: stage.op for stage in program.stages if put_of(stage.op)}
    if not putting:
        return run
    buffers = {one.name: one for one in updated(program.outputs)}
    zones = memory.guarded(buffers.values(), memory.leads[0])

    def ran(arrays: Mapping[str, Array]) -> None:
        places = {name: places_of(op, arrays, memory) for name, op in putting.items()}
        for name, at in places.items():
            whole = zones[name].array
            memory.poison(whole, _REST)
            memory.scatter(whole, at, memory.gather(arrays[name], _everywhere(arrays[name].shape)))
        run({**arrays, **{name: zones[name].array for name in putting}})
        for name, damage in memory.damages(zones):
            raise CheckFailedError(f"{name}: {damage}")
        for name, at in places.items():
            found = memory.gather(zones[name].array, _everywhere(buffers[name].shape))
            _require_rest(found, at, buffers[name])
            memory.write(arrays[name], found[at])

    return ran


def _storing_a_block(op: TensorOp) -> TensorOp:
    """The op that stores what it puts side by side, in the order of the argument."""
    put = put_of(op)
    if put is None:
        return op
    offset = linear(op.target, op.output.shape).simplify(op.ranges())
    axes = sorted(op.of_role("spatial"), key=lambda axis: (-offset.coefficient(axis.name), axis.extent))
    output = Buffer(op.output.name, tuple(axis.extent for axis in axes), op.output.dtype, "output")
    target = tuple(Index.axis(axis.name) for axis in axes)
    return replace(op, output=output, target=target, result=put.value)


def places_of(op: TensorOp, arrays: Mapping[str, Array], memory: Memory = HOST) -> np.ndarray:
    """Where each element of the block lies in the argument, in the order of `_storing_a_block`."""
    put, block = put_of(op), _storing_a_block(op)
    assert put is not None
    known = {}
    for load in loads(put.shift):
        array = arrays[load.buffer.name]
        known[load.buffer.name] = memory.gather(array, _everywhere(array.shape)).reshape(load.buffer.shape)
    mesh = np.ogrid[tuple(slice(0, extent) for extent in block.output.shape)]
    axes = dict(zip((str(index) for index in block.target), mesh, strict=True))
    home = linear(op.target, op.output.shape).evaluate(axes)
    shift = Evaluation(known).value(put.shift, axes, len(mesh))
    return np.asarray(np.broadcast_to(home + put.multiple * shift, block.output.shape).reshape(-1))


def _require_rest(found: np.ndarray, at: np.ndarray, buffer: Buffer) -> None:
    want = np.empty(found.shape, found.dtype)
    poison(want, want.dtype.name, _REST)
    want[at] = found[at]
    changed = np.flatnonzero(unequal_bits(found, want))
    if changed.size:
        place = ", ".join(str(int(one)) for one in np.unravel_index(changed[0], buffer.shape))
        raise CheckFailedError(f"{changed.size} elements of {buffer.name} outside the block were written, such as "
                               f"{buffer.name}[{place}]")  # fmt: skip


def _everywhere(shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return tuple(np.ogrid[tuple(slice(0, extent) for extent in shape)])
