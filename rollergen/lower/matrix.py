"""Reductions by a matrix instruction: fragments from the staged tiles, multiplied by whole execution widths.

    k blocks, k steps: every row of fragments, every column of fragments, all their products
    at the end:        opaque results through a tile in local memory to the threads that store them; others, where
                       vectors are wider than what a thread has of a tile, exchanged among the threads of a row, or
                       among those of a column, where the program says so
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from rollergen.errors import ProgramError
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.index import Index
from rollergen.expr.tensor_op import Reduction
from rollergen.lower import reductions
from rollergen.lower.boxes import free_last
from rollergen.lower.context import Context
from rollergen.lower.conversions import fill_fragment, step_loop
from rollergen.lower.copies import FRAGMENT_BYTES, Staged, corner_offset, positions_of, staged_access
from rollergen.lower.expressions import Element, Pick, Pointer, Read
from rollergen.lower.held_factors import held_factors, held_fragment, hold_factors
from rollergen.lower.ir import LOCAL
from rollergen.lower.loops import Phase, descend, scope_of
from rollergen.lower.matrices import Matrices, matrices_of
from rollergen.lower.matrix_ir import (
    BeginProducts,
    EndProducts,
    ExchangeResults,
    LoadMatrix,
    MultiplyLocal,
    MultiplyMatrix,
    Operand,
    StoreMatrix,
    WaitProducts,
    WarpBarrier,
)
from rollergen.lower.place import Place, Registers
from rollergen.program.matrix import (
    COLUMNS,
    NEIGHBOURS,
    PANEL_BYTES,
    ROW_BYTES,
    ROWS,
    WAVEFRONT,
    exchanges,
    factor_dtype,
    groups,
    matrix_axes,
    reads_numbers,
    results_of,
    scratch_pitch,
    tiles_across_rows,
)
from rollergen.program.rprogram import GROUP, THREAD


def reduce_matrices(context: Context, place: Place, reduction: Reduction) -> tuple[Registers, ...]:
    """The reduction over all its loops; its components' results, each with the thread that stores it."""
    out, nest = context.out, context.nest
    matrices = matrices_of(context)
    acc = reductions.make_levels(out, nest, reduction)[-1]
    reductions.start(out, place, acc)
    if matrices.instruction.is_asynchronous:
        _reduce_beside(context, place, matrices, acc.components)
    else:
        _reduce_together(context, place, matrices, acc.components)
    threads = reductions.thread_shares(nest, context.threads.thread)
    totals = reductions.finish(out, scope_of(context, place, None, {}, {}), acc, threads, None, None)
    if exchanges(nest.stage, matrices.instruction):
        _exchange(context, place, matrices, totals, COLUMNS)
    if nest.stage.store.across_rows:
        together = tiles_across_rows(matrices.instruction, nest.stage.store.vector)
        _exchange(context, place, matrices, totals, together, across=True)
    return totals


def _reduce_together(
    context: Context, place: Place, matrices: Matrices, components: tuple[Registers, ...]
) -> None:
    """The reduction by the threads of each execution width, fragment by fragment."""
    nest = context.nest
    inside = frozenset(p for p in nest.positions("reduce", after=nest.tile_depth) if p < matrices.depth)
    loads = {number: nest.loads[number] for number in matrices.loads}
    phase = Phase(inside, loads, matrices.depth, True, None, together=True)
    descend(context, place, nest.tile_depth, phase, lambda here: _multiply(context, here, matrices, components))
    if matrices.shape.layout == "opaque":
        _hand_out(context, place, matrices, components)


def _reduce_beside(
    context: Context, place: Place, matrices: Matrices, components: tuple[Registers, ...]
) -> None:
    """The reduction by products that run beside the program, those of one staged tile a group."""
    out, nest = context.out, context.nest
    staged = next(copy.at_loop for copy in nest.stage.copies)
    held = held_factors(context, matrices)

    def begin(here: Place) -> None:
        hold_factors(context, here, matrices, held)
        out.collective(BeginProducts())

    end = lambda here: out.collective(EndProducts(int(nest.trails)))
    inside = frozenset(p for p in nest.positions("reduce", after=nest.tile_depth) if p < matrices.depth)
    loads = {number: nest.loads[number] for number in matrices.loads}
    batch = ((staged, begin),), ((staged, end),)
    phase = Phase(inside, loads, matrices.depth, True, None, None, *batch, together=True)
    multiply = lambda here: _multiply_beside(context, here, matrices, components, held)
    descend(context, place, nest.tile_depth, phase, multiply)
    elements = prod(positions_of(nest, digits) for digits in components[0].indices)
    out.collective(WaitProducts(tuple(one.name for one in components), components[0].dtype, elements))
    free_last(context, place)


