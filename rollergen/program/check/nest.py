"""Invariants of a stage's loops: digits of axes, order of the nest, guards, block order; powers of 2 and layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from rollergen.errors import ProgramError
from rollergen.expr.tensor_op import Axis
from rollergen.hal.spec import Device
from rollergen.program.loops import (
    OVERLAP,
    panel_part,
    prefetched_lines,
    prefetched_takes,
    prefetches_lines,
    tile_of,
)
from rollergen.program.rprogram import GRID, GROUP, LANE, PARALLEL, SERIAL, THREAD, UNROLL, Loop, Stage

_RANK = {GRID: 0, GROUP: 1, THREAD: 1, SERIAL: 2, UNROLL: 2, LANE: 3}
_GUARDS = ("mask", "peel", OVERLAP)


def refuse(stage: Stage, problem: str) -> ProgramError:
    return ProgramError(f"stage {stage.name}: {problem}")


def check_nest(stage: Stage, axes: Mapping[str, Axis], device: Device | None) -> None:
    """The loops are digits of their axes, in the nest's order, and overhang only where guarded."""
    own: dict[str, list[tuple[int, Loop]]] = {name: [] for name in axes}
    for position, loop in enumerate(stage.loops):
        _check_loop(stage, position, loop, axes)
        own[loop.axis].append((position, loop))
    for digits in own.values():
        if len(digits) > 1:
            digits.sort(key=_rising)
    _check_order(stage)
    over = [axis.name for axis in axes.values() if _check_digits(stage, axis, own[axis.name])]
    _check_guards(stage, axes, over)
    _check_lanes(stage)
    _check_block_order(stage)
    _check_prefetch(stage, axes)
    if device is not None:
        _check_threads(stage, device)


def _check_loop(stage: Stage, position: int, loop: Loop, axes: Mapping[str, Axis]) -> None:
    where = f"loops[{position}]"
    if loop.axis not in axes:
        raise refuse(stage, f"{where}.axis is {loop.axis!r}; expected one of {', '.join(axes)}")
    if loop.kind not in _RANK:
        raise refuse(stage, f"{where}.kind is {loop.kind!r}; expected one of {', '.join(_RANK)}")
    if loop.kind == GRID and axes[loop.axis].role != "spatial":
        role = axes[loop.axis].role
        raise refuse(stage, f"{where}, a grid loop, is of the {role} axis {loop.axis}; expected a spatial axis")
    if loop.extent < 1 or loop.stride < 1:
        raise refuse(stage, f"{where} has extent {loop.extent} and stride {loop.stride}; expected at least 1 each")


def _check_order(stage: Stage) -> None:
    before, at = GRID, 0
    for position, loop in enumerate(stage.loops):
        if _RANK[loop.kind] < _RANK[before] or loop.kind == before == LANE:
            raise refuse(
                stage,
                f"loops[{position}] is a {loop.kind} loop inside loops[{at}], a {before} loop; expected grid, then "
                f"group and thread, then serial and unroll loops, and at most one lane loop, the last",
            )
        before, at = loop.kind, position


def _rising(item: tuple[int, Loop]) -> tuple[int, int]:
    return item[1].stride, item[1].extent


def _check_prefetch(stage: Stage, axes: Mapping[str, Axis]) -> None:
    """The loop to prefetch runs over rows that one thread computes one after the other, in several reductions each, or
    panels that several register tiles share, or over rows of takes; or it is a reduction's (`prefetched_lines`)."""
    p = stage.prefetch
    if p == -1:
        return
    if 0 <= p < len(stage.loops) and prefetches_lines(stage):
        return _check_prefetched_lines(stage)
    rows = [q for q, loop in enumerate(stage.loops) if loop.kind == SERIAL and axes[loop.axis].role == "spatial"]
    if p not in rows:
        raise refuse(stage, f"prefetch is {p}; expected -1, or the position of a serial loop of a spatial axis: {rows}")
    if p >= stage.accumulator.at_loop:
        raise refuse(
            stage, f"prefetch is {p}; expected a loop outside depth {stage.accumulator.at_loop}, where a row begins"
        )
    count = len(stage.op.reductions)
    if not count and (stage.threads > 1 or stage.store.vector > 1 or not prefetched_takes(stage)):
        raise refuse(
            stage,
            f"prefetch is {p} without reductions; expected one thread, stores of no vectors but a lane loop's, and a "
            f"take that reads elsewhere along loops[{p}]",
        )
    if not count:
        return
    if stage.threads > 1 or (count < 2 and panel_part(stage) is None):
        raise refuse(
            stage,
            f"prefetch is {p} with {stage.threads} threads and {count} reductions; expected 1 and at least 2, or one "
            f"with vectors of a panel and one serial loop along another axis between loops[{p}] and the accumulators",
        )


