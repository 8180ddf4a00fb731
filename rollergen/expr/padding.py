"""Padding: a sliding-window operand copied so that every tap is a constant shift of the address.

Like packing, the copy is an ordinary elementwise tensor op into a temporary.
"""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.guards import secured
from rollergen.expr.index import Index
from rollergen.expr.packing import fresh_axis, fresh_buffer, replace_load
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import Buffer, Load, Value, Within, substitute_axes, transform
from rollergen.hal.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """One windowed dimension: ``stride * position + dilation * tap + constant``, over ``positions`` and ``taps``."""

    dim: int
    position: str
    positions: int
    stride: int
    tap: str
    taps: int
    dilation: int
    constant: int
    multiple: int = 1

    @property
    def span(self) -> int:
        """Lines of one phase that all positions and taps reach, as a multiple of ``multiple``."""
        return -(-(self.positions + self.dilation * (self.taps - 1) // self.stride) // self.multiple) * self.multiple


def pad_view(op: TensorOp, load: Load, multiple: int = 1) -> tuple[TensorOp, TensorOp] | None:
    """A sliding-window operand copied into a padded, phase-split buffer and its positions flattened.

    The copy has shape [other dimensions..., stride of each window above 1..., span of each window...]:
    tap t of position p lies ``(dilation * t) // stride`` lines further in phase ``(dilation * t) % stride``.
    So the positions of all windows can be taken as one axis over the padded lines, every tap is a
    constant shift of the address, and no tap needs a guard.  Positions in the padding of a line are
    computed and not stored (`TensorOp.where`).  Lines are padded to multiples of `multiple` elements.

    None where the load is no such window, or its positions are not the last axes of the output.
    """
    windows = find_windows(op, load)
    dims = {w.dim for w in windows}
    rest = [d for d in range(len(load.indices)) if d not in dims]
    positions = {w.position for w in windows}
    outside = _leaving(op, load)
    if not windows or any(load.indices[d].axes() & positions or load.indices[d] in outside for d in rest):
        return None
    windows[-1] = replace(windows[-1], multiple=multiple)
    copy = _padding_copy(op, load, windows, rest)
    return copy, _flat_windows(op, load, copy.output, windows, rest)


def find_windows(op: TensorOp, load: Load) -> list[Window]:
    """The windowed dimensions of `load`, if they are the output's last axes, affine, and all that is guarded."""
    spatial = {a.name: a.extent for a in op.of_role("spatial")}
    reduced = {a.name: a.extent for a in op.of_role("reduce")}
    found = []
    for dim, index in enumerate(load.indices):
        own = [(str(a), c) for a, c in index.terms if a in spatial]
        taps = [(str(a), c) for a, c in index.terms if a in reduced]
        if len(own) == 1 and len(taps) == 1 and len(index.terms) == 2 and own[0][1] > 0 and taps[0][1] > 0:
            (position, stride), (tap, dilation) = own[0], taps[0]
            found.append(Window(dim, position, spatial[position], stride, tap, reduced[tap], dilation, index.const))
    last = list(spatial)[-len(found) :] if found else []
    plain = all(index.is_affine for index in load.indices)
    guarded = all(bound.index in {load.indices[w.dim] for w in found} for bound in load.guard)
    return found if plain and guarded and [w.position for w in found] == last else []


def _padding_copy(op: TensorOp, load: Load, windows: list[Window], rest: list[int]) -> TensorOp:
    """``padded[rest..., phases..., lines...] = load at stride * line + phase + constant``, fill outside."""
    kept = [Axis(fresh_axis(op, f"dim{d}"), load.buffer.shape[d]) for d in rest]
    phases = {w.dim: Axis(fresh_axis(op, f"phase{w.dim}"), w.stride) for w in windows if w.stride > 1}
    lines = {w.dim: Axis(fresh_axis(op, f"line{w.dim}"), w.span) for w in windows}
    axes = (*kept, *phases.values(), *lines.values())
    source = {d: Index.axis(axis.name) for d, axis in zip(rest, kept, strict=True)}
    for w in windows:
        phase = Index.axis(phases[w.dim].name) if w.dim in phases else Index()
        source[w.dim] = Index.axis(lines[w.dim].name) * w.stride + phase + w.constant
    ranges = {a.name: (0, a.extent - 1) for a in axes}
    bounds = [Within(source[w.dim], *_range(load, w.dim)) for w in windows]
    original = replace(
        load,
        indices=tuple(source[d] for d in range(len(load.indices))),
        guard=tuple(bound for bound in bounds if not bound.always(ranges)),
    )
    shape = tuple(a.extent for a in axes)
    padded = Buffer(fresh_buffer(op, f"{load.buffer.name}_padded"), shape, load.buffer.dtype, "temporary")
    return TensorOp(padded, axes, tuple(Index.axis(a.name) for a in axes), original)


def with_halo(op: TensorOp, load: Load) -> tuple[TensorOp, TensorOp] | None:
    """A guarded operand copied with what it holds outside its bounds around it, and `op` that reads it unguarded.

    The copy has the operand's dimensions, the guarded ones as long as indices reach, so that neighbours stay what they
    were: channels that lie last are loaded as vectors.  None where indices are not affine, or guard something else.
    """
    guarded = {bound.index for bound in load.guard}
    if not guarded or not guarded <= {*load.indices} or not all(index.is_affine for index in load.indices):
        return None
    guarded |= _leaving(op, load)
    axes, source, inside, places = [], [], [], []
    for dim, (index, extent) in enumerate(zip(load.indices, load.buffer.shape, strict=True)):
        first, last = index.bounds(op.ranges()) if index in guarded else (0, extent - 1)
        axes.append(Axis(fresh_axis(op, f"dim{dim}"), last - first + 1))
        source.append(Index.axis(axes[-1].name) + first)
        places.append(index - first)
        if index in guarded:
            inside.append(Within(source[-1], *_range(load, dim)))
    shape = tuple(axis.extent for axis in axes)
    padded = Buffer(fresh_buffer(op, f"{load.buffer.name}_padded"), shape, load.buffer.dtype, "temporary")
    original = replace(load, indices=tuple(source), guard=tuple(inside))
    copy = TensorOp(padded, tuple(axes), tuple(Index.axis(axis.name) for axis in axes), original)
    return copy, replace_load(op, load, Load(padded, tuple(places)))


def _leaving(op: TensorOp, load: Load) -> set[Index]:
    """The indices that the guard of another one keeps within the array."""
    ranges = op.ranges()
    inside = lambda index, extent: Within(index, 0, extent).always(ranges)
    return {index for index, extent in zip(load.indices, load.buffer.shape, strict=True) if not inside(index, extent)}


def _range(load: Load, dim: int) -> tuple[int, int]:
    """The first index along a dimension that is read, and the one behind the last: of the array, and of the guard."""
    own = [bound for bound in load.guard if bound.index == load.indices[dim]]
    return max([0, *(bound.low for bound in own)]), min([load.buffer.shape[dim], *(bound.high for bound in own)])


def _flat_windows(
    op: TensorOp, load: Load, padded: Buffer, windows: list[Window], rest: list[int]
) -> TensorOp:
    """`op` over one flat axis of positions instead of the windows' own, reading `padded`."""
    flat = fresh_axis(op, "_".join(w.position for w in windows))
    strides = _strides([w.span for w in windows])
    position, inside = _positions(flat, windows, strides)
    rewritten = replace_load(op, load, _shifted(load, padded, flat, windows, strides, rest))
    count = sum((w.positions - 1) * stride for w, stride in zip(windows, strides, strict=True)) + 1
    axes = [a for a in op.axes if a.name not in position]
    spatial, others = [a for a in axes if a.role == "spatial"], [a for a in axes if a.role != "spatial"]
    axes = [*spatial, Axis(flat, count), *others]
    ranges = {a.name: (0, a.extent - 1) for a in axes}

    def within(node: Value) -> Value | None:
        """Other operands have no elements for the positions in the padding of a line."""
        return secured(node, ranges) if isinstance(node, Load) and node.buffer.name != padded.name else None

    return replace(
        rewritten,
        axes=tuple(axes),
        target=tuple(index.substitute(position) for index in op.target),
        where=(*op.where, *inside),
        reductions=tuple(
            replace(r, bodies=tuple(transform(substitute_axes(b, position), within) for b in r.bodies))
            for r in rewritten.reductions
        ),
        result=transform(substitute_axes(rewritten.result, position), within),
    )


def _strides(spans: list[int]) -> list[int]:
    strides = [1] * len(spans)
    for d in range(len(spans) - 2, -1, -1):
        strides[d] = strides[d + 1] * spans[d + 1]
    return strides


def _positions(flat: str, windows: list[Window], strides: list[int]) -> tuple[dict[str, Index], list[Within]]:
    """Each window's position as a digit of the flat axis, and the bounds that leave the padding out."""
    found, inside = {}, []
    for d, (w, stride) in enumerate(zip(windows, strides, strict=True)):
        digit = Index.axis(flat) // stride
        found[w.position] = digit if d == 0 else digit % w.span
        if d > 0:
            inside.append(Within(found[w.position], 0, w.positions))
    return found, inside


def _shifted(load: Load, padded: Buffer, flat: str, windows: list[Window], strides: list[int], rest: list[int]) -> Load:
    """The padded operand at the flat position plus each tap's shift.  All lines are one dimension, since a
    position plus its shift may run over a line's end."""
    offset, phases = Index.axis(flat), []
    for w, stride in zip(windows, strides, strict=True):
        shift = Index.axis(w.tap) * w.dilation
        offset = offset + (shift // w.stride) * stride
        if w.stride > 1:
            phases.append(shift % w.stride)
    shape = (*padded.shape[: len(padded.shape) - len(windows)], strides[0] * windows[0].span)
    return Load(replace(padded, shape=shape), (*(load.indices[d] for d in rest), *phases, offset))
