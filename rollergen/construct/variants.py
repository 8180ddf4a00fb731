"""The variants of a contraction: the same result from differently laid out operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rollergen.construct.roles import contraction_roles
from rollergen.expr.aligned_rows import aligned_rows, rows_along_sum, with_longer_rows
from rollergen.expr.dots import dot_products
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.implicit_gemm import implicit_gemm
from rollergen.expr.inner_sums import sums_inside
from rollergen.expr.joining import joined
from rollergen.expr.line_parts import line_parts
from rollergen.expr.narrow_rows import has_narrow_factor, narrow_rows, with_one_row
from rollergen.expr.one_row import one_row
from rollergen.expr.packing import Prepared, in_wider, side_by_side
from rollergen.expr.padding import find_windows, pad_view, with_halo
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Load
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.assemble.contraction import accumulator_dtype
from rollergen.program.assemble.nest import lane_stride
from rollergen.program.assemble.plan import Roles
from rollergen.program.conversions import can_convert
from rollergen.program.lane_windows import window_places
from rollergen.program.matrix import ROW_BYTES, WAVEFRONT, factor_dtype
from rollergen.space.contraction import MOST_ROWS
from rollergen.tile.rules import AlignmentRules, contiguous_axis, vector_lanes


@dataclass(frozen=True, slots=True)
class Variant:
    """A contraction over operands in one layout, and the copies that bring them into it.

    ``copies`` (elementwise tensor ops) run first; ``op`` is the contraction left; ``roles`` are those of its axes.
    ``by_matrices``: for matrix instructions alone.  ``whole_rows``: tiles span n, so that compilers see which lanes a
    guard masks.  ``unrolled``: k is unrolled wholly as well, so that compilers read once what several lines of a tile
    share.
    """

    name: str
    copies: tuple[TensorOp, ...]
    op: TensorOp
    roles: Roles
    whole_rows: bool = False
    unrolled: bool = False
    by_matrices: bool = False


_ALL = AlignmentRules()


def variants(op: TensorOp, device: Device, rules: AlignmentRules = _ALL) -> Iterator[Variant]:
    """Direct, padded (sliding windows along one flat axis) and implicit-GEMM variants, where they exist.

    Devices with a block layer gather while they stage, so they take the implicit GEMM; others want
    addresses that are constant shifts, so they take the padded variant.  Those by instructions for dot products, those
    for matrices alone, and copies into aligned rows are left out where the rules forbid them.
    """
    shapes = rules.shapes
    if not device.kind.threads:
        yield from map(_along_lines, _shifted_variants(op, device))
        if shapes.dot_products and device.kind.dot_products:
            yield from _prepared_variants("dot products", _dots(op, device), device)
        yield from _prepared_variants("in float32", in_wider(op, "float32"), device)
        return
    yield from _staged_variants(op)
    if shapes.matrix_instructions and _by_matrices(op, device, rules):
        yield from _gathered_variants(op)
        row = one_row(op)
        yield from () if row is None else _variant("one row", (), row)
    if shapes.matrix_instructions and has_narrow_factor(op) and any(map(can_convert, device.instructions)):
        yield from _converted_variants(op)
    halves = in_wider(op, "float16") if shapes.matrix_instructions else None
    if halves is not None and any(one.is_matrix and one.dtype == "float16" for one in device.instructions):
        for one in variants(halves.op, device, rules):
            copies = joined((*halves.copies, *one.copies), one.op)
            yield replace(one, name=f"in float16, {one.name}", copies=copies, by_matrices=True)
    if shapes.aligned_rows:
        yield from _aligned_variants(op, device, rules)
    prepared = _dots(op, device) if shapes.dot_products and device.kind.dot_products else None
    if prepared is not None:
        prepared = with_longer_rows(prepared, ROW_BYTES) if shapes.aligned_rows else prepared
        for one in _staged_variants(prepared.op):
            yield replace(one, name=f"dot products, {one.name}", copies=joined(prepared.copies, one.op))


def _aligned_variants(op: TensorOp, device: Device, rules: AlignmentRules) -> Iterator[Variant]:
    """Products over factors that are copied into rows which vectors move, along the sum where matrix instructions want
    that."""
    for rows in aligned_rows(op, ROW_BYTES):
        names = [one.loads()[0].buffer.name for one in rows.copies]
        yield from _variant(f"aligned rows of {' and '.join(names)}", rows.copies, rows.op)
    factors = {factor_dtype(one) for one in device.instructions if one.is_matrix and rules.allows(one)}
    wavefronts = {one.dtype for one in device.instructions if one.layout == WAVEFRONT}
    turned = {dtype for dtype in factors if ITEMSIZE[dtype] != 2 or dtype in wavefronts}
    along = rows_along_sum(op, ROW_BYTES) if turned & {load.dtype for load in op.body_loads()} else None
    if along is not None:
        yield from _variant("aligned rows along the sum", along.copies, along.op)


def _converted_variants(op: TensorOp) -> Iterator[Variant]:
    """Products whose narrow factors threads convert on the way to matrix instructions, in rows along the sum: as they
    lie, or copied."""
    rows = with_one_row(op)
    whole = op if rows is None else rows
    product = implicit_gemm(whole) or whole
    prepared = narrow_rows(product)
    name = "converted" if prepared is None else "converted, narrow rows along the sum"
    copies, made = ((), product) if prepared is None else (prepared.copies, prepared.op)
    for one in _variant(name, copies, made):
        swapped = replace(one.roles, n=one.roles.m, m=one.roles.n)
        yield replace(one, by_matrices=True)
        yield replace(one, name=f"{name}, turned", roles=swapped, by_matrices=True)


def _dots(op: TensorOp, device: Device) -> Prepared | None:
    return dot_products(op, contiguous_axis(op.stored()), device.kind.dot_products)


def _staged_variants(op: TensorOp) -> Iterator[Variant]:
    """For devices with a block layer."""
    gemm = implicit_gemm(op)
    merged = () if gemm is None else tuple(_variant("implicit GEMM", (), gemm))
    # Merged axes may leave none that is contiguous in the output and an operand.
    yield from merged or _variant("direct", (), op)


def _by_matrices(op: TensorOp, device: Device, rules: AlignmentRules) -> bool:
    """Whether the device multiplies the op's factors, as they are, by matrix instructions."""
    dtypes = {one.dtype for one in device.instructions if one.is_matrix and rules.allows(one)}
    return device.kind.matrix_instructions and all(load.dtype in dtypes for load in op.body_loads())