def _check_prefetched_lines(stage: Stage) -> None:
    """One thread asks, in the only reduction, for what later iterations of a serial loop read."""
    p = stage.prefetch
    if stage.loops[p].kind != SERIAL or stage.threads > 1 or len(stage.op.reductions) != 1:
        raise refuse(
            stage,
            f"prefetch is {p}, a {stage.loops[p].kind} loop of a reduction, with {stage.threads} threads and "
            f"{len(stage.op.reductions)} reductions; expected a serial loop, one thread and one reduction",
        )
    if not prefetched_lines(stage):
        raise refuse(
            stage,
            f"prefetch is {p}, a loop of a reduction; expected one of which each step reads several lines of a panel, "
            "all behind those of the step before, or some along rows of a matrix",
        )


def _check_digits(stage: Stage, axis: Axis, own: list[tuple[int, Loop]]) -> bool:
    """Whether the axis overhangs.  Raises ProgramError where its loops (by rising stride) are no mixed-radix digits of
    it."""
    span, over = 1, False
    for position, loop in own:
        if loop.stride != span:
            raise refuse(
                stage,
                f"loops[{position}].stride is {loop.stride}; expected {span}, the product of the extents of axis "
                f"{axis.name}'s loops of smaller stride",
            )
        span *= loop.extent
        if loop.kind == GRID:
            _check_grid_digit(stage, position, axis, own=own, span=span)
        elif loop.kind != SERIAL and axis.extent % span:
            over = True
    lead = _lead(stage, axis) if stage.store.on_lines else 0
    if span < axis.extent + lead:
        beyond = f" and {lead} more, as vectors begin on lines" if lead else ""
        raise refuse(
            stage, f"the loops of axis {axis.name} cover {span} elements; expected its extent {axis.extent}{beyond}"
        )
    return over or lead > 0


def _lead(stage: Stage, axis: Axis) -> int:
    """How many elements before the axis its loops may start, see `Store.on_lines`."""
    if not stage.loops:
        return 0
    lane = stage.loops[-1]
    return lane.extent - 1 if lane.kind == LANE and lane.axis == axis.name else 0


