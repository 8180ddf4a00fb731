"""Closed forms of a tensor op: footprint, traffic, steps and data reuse as SymPy expressions.

They are symbolic in tile sizes, tensor sizes and the constants inside indices, so that all shapes of one
*structure* share one compilation (`structure_of`); compiled once, they take ints or whole arrays of tile
sizes.  SymPy is imported at the first use.  `traffic` counts transactions exactly (`exact_traffic`); the forms
here count elements and bytes, which is what growing a tile needs.

>>> from rollergen.expr import index, tensor_op, values
>>> i, k = index.Index.axis("i"), index.Index.axis("k")
>>> x = values.Load(values.Buffer("X", (8, 6)), (i, k))
>>> d = tensor_op.TensorOp(values.Buffer("Y", (8, 6)), (tensor_op.Axis("i", 8), tensor_op.Axis("k", 6)), (i, k), x)
>>> closed_forms(d).traffic_bytes({"i": 4, "k": 3})
(192, 192)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.index import FloorDiv, Index
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Binary, Unary, walk
from rollergen.tile.exact_traffic import Traffic, traffic

Size = Any
"""An int, or an int array of many tiles."""

Term = tuple[Any, ...]
"""(kind, inner, coefficient parameter, divisor parameter): an atom whose constants are parameter numbers."""


@dataclass(frozen=True, slots=True)
class Structure:
    """What all shapes of one tensor op share: per access and dimension the terms of its index, the axes it
    uses and the axis that is contiguous in it (or -1); and which axes are summed away."""

    axes: int
    summed: tuple[int, ...]
    accesses: tuple[tuple[tuple[tuple[Term, ...], ...], tuple[int, ...], int], ...]
    parameters: int


def structure_of(op: TensorOp) -> tuple[Structure, tuple[int, ...]]:
    """The structure, and the constants that this tensor op gives to its parameters."""
    position = {axis.name: n for n, axis in enumerate(op.axes)}
    constants: list[int] = []
    accesses = []
    for indices, used in _accesses(op):
        dims = tuple(_terms(index, position, constants) for index in indices)
        own = tuple(sorted(position[a] for a in used))
        accesses.append((dims, own, _contiguous(indices, position)))
    summed = tuple(n for n, axis in enumerate(op.axes) if axis.role == "reduce")
    return Structure(len(position), summed, tuple(accesses), len(constants)), tuple(constants)


def _accesses(op: TensorOp) -> list[tuple[tuple[Index, ...], frozenset[str]]]:
    stored = frozenset().union(*(index.axes() for index in op.target))
    return [(load.indices, load.axes()) for load in op.loads()] + [(op.target, stored)]


def _contiguous(indices: tuple[Index, ...], position: Mapping[str, int]) -> int:
    if not indices:
        return -1
    names = indices[-1].axes()
    return max((position[name] for name in names), default=-1)


def _terms(index: Index, position: Mapping[str, int], constants: list[int]) -> tuple[Term, ...]:
    found: list[Term] = []
    for atom, coefficient in index.terms:
        factor = _parameter(abs(coefficient), constants)
        if isinstance(atom, str):
            found.append(("axis", position[atom], factor))
        else:
            kind = "div" if isinstance(atom, FloorDiv) else "mod"
            inner = _terms(atom.index, position, constants)
            found.append((kind, inner, factor, _parameter(atom.divisor, constants)))
    return tuple(found)


def _parameter(value: int, constants: list[int]) -> int:
    """Number of a new parameter; -1 for the constant 1, which is part of the structure."""
    if value == 1:
        return -1
    constants.append(value)
    return len(constants) - 1


@dataclass(frozen=True, slots=True, eq=False)
class CompiledForms:
    """The expressions of one structure and their compiled functions.

    ``symbols``: tile sizes, tensor sizes, paddings (one for each access), constants.  ``footprint``: elements of the
    tile that a layer holds, padding included; ``distinct``: elements of the tensor that it touches; ``traffic``:
    elements moved in all; ``steps``: tiles; ``saved[a]``: elements moved less for one more element of axis a, for
    each access; ``added[a]``: elements of footprint more.
    """

    symbols: tuple[Any, ...]
    footprint: tuple[Any, ...]
    distinct: tuple[Any, ...]
    traffic: tuple[Any, ...]
    steps: Any
    saved: tuple[tuple[Any, ...], ...]
    added: tuple[tuple[Any, ...], ...]
    sizes: Callable[..., Any]
    slopes: Callable[..., Any]


@lru_cache(maxsize=256)
def compiled(structure: Structure) -> CompiledForms:
    """The forms of a structure, derived and lambdified once."""
    import sympy

    tiles = sympy.symbols(f"T0:{structure.axes}", positive=True)
    sizes = sympy.symbols(f"N0:{structure.axes}", positive=True)
    pads = sympy.symbols(f"pad0:{len(structure.accesses)}", nonnegative=True)
    constants = sympy.symbols(f"c0:{structure.parameters}", positive=True) if structure.parameters else ()
    writer = _Writer(sympy, tiles, constants)
    footprint = tuple(
        sympy.Mul(*[tiles[a] + (pad if a == last else 0) for a in own])
        for (_, own, last), pad in zip(structure.accesses, pads, strict=True)
    )
    distinct = tuple(sympy.Mul(*[writer.count(dim) for dim in dims]) for dims, _, _ in structure.accesses)
    steps = sympy.Mul(*[sympy.ceiling(n / t) for n, t in zip(sizes, tiles, strict=True)])
    smooth = sympy.Mul(*[n / t for n, t in zip(sizes, tiles, strict=True)])
    plain = tuple(sympy.Mul(*[tiles[a] for a in own]) for _, own, _ in structure.accesses)
    even = tuple(d.replace(sympy.ceiling, lambda x: x) for d in distinct)
    saved = tuple(tuple(-sympy.diff(d * smooth, t) for d in even) for t in tiles)
    added = tuple(tuple(sympy.diff(p, t) for p in plain) for t in tiles)
    stores = sympy.Mul(
        *[sympy.ceiling(n / t) for a, (n, t) in enumerate(zip(sizes, tiles, strict=True)) if a not in structure.summed]
    )
    moved = (*(d * steps for d in distinct[:-1]), distinct[-1] * stores)
    symbols = (*tiles, *sizes, *pads, *constants)
    flat = [*footprint, *distinct, *moved, steps]
    slopes = [x for row in (*saved, *added) for x in row]
    return CompiledForms(
        symbols, footprint, distinct, moved, steps, saved, added,
        sympy.lambdify(symbols, flat, modules="numpy", cse=True),
        sympy.lambdify(symbols, slopes, modules="numpy", cse=True),
    )  # fmt: skip


class _Writer:
    """Counts of index values as expressions; the same rules as the model's (`count`, `range`)."""

    def __init__(self, sympy: Any, tiles: Any, constants: Any) -> None:
        self.sympy, self.tiles, self.constants = sympy, tiles, constants

    def constant(self, number: int) -> Any:
        return self.constants[number] if number >= 0 else 1

    def range(self, terms: tuple[Term, ...]) -> Any:
        """Largest minus smallest value, plus 1."""
        return 1 + sum(self.constant(term[2]) * (self._span(term) - 1) for term in terms)

    def count(self, terms: tuple[Term, ...]) -> Any:
        """Distinct values: at most the range, at most the product over the terms."""
        if len(terms) <= 1:
            return self._span(terms[0]) if terms else self.sympy.Integer(1)
        return self.sympy.Min(self.range(terms), self.sympy.prod([self._span(term) for term in terms]))

    def _span(self, term: Term) -> Any:
        if term[0] == "axis":
            return self.tiles[term[1]]
        divisor = self.constant(term[3])
        if term[0] == "div":
            return self.sympy.ceiling(self.range(term[1]) / divisor)
        return self.sympy.Min(self.range(term[1]), divisor)