def _gathered_variants(op: TensorOp) -> Iterator[Variant]:
    """For NCHW convolutions: a block computes results of one image, so that vectors store them; or the convolution runs
    on an NHWC copy, by image or over all pixels of all images, of which none are left over at the end of each."""
    by_image = implicit_gemm(op, by_image=True)
    if by_image is not None:
        yield from map(_as_product, _variant("implicit GEMM by image", (), by_image))
    inside = sums_inside(op)
    if inside is not None:
        apart, whole = implicit_gemm(inside.op, by_image=True), implicit_gemm(inside.op)
        name = "channels last, images together" if apart else "channels last"
        yield from map(_as_product, _variant("channels last", inside.copies, apart) if apart else ())
        yield from map(_as_product, _variant(name, inside.copies, whole) if whole else ())


def _as_product(variant: Variant) -> Variant:
    """The variant with the m of a product, if there is one: an axis of the factor without n, and of none with n.

    The longest axis is another one where images are many and filters few."""
    roles, loads = variant.roles, variant.op.body_loads()
    own = [load.axes() for load in loads if roles.n not in load.axes()]
    across = [one for one in variant.op.of_role("spatial") if own and all(one.name in axes for axes in own)]
    across = [one for one in across if not any({one.name, roles.n} <= load.axes() for load in loads)]
    if not across or roles.m in [one.name for one in across]:
        return variant
    m = max(across, key=lambda axis: axis.extent).name
    batch = tuple(one for one in (roles.m, *roles.batch) if one is not None and one != m)
    return replace(variant, roles=replace(roles, m=m, batch=batch))


