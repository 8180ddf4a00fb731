"""Rewrites that move an operand into a layout of its own before it is used: packing, padding.

Each returns definitions only: the copy is an ordinary elementwise stage into a temporary, so all
readers of a program treat it like any other stage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rollergen.expr.definition import Axis, Definition
from rollergen.expr.index import Index, Within
from rollergen.expr.values import Buffer, Load, Value, substitute_axes, transform


def replace_load(definition: Definition, old: Load, new: Load) -> Definition:
    """`definition` with every occurrence of one load replaced."""

    def change(value: Value) -> Value | None:
        return new if value == old else None

    reductions = tuple(
        replace(reduction, bodies=tuple(transform(body, change) for body in reduction.bodies))
        for reduction in definition.reductions
    )
    return replace(definition, reductions=reductions, result=transform(definition.result, change))


def pack_operand(definition: Definition, load: Load, axis: str, width: int) -> tuple[Definition, Definition]:
    """`load` copied once into panels of `width` along `axis`; (the copying stage, the rewritten user).

    The panel buffer has shape [other spatial axes..., ceil(extent / width), reduce axes..., width],
    zero-padded (with the load's fill) beyond the axis: a view is materialised as it is iterated, so
    packing the image of a convolution is im2col.
    """
    extent = definition.axis(axis).extent
    used = load.axes()
    outer = [a for a in definition.of_role("spatial", "row") if a.name in used and a.name != axis]
    reduced = [a for a in definition.of_role("reduce") if a.name in used]
    panel, column = _fresh(definition, axis + "_panel"), _fresh(definition, axis + "_column")
    axes = (
        *(replace(a, role="spatial") for a in outer),
        Axis(panel, -(-extent // width)),
        *(replace(a, role="spatial") for a in reduced),
        Axis(column, width),
    )
    packed = Buffer(f"{load.buffer.name}_packed", tuple(a.extent for a in axes), load.buffer.dtype, "temporary")
    position = Index.axis(panel) * width + Index.axis(column)
    guard = tuple(bound.substitute({axis: position}) for bound in load.guard)
    if extent % width:
        guard = (Within(position, 0, extent), *guard)
    source = replace(load, indices=tuple(i.substitute({axis: position}) for i in load.indices), guard=guard)
    copy = Definition(packed, axes, tuple(Index.axis(a.name) for a in axes), source)
    here = Index.axis(axis)
    indices = (
        *(Index.axis(a.name) for a in outer),
        here // width,
        *(Index.axis(a.name) for a in reduced),
        here % width,
    )
    return copy, replace_load(definition, load, Load(packed, indices))


def _fresh(definition: Definition, name: str) -> str:
    taken = {axis.name for axis in definition.axes}
    while name in taken:
        name += "_"
    return name


def pad_view(definition: Definition, load: Load) -> tuple[Definition, Definition] | None:
    """A sliding-window operand copied into a padded, phase-split buffer and its positions flattened.

    For a load whose windowed dimensions are ``stride * position + dilation * tap + constant``, the
    copy has shape [other dimensions..., stride per windowed dimension..., rows..., columns], so that
    tap t of position p lies ``(dilation * t) // stride`` elements further in phase
    ``(dilation * t) % stride``, and the positions of all windowed dimensions can be walked as one axis
    over the padded rows: every tap is then a constant shift of the address and no tap needs a
    guard.  Positions in the padding of a row are computed and not stored (`Definition.where`).
    None where the load is no such window, or its positions are not the last axes of the output.
    """
    windows = _windows(definition, load)
    if not windows:
        return None
    dims = [w.dim for w in windows]
    rest = [d for d in range(len(load.indices)) if d not in dims]
    if any(load.indices[d].axes() & {w.position for w in windows} for d in rest):
        return None
    spans = [definition.axis(w.position).extent + (w.dilation * (w.taps - 1)) // w.stride for w in windows]
    copy_axes, source = [], {}
    for d in rest:
        name = _fresh(definition, f"dim{d}")
        copy_axes.append(Axis(name, load.buffer.shape[d]))
        source[d] = Index.axis(name)
    phases = [Axis(_fresh(definition, f"phase{w.dim}"), w.stride) for w in windows]
    lines = [Axis(_fresh(definition, f"line{w.dim}"), span) for w, span in zip(windows, spans, strict=True)]
    guard = []
    for w, phase, line in zip(windows, phases, lines, strict=True):
        at = Index.axis(line.name) * w.stride + Index.axis(phase.name) + w.constant
        source[w.dim] = at
        guard.append(Within(at, 0, load.buffer.shape[w.dim]))
    kept = [(phase, w) for phase, w in zip(phases, windows, strict=True) if w.stride > 1]
    axes = (*copy_axes, *(phase for phase, _ in kept), *lines)
    single = {phase.name: Index.of(0) for phase, w in zip(phases, windows, strict=True) if w.stride == 1}
    padded = Buffer(f"{load.buffer.name}_padded", tuple(a.extent for a in axes), load.buffer.dtype, "temporary")
    ranges = {a.name: (0, a.extent - 1) for a in axes}
    bounds = [bound.substitute(single) for bound in guard]
    original = replace(
        load,
        indices=tuple(source[d].substitute(single) for d in range(len(load.indices))),
        guard=tuple(bound for bound in bounds if not bound.always(ranges)),
    )
    copy = Definition(padded, axes, tuple(Index.axis(a.name) for a in axes), original)
    return copy, _flatten_positions(definition, load, padded, windows, spans, rest)


@dataclass(frozen=True, slots=True)
class _Window:
    """One windowed dimension: ``stride * position + dilation * tap + constant``."""

    dim: int
    position: str
    stride: int
    tap: str
    dilation: int
    taps: int
    constant: int


def _windows(definition: Definition, load: Load) -> list[_Window]:
    spatial = {a.name for a in definition.of_role("spatial")}
    reduced = {a.name: a.extent for a in definition.of_role("reduce")}
    found = []
    for dim, index in enumerate(load.indices):
        own = [(a, c) for a, c in index.terms if a in spatial]
        taps = [(a, c) for a, c in index.terms if a in reduced]
        if len(own) == 1 and len(taps) == 1 and len(index.terms) == 2 and own[0][1] > 0 and taps[0][1] > 0:
            (position, stride), (tap, dilation) = own[0], taps[0]
            found.append(_Window(dim, str(position), stride, str(tap), dilation, reduced[str(tap)], index.const))
    last = [a.name for a in definition.of_role("spatial")][-len(found) :] if found else []
    plain = all(index.is_affine for index in load.indices)
    guarded = all(bound.index in {load.indices[w.dim] for w in found} for bound in load.guard)
    return found if found and plain and guarded and [w.position for w in found] == last else []


def _flatten_positions(
    definition: Definition, load: Load, padded: Buffer, windows: list[_Window], spans: list[int], rest: list[int]
) -> Definition:
    flat = _fresh(definition, "_".join(w.position for w in windows))
    here = Index.axis(flat)
    extents = [definition.axis(w.position).extent for w in windows]
    strides = [1] * len(windows)
    for d in range(len(windows) - 2, -1, -1):
        strides[d] = strides[d + 1] * spans[d + 1]
    count = sum((e - 1) * s for e, s in zip(extents, strides, strict=True)) + 1
    position = {}
    where = list(definition.where)
    for d, w in enumerate(windows):
        outer = here // strides[d]
        position[w.position] = outer if d == 0 else outer % spans[d]
        if d > 0:
            where.append(Within(position[w.position], 0, extents[d]))
    shifts = [Index.axis(w.tap) * w.dilation for w in windows]
    offset = here
    for s, w, stride in zip(shifts, windows, strides, strict=True):
        offset = offset + (s // w.stride) * stride
    phases = [s % w.stride for s, w in zip(shifts, windows, strict=True) if w.stride > 1]
    # One flat dimension for all lines: a position plus its shift may run over a line's end.
    lines = strides[0] * spans[0]
    shape = (*padded.shape[: len(padded.shape) - len(windows)], lines)
    viewed = replace(padded, shape=shape)
    new = Load(viewed, (*(load.indices[d] for d in rest), *phases, offset))
    axes = tuple(a for a in definition.axes if a.name not in position)
    spatial = [a for a in axes if a.role == "spatial"]
    others = [a for a in axes if a.role != "spatial"]
    rewritten = replace_load(definition, load, new)
    return replace(
        rewritten,
        axes=(*spatial, Axis(flat, count), *others),
        target=tuple(index.substitute(position) for index in definition.target),
        where=tuple(where),
        reductions=tuple(
            replace(r, bodies=tuple(substitute_axes(b, position) for b in r.bodies)) for r in rewritten.reductions
        ),
        result=substitute_axes(rewritten.result, position),
    )
