"""The invariants that every rProgram meets; each is stated in `rprogram.py`.

Runs on every constructed program, so it looks at records only and never enumerates points.
"""

from __future__ import annotations

from collections.abc import Sequence

from rollergen.errors import ProgramError
from rollergen.expr.index import Bounds, Index
from rollergen.expr.places import put_of
from rollergen.expr.values import Buffer, Partial, Value, Var, axes_of, walk
from rollergen.hal.dot_products import SUMMED
from rollergen.hal.spec import Device
from rollergen.program.check.chains import check_chain
from rollergen.program.check.nest import check_nest, refuse
from rollergen.program.check.supersteps import check_bulk
from rollergen.program.check.tiles import check_tiles
from rollergen.program.rprogram import GRID, PARALLEL, RProgram, Stage


def check(program: RProgram, device: Device | None = None) -> None:
    """Raises ProgramError, naming stage, thing, value and what is accepted, for the first broken invariant.

    With `device`, its layers, instructions and limits count too.
    """
    check_each((program,), device)


def check_each(programs: Sequence[RProgram], device: Device | None = None) -> None:
    """`check` of every program; a tensor op that several of them have is looked at once."""
    sound: set[int] = set()
    for program in programs:
        _check(program, device, sound)


def _check(program: RProgram, device: Device | None, sound: set[int]) -> None:
    """``sound``: the identities of tensor ops that are known to be sound, to which the program's are added."""
    buffers = _buffers(program)
    _check_stage_names(program)
    inputs = {buffer.name for buffer in program.inputs}
    built = {buffer.name for buffer in program.inputs if buffer.constant}
    written: set[str] = set()
    for stage in program.stages:
        loads = stage.op.loads()
        for read in stage.op.reads():
            _check_known(stage, read.buffer, buffers)
            if read.buffer.name not in inputs and read.buffer.name not in written:
                raise refuse(stage, f"reads {read.buffer.name}; expected an input, or what an earlier stage writes")
        if stage.once:
            _check_once(stage, set(stage.op.buffers_read()), built)
        _check_output(stage, inputs, buffers)
        if stage.store.adds and stage.op.output.name not in written:
            raise refuse(stage, f"adds to {stage.op.output.name}; expected an earlier stage to write it")
        written.add(stage.op.output.name)
        if id(stage.op) not in sound:
            check_op(stage)
            sound.add(id(stage.op))
        axes = {axis.name: axis for axis in stage.op.axes}
        if stage.inner is not None:
            check_chain(stage, device)
            continue
        check_nest(stage, axes, device)
        first_inner = len([loop for loop in stage.loops if loop.kind == GRID or loop.kind in PARALLEL])
        check_tiles(stage, axes, loads, first_inner, device)
    _check_complete(program, written)
    _check_launches(program, device)
    if program.tile_mappings or any(stage.superstep for stage in program.stages):
        check_bulk(program, device)


def _check_complete(program: RProgram, written: set[str]) -> None:
    names = ", ".join(stage.name for stage in program.stages) or "there is none"
    for buffer in (*program.temporaries, *program.outputs):
        if buffer.name not in written and buffer.elements:
            raise ProgramError(f"{buffer.name} is never written; expected one of the stages to do so: {names}")