@dataclass(frozen=True, slots=True, eq=False)
class ClosedForms:
    """The forms of one tensor op: its structure's, with its sizes and constants put in.

    Tuples run over the loads, in the tensor op's order, and end with the store.  Tiles name their axes;
    an axis that is not named has tile size 1.
    """

    op: TensorOp
    forms: CompiledForms
    constants: tuple[int, ...]

    @property
    def itemsizes(self) -> tuple[int, ...]:
        loads = self.op.loads()
        return (*(ITEMSIZE[load.dtype] for load in loads), ITEMSIZE[self.op.output.dtype])

    @property
    def flops(self) -> int:
        """Arithmetic operations of the tensor op, each operation of a combiner or a value counted once."""
        every = prod(axis.extent for axis in self.op.axes)
        spatial = prod(axis.extent for axis in self.op.axes if axis.role != "reduce")
        total = 0
        for reduction in self.op.reductions:
            total += every * _operations(*reduction.bodies, *reduction.combiner.combine)
        return total + spatial * _operations(self.op.result)

    def steps(self, tile: Mapping[str, Size]) -> Size:
        """Tiles of the whole computation."""
        return self._sizes(tile, ())[-1]

    def footprint_bytes(self, tile: Mapping[str, Size], padding: tuple[Size, ...] = ()) -> tuple[Size, ...]:
        """Bytes that a layer holds for each operand; ``padding``: elements added to the rows of each."""
        found = self._sizes(tile, padding)
        return tuple(e * b for e, b in zip(found[: len(self.itemsizes)], self.itemsizes, strict=True))

    def distinct_bytes(self, tile: Mapping[str, Size]) -> tuple[Size, ...]:
        """Bytes of each tensor that one tile touches."""
        count = len(self.itemsizes)
        return tuple(e * b for e, b in zip(self._sizes(tile, ())[count : 2 * count], self.itemsizes, strict=True))

    def traffic_bytes(self, tile: Mapping[str, Size]) -> tuple[Size, ...]:
        """Bytes that each operand moves over the whole computation, every tile fetching its own."""
        count = len(self.itemsizes)
        return tuple(e * b for e, b in zip(self._sizes(tile, ())[2 * count : 3 * count], self.itemsizes, strict=True))

    def reuse_score(self, tile: Mapping[str, Size], axis: str) -> Size:
        """dQ/dF: bytes of load traffic that the next element of `axis` saves, per byte of footprint it adds."""
        count = len(self.itemsizes)
        number = [a.name for a in self.op.axes].index(axis)
        slopes = self.forms.slopes(*self._arguments(tile, ()))
        axes = len(self.op.axes)
        saved = slopes[number * count : (number + 1) * count - 1]
        added = slopes[(axes + number) * count : (axes + number + 1) * count - 1]
        more = sum(a * b for a, b in zip(added, self.itemsizes, strict=False))
        less = sum(s * b for s, b in zip(saved, self.itemsizes, strict=False))
        return less / more if not _is_zero(more) else less * float("inf")

    def _sizes(self, tile: Mapping[str, Size], padding: tuple[Size, ...]) -> list[Size]:
        return [_whole(x) for x in self.forms.sizes(*self._arguments(tile, padding))]

    def _arguments(self, tile: Mapping[str, Size], padding: tuple[Size, ...]) -> list[Size]:
        unknown = set(tile) - {a.name for a in self.op.axes}
        if unknown:
            raise ValueError(f"tile names {sorted(unknown)}; the axes are {[a.name for a in self.op.axes]}")
        sizes = [tile.get(axis.name, 1) for axis in self.op.axes]
        extents = [axis.extent for axis in self.op.axes]
        pads = [*padding, *[0] * (len(self.itemsizes) - len(padding))]
        return [*sizes, *extents, *pads, *self.constants]


