"""One memory access, guarded: of a scalar, or of a vector along a lane.

A vector access is made at once where it provably may be.  Else there are two paths: at once where the whole vector
passes its tests and no division or remainder wraps inside it, else element by element.  What fails a test is not
touched.
"""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.index import Index
from rollergen.lower import maths
from rollergen.lower.elements import Access, gather, gather_whole, read_at
from rollergen.lower.expressions import (
    BITS,
    STORAGE_BYTES,
    Aligned,
    Broadcast,
    Expr,
    Name,
    Number,
    Operation,
    Pick,
    Pointer,
    Read,
    Shuffle,
    is_narrow,
    moved_dtype,
    register_dtype,
)
from rollergen.lower.ir import GLOBAL, PRIVATE, Write
from rollergen.lower.nest import Lane
from rollergen.lower.place import conjunction, guarded, when_all
from rollergen.lower.vectors import (
    MASK_BITS,
    Piece,
    VectorPlan,
    alignment,
    depends,
    edges_known,
    lane_mask,
    lane_stride,
    mask_bits,
    needed,
    piece_mask,
    pieces,
    read_masks,
    spaced_plan,
    straight_pieces,
    vector_plan,
    within,
)
from rollergen.lower.writer import Writer
from rollergen.program.stores import ONE_BY_ONE, Store


def fetch(out: Writer, access: Access, lane: Lane | None, wish: str) -> Expr:
    """The element, or with a lane that matters, the vector: an expression for it.

    Where two paths are needed the value is put into a register named after `wish` first.
    """
    access = access.coarsened(lane)
    if lane is None or not depends(access.offset, access.tests, lane):
        return guarded(access.tests, read_at(out, access, access.offset, 1), access.fill)
    stride, plan = spaced_plan(out.ranges, access.offset, access.tests, lane, (1, 2))
    if plan is None:
        straight = _readable_pieces(out, access, lane)
        if straight is None:
            return gather_whole(out, access, lane, wish)
        dtype = register_dtype(access.pointer.dtype)
        name = Name(out.register(wish, dtype, (), lane.width), dtype, lane.width)
        _read_pieces(out, access, lane, wish, straight, name)
        return name
    offset, common, edge = plan
    masked = _read_masked(out, access, lane, plan, stride) if common or edge else None
    if masked is not None:
        return masked
    vector = _read_spaced(out, access, offset, lane.width, stride)
    if not edge:
        return guarded(common, vector, access.fill)
    name = Name(out.register(wish, vector.dtype, (), lane.width), vector.dtype, lane.width)
    condition = conjunction((*common, *edge))
    assert condition is not None
    with out.when(condition):
        out.assign(name, vector)
    with out.otherwise():
        _read_broken(out, access, lane, wish, plan, name)
    return name


def _read_masked(out: Writer, access: Access, lane: Lane, plan: VectorPlan, stride: int) -> Expr | None:
    """The vector, where the language can read chosen lanes at once and that is wanted: no path of its own, and no
    address that a test keeps away from.  None where it cannot, or where addresses or tests wrap within the vector."""
    dtype = access.pointer.dtype
    if not access.masked or (dtype, lane.width) not in out.masked_loads:
        return None
    masks = read_masks(out.ranges, access.offset, access.tests, lane, stride, BITS[dtype])
    if masks is None:
        return None
    reads = []
    for part, mask in enumerate(masks):
        read = read_at(out, access, plan[0] + part * (lane.width - 1), lane.width)
        assert isinstance(read, Read)
        reads.append(replace(read, mask=mask, fill=access.fill))
    return reads[0] if stride == 1 else _every_other(reads[0], reads[1], lane.width)


def _read_broken(
    out: Writer, access: Access, lane: Lane, wish: str, plan: VectorPlan, name: Name
) -> None:
    """A vector that is not whole: read at once but for the lanes that fail, where the language can; whole and masked
    where that stays inside the array; else lane by lane."""
    mask = lane_mask(out.ranges, access.offset, access.tests, lane, BITS[name.dtype])
    stride = lane_stride(out.ranges, access.offset, lane)
    if stride == 1 and access.pointer.scope == GLOBAL:
        masked = _read_masked(out, replace(access, masked=True), lane, plan, stride)
        if masked is not None:
            return out.assign(name, masked)
    if mask is None or not access.elements:
        if (straight := _readable_pieces(out, access, lane)) is not None:
            return _read_pieces(out, access, lane, wish, straight, name)
        return out.assign(name, gather(out, access, lane, wish, rare=True))
    offset, common, _ = plan
    vector = _read_spaced(out, access, offset, lane.width, stride)
    value = Operation("select", (mask, vector, Number(access.fill, name.dtype, lane.width)), name.dtype, lane.width)
    reach = needed(within(offset, access.elements - stride * (lane.width - 1), access.missing), out.ranges)
    condition = conjunction(reach)
    if condition is None:
        out.assign(name, guarded(common, value, access.fill))
        return
    with out.when(condition):
        out.assign(name, guarded(common, value, access.fill))
    with out.otherwise():
        out.assign(name, gather(out, access, lane, wish, rare=True))


