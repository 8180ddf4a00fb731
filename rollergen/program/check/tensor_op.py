"""Invariants of a stage's tensor op, whatever its loops."""

from __future__ import annotations

from rollergen.errors import ProgramError
from rollergen.expr.index import Bounds, Index
from rollergen.expr.values import Partial, Value, Var, axes_of, walk
from rollergen.program.rprogram import Stage

ROLES = ("spatial", "reduce", "row")


def check_op(stage: Stage) -> None:
    _check_axes(stage)
    _check_reductions(stage)
    _check_result(stage)
    _check_target(stage)


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
    if rows and reduce:
        raise ProgramError(
            f"stage {stage.name} has row axes {sorted(rows)} and reduce axes {sorted(reduce)}; expected one kind"
        )
    if reduce and not op.reductions:
        raise ProgramError(f"stage {stage.name} has reduce axes {sorted(reduce)} and no reduction; expected one")
    done: set[str] = set()
    for reduction in op.reductions:
        if set(reduction.axes) != (rows or reduce):
            raise ProgramError(
                f"stage {stage.name}: reduction {reduction.name} is over {sorted(reduction.axes)}; "
                f"expected exactly {sorted(rows or reduce)}"
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
