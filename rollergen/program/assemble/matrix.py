"""Plan -> Stage for matrix instructions: ``grid | execution widths | k blocks | staged copies | k steps | tiles``.

Everything is a multiple of the instruction's shape: alignment with the execution width is alignment with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.runs import of_runs, run_along
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device, Instruction
from rollergen.program.assemble.asynchronous import past_registers
from rollergen.program.assemble.contraction import fill_axis
from rollergen.program.assemble.nest import (
    ceil_div,
    copy_vector,
    digits,
    is_divided,
    lane_stride,
    larger,
    overhanging,
    run_vector,
    useful,
)
from rollergen.program.assemble.plan import Roles, Size
from rollergen.program.assemble.realigning import gains_by_realigning, realigned
from rollergen.program.boxes import apart_problem, map_problem, store_problem
from rollergen.program.conversions import CONVERTED_EIGHT
from rollergen.program.matrix import (
    COLUMNS,
    NEIGHBOURS,
    NO_OPERANDS,
    PANEL_BYTES,
    ROW_BYTES,
    SWIZZLE,
    WAVEFRONT,
    Operands,
    factor_dtype,
    factors_of,
    fragment_loops,
    has_neighbouring_rows,
    matrix_operands,
    padding_bytes,
    tiles_across_rows,
    turns_rows,
)
from rollergen.program.rows_apart import rows_apart, with_rows_apart
from rollergen.program.rprogram import (
    GRID,
    GROUP,
    PARALLEL,
    SERIAL,
    THREAD,
    UNROLL,
    Accumulator,
    BlockOrder,
    Compute,
    Copy,
    Loop,
    Stage,
    Store,
)
from rollergen.program.stores import read_beside
from rollergen.tile.rules import AlignmentRules


@dataclass(frozen=True, slots=True)
class MatrixPlan:
    """Tiles of a contraction by a matrix instruction: ``fm`` x ``fn`` tiles of the instruction for each of
    ``gm`` x ``gn`` execution widths, ``steps`` of its k staged at a time in ``depth`` buffers; blocks in groups of
    ``group_rows`` rows (see `BlockOrder`).  ``boxes``: a copy engine fills the buffers, told by a ``producer``;
    ``persistent``: where blocks are more than units, one for each unit is launched; ``cluster``: blocks of a cluster,
    where the grid has whole ones (see `BlockOrder`); ``box_stores``: the copy engine stores results, where it can;
    ``apart``: it brings and stores rows along m that are apart (`Copy.apart`), where it can.
    ``realigned``: factors whose rows begin anywhere are read by whole vectors nevertheless (`Copy.realigned`).
    ``gk``: a divisor of the steps; so many execution widths share each sum, each with its part of every staged tile.
    ``chains``: a divisor of the steps of each; the products of so many in a row go into accumulators of their own.
    Sizes may be arrays (a batch of one structure)."""

    instruction: str
    fm: Size
    fn: Size
    gm: Size
    gn: Size
    steps: int
    depth: int = 1
    group_rows: int = 0
    boxes: bool = False
    producer: bool = False
    persistent: bool = False
    cluster: int = 0
    box_stores: bool = False
    apart: bool = False
    realigned: bool = False
    chains: int = 1
    gk: int = 1


def axes_of(roles: Roles) -> tuple[str, ...]:
    """(m, n, k) of the instruction; none where an axis is missing, or other axes are reduced inside."""
    return () if roles.m is None or roles.n is None or roles.taps else (roles.m, roles.n, roles.k)


def roles_for(roles: Roles, instruction: Instruction) -> Roles:
    """The roles that its rows and columns have: rows of which a thread has neighbours are along the output's contiguous
    axis."""
    return replace(roles, m=roles.n, n=roles.m) if has_neighbouring_rows(instruction) else roles


def matrix_stage(
    op: TensorOp,
    roles: Roles,
    plan: MatrixPlan,
    device: Device,
    rules: AlignmentRules = AlignmentRules(),
    name: str = "contraction",
) -> Stage:
    """The contraction's nest for one plan (or a batch of plans of one structure)."""
    instruction = device.instruction(plan.instruction)
    if plan.apart and not _can_be_apart(op, roles, plan, instruction, device):
        plan = replace(plan, apart=False)
    loops = _loops(op, roles, plan, instruction)
    first_inner = next((p for p, loop in enumerate(loops) if loop.kind not in (GRID, *PARALLEL)), len(loops))
    ordered = len(_grid(loops)) > 1 or (plan.persistent and bool(_grid(loops)))
    operands = matrix_operands(op, axes_of(roles), instruction)
    factors = factors_of(op, loops, roles.k, instruction, operands or NO_OPERANDS)[0]
    copies = _copies(op, roles, plan, device, rules, loops, first_inner, operands, factors)
    if plan.apart and not all(copy.boxes for copy in copies):
        return matrix_stage(op, roles, replace(plan, apart=False), device, rules, name)
    producer = plan.producer and bool(copies) and all(copy.boxes for copy in copies)
    made = Stage(
        name=name,
        op=op,
        loops=tuple(loops),
        compute=Compute(instruction.name, factors=factors, producer=producer),
        accumulator=Accumulator(
            first_inner, instruction.accumulator_dtype, separate=_chains(roles, plan, loops),
            combine="at_once" if plan.gk > 1 else "none",
        ),
        copies=copies,
        store=_store(op, roles, instruction, plan.fn, rules),
        guards=tuple((axis, "mask") for axis in overhanging(op, loops)),
        block_order=_order(plan, loops, device, producer, _shared_panels(copies, plan, instruction))
        if ordered else BlockOrder(),
    )  # fmt: skip
    return _storing_boxes(made, roles, plan, device) if plan.box_stores else made