def _prepared_variants(name: str, prepared: Prepared | None, device: Device) -> Iterator[Variant]:
    """The variants of a contraction over operands in another form, made beforehand, if there is such a form."""
    if prepared is not None:
        for one in _shifted_variants(prepared.op, device):
            copies = joined((*prepared.copies, *one.copies), one.op)
            yield replace(one, name=f"{name}, {one.name}", copies=copies)


def _variant(name: str, copies: tuple[TensorOp, ...], op: TensorOp) -> Iterator[Variant]:
    for roles in contraction_roles(op):
        yield Variant(name, copies, op, roles)


def _shifted_variants(op: TensorOp, device: Device) -> Iterator[Variant]:
    padded = False
    for load in op.body_loads():
        pair = pad_view(op, load)
        if pair is not None:
            padded = True
            yield from _variant("padded", (pair[0],), pair[1])
            yield from _window_variants(op, load, vector_lanes(device, accumulator_dtype(op)))
        elif (around := with_halo(op, load)) is not None:
            padded = True
            yield from _variant("padded", (around[0],), around[1])
    if not padded or not any(load.guard for load in op.body_loads()):
        yield from _variant("direct", (), op)
    else:
        yield from _row_variant(op)
        yield from [one for one in _variant("direct", (), op) if _guards_whole_vectors(op, one.roles)]
    for load in op.body_loads():
        together = side_by_side(op, load)
        if together is not None:
            yield from _variant("side by side", together.copies, together.op)
    yield from _lines_variant(op, device)
    yield from _neighbours_variant(op)
    yield from _short_rows(op, device)
    windows = (padded or _windowed(op)) and not op.has_dot_products
    gemm = implicit_gemm(op) if windows else None
    if gemm is not None:
        gathered = [*_gathered_from_halos(op)]
        if not gathered or not any(_is_short_image(op, load) for load in op.body_loads()):
            yield from _variant("implicit GEMM", (), gemm)
        yield from gathered


def _is_short_image(op: TensorOp, load: Load) -> bool:
    """Whether the load's windows are those of one image whose lines of results a register tile holds."""
    spatial = {axis.name for axis in op.of_role("spatial")}
    sliding = [axis for axis, _ in sliding_pairs(op, [load])]
    whole = bool(load.guard and sliding) and load.axes() & spatial == {*sliding}
    return whole and op.axis(sliding[-1]).extent <= MOST_ROWS


def _gathered_from_halos(op: TensorOp) -> Iterator[Variant]:
    """Windows gathered from a copy with what lies outside around it, so that no element is tested: those that lie
    apart, and those of a short image, whose tiles are whole lines.  (Lines that tiles cut, and images that they go
    across, have rows without a common stride: 17 x 17 took 1.28 times as long as down columns, 4 x 7 x 7 1.17 times.)

    (One core of a Zen 4, 3 x 3, with a test for each element and without: 512 x 7 x 7 to 512 2.48 and 2.23 ms, 256 x 5
    x 5 to 256 .35 and .30.)
    """
    for load in op.body_loads():
        apart = load.guard and any(window.stride > 1 for window in find_windows(op, load))
        around = with_halo(op, load) if apart or _is_short_image(op, load) else None
        gemm = implicit_gemm(around[1]) if around is not None else None
        if around is not None and gemm is not None:
            yield from _variant("padded, implicit GEMM", (around[0],), gemm)


def _window_variants(op: TensorOp, load: Load, lanes: int) -> Iterator[Variant]:
    """Windows without reuse along other axes, taps of a column unrolled: where lines are whole vectors, a vector
    that one tap reads is read by the next line's as well.  (Filters are such an axis where lines are more, too: they
    are that of reuse once lines and columns are one.)"""
    pair = pad_view(op, load, lanes)
    if pair is None or any(reuses(one, roles) for one in (op, pair[1]) for roles in contraction_roles(one)):
        return
    for roles in contraction_roles(pair[1]):
        if roles.taps:
            swapped = replace(roles, k=roles.taps[-1], taps=(*roles.taps[:-1], roles.k))
            yield Variant("padded lines", (pair[0],), pair[1], swapped)


