"""What finding the place of an element takes besides the access itself: divisions that are computed anew, and bounds
that are tested."""

from __future__ import annotations

from rollergen.expr.index import FloorDiv, Index, Mod
from rollergen.program.model.facts import Operand
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number, ceil_div, choose, least, most, product
from rollergen.program.model.tiles import groups_of_a_thread, tile_shape
from rollergen.program.rprogram import SERIAL, Copy


def deal_divisions(nest: Nest, copy: Copy, shape: tuple[Number, ...]) -> Number:
    """Divisions and remainders that tell where in the tile each group of a thread lies: none where the groups of a row
    are a multiple or a divisor of the threads, for then the groups of a thread lie at constant distances.  A lone
    thread divides anew for each element where the operand's place does along the tile."""
    if nest.lockstep == 1:
        return _tile_divisions(nest, copy, shape)
    if copy.runs:
        return 0
    groups = ceil_div(shape[copy.order.index(copy.along)], copy.vector)
    even = (nest.threads % groups == 0) | (groups % nest.threads == 0)
    return choose(even, 0, 2)


def _tile_divisions(nest: Nest, copy: Copy, shape: tuple[Number, ...]) -> Number:
    """Divisions and remainders in the place of the copy's operand that differ within the tile."""
    total: Number = 0
    for atom in _divided(nest.facts.loads[copy.load].offset):
        inside = [extent for axis, extent in zip(copy.order, shape, strict=True) if axis in atom.index.axes()]
        total = total + choose(product(inside) > 1, 1, 0)
    return total


def place_divisions(nest: Nest, operand: Operand, copy: Copy | None = None) -> Number:
    """Divisions and remainders of each access in the operand's place that a step of a serial loop changes: the others,
    and those whose divisor the step is a multiple of, are computed once before the loop; those that are the same all
    over the tile of ``copy``, once in each step for all groups of a thread.  (A 3 x 3 convolution with channels last,
    in tiles of 64 of them, for sm_70: 204 instructions of integers in a step with 14 vectors, 258 with two divisions in
    each of 10 of these.)
    """
    total: Number = 0
    for atom in _divided(operand.offset):
        each: Number = 1
        if copy is not None:
            each = choose(_same_in_tile(nest, copy, atom), 1 / groups_of_a_thread(nest, copy), 1)
        total = total + _changes(nest, atom) * each
    return total


def _same_in_tile(nest: Nest, copy: Copy, atom: FloorDiv | Mod) -> Number:
    """1 where the quotient, or what is taken off for the remainder, is one for all elements of the copy's tile: that of
    a single axis, whose tiles the divisor is a multiple of, or of such a quotient or remainder; else 0."""
    (term, coefficient), *others = atom.index.terms
    if others or atom.index.const:
        return 0
    if isinstance(term, FloorDiv):
        return _same_in_tile(nest, copy, term)
    whole: Number = 1
    while isinstance(term, Mod):
        whole = whole * _same_in_tile(nest, copy, term)
        ((term, inner), *_) = term.index.terms
        coefficient *= inner
    if term not in copy.order:
        return 0
    extent = tile_shape(nest, copy, block=True)[copy.order.index(str(term))]
    return whole * choose(atom.divisor % (coefficient * extent) == 0, 1, 0)


def _changes(nest: Nest, atom: FloorDiv | Mod) -> Number:
    """1 where a step of a serial loop changes more of `atom` than a constant that it adds, else 0."""
    changes: Number = 0
    for term, coefficient in atom.index.terms:
        if not isinstance(term, str):
            stepped = any(nest.loops[p].axis in term.index.axes() for p in nest.positions(SERIAL))
            changes = most(changes, 1 if stepped and isinstance(term, FloorDiv) else _changes(nest, term))
            continue
        for p in nest.positions(SERIAL):
            if nest.loops[p].axis == term:
                changes = most(changes, choose(coefficient * nest.loops[p].stride % atom.divisor != 0, 1, 0))
    return changes


def retested(nest: Nest, copy: Copy) -> Number:
    """Bounds that each access of a copy tests anew: none where these are of a window whose taps a step of the serial
    loop takes a whole number of times, for then they are tested once before the loop (if a thread has one pixel: the
    results for several do not fit the predicate registers)."""
    operand, shape = nest.facts.loads[copy.load], tile_shape(nest, copy, block=True)
    tests, masked = tests_of(nest, operand), least(_tails(nest, operand), 1)
    if nest.lockstep == 1 or not operand.guard:
        return tests
    stepped = {nest.loops[p].axis for p in nest.positions(SERIAL)}
    changes: Number = 0
    for bound in operand.guard:
        for atom, _ in bound.index.terms:
            if not isinstance(atom, str):
                changes = most(changes, _changes(nest, atom))
            elif atom in stepped:
                changes = 1
    pixels = ceil_div(ceil_div(shape[copy.order.index(copy.along)], copy.vector), nest.threads)
    return tests * choose(pixels > 1, 1, most(changes, masked))


def _divided(index: Index) -> set[FloorDiv | Mod]:
    """Every division and remainder of an axis within `index`, the outer ones not counted where inner ones say all."""
    found: set[FloorDiv | Mod] = set()
    for atom, _ in index.terms:
        if not isinstance(atom, str):
            inner = _divided(atom.index)
            found |= inner | ({atom} if any(isinstance(a, str) for a, _ in atom.index.terms) else set())
    return found


def is_uneven(nest: Nest, operand: Operand) -> bool:
    """Whether neighbours along a spatial axis may lie at varying distances: it stands in a quotient or remainder."""
    axes = {axis for one in _divided(operand.offset) for axis in one.index.axes()}
    return any(nest.spatial(axis) for axis in axes)


def tests_of(nest: Nest, operand: Operand) -> Number:
    """Bounds that each access of a scalar thread tests: those of the view's guard and of masked tails; of a vector,
    whether there are any."""
    if nest.lockstep == 1:
        return is_tested(nest, operand)
    return len(operand.guard) + _tails(nest, operand)


def lane_tests(operand: Operand) -> int:
    """Bounds that each lane is tested for where lanes are read one by one: both ends of what a view guards."""
    return 2 * len(operand.guard)


def is_tested(nest: Nest, operand: Operand) -> Number:
    """1 where each access tests its own bounds: a guard of the view, or the masked tail of an axis."""
    return 1 if operand.guard else least(_tails(nest, operand), 1)


def _tails(nest: Nest, operand: Operand) -> Number:
    """Axes of the operand with a masked tail that is tested."""
    tails: Number = 0
    for axis, how in nest.stage.guards:
        if how == "mask" and axis in operand.axes - operand.kept:
            tails = tails + choose(nest.overhangs.get(axis, False), 1, 0)
    return tails