def _can_be_apart(op: TensorOp, roles: Roles, plan: MatrixPlan, one: Instruction, device: Device) -> bool:
    """Whether the copy engine can bring the factors of rows that are apart, and store results where it is to."""
    operands, axes = matrix_operands(op, axes_of(roles), one), axes_of(roles)
    rings = plan.persistent or op.axis(roles.k).extent > plan.steps * one.k
    if operands is None or not (plan.boxes and one.is_asynchronous and rings):
        return False
    loads, longest = op.loads(), device.layer(device.kind.block_layer or "").box_extent
    rows = all(not apart_problem(op, loads[a], (axes[0], axes[2])) for a in operands.a)
    return rows and not (plan.box_stores and store_problem(op, axes, one, longest, apart=True))


def has_realignable(op: TensorOp, roles: Roles, one: Instruction, device: Device) -> bool:
    """Whether some factor comes by longer vectors where these are put together in registers (`Copy.realigned`)."""
    copies = matrix_stage(op, roles, MatrixPlan(one.name, 1, 1, 1, 1, 1), device).copies
    return any(gains_by_realigning(op, op.loads()[copy.load], copy, one) for copy in copies)


def _sum_apart(op: TensorOp, roles: Roles, one: Instruction, operands: Operands) -> bool:
    """Whether the copy engine can bring the k x n factors by rows along k that are apart, and some only so."""
    order, loads = (roles.k, roles.n or ""), [op.loads()[b] for b in operands.b]
    if ITEMSIZE[factor_dtype(one)] != 2 or any(apart_problem(op, load, order) for load in loads):
        return False
    return any(map_problem(op, load, order) for load in loads)


def gains_by_rows_apart(op: TensorOp, roles: Roles, one: Instruction, device: Device) -> bool:
    """Whether a copy engine can bring or store by rows that are apart (`Copy.apart`) what it cannot otherwise."""
    axes = axes_of(roles)
    operands = matrix_operands(op, axes, one) if one.is_asynchronous and device.kind.box_copies else None
    if operands is None:
        return False
    loads, longest = [op.loads()[a] for a in operands.a], device.layer(device.kind.block_layer or "").box_extent
    lacking = any(map_problem(op, load, (axes[0], axes[2])) for load in loads) or _sum_apart(op, roles, one, operands)
    lacking = lacking or bool(store_problem(op, axes, one, longest))
    return lacking and not any(apart_problem(op, load, (axes[0], axes[2])) for load in loads)