def _multiply_beside(
    context: Context, place: Place, matrices: Matrices, components: tuple[Registers, ...], held: Mapping[int, str]
) -> None:
    """All products of one step of k: each of a row of tiles, whose columns are one instruction's."""
    out, nest, one = context.out, context.nest, matrices.instruction
    shape = replace(matrices.shape, n=one.n * nest.loops[matrices.columns[0]].extent)
    with reductions.loops_over(out, place, matrices.rows):
        for (a, b), acc in zip(matrices.products, components, strict=True):
            whole = place.element(acc)
            sums = Element(whole.name, whole.indices[:-3], whole.dtype)
            first = held_fragment(context, place, matrices, held[a]) if held else _operand(context, place, matrices, a)
            out.collective(MultiplyLocal(shape, sums, first, _operand(context, place, matrices, b)))


def _operand(context: Context, place: Place, matrices: Matrices, load: int) -> Operand:
    """Where a factor of a row of tiles lies: its warps' and columns' digits are the instruction's."""
    out, stage = context.out, context.nest.stage
    staged = _staged(context, place, matrices, load)
    own = matrix_axes(stage)
    warps = [p for p, loop in stage.of_kind(GROUP) if loop.axis == own[0] and loop.stride < matrices.instruction.m]
    corner = place.bind(dict.fromkeys((*matrices.inside, *matrices.columns, *warps), Index()))
    along_k = staged.copy.order[-1] == own[2]
    if staged.copy.apart and not along_k:  # the rows that are kept in this step's places
        step = step_loop(context, matrices)
        offset = corner_offset(out, corner.bind({step: Index()}), staged)
        offset = offset + place.point[step] * matrices.shape.k * staged.copy.panel
    else:
        offset = corner_offset(out, corner, staged)
    pointer, offset = out.place(staged.pointer, offset.simplify(out.ranges))
    return Operand(pointer, offset, along_k, ROW_BYTES if along_k else prod(staged.shape[:-1]) * PANEL_BYTES)


def _multiply(context: Context, place: Place, matrices: Matrices, components: tuple[Registers, ...]) -> None:
    """All products of one step of k; a factor that several of them share is loaded once."""
    out, fetched = context.out, {}
    for which in (0, 1):
        for load in dict.fromkeys(pair[which] for pair in matrices.products):
            fetched[which, load] = _fetch(context, place, matrices, which, load)
    with reductions.loops_over(out, place, (*matrices.rows, *matrices.columns)):
        for (a, b), acc in zip(matrices.products, components, strict=True):
            along_k = (_along_k(context, place, matrices, load) for load in (a, b))
            factors = (fetched[0, a](place), fetched[1, b](place))
            sums = _fragment(place, acc, results_of(matrices.instruction))
            out.collective(MultiplyMatrix(matrices.shape, sums, *factors, *along_k))


def _fragment(place: Place, acc: Registers, inside: int = 2) -> Element:
    """The accumulators of one tile: the last loops are those inside it."""
    whole = place.element(acc)
    return Element(whole.name, whole.indices[:-inside], whole.dtype)


