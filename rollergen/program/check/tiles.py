"""Invariants of what a stage holds and moves: copies, accumulators, residents, stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from rollergen.expr.definition import Axis
from rollergen.expr.index import Index, linear
from rollergen.expr.rows import is_gathered
from rollergen.expr.values import Load, Partial, walk
from rollergen.hal.spec import Device
from rollergen.program.check.asynchronous import check_asynchronous
from rollergen.program.check.definition import axes_of
from rollergen.program.check.matrix import check_matrix
from rollergen.program.check.nest import refuse
from rollergen.program.layers import REGISTERS, block_capacity, is_shared, managed_bytes
from rollergen.program.rprogram import GROUP, LANE, PARALLEL, SERIAL, THREAD, UNROLL, Copy, Resident, Stage
from rollergen.program.windows import window_problem

_COMBINE = ("none", "shuffle", "groups", "tree")


def check_tiles(
    stage: Stage, axes: Mapping[str, Axis], loads: Sequence[Load], first_inner: int, device: Device | None
) -> None:
    """Copies, accumulator, residents and store mean something for the stage's loops (and device)."""
    for number in range(len(stage.copies)):
        _check_copy(stage, axes, loads, number, first_inner, device)
    _check_accumulator(stage, axes, first_inner, device)
    _check_residents(stage, device)
    _check_store(stage, axes)
    _check_lines(stage, axes)
    if device is not None:
        _check_instruction(stage, device)
        _check_capacity(stage, device)


def _power_of_two(number: int) -> bool:
    return number >= 1 and number & (number - 1) == 0


def _layer_problem(name: str, device: Device | None) -> str:
    """Why a layer cannot be named; empty if it can."""
    if device is None or any(layer.name == name for layer in device.layers):
        return ""
    return f"{name!r}; expected a layer of {device.name}: {', '.join(layer.name for layer in device.layers)}"


def _check_copy(
    stage: Stage,
    axes: Mapping[str, Axis],
    loads: Sequence[Load],
    number: int,
    first_inner: int,
    device: Device | None,
) -> None:
    copy = stage.copies[number]
    if not 0 <= copy.load < len(loads):
        raise refuse(stage, f"copies[{number}].load is {copy.load}; expected 0 to {len(loads) - 1}")
    where = f"copies[{number}] of {loads[copy.load].buffer.name}"
    for field, layer in (("from_layer", copy.from_layer), ("to_layer", copy.to_layer)):
        problem = _layer_problem(layer, device)
        if problem:
            raise refuse(stage, f"{where}: {field} is {problem}")
    if not first_inner <= copy.at_loop <= len(stage.loops):
        raise refuse(stage, f"{where}: at_loop is {copy.at_loop}; expected {first_inner} to {len(stage.loops)}")
    _check_figures(stage, where, copy)
    if copy.window:
        _check_window(stage, where, copy)
    _check_result_copy(stage, where, axes, loads, copy, first_inner)
    source = _check_chain(stage, where, number, device)
    shape = _check_shape(stage, where, copy, loads[copy.load], is_shared(copy.to_layer, device))
    _check_layers(stage, where, copy, device)
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
    if copy.swizzle and shape[-1] % (copy.swizzle * copy.vector):
        raise refuse(
            stage,
            f"{where}: swizzle is {copy.swizzle} for vectors of {copy.vector}; expected their product to divide the "
            f"row of {shape[-1]} elements",
        )
    if copy.runs:
        _check_runs(stage, where, copy, shape, is_shared(copy.to_layer, device))
    if source is None and copy.vector > 1:
        _check_vector(stage, where, axes, loads[copy.load], copy)
    if copy.asynchronous:
        check_asynchronous(stage, where, copy, loads[copy.load], first_inner, device)


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
    plain = (copy.vector, copy.padding, copy.swizzle, copy.depth) == (1, 0, 0, 1)
    if copy.to_layer != REGISTERS or copy.from_layer in {other.to_layer for other in stage.copies} or not plain:
        raise refuse(
            stage,
            f"{where}: a window from {copy.from_layer} into {copy.to_layer} by vectors of {copy.vector}; expected one "
            f"from memory into {REGISTERS}, element by element, without padding, swizzle or depth",
        )
    problem = window_problem(stage, copy)
    if problem:
        raise refuse(stage, f"{where}: window is True, but {problem}; expected False")


def _check_figures(stage: Stage, where: str, copy: Copy) -> None:
    if not _power_of_two(copy.vector):
        raise refuse(stage, f"{where}: vector is {copy.vector}; expected a power of 2")
    if copy.swizzle != 0 and not (_power_of_two(copy.swizzle) and copy.swizzle > 1):
        raise refuse(stage, f"{where}: swizzle is {copy.swizzle}; expected 0 or a power of 2 from 2")
    if copy.padding < 0 or copy.depth < 1:
        raise refuse(
            stage, f"{where}: padding is {copy.padding}, depth {copy.depth}; expected at least 0 and at least 1"
        )


