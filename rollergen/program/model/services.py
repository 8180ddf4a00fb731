"""Costs of the lanes' addresses: wavefronts or transactions of one access by the threads of an execution width."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rollergen.expr.index import Index
from rollergen.hal.spec import Device, MemoryLayer
from rollergen.program.model.block_windows import read_service
from rollergen.program.model.facts import Operand
from rollergen.program.model.lane_rows import OfRows, by_lanes, per_decided, reached
from rollergen.program.model.lanes import evaluate_lanes
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number, ceil_div, choose, least
from rollergen.program.model.tiles import tile_shape
from rollergen.program.model.wavefronts import WIDEST_ACCESS_BYTES, transactions, wavefronts_of_rows
from rollergen.program.rprogram import PARALLEL, Copy
from rollergen.program.windows import of_block


@lru_cache(maxsize=64)
def path_layer(device: Device) -> MemoryLayer | None:
    """The layer through which a unit reads the backing store: its innermost cache."""
    return next((x for x in device.layers if not x.managed and x.scope == "unit"), None)


class Runs(NamedTuple):
    """What neighbouring threads of a fill move: along the axes in ``order`` (positions in the copy's order,
    the last fastest) runs of so many ``elements`` of each, of which the lanes of a width come to the ``first``."""

    order: tuple[int, ...]
    elements: tuple[Number, ...]
    first: list[Number]


def fill_runs(nest: Nest, copy: Copy, shape: tuple[Number, ...]) -> Runs:
    along = copy.order.index(copy.along)
    order = (*(d for d in range(len(shape)) if d != along), along)
    elements = copy.runs or tuple(copy.vector if d == along else 1 for d in range(len(shape)))
    dealt = [ceil_div(shape[d], elements[d]) for d in order]
    return Runs(order, elements, reached(dealt, nest.lockstep))


def fill_service(
    nest: Nest, device: Device, copy: Copy, operand: Operand, shape: tuple[Number, ...], runs: Runs, *, shared: bool
) -> Number:
    """Service of one access of the cooperative fill, for the addresses in the tile or in the tensor."""
    target = device.layer(copy.to_layer) if shared else path_layer(device)
    if target is None or (shared and not target.banks):
        return 1
    order, _, first = runs
    columns = [*first, least(nest.threads, nest.lockstep)]
    rows = shape[0] if copy.panel else 0
    columns += [rows, *shape[1:]] if shared else [_unit(nest, copy, copy.order[d]) for d in order]
    count, along = len(order), order[-1]
    offset = _moved_along(operand.offset, copy.order)

    def decided(vector: int, padding: int) -> OfRows:
        elements = copy.runs or tuple(vector if d == along else 1 for d in range(count))
        width = (vector if not shared or along == count - 1 else 1) * operand.itemsize

        def service(numbers: list[np.ndarray], rows: list[np.ndarray]) -> list[float]:
            at = {d: numbers[n] * elements[d] for n, d in enumerate(order)}
            if shared:
                addresses = _place([at[d] for d in range(count)], rows[count + 1 :], copy, vector, padding)
            else:
                coordinates = {copy.order[d]: at[d] * rows[count + 1 + n] for n, d in enumerate(order)}
                addresses = evaluate_lanes(offset, coordinates, numbers[0].shape)
            return _serve(addresses * operand.itemsize, width, target, merge=False)

        return by_lanes(service, count, nest.lockstep, threads=count)

    dealt = nest.lockstep, order, copy.runs, operand.itemsize
    place = (copy.panel, copy.swizzle) if shared else (offset, copy.order)
    kind = shared, _served_by(target), dealt, place
    return per_decided(kind, decided, (copy.vector, copy.padding if shared else 0), columns)


def _served_by(layer: MemoryLayer) -> tuple[int, ...]:
    """What `_serve` looks at of a layer."""
    return layer.banks, layer.bank_bytes, layer.transaction_bytes


def _unit(nest: Nest, copy: Copy, axis: str) -> Number:
    """Axis elements between neighbouring positions of the tile."""
    inside = nest.inside(axis, copy.at_loop, block=True)
    return nest.loops[inside[-1]].stride * copy.every_of(axis) if inside else 1


def _place(
    positions: list[np.ndarray], shape: Sequence[np.ndarray], copy: Copy, vector: int, padding: int
) -> np.ndarray:
    """Element offset in a staged tile: row-major, padded, swizzled as `Copy` says."""
    row: np.ndarray | int = 0
    rows: np.ndarray | int = 1
    for position, extent in zip(positions[:-1], shape[:-1], strict=True):
        row, rows = row * extent + position, rows * extent
    column = positions[-1]
    if copy.panel:
        within = column % copy.panel
        within = within ^ (row % copy.swizzle) * copy.unit if copy.swizzle > 1 else within
        return (column // copy.panel * rows + row) * copy.panel + within
    if copy.swizzle > 1:
        column = column ^ (row % copy.swizzle) * vector
    return row * (shape[-1] + padding) + column


def _serve(addresses: np.ndarray, width_bytes: int, layer: MemoryLayer, *, merge: bool) -> list[float]:
    """Service of each row's access instruction; a vector wider than 16 bytes is several instructions."""
    parts = ceil_div(width_bytes, WIDEST_ACCESS_BYTES)
    if layer.banks:
        return [one / parts for one in wavefronts_of_rows(addresses, width_bytes, layer, merge_pairs=merge)]
    return [transactions(row, width_bytes, layer.transaction_bytes) / parts for row in addresses]