def _readable_pieces(out: Writer, access: Access, lane: Lane) -> tuple[Piece, ...] | None:
    """The straight pieces of a vector that wraps, if each can be read whole and masked: its array's size is known."""
    if not access.elements or BITS[register_dtype(access.pointer.dtype)] not in MASK_BITS:
        return None
    return straight_pieces(access.offset, access.tests, lane, out.ranges)


def _read_pieces(
    out: Writer, access: Access, lane: Lane, wish: str, straight: tuple[Piece, ...], name: Name
) -> None:
    """`name` put together of whole vectors, each piece's lanes chosen by a mask, where all of them stay inside the
    array, else lane by lane."""
    firsts = [piece.offset.substitute({lane.variable: Index()}) for piece in straight]
    reach = tuple(t for at in firsts for t in within(at, access.elements - (lane.width - 1), access.missing))

    def chosen() -> None:
        out.assign(name, Number(access.fill, name.dtype, lane.width))
        for piece, first in zip(straight, firsts, strict=True):
            vector = read_at(out, access, first, lane.width)
            mask = piece_mask(out.ranges, piece, lane, BITS[name.dtype])
            out.assign(name, Operation("select", (mask, vector, name), name.dtype, lane.width))

    condition = conjunction(needed(reach, out.ranges))
    if condition is None:
        chosen()
        return
    with out.when(condition):
        chosen()
    with out.otherwise():
        out.assign(name, gather(out, access, lane, wish, rare=True))


def put(out: Writer, access: Access, value: Expr, lane: Lane | None, store: Store = ONE_BY_ONE) -> None:
    """`value` (a vector where `lane` is given) stored where the tests hold.

    ``store.streaming``: whole vectors bypass the caches, where the address turns out to be aligned (the
    instructions for it want that; with ``on_lines`` it always is).  ``store.adds``: scalars, added to what is there.
    """
    if lane is not None and access.moved:
        _write_apart(out, access, out.atom("value", value), lane)
        return
    access = access.coarsened(lane)
    if lane is None:
        with when_all(out, access.tests):
            _write(out, access, access.offset, value, store.adds)
        return
    plan = vector_plan(out.ranges, access.offset, access.tests, lane)
    value = value if value.lanes > 1 else Broadcast(value, lane.width)
    if plan is None:
        _write_broken(out, access, out.atom("value", value), lane, None)
        return
    offset, common, edge = plan
    if not edge:
        with when_all(out, common):
            _write_vector(out, access, offset, value, store)
        return
    value = out.atom("value", value)
    condition = conjunction((*common, *edge))
    assert condition is not None
    with out.when(condition):
        _write_vector(out, access, offset, value, store)
    with out.otherwise():
        _write_broken(out, access, value, lane, plan)


def _write_apart(out: Writer, access: Access, value: Expr, lane: Lane) -> None:
    """A vector of which each lane has a place of its own."""
    for number, moved in enumerate(access.moved):
        at = {lane.variable: Index.of(number)}
        tests = tuple(replace(test, index=test.index.substitute(at).simplify(out.ranges)) for test in access.tests)
        with when_all(out, tuple(needed(tests, out.ranges))):
            offset = access.offset.substitute(at) + moved
            _write(out, access, offset, Pick(value, number) if value.lanes > 1 else value)


def _write_broken(out: Writer, access: Access, value: Expr, lane: Lane, plan: VectorPlan | None) -> None:
    """A vector that is not whole: by masks where the language has them, else lane by lane."""
    mask = store_mask(out, access, lane)
    if mask is not None and plan is not None:
        offset, common, _ = plan
        pointer, short = out.place(access.pointer, offset)
        with when_all(out, common):
            out.write(Write(pointer, short, value, mask=mask))
        return
    straight = _masked_pieces(out, access, lane)
    if straight is None:
        _scatter(out, access, value, lane)
        return
    for piece in straight:
        pointer, short = out.place(access.pointer, piece.offset.substitute({lane.variable: Index()}))
        out.write(Write(pointer, short, value, mask=piece_mask(out.ranges, piece, lane, mask_bits(pointer.dtype))))


def _masks(out: Writer, access: Access, lane: Lane) -> bool:
    """Whether the language can write chosen lanes of such a vector at once."""
    return (access.pointer.dtype, lane.width) in out.masked_stores and access.pointer.scope == GLOBAL