def _check_result_copy(
    stage: Stage, where: str, axes: Mapping[str, Axis], loads: Sequence[Load], copy: Copy, first_inner: int
) -> None:
    """What only the result reads is not filled inside reduce loops, which are through by then."""
    if copy.load < len(stage.definition.body_loads()):
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
    for p, loop in enumerate(stage.loops):
        if (loop.kind in PARALLEL and shared) or (p >= copy.at_loop and loop.kind not in PARALLEL):
            inside[loop.axis] = inside.get(loop.axis, 1) * loop.extent
    used = load.axes()
    given = set(copy.order)
    varying = {axis for axis, extent in inside.items() if extent > 1 and axis in used}
    if len(given) != len(copy.order) or not varying <= given or any(a not in inside or a not in used for a in given):
        raise refuse(
            stage, f"{where}: order is {copy.order}; expected the axes that vary inside: {', '.join(sorted(varying))}"
        )
    if copy.along not in given:
        raise refuse(stage, f"{where}: along is {copy.along!r}; expected one of {', '.join(copy.order)}")
    return tuple(inside[axis] for axis in copy.order)


def _check_layers(stage: Stage, where: str, copy: Copy, device: Device | None) -> None:
    """Data move towards the registers; only what a block shares is filled ahead of its use."""
    if copy.depth > 1 and not is_shared(copy.to_layer, device):
        raise refuse(stage, f"{where}: depth is {copy.depth}; expected 1 in {copy.to_layer}, a thread's own layer")
    if device is not None:
        names = [layer.name for layer in device.layers]
        if names.index(copy.from_layer) <= names.index(copy.to_layer):
            raise refuse(stage, f"{where}: from_layer is {copy.from_layer}; expected a layer beyond {copy.to_layer}")


def _adjacent(offset: Index, axis: str, extent: int, vector: int) -> bool:
    """Whether every aligned group of `vector` along `axis` is adjacent, aligned, and wholly in range or out of it."""
    if offset.const % vector or extent % vector:
        return False
    found = False
    for atom, coefficient in offset.terms:
        if atom == axis:
            found = coefficient == 1
        elif coefficient % vector or (not isinstance(atom, str) and axis in atom.index.axes()):
            return False
    return found


def _check_vector(stage: Stage, where: str, axes: Mapping[str, Axis], load: Load, copy: Copy) -> None:
    offset = linear(load.indices, load.buffer.shape)
    guarded = any(copy.along in bound.index.axes() for bound in load.guard)
    if guarded or not _adjacent(offset, copy.along, axes[copy.along].extent, copy.vector):
        raise refuse(
            stage,
            f"{where}: vector is {copy.vector}; expected 1, as {copy.vector} elements along {copy.along} (extent "
            f"{axes[copy.along].extent}) are not always adjacent, aligned and of one guard at offset {offset}",
        )


def _check_accumulator(stage: Stage, axes: Mapping[str, Axis], first_inner: int, device: Device | None) -> None:
    accumulator = stage.accumulator
    if not first_inner <= accumulator.at_loop <= len(stage.loops):
        raise refuse(
            stage, f"accumulator.at_loop is {accumulator.at_loop}; expected {first_inner} to {len(stage.loops)}"
        )
    reduced = {a.name for a in axes.values() if a.role != "spatial"} if stage.definition.reductions else set()
    _check_dtype(stage)
    _check_carry(stage, axes, reduced, first_inner)
    _check_combine(stage, reduced, device)
    for p in accumulator.separate:
        own = 0 <= p < len(stage.loops)
        if not own or stage.loops[p].kind != UNROLL or stage.loops[p].axis not in reduced or p < accumulator.at_loop:
            raise refuse(
                stage,
                f"accumulator.separate names loop {p}; expected positions from {accumulator.at_loop} of unroll loops "
                f"of reduced axes",
            )
    if len(set(accumulator.separate)) != len(accumulator.separate):
        raise refuse(stage, f"accumulator.separate is {accumulator.separate}; expected each position once")
    _check_gathered(stage, reduced)