def thread_service(nest: Nest, device: Device, operand: Operand, width_bytes: Number) -> Number:
    """Service of an access to the tensor itself at each thread's own coordinates."""
    layer = path_layer(device)
    if layer is None or nest.lockstep == 1:
        return 1
    serve = lambda places, width: _serve(places, width, layer, merge=False)
    return _at_threads(nest, operand, width_bytes, serve, _served_by(layer))


def thread_transactions(nest: Nest, operand: Operand, line: int) -> Number:
    """Lines of ``line`` bytes that the threads of an execution width touch together, an element each, at their own
    coordinates."""
    serve = lambda places, width: [transactions(row, width, line) for row in places]
    return _at_threads(nest, operand, operand.itemsize, serve, (line,))


Serve = Callable[[np.ndarray, int], Sequence[float]]
"""What is asked of byte addresses [accesses, lanes] of so many bytes each."""


def _at_threads(nest: Nest, operand: Operand, width_bytes: Number, serve: Serve, asked: tuple[int, ...]) -> Number:
    """What `serve` says of accesses of `width_bytes`; ``asked``: what it depends on."""
    parallel = nest.positions(*PARALLEL)
    axes = [nest.loops[p].axis for p in parallel]
    offset = _moved_along(operand.offset, axes)

    def decided(width: int) -> OfRows:
        def service(numbers: list[np.ndarray], rows: list[np.ndarray]) -> Sequence[float]:
            coordinates: dict[str, np.ndarray] = {}
            for axis, number, stride in zip(axes, numbers, rows[len(axes) :], strict=True):
                coordinates[axis] = coordinates.get(axis, 0) + number * stride
            shape = numbers[0].shape if numbers else (1, 1)
            return serve(evaluate_lanes(offset, coordinates, shape) * operand.itemsize, width)

        return by_lanes(service, len(axes), nest.lockstep)

    kind = offset, operand.itemsize, asked, nest.lockstep, tuple(axes)
    return per_decided(kind, decided, (width_bytes,), _telling_apart(nest, operand, parallel))


def _moved_along(offset: Index, axes: Collection[str]) -> Index:
    """The offset without what stays the same along the axes: so operands of many operators are alike."""
    moved = [term for term in offset.terms if not isinstance(term[0], str) or term[0] in axes]
    return Index(tuple(moved), offset.const)


def _telling_apart(nest: Nest, operand: Operand, parallel: tuple[int, ...]) -> list[Number]:
    """Extents, then strides, of the loops of threads as far as the lanes of one execution width differ in them: the
    outer ones are cut to what lanes reach, and steps that do not move the operand are 0.  So few programs differ."""
    extents = reached([nest.loops[p].extent for p in parallel], nest.lockstep)
    moves = [(nest.loops[p], extent) for p, extent in zip(parallel, extents, strict=True)]
    return extents + [choose(extent > 1, x.stride, 0) if x.axis in operand.axes else 0 for x, extent in moves]


def tile_service(nest: Nest, device: Device, copy: Copy, width_bytes: Number) -> Number:
    """Service of a read from a staged tile at each thread's own coordinates."""
    layer = device.layer(copy.to_layer)
    if not layer.banks:
        return 1
    if of_block(copy):
        return read_service(nest, device, copy)
    parallel = nest.positions(*PARALLEL)
    shape = tile_shape(nest, copy, block=True)
    columns: list[Number] = [nest.loops[p].extent for p in parallel]
    dims = []
    for p in parallel:
        axis = nest.loops[p].axis
        if axis in copy.order:
            inside = nest.inside(axis, copy.at_loop, block=True)
            dims.append(copy.order.index(axis))
            columns.append(nest.extent(inside[inside.index(p) + 1 :]))
        else:
            dims.append(-1)
            columns.append(0)
    columns += list(shape)
    itemsize = nest.facts.loads[copy.load].itemsize

    def decided(width: int, vector: int, padding: int) -> OfRows:
        def service(numbers: list[np.ndarray], rows: list[np.ndarray]) -> list[float]:
            count = len(dims)
            places = [np.zeros(numbers[0].shape if numbers else (1, 1), dtype=np.int64) for _ in shape]
            for dim, number, step in zip(dims, numbers, rows[count : 2 * count], strict=True):
                if dim >= 0:
                    places[dim] = places[dim] + number * step
            addresses = _place(places, rows[2 * count :], copy, vector, padding) * itemsize
            return _serve(addresses, width, layer, merge=True)

        return by_lanes(service, len(dims), nest.lockstep)

    # Where nothing is swizzled the width of the fill's vectors moves no place.
    vector = copy.vector if copy.swizzle > 1 else 1
    kind = _served_by(layer), nest.lockstep, tuple(dims), len(shape), itemsize, copy.panel, copy.swizzle
    return per_decided(kind, decided, (width_bytes, vector, copy.padding), columns)
