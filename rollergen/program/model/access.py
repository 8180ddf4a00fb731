"""Every memory access of a stage: how many, and how wide.

Copies into a block's layer are filled by all threads together; copies into registers by each thread;
what no copy brings is read where it is used, each distinct element of the unrolled loops once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.model.block_windows import fill_services, reuse_of
from rollergen.program.model.bounds import deal_divisions, lane_tests, place_divisions, retested, tests_of
from rollergen.program.model.costs import costs_of
from rollergen.program.model.facts import Operand
from rollergen.program.model.lanes import broken_share, chosen_lanes, lanes_apart, line_split, masks_loads, near_lanes
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number, ceil_div, choose, is_nothing, least, product
from rollergen.program.model.services import fill_runs, fill_service, path_layer, thread_service, tile_service
from rollergen.program.model.tiles import groups_of_a_thread, tile_shape
from rollergen.program.model.wavefronts import WIDEST_ACCESS_BYTES
from rollergen.program.rprogram import LANE, SERIAL, UNROLL, Copy
from rollergen.program.windows import of_block


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One kind of access of a thread.

    ``role``: read | fill_read | realigning_read (a vector's second piece, and what puts both together) | fill_write |
    fill_past, through, box (see `fill_accesses`) | write | exchange (between threads); ``layer``: where the address
    lies (the backing store's name for what goes through caches);
    ``count``: of one thread in one block; ``width_bytes`` of each; ``service``: wavefronts, or transactions where the
    layer has no banks, of one access by a warp;
    ``uses``: arithmetic instructions that each value feeds (1 folds into a memory operand);
    ``split``: lines that one vector touches on average; ``gathered``: lanes accessed one by one; ``broken``: share of
    the vectors that are, because they wrap in a view or meet a bound; ``tested``: bounds that each is tested for;
    ``decoded``: divisions and remainders that each access computes anew.
    """

    load: int
    role: str
    layer: str
    count: Number
    width_bytes: Number
    service: Number = 1
    split: Number = 1
    uses: Number = 0
    gathered: bool = False
    broken: Number = 0
    tested: Number = 0
    reduces: bool = True
    decoded: Number = 0