def _storing_boxes(stage: Stage, roles: Roles, plan: MatrixPlan, device: Device) -> Stage:
    """Results leave in boxes, two panels at a time where there are as many, if the engine that brings the factors can
    store them.  Threads exchange results only for what they read beside them."""
    one, store = device.instruction(plan.instruction), stage.store
    longest = device.layer(device.kind.block_layer or "").box_extent
    boxed = bool(stage.copies) and all(copy.boxes for copy in stage.copies)
    if not boxed or store_problem(stage.op, axes_of(roles), one, longest, rows_apart(stage, one) > 0):
        return stage
    panels = plan.fn * one.n * ITEMSIZE[stage.op.output.dtype] // PANEL_BYTES
    own = one.n // COLUMNS  # neighbours, which are written together however what is read beside them lies
    vector = larger(own, store.vector) if read_beside(stage.op) else own
    return replace(stage, store=replace(store, vector=vector, across_rows=False, boxes=1 + (panels % 2 == 0)))


def _shared_panels(copies: tuple[Copy, ...], plan: MatrixPlan, one: Instruction) -> Size:
    """Panels of rows apart that blocks below each other read alike, of which each of a cluster brings whole ones; 0:
    none are apart."""
    return plan.fn * plan.gn * one.n // copies[-1].panel if copies and copies[-1].apart else 0


def _order(plan: MatrixPlan, loops: list[Loop], device: Device, producer: bool, panels: Size) -> BlockOrder:
    """The order of a grid; one loop alone has no groups of rows, and no blocks below each other.  ``panels``: see
    `_shared_panels`."""
    grid = _grid(loops)
    group = plan.group_rows if len(grid) > 1 else 0
    if not producer:
        return BlockOrder(group)
    launched = _launched(plan, loops, device)
    if not plan.cluster or len(grid) == 1:
        return BlockOrder(group, launched)
    rows = grid[-2].extent
    cluster = plan.cluster * (
        (rows % plan.cluster == 0) & (launched % plan.cluster == 0) & (panels % plan.cluster == 0)
    )
    return BlockOrder(group or cluster, launched, cluster)


def _grid(loops: list[Loop]) -> list[Loop]:
    return [loop for loop in loops if loop.kind == GRID]


def _launched(plan: MatrixPlan, loops: list[Loop], device: Device) -> Size:
    """Blocks of a persistent grid; 0 where a block for each is as few."""
    blocks: Size = 1
    for loop in _grid(loops):
        blocks = blocks * loop.extent
    return device.units * (plan.persistent & (blocks > device.units))


def _chains(roles: Roles, plan: MatrixPlan, loops: list[Loop]) -> tuple[int, ...]:
    """The position of the loop over steps whose products have accumulators of their own."""
    own = [p for p, loop in enumerate(loops) if loop.axis == roles.k and loop.kind == UNROLL]
    return tuple(own[-2:-1]) if plan.chains > 1 else ()