def _masked_pieces(out: Writer, access: Access, lane: Lane) -> tuple[Piece, ...] | None:
    """The straight pieces of a vector that wraps, where the language can write chosen lanes of each at once."""
    if not _masks(out, access, lane):
        return None
    return straight_pieces(access.offset, access.tests, lane, out.ranges)


def store_mask(out: Writer, access: Access, lane: Lane) -> Expr | None:
    """The mask of the lanes written of a vector that is not whole, where the language can write them at once."""
    if not _masks(out, access, lane):
        return None
    return lane_mask(out.ranges, access.offset, access.tests, lane, mask_bits(access.pointer.dtype))


def has_edge(out: Writer, access: Access, lane: Lane | None, *, storing: bool = False) -> bool:
    """Whether access along the lane needs a path element by element that only the run decides on."""
    if lane is None:
        return False
    access = access.coarsened(lane)
    varying = depends(access.offset, access.tests, lane)
    if edges_known(access.offset, access.tests, lane, out.unrolled):
        return False
    if storing and varying and any(f(out, access, lane) is not None for f in (store_mask, _masked_pieces)):
        return False
    plan = vector_plan(out.ranges, access.offset, access.tests, lane) if varying else None
    return plan is None or bool(plan[2])


# Spelling --------------------------------------------------------------------------------------


def _read_spaced(out: Writer, access: Access, offset: Index, lanes: int, stride: int) -> Expr:
    """A vector of adjacent elements from `offset` on, or (stride 2) of every other one, from two vectors that end with
    it."""
    first = read_at(out, access, offset, lanes)
    if stride == 1:
        return first
    return _every_other(first, read_at(out, access, offset + (lanes - 1), lanes), lanes)


def _every_other(first: Expr, second: Expr, lanes: int) -> Expr:
    """Every other element of two vectors that share one."""
    return Shuffle(first, second, (*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2)))


def _scatter(out: Writer, access: Access, value: Expr, lane: Lane) -> None:
    """Element by element: one loop, or where the address wraps once two whose addresses are straight."""
    array = out.array("lanes", PRIVATE, value.dtype, lane.width, alignment(value.dtype, lane.width))
    out.write(Write(array, Index(), value, aligned=True))
    straight = pieces(access.offset, access.tests, lane, out.ranges) or (Piece(access.offset, access.tests),)
    known = edges_known(access.offset, access.tests, lane, out.unrolled)
    for piece in straight:
        tests = tuple(needed(piece.tests, out.ranges))
        with out.loop(lane.variable, lane.width, (0, lane.width - 1), unroll=known) as at, when_all(out, tests):
            _write(out, access, piece.offset, Read(array, at, value.dtype))


def _write(out: Writer, access: Access, offset: Index, value: Expr, adds: bool = False) -> None:
    pointer, short = out.place(access.pointer, offset)
    if is_narrow(pointer.dtype) and pointer.dtype != "float16":
        value = maths.call(out, f"{pointer.dtype}_bits", value)
        pointer = replace(pointer, dtype=moved_dtype(pointer.dtype))
    aligned = access.aligned(offset, value.lanes)
    out.write(Write(pointer, short, value, aligned=aligned, asynchronous=access.asynchronous, adds=adds))


_PIECE_BYTES = 16
"""Bytes at which NumPy's arrays begin at least."""


def _write_vector(out: Writer, access: Access, offset: Index, value: Expr, store: Store) -> None:
    if not store.streaming or is_narrow(access.pointer.dtype):
        _write(out, access, offset, value)
        return
    if store.on_lines:
        pointer, short = out.place(access.pointer, offset)
        out.write(Write(pointer, short, value, streaming=True, aligned=True))
        return
    value = out.atom("value", value)
    pointer, short = out.place(access.pointer, offset)
    size = STORAGE_BYTES[pointer.dtype]
    whole, part = value.lanes, max(1, _PIECE_BYTES // size)
    with out.when(_aligned(pointer, short, whole, size)):
        out.write(Write(pointer, short, value, streaming=True, aligned=True))
    with out.otherwise():
        if part < whole:  # host arrays begin at multiples of 16 bytes only: narrower stores past the caches still do
            with out.when(_aligned(pointer, short, part, size)):
                for first in range(0, whole, part):
                    piece = Shuffle(value, value, tuple(range(first, first + part)))
                    out.write(Write(pointer, short + first, piece, streaming=True, aligned=True))
            with out.otherwise():
                out.write(Write(pointer, short, value))
        else:
            out.write(Write(pointer, short, value))


def _aligned(pointer: Pointer, offset: Index, lanes: int, size: int) -> Aligned:
    """Whether vectors of `lanes` may be streamed to ``pointer + offset``: what divides evenly needs no test."""
    odd = Index(tuple((a, c) for a, c in offset.terms if c % lanes), offset.const % lanes)
    return Aligned(pointer, odd, lanes * size)