def reuses(op: TensorOp, roles: Roles) -> bool:
    """Whether an operand that varies along n is the same along m."""
    return roles.m is not None and any(roles.m not in load.axes() for load in operands(op, roles.n))


def _along_lines(variant: Variant) -> Variant:
    """The variant with rows of a tile along the lines of an image where its lines are as many as its columns, and
    without the tap along them among the unrolled ones.

    Rows down a column read a line of memory each, and no prefetcher follows them into the next channel.  Neighbours
    along a line read elements in common, which compilers keep for the next unrolled tap in registers that such a tile
    has not got.  (Filters of 3 x 3 with stride 2 in the lanes, one core of a Zen 4: 4 x 64 x 56 x 56 to 128 takes
    6.0 ms down columns, 5.1 along lines, 4.4 with the tap outside; 256 x 28 x 28 to 256 takes 2.2, 2.5 and 2.2.)
    """
    roles, op = variant.roles, variant.op
    pairs = [(axis, tap) for axis, tap in sliding_pairs(op, op.body_loads()) if tap in roles.taps]
    slides = roles.m in [axis for axis, _ in pairs]
    batch = [axis for axis in roles.batch if op.axis(axis).extent == op.axis(roles.m or "").extent] if slides else []
    alike = [(axis, tap) for axis, tap in pairs if axis in batch]
    if not alike:
        return variant
    m, along = alike[-1]
    others = tuple(str(roles.m) if axis == m else axis for axis in roles.batch)
    taps = (along, *(tap for tap in roles.taps if tap != along))
    return replace(variant, roles=replace(roles, m=m, batch=others, taps=taps))


def _guards_whole_vectors(op: TensorOp, roles: Roles) -> bool:
    """Whether what is guarded is read along n, and whole vectors of it at once (images whose channels are innermost):
    a branch beside a tap costs less than a copy of the image."""
    guarded = [load for load in op.body_loads() if load.guard]
    names = frozenset().union(*[bound.index.names() for load in guarded for bound in load.guard])
    return roles.n not in names and all(roles.n in load.axes() for load in guarded)


def _row_variant(op: TensorOp) -> Iterator[Variant]:
    """Guarded windows without reuse along other axes (depthwise convolutions, pooling): row by row, nothing copied."""
    for roles in contraction_roles(op):
        if not reuses(op, roles):
            batch = roles.batch if roles.m is None else (*roles.batch, roles.m)
            yield Variant("direct", (), op, replace(roles, m=None, batch=batch), whole_rows=True)


def _lines_variant(op: TensorOp, device: Device) -> Iterator[Variant]:
    """Windows without reuse along other axes, several lines of outputs in a tile, all taps unrolled: a line of the
    image is read once for all outputs that it serves, and where nothing but the image is read, its part of a window is
    put together once.  Where the device reads chosen lanes at once, so that what guards cut has no path of its own."""
    for roles in contraction_roles(op):
        n, reduced = roles.n, [axis.name for axis in op.of_role("reduce")]
        loads = operands(op, n)
        if len(reduced) != 2 or reuses(op, roles) or not all(_read_masked(load, n, device) for load in loads):
            continue
        pairs = sliding_pairs(op, loads)
        along = [tap for axis, tap in pairs if axis == n]
        down = [(axis, tap) for axis, tap in pairs if axis != n and tap not in along]
        if along and down:
            m, tap = down[-1]
            batch = tuple(a.name for a in op.of_role("spatial") if a.name not in (n, m))
            yield Variant("direct, lines", (), op, Roles(n, m, batch, along[0], (tap,)), unrolled=True)
            parts = line_parts(op, along[0]) if len(op.body_loads()) == len(loads) else None
            if parts is not None:
                yield Variant("direct, parts of lines first", (), parts, Roles(n, m, batch, tap, ()), unrolled=True)