def _loops(op: TensorOp, roles: Roles, plan: MatrixPlan, instruction: Instruction) -> list[Loop]:
    own_m, own_n, own_k = fragment_loops(instruction)
    extent = lambda axis: op.axis(axis or "").extent
    m = digits(
        roles.m or "", (GRID, ceil_div(extent(roles.m), plan.fm * plan.gm * instruction.m)), (GROUP, plan.gm),
        (UNROLL, plan.fm), *own_m,
    )  # fmt: skip
    m = with_rows_apart(m) if plan.apart else m
    n = digits(
        roles.n or "", (GRID, ceil_div(extent(roles.n), plan.fn * plan.gn * instruction.n)), (GROUP, plan.gn),
        (UNROLL, plan.fn), *own_n,
    )  # fmt: skip
    steps = ((GROUP, plan.gk), (UNROLL, plan.steps // plan.gk // plan.chains), (UNROLL, plan.chains))
    k = digits(roles.k, (SERIAL, ceil_div(extent(roles.k), plan.steps * instruction.k)), *steps, *own_k)
    inside = {id(m): len(own_m), id(n): len(own_n)}
    parts = lambda loops: (loops[: -inside[id(loops)]], loops[-inside[id(loops)] :])
    own = lambda loops, kind, inner: [x for x in parts(loops)[inner] if x.kind == kind]
    batch = [Loop(axis, op.axis(axis).extent, 1, GRID) for axis in roles.batch]
    nest = [
        *batch,
        *own(m, GRID, False), *own(n, GRID, False), k[1], *own(m, GROUP, False), *own(n, GROUP, False),
        *own(m, GROUP, True), *own(m, THREAD, True), *own(n, THREAD, True),
        k[0], *k[2:4],
        *own(m, UNROLL, False), *own(n, UNROLL, False),
        *own(m, UNROLL, True), *own(n, UNROLL, True),
        *k[4:],
    ]  # fmt: skip
    rings = plan.boxes and plan.persistent  # of tiles of several outputs, also where each has one
    return [loop for loop in nest if loop in useful([loop]) or (rings and loop is k[0])]


def _copies(
    op: TensorOp, roles: Roles, plan: MatrixPlan, device: Device, rules: AlignmentRules, loops: list[Loop],
    first_inner: int, operands: Operands | None, factors_are: str,
) -> tuple[Copy, ...]:  # fmt: skip
    """All operands, each as it lies in memory where the instruction's loads can turn it, else with k inside; in boxes
    where the plan says so and a copy engine can be told of all of them."""
    instruction = device.instruction(plan.instruction)
    layer = device.kind.block_layer
    if operands is None or layer is None:
        return ()
    k_block = [p for p, loop in enumerate(loops) if loop.axis == roles.k and loop.kind == SERIAL]
    depth = k_block[0] + 1 if k_block else first_inner
    if operands.conversions:
        buffers = plan.depth if k_block else 1
        return tuple(_narrow_copies(op, roles, operands, plan, device, depth, buffers, factors_are))
    itemsize = ITEMSIZE[factor_dtype(instruction)]
    turns = turns_rows(instruction) or (instruction.is_asynchronous and itemsize == 2)
    panel = PANEL_BYTES // itemsize if instruction.is_asynchronous else 0
    padding = padding_bytes(instruction) // itemsize if rules.bank and not panel else 0
    copies = []
    sizes = {roles.m: instruction.m, roles.n: instruction.n, roles.k: instruction.k}
    factors = [(number, roles.m or "") for number in operands.a] + [(number, roles.n or "") for number in operands.b]
    apart = {roles.m} | ({roles.n} if plan.apart and _sum_apart(op, roles, instruction, operands) else set())
    for number, axis in factors:
        load = op.loads()[number]
        along = fill_axis(op, load, (roles.k, axis), device)
        order = (roles.k, axis) if along == axis and turns else (axis, roles.k)
        vector = copy_vector(op, load, along, sizes[along], guarded=True)
        buffers = plan.depth if k_block else 1
        copy = Copy(number, device.backing.name, layer, depth, order, along, vector, padding, depth=buffers)
        copy = replace(copy, panel=panel, swizzle=SWIZZLE) if panel else copy
        if plan.realigned and gains_by_realigning(op, load, copy, instruction):
            copies.append(realigned(copy, load))
        elif plan.apart and axis in apart:
            copies.append(replace(copy, vector=1, asynchronous=True, apart=SWIZZLE))
        else:
            copies.append(past_registers(copy, load, device) if buffers > 2 else copy)
    fits = lambda c: not (apart_problem if c.apart else map_problem)(op, op.loads()[c.load], c.order)
    boxes = plan.boxes and all(c.asynchronous and fits(c) for c in copies)
    return tuple([replace(copy, boxes=boxes) for copy in copies])


def _narrow_copies(
    op: TensorOp, roles: Roles, operands: Operands, plan: MatrixPlan, device: Device, depth: int, buffers: int,
    factors_are: str,
) -> Iterator[Copy]:
    """The operands of factors that are converted: those with k inside, of which a thread reads neighbours at once; what
    is the same for many neighbours along k once for these, along its own axis."""
    instruction = device.instruction(plan.instruction)
    tile, conversions, ranges = plan.steps * instruction.k, dict(operands.conversions), op.ranges()
    sizes = {roles.m: instruction.m, roles.n: instruction.n}
    extents = {roles.m: plan.fm * plan.gm * instruction.m, roles.n: plan.fn * plan.gn * instruction.n}
    factors = [(number, roles.m or "", True) for number in operands.a]
    factors += [(number, roles.n or "", True) for number in operands.b]
    for number, axis, along_k in factors + [(*column, False) for column in operands.columns]:
        load = op.loads()[number]
        order = (axis, roles.k) if along_k else tuple(a for a in (roles.k, axis) if a in load.axes())
        if not order:
            continue
        every = gcd(tile, run_along(load, roles.k, ranges)) if roles.k in order else 1
        alone = of_runs(load, roles.k, every, ranges) or load
        along, granule = order[-1], tile // every if along_k else sizes[order[-1]]
        vector = run_vector(op, alone, along, granule, every if along == roles.k else 1)
        row = ROW_BYTES // ITEMSIZE[load.dtype]
        # Rows of halves that are 32 bytes longer than those of the sum meet all banks, 8 bytes a thread; 16 bytes
        # a thread, rows that are 64 bytes behind a multiple of 128.  Columns end on 16 bytes.
        wide = -(tile - 4 * row) % (8 * row) if factors_are == CONVERTED_EIGHT else 2 * row
        padding = (row if number in conversions else wide) if along_k else -extents.get(order[-1], 0) % row
        shared = tuple(every if a == roles.k else 1 for a in order) if every > 1 else ()
        copy = Copy(
            number, device.backing.name, device.kind.block_layer or "", depth, order, along, vector, padding,
            depth=buffers, every=shared,
        )  # fmt: skip
        yield past_registers(copy, load, device) if buffers > 2 else copy


def _store(op: TensorOp, roles: Roles, instruction: Instruction, tiles: Size, rules: AlignmentRules) -> Store:
    """In vectors, in which what is read beside the sums is read, too; results that lie in a row, but in none of vectors
    as long as they might be (16 bytes at most), across rows, where a thread has enough ``tiles`` along n."""
    vector = _store_vector(op, roles, instruction, tiles)
    own = fragment_loops(instruction)[1][-1][1]
    longest = own if instruction.layout == "opaque" else COLUMNS * own
    fits = instruction.layout != WAVEFRONT and ITEMSIZE[op.output.dtype] * longest <= ROW_BYTES
    in_row = lane_stride(op.stored(), roles.n or "") == 1
    across = fits and in_row & (vector < longest) & (tiles >= tiles_across_rows(instruction, vector))
    return Store(vector=vector, across_rows=across, vector_loads=_reads_vectors(op, rules) & (vector > 1))


def _reads_vectors(op: TensorOp, rules: AlignmentRules) -> bool:
    return rules.shapes.vector_loads and bool(read_beside(op))


def _store_vector(op: TensorOp, roles: Roles, instruction: Instruction, tiles: Size) -> Size:
    """Neighbouring results that a thread stores at once: those that it has of one tile, or a tile's whole row where the
    threads of a row exchange theirs (`exchanges`): of narrow elements, and of so many ``tiles`` along n."""
    wavefront, rows = instruction.layout == WAVEFRONT, has_neighbouring_rows(instruction)
    if op.where or (wavefront and not rows):
        return 1
    own = NEIGHBOURS if wavefront else fragment_loops(instruction)[1][-1][1]
    axis = (roles.m if wavefront else roles.n) or ""
    store = op.stored()
    if is_divided(store, axis):
        return 1
    beside = [load for load in op.result_loads() if axis in load.axes()]
    widest = lambda most: min(copy_vector(op, load, axis, most) for load in (store, *beside))
    exchanged = COLUMNS * own
    narrow = instruction.layout not in ("opaque", WAVEFRONT) and ITEMSIZE[op.output.dtype] * exchanged <= ROW_BYTES
    if not narrow or widest(exchanged) < exchanged:
        return widest(own)
    return own + (exchanged - own) * (tiles % COLUMNS == 0)


__all__ = ["MatrixPlan", "axes_of", "matrix_stage"]