def _check_gathered(stage: Stage, reduced: set[str]) -> None:
    gathered = stage.accumulator.gathered
    if not gathered:
        return
    last = tuple(range(len(stage.loops) - len(gathered), len(stage.loops)))
    own = all(stage.loops[p].kind == UNROLL and stage.loops[p].axis in reduced for p in last)
    own = own and last[0] >= stage.accumulator.at_loop and not set(last) & set(stage.accumulator.separate)
    if gathered != last or not own:
        raise refuse(
            stage,
            f"accumulator.gathered is {gathered}; expected the innermost loops, unroll loops of reduced axes inside "
            f"the accumulator's depth {stage.accumulator.at_loop} that are not separate",
        )
    if not is_gathered(stage.definition):
        raise refuse(
            stage,
            f"accumulator.gathered is {gathered}; expected none, as only an online pair whose sum makes the result "
            f"NaN takes several points at once",
        )


def _check_dtype(stage: Stage) -> None:
    reductions = stage.definition.reductions
    expected = {body.dtype for r in reductions for body in r.bodies} if reductions else {stage.definition.output.dtype}
    if stage.accumulator.dtype not in expected:
        raise refuse(stage, f"accumulator.dtype is {stage.accumulator.dtype}; expected {' or '.join(sorted(expected))}")


def _check_carry(stage: Stage, axes: Mapping[str, Axis], reduced: set[str], first_inner: int) -> None:
    accumulator = stage.accumulator
    outer = range(first_inner, accumulator.at_loop)
    outside = [p for p in outer if stage.loops[p].axis in reduced and stage.loops[p].extent > 1]
    for p in outside:
        if axes[stage.loops[p].axis].role == "row":
            raise refuse(stage, f"loops[{p}] of a row axis runs outside accumulator.at_loop {accumulator.at_loop}")
        if stage.loops[p].kind not in (SERIAL, UNROLL):
            raise refuse(stage, f"loops[{p}], a {stage.loops[p].kind} loop, runs outside the accumulators")
    if accumulator.carry != bool(outside):
        raise refuse(
            stage,
            f"accumulator.carry is {accumulator.carry}; expected {bool(outside)}, as {len(outside)} loops of reduced "
            f"axes run outside depth {accumulator.at_loop}",
        )
    if accumulator.carry and accumulator.dtype != stage.definition.output.dtype:
        raise refuse(
            stage,
            f"accumulator.dtype is {accumulator.dtype} with carry; expected {stage.definition.output.dtype}, the "
            f"output's, in which partial results wait",
        )
    if accumulator.carry and sum(len(r.bodies) for r in stage.definition.reductions) != 1:
        raise refuse(stage, "accumulator.carry with several components; expected one, as one output holds it")


def _check_combine(stage: Stage, reduced: set[str], device: Device | None) -> None:
    combine = stage.accumulator.combine
    threads = prod(x.extent for x in stage.loops if x.kind in PARALLEL and x.axis in reduced)
    if combine not in _COMBINE:
        raise refuse(stage, f"accumulator.combine is {combine!r}; expected one of {', '.join(_COMBINE)}")
    if (combine == "none") != (threads == 1):
        raise refuse(
            stage,
            f"accumulator.combine is {combine!r}; expected {'none' if threads == 1 else 'shuffle, groups or tree'}, as "
            f"{threads} threads share each reduction",
        )
    if combine == "groups":
        _check_groups(stage, reduced)
    if combine in ("shuffle", "groups") and device is not None:
        _check_shuffle(stage, reduced, device)


def _check_shuffle(stage: Stage, reduced: set[str], device: Device) -> None:
    """The threads that exchange registers lie within one execution width, powers of 2 apart, all of it there."""
    combine, width = stage.accumulator.combine, device.execution_width
    exchanging = (THREAD,) if combine == "groups" else PARALLEL
    apart = 1
    for loop in reversed(stage.loops):
        if loop.kind not in PARALLEL:
            continue
        span = apart * loop.extent
        if loop.axis in reduced and loop.kind in exchanging and (not _power_of_two(loop.extent) or width % span):
            raise refuse(
                stage,
                f"accumulator.combine is {combine!r} over {loop.extent} threads, {apart} apart; expected a power of 2 "
                f"of them within {width}, the execution width of {device.name}",
            )
        if loop.axis in reduced and loop.kind not in exchanging and apart % width:
            raise refuse(
                stage,
                f"accumulator.combine is {combine!r} over groups of {apart} threads; expected a multiple of {width}, "
                f"the execution width of {device.name}",
            )
        apart = span
    if apart > width and apart % width:
        raise refuse(
            stage, f"accumulator.combine is {combine!r} in blocks of {apart} threads; expected a multiple of {width}"
        )