def _check_launches(program: RProgram, device: Device | None) -> None:
    """One for each stage; a block whose threads run beside each other is not for the calling thread alone."""
    if program.launches and len(program.launches) != len(program.stages):
        raise ProgramError(
            f"launches are {len(program.launches)}; expected {len(program.stages)}, one for each stage, or none"
        )
    for stage, launch in zip(program.stages, program.launches, strict=False):
        if launch.alone and stage.threads > 1:
            raise refuse(stage, f"is launched alone with {stage.threads} threads a block; expected 1")
        if device is None:
            continue
        limits = device.limits
        most = max(1, min(limits.blocks_per_unit, limits.threads_per_unit // stage.threads))
        if launch.resident_blocks > most:
            raise refuse(stage, f"has {launch.resident_blocks} resident blocks; expected at most {most} on a unit")


def _check_stage_names(program: RProgram) -> None:
    names = [stage.name for stage in program.stages]
    if len(set(names)) != len(names):
        raise ProgramError(f"the stages are named {', '.join(names)}; expected different names")


def _buffers(program: RProgram) -> dict[str, Buffer]:
    found: dict[str, Buffer] = {}
    for buffer in program.buffers():
        if buffer.name in found:
            raise ProgramError(f"two buffers are named {buffer.name}; expected different names")
        found[buffer.name] = buffer
    return found


def _check_known(stage: Stage, buffer: Buffer, buffers: dict[str, Buffer]) -> None:
    """The buffer is the program's, perhaps under another shape of as many elements, or as words of its numbers."""
    known = buffers.get(buffer.name)
    if known is None:
        raise refuse(stage, f"uses {buffer.name}; expected one of the program's buffers: {', '.join(buffers)}")
    words = buffer.dtype == "int32" and known.elements == SUMMED.get(known.dtype, 0) * buffer.elements
    if words and buffer is not stage.op.output:
        return
    if known.dtype != buffer.dtype or known.elements != buffer.elements:
        raise refuse(
            stage,
            f"uses {buffer.name} as {buffer.dtype} {buffer.shape}; expected {known.elements} elements of {known.dtype}",
        )


def _check_output(stage: Stage, inputs: set[str], buffers: dict[str, Buffer]) -> None:
    output = stage.op.output
    _check_known(stage, output, buffers)
    if output.name in inputs:
        raise refuse(stage, f"writes {output.name}, an input; expected an output or a temporary")


def _check_once(stage: Stage, reads: set[str], built: set[str]) -> None:
    """A stage that runs at build reads what is known then; what it writes is known too."""
    if not reads <= built:
        raise refuse(stage, f"runs once but reads {', '.join(sorted(reads - built))}; expected constant tensors only")
    built.add(stage.op.output.name)


ROLES = ("spatial", "reduce", "row", "inner")


def check_op(stage: Stage) -> None:
    _check_axes(stage)
    _check_reductions(stage)
    _check_result(stage)
    _check_target(stage)
    if put_of(stage.op) and stage.op.reductions:
        raise ProgramError(f"stage {stage.name} puts what it reduces; expected an earlier stage to store it")


def _check_axes(stage: Stage) -> None:
    names: set[str] = set()
    for axis in stage.op.axes:
        if axis.name in names:
            raise ProgramError(f"stage {stage.name}: axis {axis.name!r} occurs twice; expected distinct names")
        names.add(axis.name)
        if axis.extent < 1:
            raise ProgramError(f"stage {stage.name}: axis {axis.name} has extent {axis.extent}; expected at least 1")
        if axis.role not in ROLES:
            raise ProgramError(f"stage {stage.name}: axis {axis.name} has role {axis.role!r}; expected one of {ROLES}")


def _check_reductions(stage: Stage) -> None:
    """Over exactly the row axes, or over exactly the reduce axes; bodies fit the combiner."""
    op = stage.op
    rows = {axis.name for axis in op.of_role("row")}
    reduce = {axis.name for axis in op.of_role("reduce")}
    inner = {axis.name for axis in op.of_role("inner")}
    if inner and (op.inner is None or stage.inner is None):
        raise ProgramError(
            f"stage {stage.name} has inner axes {sorted(inner)}; expected a first reduction over them, and its nest"
        )
    if rows and reduce:
        raise ProgramError(
            f"stage {stage.name} has row axes {sorted(rows)} and reduce axes {sorted(reduce)}; expected one kind"
        )
    if reduce and not op.reductions:
        raise ProgramError(f"stage {stage.name} has reduce axes {sorted(reduce)} and no reduction; expected one")
    done: set[str] = set()
    for reduction in op.reductions:
        own = inner if reduction is op.inner else rows or reduce
        if set(reduction.axes) != own:
            raise ProgramError(
                f"stage {stage.name}: reduction {reduction.name} is over {sorted(reduction.axes)}; "
                f"expected exactly {sorted(own)}"
            )
        dtypes = tuple(body.dtype for body in reduction.bodies)
        identity = tuple(const.dtype for const in reduction.combiner.identity)
        if dtypes != identity:
            raise ProgramError(
                f"stage {stage.name}: reduction {reduction.name} has bodies of {dtypes}; "
                f"its combiner {reduction.combiner.name} takes {identity}"
            )
        _require_partials(stage, f"reduction {reduction.name}", reduction.bodies, done)
        done.add(reduction.name)


def _check_result(stage: Stage) -> None:
    op = stage.op
    _require_partials(stage, "result", (op.result,), {r.name for r in op.reductions})
    if op.result.dtype != op.output.dtype:
        raise ProgramError(
            f"stage {stage.name}: result is {op.result.dtype}; "
            f"expected {op.output.dtype}, the dtype of {op.output.name}"
        )
    _require_spatial(stage, "result", axes_of(op.result))


def _require_partials(stage: Stage, what: str, values: tuple[Value, ...], done: set[str]) -> None:
    for value in values:
        for node in walk(value):
            if isinstance(node, Partial) and node.name not in done:
                raise ProgramError(
                    f"stage {stage.name}: {what} uses the reduction {node.name!r}; expected one of {sorted(done)}"
                )
            if isinstance(node, Var):
                raise ProgramError(
                    f"stage {stage.name}: {what} uses the variable {node.name!r}; "
                    "expected the value itself (kept rows are found by equality)"
                )


def _require_spatial(stage: Stage, what: str, axes: frozenset[str]) -> None:
    allowed = {axis.name for axis in stage.op.of_role("spatial", "row")}
    if not axes <= allowed:
        raise ProgramError(
            f"stage {stage.name}: {what} depends on {sorted(axes - allowed)}; expected only {sorted(allowed)}"
        )


def _check_target(stage: Stage) -> None:
    op = stage.op
    if len(op.target) != len(op.output.shape):
        raise ProgramError(
            f"stage {stage.name}: target has {len(op.target)} indices; "
            f"expected {len(op.output.shape)} for {op.output.name} {op.output.shape}"
        )
    for position, (index, extent) in enumerate(zip(op.target, op.output.shape, strict=True)):
        _require_spatial(stage, f"target index {position}", index.axes())
        low, high = _bounds(stage, index)
        if low < 0 or high >= extent:
            raise ProgramError(
                f"stage {stage.name}: target index {position} ({index}) runs from {low} to {high}; "
                f"expected 0 to {extent - 1}, the extent of {op.output.name}"
            )


def _bounds(stage: Stage, index: Index) -> Bounds:
    """Bounds of a target index where all bounds of ``where`` hold."""
    ranges = dict(stage.op.ranges())
    for bound in stage.op.where:
        if len(bound.index.terms) == 1 and bound.index.terms[0][1] == 1 and bound.index.is_affine:
            axis = next(iter(bound.index.axes()))
            low, high = ranges[axis]
            ranges[axis] = (max(low, bound.low - bound.index.const), min(high, bound.high - 1 - bound.index.const))
    low, high = index.simplify(ranges).bounds(ranges)
    for bound in stage.op.where:
        if bound.index == index:
            low, high = max(low, bound.low), min(high, bound.high - 1)
    return low, high
