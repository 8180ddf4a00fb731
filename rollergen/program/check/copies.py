"""Invariants of one copy: its layers, its place among the loops, its shape, and how it is moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.runs import of_runs
from rollergen.expr.tensor_op import Axis
from rollergen.expr.values import Load
from rollergen.expr.views import in_a_row, moved_at_once, realignable
from rollergen.hal.spec import Device
from rollergen.program.check.asynchronous import check_asynchronous, check_boxes
from rollergen.program.check.nest import layer_problem, power_of_two, refuse
from rollergen.program.conversions import CONVERTING
from rollergen.program.layers import REGISTERS, is_shared
from rollergen.program.loops import OVERLAP
from rollergen.program.matrix import WAVEFRONT, matrix_instruction
from rollergen.program.rprogram import LANE, PARALLEL, REALIGNED_BYTES, Copy, Stage
from rollergen.program.windows import window_problem


def check_copy(
    stage: Stage,
    axes: Mapping[str, Axis],
    loads: Sequence[Load],
    number: int,
    first_inner: int,
    device: Device | None,
) -> None:
    """`Stage.copies`[number] means something for the stage's loops (and device); refused otherwise."""
    copy = stage.copies[number]
    if not 0 <= copy.load < len(loads):
        raise refuse(stage, f"copies[{number}].load is {copy.load}; expected 0 to {len(loads) - 1}")
    where = f"copies[{number}] of {loads[copy.load].buffer.name}"
    for field, layer in (("from_layer", copy.from_layer), ("to_layer", copy.to_layer)):
        problem = layer_problem(layer, device)
        if problem:
            raise refuse(stage, f"{where}: {field} is {problem}")
    if not first_inner <= copy.at_loop <= len(stage.loops):
        raise refuse(stage, f"{where}: at_loop is {copy.at_loop}; expected {first_inner} to {len(stage.loops)}")
    _check_figures(stage, where, copy)
    if copy.window:
        _check_window(stage, where, copy)
    _check_result_copy(stage, where, axes, loads, copy, first_inner)
    source = _check_chain(stage, where, number, device)
    shared = is_shared(copy.to_layer, device)
    shape = _check_shape(stage, where, copy, loads[copy.load], shared)
    _check_layers(stage, where, copy, shared, device)
    extent = shape[copy.order.index(copy.along)]
    if extent % copy.vector:
        raise refuse(
            stage, f"{where}: vector is {copy.vector}; expected a divisor of {extent}, the tile along {copy.along}"
        )
    if copy.along == copy.order[-1] and copy.padding % copy.vector:
        raise refuse(
            stage,
            f"{where}: padding is {copy.padding}; expected a multiple of {copy.vector}, so that vectors are aligned",
        )
    if copy.panel:
        _check_panel(stage, where, copy, shape, shared)
    elif copy.swizzle and shape[-1] % (copy.swizzle * copy.vector):
        raise refuse(
            stage,
            f"{where}: swizzle is {copy.swizzle} for vectors of {copy.vector}; expected their product to divide the "
            f"row of {shape[-1]} elements",
        )
    if copy.runs:
        _check_runs(stage, where, copy, shape, shared)
    alone = _alone(stage, where, axes, loads[copy.load], copy, shared)
    if copy.realigned:
        _check_realigned(stage, where, loads[copy.load], copy, device)
    elif source is None and copy.vector > 1 and not _needs_no_alignment(stage, axes, loads[copy.load], copy, device):
        _check_vector(stage, where, axes, alone, copy)
    if copy.asynchronous:
        check_asynchronous(stage, where, copy, loads[copy.load], first_inner, device)
    if copy.boxes and device is not None:
        check_boxes(stage, where, copy, device)


def _check_panel(stage: Stage, where: str, copy: Copy, shape: tuple[int, ...], shared: bool) -> None:
    whole = copy.padding == -shape[-1] % copy.panel and copy.panel % max(copy.swizzle, 1) == 0
    cut = copy.along == copy.order[-1] and copy.unit % copy.vector
    if not shared or copy.window or not whole or cut:
        raise refuse(
            stage,
            f"{where}: panels of {copy.panel} columns, swizzle {copy.swizzle}, padding {copy.padding}; expected, in a "
            f"block's layer, units of whole vectors, and padding that fills the last panel of {shape[-1]} elements",
        )