def closed_forms(op: TensorOp) -> ClosedForms:
    """The closed forms of a tensor op; its structure is compiled at most once in a process."""
    structure, constants = structure_of(op)
    return ClosedForms(op, compiled(structure), constants)


def reuse_score(op: TensorOp, tile: Mapping[str, Size], axis: str, extent: Size | None = None) -> Size:
    """Traffic saved per byte of footprint added when `axis` grows (ROLLER, section 3.3).

    With ``extent`` the difference between the two tiles, else the derivative dQ/dF at the tile.
    """
    forms = closed_forms(op)
    if extent is None:
        return forms.reuse_score(tile, axis)
    grown = {**tile, axis: extent}
    saved = sum(forms.traffic_bytes(tile)[:-1]) - sum(forms.traffic_bytes(grown)[:-1])
    added = sum(forms.footprint_bytes(grown)[:-1]) - sum(forms.footprint_bytes(tile)[:-1])
    return saved / added if not _is_zero(added) else saved * float("inf")


def explain_forms(op: TensorOp, tile: Mapping[str, int]) -> tuple[str, ...]:
    """One line for each operand and one for the arithmetic: the formula and the numbers put in."""
    forms = closed_forms(op)
    names = [load.buffer.name for load in op.loads()] + [op.output.name]
    written = _named(forms)
    sizes = forms._sizes(tile, ())
    count = len(names)
    lines = []
    for n, name in enumerate(names):
        held, moved = (written(x) for x in (forms.forms.footprint[n], forms.forms.traffic[n]))
        bytes_ = sizes[2 * count + n] * forms.itemsizes[n]
        lines.append(f"{name}: footprint {held} = {sizes[n]} elements; traffic {moved} = {bytes_} bytes")
    lines.append(f"steps {written(forms.forms.steps)} = {sizes[-1]}; {forms.flops} operations")
    return tuple(lines)


def _named(forms: ClosedForms) -> Callable[[Any], str]:
    """Prints a form with the axes' own names, its constants put in, no padding."""
    count = len(forms.op.axes)
    values: dict[Any, Any] = {}
    for n, axis in enumerate(forms.op.axes):
        tile, size = forms.forms.symbols[n], forms.forms.symbols[count + n]
        values[tile] = type(tile)(f"tile_{axis.name}", positive=True)
        values[size] = type(size)(axis.name, positive=True)
    rest = forms.forms.symbols[2 * count :]
    pads, constants = rest[: len(forms.itemsizes)], rest[len(forms.itemsizes) :]
    values |= dict.fromkeys(pads, 0) | dict(zip(constants, forms.constants, strict=True))
    return lambda form: str(form.subs(values))


def _operations(*values: Any) -> int:
    nodes = {node for value in values for node in walk(value)}
    return sum(isinstance(node, (Unary, Binary)) for node in nodes)


def _whole(value: Any) -> Any:
    """Counts are whole numbers; SymPy's ceiling gives them back as floats."""
    if hasattr(value, "astype"):
        return value.astype("int64") if getattr(value, "ndim", 0) else int(value)
    return int(value)


def _is_zero(value: Any) -> bool:
    return not getattr(value, "ndim", 0) and value == 0


__all__ = ["ClosedForms", "Traffic", "closed_forms", "explain_forms", "reuse_score", "structure_of", "traffic"]