def _check_grid_digit(stage: Stage, position: int, axis: Axis, *, own: list[tuple[int, Loop]], span: int) -> None:
    """`span`: of this digit and those below.  The leading one ends with its axis; so does the one below a leading
    serial loop (blocks that stride over the axis), each of whose blocks stops by itself; any other divides it."""
    loop = stage.loops[position]
    leading = len(own) == 1 or span == prod([x.extent for _, x in own])
    strides = any(x.kind == SERIAL and x.stride == span and x.extent * span >= axis.extent for _, x in own)
    if strides and span <= axis.extent:
        return
    if leading and (loop.extent - 1) * loop.stride >= axis.extent:
        need = -(-axis.extent // loop.stride)
        raise refuse(stage, f"loops[{position}].extent is {loop.extent}; expected {need}, where axis {axis.name} ends")
    if not leading and axis.extent % (loop.extent * loop.stride):
        raise refuse(
            stage,
            f"loops[{position}], a grid loop, spans {loop.extent * loop.stride} elements of axis {axis.name}; "
            f"expected a divisor of its extent {axis.extent}, its loop of the largest stride, or the one below a "
            f"serial loop that is",
        )


def _check_guards(stage: Stage, axes: Mapping[str, Axis], over: Sequence[str]) -> None:
    if not stage.guards and not over:
        return
    given = [axis for axis, _ in stage.guards]
    for axis, kind in stage.guards:
        if axis not in axes:
            raise refuse(stage, f"guards name axis {axis!r}; expected one of {', '.join(axes)}")
        if kind not in _GUARDS:
            raise refuse(stage, f"the guard of axis {axis} is {kind!r}; expected one of {', '.join(_GUARDS)}")
        if kind == "peel" and axes[axis].role != "spatial":
            raise refuse(stage, f"the guard of axis {axis}, a {axes[axis].role} axis, is 'peel'; expected 'mask'")
        if axis not in over:
            raise refuse(stage, f"axis {axis} has a guard; expected none, as its loops never overhang")
        if kind == OVERLAP:
            _check_overlap(stage, axes[axis])
    if len(set(given)) != len(given):
        raise refuse(stage, f"guards are {stage.guards}; expected each axis once")
    for axis in over:
        if axis not in given:
            raise refuse(
                stage, f"axis {axis} has no guard; expected one, as its loops overhang its extent {axes[axis].extent}"
            )


def _check_overlap(stage: Stage, axis: Axis) -> None:
    """The last tile may begin earlier: it is inside all that says where it begins, as long as its axis at most, and
    what it computes again is the same."""
    where = f"the guard of axis {axis.name} is {OVERLAP!r}"
    on_lines = stage.store.on_lines and stage.loops[-1].axis == axis.name
    if axis.role != "spatial" or stage.op.reductions or on_lines:
        raise refuse(stage, f"{where}; expected a spatial axis of a stage that reduces nothing, not that of vectors "
                     "which begin on lines")  # fmt: skip
    depth, side = tile_of(stage, axis.name)
    if any(loop.axis == axis.name and (p < depth) != (loop.stride >= side) for p, loop in enumerate(stage.loops)):
        raise refuse(stage, f"{where}; expected its unrolled and lane loops inside all others, of smaller strides")
    if side > axis.extent:
        raise refuse(stage, f"{where} with tiles of {side}; expected at most its extent {axis.extent}")
    for number, copy in enumerate(stage.copies):
        if copy.at_loop < depth and axis.name in stage.load(copy).axes():
            raise refuse(stage, f"{where}; expected copies[{number}] at {depth}, within one tile, not {copy.at_loop}")


def _check_lanes(stage: Stage) -> None:
    lanes = stage.loops[-1].extent if stage.loops and stage.loops[-1].kind == LANE else 1
    if stage.compute.lanes != lanes:
        raise refuse(stage, f"compute.lanes is {stage.compute.lanes}; expected {lanes}, the extent of the lane loop")


def _check_block_order(stage: Stage) -> None:
    width = stage.block_order.group_rows
    grid = [loop.kind for loop in stage.loops].count(GRID)
    if width < 0 or (width and grid < 2):
        raise refuse(stage, f"block_order.group_rows is {width} with {grid} grid loops; expected 0, or two grid loops")
    launched, most = stage.block_order.launched, stage.blocks if stage.compute.producer else 0
    if not 0 <= launched <= most:
        raise refuse(stage, f"block_order.launched is {launched}; expected 0 to {most}, the blocks with a producer")
    descending, others = stage.block_order.descending, stage.blocks // [1, *_grid(stage)][-1]
    if descending and (width or launched or not grid or descending < 0 or others % descending):
        raise refuse(
            stage,
            f"block_order.descending is {descending}; expected 0, or without other orders a divisor of {others}, the "
            "blocks of the grid's loops but the last",
        )
    cluster = stage.block_order.cluster
    if cluster and (cluster < 2 or not stage.compute.producer or not _in_clusters(stage)):
        raise refuse(
            stage, f"block_order.cluster is {cluster}; expected 0, or with a producer a number from 2 on of which "
            "group_rows, the rows of the grid and launched are multiples"
        )  # fmt: skip


def _grid(stage: Stage) -> list[int]:
    return [loop.extent for loop in stage.loops if loop.kind == GRID]


def _in_clusters(stage: Stage) -> bool:
    """Whether blocks with neighbouring numbers, as many as a cluster has, always lie below each other."""
    order, grid = stage.block_order, _grid(stage)
    return order.group_rows > 0 and not any(n % order.cluster for n in (order.group_rows, grid[-2], order.launched))


def _check_threads(stage: Stage, device: Device) -> None:
    after = 1
    for position in range(len(stage.loops) - 1, -1, -1):
        loop = stage.loops[position]
        if loop.kind == GROUP and after % device.execution_width:
            raise refuse(
                stage,
                f"loops[{position}] is a group loop around {after} threads; expected a multiple of "
                f"{device.execution_width}, the execution width of {device.name}",
            )
        if loop.kind in PARALLEL:
            after *= loop.extent
    if after > device.limits.threads_per_block:
        raise refuse(
            stage, f"a block has {after} threads; expected at most {device.limits.threads_per_block} on {device.name}"
        )


def power_of_two(number: int) -> bool:
    return number >= 1 and number & (number - 1) == 0


def layer_problem(name: str, device: Device | None) -> str:
    """Why a layer cannot be named; empty if it can."""
    if device is None or name in [layer.name for layer in device.layers]:
        return ""
    return f"{name!r}; expected a layer of {device.name}: {', '.join(layer.name for layer in device.layers)}"