def _check_groups(stage: Stage, reduced: set[str]) -> None:
    """One reduced group loop, of a power of 2 and no longer than the one reduced thread loop."""
    own = {kind: [x.extent for x in stage.loops if x.kind == kind and x.axis in reduced] for kind in PARALLEL}
    groups, threads = own[GROUP], own[THREAD]
    if len(groups) != 1 or len(threads) != 1 or not _power_of_two(groups[0]) or groups[0] > threads[0]:
        raise refuse(
            stage,
            f"accumulator.combine is 'groups' over group loops of {groups} and thread loops of {threads}; expected one "
            f"of each, of powers of 2, the groups at most as many as the threads",
        )


def _check_residents(stage: Stage, device: Device | None) -> None:
    reductions = [r.name for r in stage.definition.reductions]
    names = [resident.name for resident in stage.residents]
    if len(set(names)) != len(names):
        raise refuse(stage, f"residents are named {', '.join(names)}; expected different names")
    rows = {axis.name for axis in stage.definition.of_role("row", "reduce")}
    for resident in stage.residents:
        where = f"resident {resident.name}"
        if not rows & axes_of(resident.value):
            raise refuse(stage, f"{where}: its value varies along none of the axes reduced over, {sorted(rows)}")
        if not 0 <= resident.phase < len(reductions):
            raise refuse(stage, f"{where}: phase is {resident.phase}; expected 0 to {len(reductions) - 1}")
        problem = _layer_problem(resident.layer, device)
        if problem:
            raise refuse(stage, f"{where}: layer is {problem}")
        if device is not None and resident.layer == device.backing.name:
            _check_kept_in_output(stage, where, resident)
        for node in walk(resident.value):
            if isinstance(node, Partial) and node.name not in reductions[: resident.phase]:
                raise refuse(
                    stage,
                    f"{where}: phase is {resident.phase}, but its value needs reduction {node.name}; expected a later "
                    f"phase",
                )


def _check_kept_in_output(stage: Stage, where: str, resident: Resident) -> None:
    """The output has a place of the value's dtype for every point of the row, and one thread writes both."""
    output, places = stage.definition.output, {a for index in stage.definition.target for a in index.axes()}
    rows = {axis.name for axis in stage.definition.of_role("row")}
    alone = sum(r.layer == resident.layer for r in stage.residents) == 1
    if resident.value.dtype != output.dtype or not rows <= places or stage.threads > 1 or not alone:
        raise refuse(
            stage,
            f"{where}: layer is {resident.layer}, the output's; expected one value of its dtype {output.dtype} for "
            f"each point of the row, kept by one thread",
        )


def _check_store(stage: Stage, axes: Mapping[str, Axis]) -> None:
    vector = stage.store.vector
    if not _power_of_two(vector):
        raise refuse(stage, f"store.vector is {vector}; expected a power of 2")
    if vector == 1:
        return
    offset = linear(stage.definition.target, stage.definition.output.shape)
    for loop in stage.loops:
        if loop.kind == UNROLL and loop.stride == 1 and loop.extent % vector == 0:
            tested = any(loop.axis in bound.index.axes() for bound in stage.definition.where)
            if not tested and _adjacent(offset, loop.axis, axes[loop.axis].extent, vector):
                return
    raise refuse(
        stage,
        f"store.vector is {vector}; expected 1, as no unroll loop's neighbours are adjacent and aligned in "
        f"{stage.definition.output.name} at offset {offset}",
    )


def _check_lines(stage: Stage, axes: Mapping[str, Axis]) -> None:
    """Vectors that begin on lines do so in every row of the output at once, and nothing is reduced along them."""
    if not stage.store.on_lines:
        return
    lane = stage.loops[-1] if stage.loops else None
    offset = linear(stage.definition.target, stage.definition.output.shape)
    apart = {coefficient for atom, coefficient in offset.terms if lane is None or atom != lane.axis}
    if (
        lane is None
        or lane.kind != LANE
        or axes[lane.axis].role != "spatial"
        or offset.coefficient(lane.axis) != 1
        or any(distance % lane.extent for distance in apart)
    ):
        raise refuse(
            stage,
            f"store.on_lines with the output at offset {offset}; expected a lane loop along a spatial axis of "
            "coefficient 1, and multiples of its extent as all others",
        )


def _check_instruction(stage: Stage, device: Device) -> None:
    if all(instruction.name != stage.compute.instruction for instruction in device.instructions):
        names = ", ".join(instruction.name for instruction in device.instructions)
        raise refuse(
            stage, f"compute.instruction is {stage.compute.instruction!r}; expected one of {device.name}'s: {names}"
        )
    check_matrix(stage, device)


def _check_capacity(stage: Stage, device: Device) -> None:
    for layer, used in managed_bytes(stage, device).items():
        if used > block_capacity(layer, device):
            raise refuse(
                stage,
                f"its buffers take {used} bytes of {layer}; expected at most {block_capacity(layer, device)} for a "
                f"block on {device.name}",
            )