def _fetch(context: Context, place: Place, matrices: Matrices, which: int, number: int):  # type: ignore[no-untyped-def]
    """Fragments of one operand for all tiles of an execution width; how to find that of a tile."""
    out, nest = context.out, context.nest
    one, over = matrices.instruction, (matrices.rows, matrices.columns)[which]
    registers = (one.a_registers, one.b_registers)[which]
    count = nest.loops[over[0]].extent if over else 1
    whole = one.layout == "quads" and not matrices.operands.conversions
    together = 2 if which == 1 and whole and not reads_numbers(one) and count % 2 == 0 else 1
    load = nest.op.loads()[number]
    dtype, own = ("int64", ()) if one.layout == WAVEFRONT else ("uint32", (registers,))
    if reads_numbers(one):
        dtype, own = one.dtype, (registers // 2,)
    shape = (*((count // together,) if over else ()), *((together,) if together > 1 else ()), *own)
    name = out.register(load.buffer.name.lower(), dtype, shape)

    def fragment(here: Place) -> Element:
        if not over:
            return Element(name, (), dtype)
        at = here.point[over[0]]
        parts = (at,) if together == 1 else (at // together, at % together)
        indices = tuple(part.simplify(out.ranges) for part in parts)
        return Element(name, indices, dtype)

    if not over:
        _fill(context, place, matrices, which, number, Element(name, (), dtype), 1)
        return fragment
    variable = nest.variables[over[0]]
    with out.loop(variable, count // together, (0, count // together - 1), unroll=True) as at:
        here = place.bind({over[0]: at * together})
        _fill(context, here, matrices, which, number, Element(name, (at,), dtype), together)
    out.ranges[variable] = (0, count - 1)
    return fragment


def _fill(
    context: Context, place: Place, matrices: Matrices, which: int, number: int, fragment: Element, together: int
) -> None:
    """Fragments of one tile, or of several together."""
    if matrices.operands.conversions:
        fill_fragment(context, place, matrices, which, number, fragment)
    else:
        context.out.collective(_load(context, place, matrices, which, number, fragment, together))


def _load(
    context: Context, place: Place, matrices: Matrices, which: int, load: int, fragment: Element, together: int
) -> LoadMatrix:
    """One load from the operand's staged tile, at the corner of a fragment or at this thread's row of it."""
    out, one = context.out, matrices.instruction
    staged = _staged(context, place, matrices, load)
    corner = place.bind(dict.fromkeys(matrices.inside, Index()))
    offset = staged_access(out, corner, staged).offset
    along_k = _along_k(context, place, matrices, load)
    if reads_numbers(one):
        lane = context.threads.thread % (ROWS * COLUMNS)
        row, column = lane // COLUMNS, lane % COLUMNS
        offset = offset + (row * staged.pitch + column if along_k else column * staged.pitch + row)
    elif matrices.shape.layout == "quads":
        offset = offset + _own_row(context, matrices, which, along_k, staged.pitch)
    if matrices.shape.layout == WAVEFRONT:
        lane = context.threads.thread % matrices.instruction.lanes
        offset = offset + lane % matrices.shape.m * staged.pitch + lane // matrices.shape.m * (one.k // NEIGHBOURS)
    pointer, offset = out.place(staged.pointer, offset.simplify(out.ranges))
    return LoadMatrix(matrices.shape, "ab"[which], fragment, pointer, offset, staged.pitch, along_k, together)


def _staged(context: Context, place: Place, matrices: Matrices, number: int) -> Staged:
    nest = context.nest
    source = place.source(nest.op.loads()[number])
    if not isinstance(source, Staged):
        raise ProgramError(f"stage {nest.stage.name}: load {number} is not staged for {matrices.shape}")
    return source


def _along_k(context: Context, place: Place, matrices: Matrices, load: int) -> bool:
    """Whether the staged tile's rows run along k."""
    return _staged(context, place, matrices, load).copy.order[-1] == matrix_axes(context.nest.stage)[2]


def _own_row(context: Context, matrices: Matrices, which: int, along_k: bool, pitch: int) -> Index:
    """Offset of the row of 16 bytes that this thread names: eight threads a matrix of 8 rows, four matrices in the
    order of the fragment's registers (PTX ISA, "ldmatrix")."""
    lane = context.threads.thread % (ROWS * COLUMNS)
    block = ROW_BYTES // ITEMSIZE[factor_dtype(matrices.instruction)]
    near, far = lane % 16, lane // 16
    if (which == 0) != along_k:
        # Registers count along the rows of memory first: columns of blocks next to each other.
        return (lane % 8 + far * 8) * pitch + (near // 8) * block
    return near * pitch + far * block


def _exchange(
    context: Context, place: Place, matrices: Matrices, components: tuple[Registers, ...], together: int,
    across: bool = False,
) -> None:  # fmt: skip
    """Results of so many tiles along n, among the threads of a row or, ``across`` rows, of a column."""
    out, (tiles,) = context.out, matrices.columns
    steps = context.nest.loops[tiles].extent // together
    groups_of_tiles = out.loop(context.nest.variables[tiles], steps, (0, steps - 1), unroll=True)
    with reductions.loops_over(out, place, matrices.rows), groups_of_tiles as at:
        for acc in components:
            of = [_fragment(place.bind({tiles: at * together + number}), acc) for number in range(together)]
            out.collective(ExchangeResults(tuple(of), across))


def _hand_out(context: Context, place: Place, matrices: Matrices, components: tuple[Registers, ...]) -> None:
    """Opaque fragments, one after the other, through local memory to the threads that store their elements."""
    out, nest, one = context.out, context.nest, matrices.instruction
    pitch = scratch_pitch(one)
    size = one.m * pitch
    elements = groups(nest.stage) * size
    whole = out.array("passing", LOCAL, one.accumulator_dtype, elements, FRAGMENT_BYTES, whole_kernel=True)
    width = ROWS * COLUMNS
    corner = ((context.threads.thread // width) * size).simplify(out.ranges)
    threads = [nest.variables[p] for p, _ in nest.stage.of_kind(THREAD)]
    columns = one.n // COLUMNS
    row, column = Index.axis(threads[0]), Index.axis(threads[1]) * columns
    with reductions.loops_over(out, place, (*matrices.rows, *matrices.columns)):
        for acc in components:
            fragment = _fragment(place, acc)
            out.collective(StoreMatrix(matrices.shape, fragment, whole, corner, pitch))
            out.collective(WarpBarrier())
            for far in range(one.m // ROWS):
                _take_row(context, whole, corner + (row + far * ROWS) * pitch + column, fragment, far, columns)
            out.collective(WarpBarrier())


def _take_row(context: Context, whole: Pointer, offset: Index, fragment: Element, far: int, columns: int) -> None:
    """A thread's neighbouring results of one row into its registers."""
    out = context.out
    value = out.let("results", Read(whole, offset, fragment.dtype, columns, aligned=True))
    for e in range(columns):
        at = (*fragment.indices, Index.of(far), Index.of(e))
        out.assign(Element(fragment.name, at, fragment.dtype), Pick(value, e))