def fill_accesses(nest: Nest, device: Device, copy: Copy) -> tuple[Access, ...]:
    """The load and the store by which a block fills its tile, `vector` elements a thread at a time; asynchronous
    copies are one instruction, and pass the first cache (``through``) unless they are as wide as any access.  Boxes are
    issued by one thread; each execution width is charged its share of what they write."""
    operand = nest.facts.loads[copy.load]
    shape = tile_shape(nest, copy, block=True)
    if copy.boxes:
        layer, boxes = device.layer(copy.to_layer), _boxes(device, copy, shape)
        written = product(shape) * operand.itemsize / (boxes * layer.banks * layer.bank_bytes)
        count = nest.trip_count(copy.at_loop) * boxes / nest.warps
        return (Access(copy.load, "box", copy.to_layer, count, WIDEST_ACCESS_BYTES, written),)
    rounds = nest.trip_count(copy.at_loop) * groups_of_a_thread(nest, copy)
    width = copy.vector * operand.itemsize
    parts = pieces(nest, width)
    if of_block(copy):
        from_tensor, into_tile = fill_services(nest, device, copy, path_layer(device))
        return (
            Access(copy.load, "fill_read", copy.from_layer, rounds, width, from_tensor, tested=tests_of(nest, operand)),
            Access(copy.load, "fill_write", copy.to_layer, rounds, width, into_tile),
        )
    runs = fill_runs(nest, copy, shape)
    from_tensor = fill_service(nest, device, copy, operand, shape, runs, shared=False)
    into_tile = fill_service(nest, device, copy, operand, shape, runs, shared=True)
    decoded, tested = place_divisions(nest, operand, copy) + deal_divisions(nest, copy, shape), retested(nest, copy)
    if copy.asynchronous:
        past = Access(
            copy.load, "fill_past", copy.to_layer, rounds, width, into_tile, tested=tested,
            decoded=decoded,
        )  # fmt: skip
        passing = choose(width == WIDEST_ACCESS_BYTES, 0, rounds)
        through = Access(copy.load, "through", copy.from_layer, passing, width, from_tensor)
        return (past,) if is_nothing(passing) else (past, through)
    whole = copy.along == copy.order[-1] or turns_alone(nest, copy, shape)
    stores, stored = (parts, width // parts) if np.all(whole) else (copy.vector, operand.itemsize)
    if np.any(whole) and not np.all(whole):
        stores, stored = choose(whole, parts, stores), choose(whole, width // parts, stored)
    read = Access(
        copy.load, "fill_read", copy.from_layer, rounds * parts, width // parts, from_tensor, tested=tested,
        decoded=decoded,
    )  # fmt: skip
    second = (replace(read, role="realigning_read", tested=0, decoded=0),) if copy.realigned else ()
    return read, *second, Access(copy.load, "fill_write", copy.to_layer, rounds * stores, stored, into_tile)


def turns_alone(nest: Nest, copy: Copy, shape: tuple[Number, ...]) -> Number:
    """Whether the one thread of a block fills the tile of this shape in blocks that it turns in registers."""
    return nest.lockstep == 1 and copy.turns(shape)


def _boxes(device: Device, copy: Copy, shape: tuple[Number, ...]) -> Number:
    """Boxes of a tile of this shape."""
    rows, columns = shape
    if copy.apart:
        return rows / copy.apart * (columns / copy.panel)
    return ceil_div(rows, device.layer(copy.to_layer).box_extent) * (columns / copy.panel)


def pieces(nest: Nest, width_bytes: Number) -> Number:
    """Instructions of one vector: none is wider than 16 bytes on a machine of scalar threads."""
    return 1 if nest.lockstep == 1 else ceil_div(width_bytes, WIDEST_ACCESS_BYTES)


def register_accesses(nest: Nest, device: Device, copy: Copy, source: Copy | None, phase_reduces: bool) -> Access:
    """The reads that fill a register copy, `vector` elements at a time."""
    operand = nest.facts.loads[copy.load]
    elements = product(tile_shape(nest, copy, block=False))
    contiguous = source is None or copy.along == source.order[-1]
    vector = copy.vector if contiguous else 1
    width = vector * operand.itemsize
    parts = pieces(nest, width)
    count = nest.trip_count(copy.at_loop) * ceil_div(elements, vector) * parts
    service = tile_service(nest, device, source, width) if source else thread_service(nest, device, operand, width)
    tested = tests_of(nest, operand) if source is None else 0
    return Access(
        copy.load, "read", copy.from_layer, count, width // parts, service, tested=tested, reduces=phase_reduces
    )


def direct_access(
    nest: Nest, device: Device, operand: Operand, load: int, loops: tuple[int, ...], source: Copy | None, *,
    role: str = "read", vector: Number = 1, reduces: bool = True,
) -> Access:  # fmt: skip
    """An access at the point of use, in the given loops of a thread: each distinct element of the unrolled loops
    once; loops that it does not depend on are left where they are innermost (the value stays in a register)."""
    used = operand.axes
    last = max((p for p in loops if nest.loops[p].kind == SERIAL and nest.loops[p].axis in used), default=-1)
    count: Number = 1
    uses: Number = 1
    steps: Number = 1
    lane = next((p for p in loops if nest.loops[p].kind == LANE), None)
    for p in loops:
        if p == lane:
            continue
        loop = nest.loops[p]
        if p < last or loop.axis in used:
            count = count * nest.trips[p]
            steps = count if p <= last else steps
        elif loop.kind == UNROLL:
            uses = uses * loop.extent
    if source is not None and of_block(source):
        reuse, passes = reuse_of(nest, source, loops)
        count = reuse.distinct * passes
    width, gathered = operand.itemsize, False
    if source is None and lane is not None:
        count = count * _distinct_share(nest, device, operand, lane)
    if lane is not None and nest.loops[lane].axis in used:
        chosen = source is None and load >= 0 and chosen_lanes(nest, operand, lane)
        if source is not None:
            apart = 1 if source.order[-1] == nest.loops[lane].axis else 0
        else:
            near = load >= 0 and near_lanes(nest, device, operand, lane)
            apart = 2 if chosen else 1 if near else lanes_apart(nest, operand, lane)
        if apart == 1 or (apart == 2 and load >= 0):
            count, width = count * apart, width * nest.lanes
        else:
            count, gathered = count * nest.lanes, True
    else:
        count, width = choose(vector > 1, ceil_div(count, vector), count), width * vector
    layer = source.to_layer if source else device.backing.name
    service = tile_service(nest, device, source, width) if source else thread_service(nest, device, operand, width)
    parts = pieces(nest, width)
    vectors = source is None and lane is not None and not gathered and nest.loops[lane].axis in used
    split: Number = 1
    if vectors:
        split = line_split(nest, path_layer(device), operand, width, int(costs_of(device).array_alignment))
    broken = broken_share(nest, device, operand, lane, read=load >= 0) if vectors and lane is not None else 0
    tested = tests_of(nest, operand) if source is None else 0
    if gathered and nest.lockstep == 1 and source is None and load >= 0:
        tested = tested + lane_tests(operand)
    decoded: Number = 0
    if source is None and nest.lockstep == 1:  # once for all accesses of a step
        divisions = place_divisions(nest, operand)
        decoded = divisions * steps / (count * parts)
        if lane is None or nest.loops[lane].axis not in used:  # behind a test each puts its place together anew
            decoded = decoded + least(least(tested, divisions), 1)
    return Access(
        load, role, layer, count * parts, width // parts, service, split, uses, gathered, broken, tested, reduces,
        decoded,
    )  # fmt: skip


def _distinct_share(nest: Nest, device: Device, operand: Operand, lane: int) -> Number:
    """Share of the vectors that differ where unrolled taps shift the address by as much as unrolled points lie apart,
    or by a whole part of it.  (Compilers see it where no path of its own reads what a guard cuts.)"""
    if operand.guard and not masks_loads(nest, device, operand, lane):
        return 1
    offset = operand.offset
    unrolled = [loop for loop in nest.loops if loop.kind == UNROLL and offset.coefficient(loop.axis) > 0]
    share: Number = 1
    for points in (loop for loop in unrolled if nest.spatial(loop.axis)):
        for taps in (loop for loop in unrolled if not nest.spatial(loop.axis)):
            apart = offset.coefficient(points.axis) * points.stride, offset.coefficient(taps.axis) * taps.stride
            share = share * _met_share(points.extent, apart[0], taps.extent, apart[1])
    return share


def _met_share(points: Number, step: Number, taps: Number, shift: Number) -> Number:
    """Distinct sums of ``points`` multiples of ``step`` and ``taps`` multiples of ``shift``, as a share of all: where
    the shift is s steps, each further tap reaches s new ones (where the step is s shifts, each further point)."""
    by_taps = (points + (taps - 1) * (shift // step)) / (points * taps)
    by_points = (taps + (points - 1) * (step // shift)) / (points * taps)
    share = choose(shift % step == 0, by_taps, choose(step % shift == 0, by_points, 1))
    return least(share, 1)