def _check_runs(stage: Stage, where: str, copy: Copy, shape: tuple[int, ...], shared: bool) -> None:
    if not shared or copy.window:
        raise refuse(stage, f"{where}: runs are {copy.runs} into {copy.to_layer}; expected (), as no block fills it")
    whole = len(copy.runs) == len(shape) and all(
        extent % run == 0 for extent, run in zip(shape, copy.runs, strict=True)
    )
    if not whole or copy.runs[copy.order.index(copy.along)] % copy.vector:
        raise refuse(
            stage,
            f"{where}: runs are {copy.runs}; expected () or divisors of the tile's {shape}, along {copy.along} a "
            f"multiple of the vectors of {copy.vector}",
        )


def _check_window(stage: Stage, where: str, copy: Copy) -> None:
    plain = (copy.vector, copy.swizzle, copy.depth, copy.asynchronous) == (1, 0, 1, False)
    plain = plain and not (copy.padding and copy.to_layer == REGISTERS)
    if copy.from_layer in {other.to_layer for other in stage.copies} or not plain:
        raise refuse(
            stage,
            f"{where}: a window from {copy.from_layer} into {copy.to_layer} by vectors of {copy.vector}; expected one "
            f"from memory, element by element, without swizzle or depth, and in {REGISTERS} without padding",
        )
    problem = window_problem(stage, copy)
    if problem:
        raise refuse(stage, f"{where}: window is True, but {problem}; expected False")


def _check_figures(stage: Stage, where: str, copy: Copy) -> None:
    if not power_of_two(copy.vector):
        raise refuse(stage, f"{where}: vector is {copy.vector}; expected a power of 2")
    if copy.swizzle != 0 and not (power_of_two(copy.swizzle) and copy.swizzle > 1):
        raise refuse(stage, f"{where}: swizzle is {copy.swizzle}; expected 0 or a power of 2 from 2")
    if copy.padding < 0 or copy.depth < 1:
        raise refuse(
            stage, f"{where}: padding is {copy.padding}, depth {copy.depth}; expected at least 0 and at least 1"
        )
    if copy.apart and not copy.boxes:
        raise refuse(stage, f"{where}: apart is {copy.apart}, but boxes is False; expected 0")
    if copy.every and (len(copy.every) != len(copy.order) or min(copy.every) < 1):
        raise refuse(stage, f"{where}: every is {copy.every}; expected one for each of {', '.join(copy.order)}")


def _check_result_copy(
    stage: Stage, where: str, axes: Mapping[str, Axis], loads: Sequence[Load], copy: Copy, first_inner: int
) -> None:
    """What only the result reads is not filled inside reduce loops, which are through by then."""
    if copy.load < len(stage.op.body_loads()):
        return
    for p in range(first_inner, copy.at_loop):
        if axes[stage.loops[p].axis].role == "reduce":
            raise refuse(
                stage, f"{where}: at_loop is {copy.at_loop}; expected at most {p}, as only the result reads it"
            )


def _check_chain(stage: Stage, where: str, number: int, device: Device | None) -> Copy | None:
    """The earlier copy that this one reads; None: the tensor in memory."""
    copy = stage.copies[number]
    source = None
    for earlier in stage.copies[:number]:
        if earlier.load != copy.load:
            continue
        if earlier.to_layer == copy.to_layer:
            raise refuse(stage, f"{where}: to_layer is {copy.to_layer}, as of an earlier copy; expected another layer")
        if earlier.to_layer == copy.from_layer:
            source = earlier
    if source is None and (copy.from_layer == REGISTERS or (device and copy.from_layer != device.backing.name)):
        raise refuse(
            stage, f"{where}: from_layer is {copy.from_layer}; expected the memory, or where an earlier copy put it"
        )
    if copy.from_layer == copy.to_layer:
        raise refuse(stage, f"{where}: from_layer and to_layer are {copy.to_layer}; expected different layers")
    if source is not None and source.at_loop > copy.at_loop:
        raise refuse(
            stage, f"{where}: at_loop is {copy.at_loop}; expected at least {source.at_loop}, where its source is filled"
        )
    return source


def _check_shape(stage: Stage, where: str, copy: Copy, load: Load, shared: bool) -> tuple[int, ...]:
    """The buffer's shape, whose axes must be those of the load that vary inside."""
    inside: dict[str, int] = {}
    threads = [loop for loop in stage.loops if loop.kind in PARALLEL] if shared else []
    for loop in (*threads, *stage.loops[copy.at_loop :]):
        inside[loop.axis] = inside.get(loop.axis, 1) * loop.extent
    used = load.axes()
    given = set(copy.order)
    varying = {axis for axis, extent in inside.items() if extent > 1 and axis in used}
    if len(given) != len(copy.order) or not varying <= given or not given <= used or not given <= inside.keys():
        raise refuse(
            stage, f"{where}: order is {copy.order}; expected the axes that vary inside: {', '.join(sorted(varying))}"
        )
    if copy.along not in given:
        raise refuse(stage, f"{where}: along is {copy.along!r}; expected one of {', '.join(copy.order)}")
    return copy.elements(tuple(inside[axis] for axis in copy.order))