def _neighbours_variant(op: TensorOp) -> Iterator[Variant]:
    """Windows without reuse along other axes that overlap along others than n (pooling of images whose channels are
    innermost), neighbours along a line in a tile: they read what they share once, and none waits for another one.

    (One core of a Zen 5, us, in tiles of one and of several.  Maxima of 3 x 3: 64 x 112 x 112 with stride 2 82 and 63,
    256 x 28 x 28 71 and 64; means: 76 and 48, 256 x 35 x 35 67 and 48.  Windows of 2 x 2 with stride 2 share nothing:
    64 x 112 x 112 48 and 40, but 256 x 56 x 56 43 and 51.)
    """
    for roles in contraction_roles(op):
        pairs = sliding_pairs(op, operands(op, roles.n))
        guarded = any(load.guard for load in op.body_loads())
        apart = roles.m is None and pairs and {axis for axis, _ in pairs} <= {*roles.batch}
        if apart and _overlaps(op, *pairs[-1]) and (not guarded or _guards_whole_vectors(op, roles)):
            m = pairs[-1][0]
            batch = tuple(axis for axis in roles.batch if axis != m)
            yield Variant("direct, neighbours", (), op, replace(roles, m=m, batch=batch))


def _overlaps(op: TensorOp, axis: str, tap: str) -> bool:
    """Whether neighbours along the axis read elements in common; what a remainder of both says is unknown."""
    indices = [index for load in op.body_loads() for index in load.indices if {axis, tap} <= index.axes()]
    steps = [(index.coefficient(axis), index.coefficient(tap)) for index in indices]
    return any(taps and step % taps == 0 and 0 < step < taps * op.axis(tap).extent for step, taps in steps)


def _short_rows(op: TensorOp, device: Device) -> Iterator[Variant]:
    """Windows whose rows are no longer than a vector, several rows in a tile: blocks of one would be too short."""
    lanes = vector_lanes(device, accumulator_dtype(op))
    for roles in contraction_roles(op):
        if roles.m is None and roles.batch and op.axis(roles.n or "").extent <= lanes:
            yield Variant("direct, short rows", (), op, replace(roles, m=roles.batch[-1], batch=roles.batch[:-1]))


def sliding_pairs(op: TensorOp, loads: Sequence[Load]) -> list[tuple[str, str]]:
    """(spatial axis, tap) of every dimension along which a load's window slides, outermost first."""
    reduced = {axis.name for axis in op.of_role("reduce")}
    found = []
    for load in loads:
        for index in load.indices:
            moving, taps = index.axes() - reduced, index.axes() & reduced
            if index.is_affine and len(moving) == len(taps) == 1:
                found.append((next(iter(moving)), next(iter(taps))))
    return list(dict.fromkeys(found))


def _read_masked(load: Load, n: str | None, device: Device) -> bool:
    """Whether chosen lanes of the load's vectors along n can be read at once."""
    dtypes = {dtype for dtype, _ in device.kind.masked_loads}
    return load.dtype in dtypes and lane_stride(load, n or "") in (1, 2)


def _windowed(op: TensorOp) -> bool:
    return len(op.of_role("reduce")) > 1


def operands(op: TensorOp, axis: str | None) -> list[Load]:
    """Loads of the reduction that vary along `axis`."""
    return [load for load in op.body_loads() if axis is not None and axis in load.axes()]


def needs_packing(op: TensorOp, roles: Roles, lanes: int) -> list[Load]:
    """Operands whose neighbours along n are not neighbours in memory, or are guarded one by one:
    lanes cannot load them.  (Every other element is read as two vectors, as lanes chosen from a window are.)"""
    n = roles.n or ""
    apart = [load for load in operands(op, roles.n) if lane_stride(load, n) not in (0, 1, 2)]
    return [load for load in apart if window_places(load.offset(), n, lanes, op.axis(n).extent) is None]
