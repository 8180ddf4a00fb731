"""Packing: an operand copied into panels, or converted, before it is used.

The copy is an ordinary elementwise tensor op into a temporary, so all readers of a program treat it
like any other stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rollergen.expr.canonical import canonical_op
from rollergen.expr.dtypes import is_float
from rollergen.expr.index import Index
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import Binary, Buffer, Cast, Load, Value, Within, transform
from rollergen.hal.dataclass import dataclass
from rollergen.hal.dtypes import FLOAT8


@dataclass(frozen=True, slots=True)
class Prepared:
    """``op`` over operands that ``copies`` make, in order."""

    copies: tuple[TensorOp, ...]
    op: TensorOp


def replace_load(op: TensorOp, old: Load, new: Load) -> TensorOp:
    """`op` with every occurrence of one load replaced."""

    def change(value: Value) -> Value | None:
        return new if value == old else None

    reductions = tuple(
        replace(reduction, bodies=tuple(transform(body, change) for body in reduction.bodies))
        for reduction in op.reductions
    )
    return replace(op, reductions=reductions, result=transform(op.result, change))


def pack_operand(
    op: TensorOp, load: Load, axis: str, width: int, pad_value: float = 0.0
) -> tuple[TensorOp, TensorOp]:
    """`load` copied once into panels of `width` along `axis`; (the copying stage, the rewritten user).

    The panel buffer has shape [other spatial axes..., ceil(extent / width), reduce axes..., width],
    padded beyond the axis with `pad_value`, or with the fill of a load that is guarded itself: a view is
    materialised as it is iterated, so packing the image of a convolution is im2col.
    """
    extent = op.axis(axis).extent
    used = load.axes()
    outer = [a for a in op.of_role("spatial", "row") if a.name in used and a.name != axis]
    reduced = [a for a in op.of_role("reduce") if a.name in used]
    panel, column = fresh_axis(op, axis + "_panel"), fresh_axis(op, axis + "_column")
    axes = (
        *(replace(a, role="spatial") for a in outer),
        Axis(panel, -(-extent // width)),
        *(replace(a, role="spatial") for a in reduced),
        Axis(column, width),
    )
    name = fresh_buffer(op, f"{load.buffer.name}_packed")
    packed = Buffer(name, tuple(a.extent for a in axes), load.buffer.dtype, "temporary")
    position = Index.axis(panel) * width + Index.axis(column)
    guard = tuple(bound.substitute({axis: position}) for bound in load.guard)
    if extent % width:
        guard = (Within(position, 0, extent), *guard)
    indices = tuple(i.substitute({axis: position}) for i in load.indices)
    source = replace(load, indices=indices, guard=guard, fill=_fill(load, pad_value))
    copy = TensorOp(packed, axes, tuple(Index.axis(a.name) for a in axes), source)
    here = Index.axis(axis)
    indices = (
        *(Index.axis(a.name) for a in outer),
        here // width,
        *(Index.axis(a.name) for a in reduced),
        here % width,
    )
    return copy, replace_load(op, load, Load(packed, indices))


def side_by_side(op: TensorOp, load: Load) -> Prepared | None:
    """`op` over a copy of what it reads of an operand, where that lies apart, one element for each position (a 1 x 1
    convolution with a stride), and is read again along another axis.

    Vectors then load neighbours, and lines and columns can be one axis.  None for windows, and for what is guarded.
    (One core of a Zen 5, 512 x 28 x 28 to 1024, 256 x 56 x 56 to 512, 64 x 56 x 56 to 128: 988 -> 843, 957 -> 865,
    65 -> 58 us.)
    """
    lone = all(index.is_affine and len(index.terms) <= 1 for index in load.indices)
    spatial = {axis.name for axis in op.of_role("spatial")}
    apart = any(step > 1 and name in spatial for index in load.indices for name, step in index.terms)
    names = [str(name) for index in load.indices for name, _ in index.terms]
    again = not spatial <= {*names}
    if not (lone and apart and again) or load.guard or load.buffer.packs or len({*names}) < len(names):
        return None
    axes = tuple(replace(op.axis(name), role="spatial") for name in names)
    shape, at = tuple(axis.extent for axis in axes), tuple(map(Index.axis, names))
    buffer = Buffer(fresh_buffer(op, f"{load.buffer.name}_side_by_side"), shape, load.buffer.dtype, "temporary")
    return Prepared((TensorOp(buffer, axes, at, load),), canonical_op(replace_load(op, load, Load(buffer, at))))


def is_in_panels(load: Load, axis: str, lanes: int = 1) -> bool:
    """Whether the load's neighbours along the axis lie in panels of whole vectors, as `pack_operand` makes them."""
    width = load.buffer.shape[-1] if load.indices else 0
    return width > 1 and width % lanes == 0 and load.indices[-1] == Index.axis(axis) % width