def _alone(stage: Stage, where: str, axes: Mapping[str, Axis], load: Load, copy: Copy, shared: bool) -> Load:
    """The load at the elements of the copy's buffer, where neighbours share them (see `Copy.every`)."""
    if not copy.every:
        return load
    if stage.compute.factors not in CONVERTING or not shared or copy.window or copy.boxes:
        raise refuse(stage, f"{where}: every is {copy.every}; expected () but of factors that are converted")
    for axis, every in zip(copy.order, copy.every, strict=True):
        own = [(p, loop) for p, loop in stage.of_axis(axis)]
        inside = prod(loop.extent for p, loop in own if loop.kind in PARALLEL or p >= copy.at_loop)
        whole = all(loop.stride % inside == 0 for p, loop in own if loop.kind not in PARALLEL and p < copy.at_loop)
        ranges = {name: (0, one.extent - 1) for name, one in axes.items()}
        alone = of_runs(load, axis, every, ranges) if axes[axis].extent % every == 0 else None
        if alone is None or inside % every or not whole:
            raise refuse(
                stage, f"{where}: every is {copy.every}; expected runs of {axis} that read one element, and a tile of "
                f"whole runs ({inside})"
            )  # fmt: skip
        load = alone
    return load


def _check_layers(stage: Stage, where: str, copy: Copy, shared: bool, device: Device | None) -> None:
    """Data move towards the registers; only what a block shares is filled ahead of its use."""
    if copy.depth > 1 and not shared:
        raise refuse(stage, f"{where}: depth is {copy.depth}; expected 1 in {copy.to_layer}, a thread's own layer")
    if device is not None:
        names = [layer.name for layer in device.layers]
        if names.index(copy.from_layer) <= names.index(copy.to_layer):
            raise refuse(stage, f"{where}: from_layer is {copy.from_layer}; expected a layer beyond {copy.to_layer}")


def _needs_no_alignment(
    stage: Stage, axes: Mapping[str, Axis], load: Load, copy: Copy, device: Device | None
) -> bool:
    """Whether one thread fills an array of its own, by vectors that lie side by side wherever they begin; vectors of
    the lanes may end with the axis."""
    lanes = [loop.extent for loop in stage.loops if loop.kind == LANE and loop.axis == copy.along]
    whole = axes[copy.along].extent % copy.vector == 0 or stage.guard(copy.along) == OVERLAP or lanes == [copy.vector]
    alone = stage.threads == 1 if device is None else not device.kind.threads
    private = copy.to_layer != REGISTERS and alone
    return whole and private and in_a_row(load, copy.along)


def _check_vector(stage: Stage, where: str, axes: Mapping[str, Axis], load: Load, copy: Copy) -> None:
    if not moved_at_once(load, copy.along, axes[copy.along].extent // copy.every_of(copy.along), copy.vector):
        raise refuse(
            stage,
            f"{where}: vector is {copy.vector}; expected 1, as {copy.vector} elements along {copy.along} (extent "
            f"{axes[copy.along].extent}) are not always adjacent, aligned and of one guard at offset {load.offset()}",
        )


def _check_realigned(stage: Stage, where: str, load: Load, copy: Copy, device: Device | None) -> None:
    """Rows of 16-bit factors of a matrix instruction, on their way through the registers of threads that share them."""
    one = None if device is None else matrix_instruction(stage, device)
    multiplied = device is None or (one is not None and not one.is_asynchronous and one.layout != WAVEFRONT)
    plain = (copy.asynchronous, copy.window, copy.swizzle, copy.runs, copy.every) == (False, False, 0, (), ())
    fits = copy.vector * ITEMSIZE[load.dtype] == REALIGNED_BYTES and ITEMSIZE[load.dtype] == 2
    if not (multiplied and plain and fits and realignable(load, copy.along) and copy.along == copy.order[-1]):
        raise refuse(
            stage, f"{where}: realigned with vectors of {copy.vector} {load.dtype} along {copy.along}; expected, of a "
            f"factor of a matrix instruction, {REALIGNED_BYTES} bytes of neighbours of 16 bits, stored as they lie"
        )  # fmt: skip