def _fill(load: Load, pad_value: float) -> float | int:
    """What lies beyond the axis: of a guarded load its own fill, as there is one fill only."""
    if load.guard or pad_value == 0:
        return load.fill
    return pad_value if is_float(load.dtype) else int(pad_value)


def fresh_axis(op: TensorOp, name: str) -> str:
    """`name`, with underscores appended until no axis has it."""
    taken = {axis.name for axis in op.axes}
    while name in taken:
        name += "_"
    return name


def fresh_buffer(op: TensorOp, name: str) -> str:
    """`name`, with underscores appended until no buffer of the tensor op has it."""
    taken = {op.output.name, *(load.buffer.name for load in op.loads())}
    while name in taken:
        name += "_"
    return name


def in_wider(op: TensorOp, dtype: str) -> Prepared | None:
    """Sums of products of narrower floats with these converted beforehand; None where there are none: to float32, in
    which arithmetic is anyway, or of float8 to float16, which matrix instructions take.

    Each factor of a contraction is read many times."""
    products = [body for reduction in op.reductions for body in reduction.bodies]
    factors = [part for one in products if _is_product(one) for part in one.children()]
    if len(op.reductions) != 1 or len(factors) < 2 * len(products):
        return None
    narrow = dict.fromkeys(part for part in factors if _is_converted(part, _NARROWER[dtype]))
    copies, wide = [], {}
    for part in narrow:
        load = part.x  # type: ignore[attr-defined]
        shape = load.buffer.shape
        output = Buffer(fresh_buffer(op, f"{load.buffer.name}_{dtype}"), shape, dtype, "temporary")
        axes = tuple(Axis(f"dim{dim}", extent) for dim, extent in enumerate(shape))
        places = tuple(Index.axis(axis.name) for axis in axes)
        copies.append(TensorOp(output, axes, places, Cast(Load(load.buffer, places), dtype)))
        wider = replace(load, buffer=output)
        wide[part] = wider if dtype == part.dtype else Cast(wider, part.dtype)
    (reduction,) = op.reductions
    bodies = tuple(transform(product, wide.get) for product in products)
    made = replace(op, reductions=(replace(reduction, bodies=bodies),))
    return Prepared(tuple(dict.fromkeys(copies)), made) if copies else None


_NARROWER = {"float16": FLOAT8, "float32": ("float16", "bfloat16", *FLOAT8)}
"""Floats whose numbers are all numbers of a wider one."""


def _is_product(value: Value) -> bool:
    return isinstance(value, Binary) and value.op == "mul" and value.dtype == "float32"


def _is_converted(value: Value, dtypes: Sequence[str]) -> bool:
    """Whether it is an element of an array of such floats as a float32; a single number is converted in place."""
    load = value.x if isinstance(value, Cast) and value.dtype == "float32" else None
    if not isinstance(load, Load) or not load.buffer.shape:
        return False
    return load.dtype in dtypes
