"""Whether what was inlined into a tensor is one stage: elementwise, a reduction with its epilogue, several over a row,
or a kept row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from math import prod

from rollergen.expr.chains import Chain, chain_of
from rollergen.expr.index import Index, linear
from rollergen.expr.inlining import Expansion, Read, Separator, grouped, mirrored, reductions_of, substitute
from rollergen.expr.joint_sums import is_joint, joint_sums
from rollergen.expr.places import Put
from rollergen.expr.reductions import Reduce, Scan, free_axes, scans_of
from rollergen.expr.values import Load, Value, loads
from rollergen.expr.views import reduced
from rollergen.hal.dataclass import dataclass

LARGEST_BODY = 4000  # nodes; beyond it a stage is cut rather than grown
_REUSED = "its elements are used several times each"


@dataclass(frozen=True, slots=True)
class RowLimits:
    """How many elements a row may have that is kept while it is reduced and read again.

    ``adjacent``: where they are neighbours in memory; ``apart``: where they are not, so that each comes with neighbours
    of other rows.  ``chains``: whether two contractions may be one stage (`chains`); ``lone_rows``: also of one row.
    """

    adjacent: int = 65536
    apart: int = 0
    chains: bool = False
    lone_rows: bool = False


@dataclass(frozen=True, slots=True)
class OneStage:
    """One stage: the body with bound axes unified; ``row`` and ``reduce`` axes (name, extent); or two contractions."""

    body: Value
    row: tuple[str, ...] = ()
    reduce: tuple[tuple[str, int], ...] = ()
    chain: Chain | None = None


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why an expansion is not one stage."""

    reason: str


def fitted(expansion: Expansion, separator: Separator, rows: RowLimits) -> tuple[Expansion, OneStage | Misfit]:
    """`expansion` as one stage, or why it is none.  Axes are grouped where only that makes it one stage."""
    if expansion.size > LARGEST_BODY:  # as a tree, which nothing here may walk
        return expansion, as_one_stage(expansion, separator, rows)
    if isinstance(expansion.body, Put):
        return expansion, as_one_stage(expansion, separator, rows)
    if scans := scans_of(expansion.body):
        walked = _walked_forwards(expansion, scans)
        return walked, _scanned(walked, separator)
    if rows.chains and (chain := chain_of(expansion, rows.lone_rows)):
        return expansion, OneStage(chain.result, (), chain.reduce, chain)
    stage = as_one_stage(expansion, separator, rows)
    if isinstance(stage, OneStage):
        return expansion, stage
    by_groups = grouped(expansion)
    rows_of_groups = stage if by_groups is expansion else as_one_stage(by_groups, separator, rows)
    return (by_groups, rows_of_groups) if isinstance(rows_of_groups, OneStage) else (expansion, stage)


def as_one_stage(expansion: Expansion, separator: Separator, rows: RowLimits) -> OneStage | Misfit:
    """`expansion` as one stage, or why it is none.

    A kept row needs its reductions to run over adjacent axes of the result, for every row of it, and
    no more elements than `rows` allows.  Several reductions for each element of the result (a variance
    and its mean) are one stage where they run over the same row of adjacent elements, under the same limit.
    """
    if expansion.size > LARGEST_BODY:
        return Misfit(f"its {expansion.size} operations are too many for one stage")
    nodes = list(reductions_of(expansion.body))
    if nodes and isinstance(expansion.body, Put):
        return Misfit("what is put at a place is computed first")
    if not nodes:
        return OneStage(expansion.body)
    axes = [name for name, extent in expansion.axes if extent > 1]
    single = _single(expansion, nodes, axes)
    if single is not None:
        joint = any(map(is_joint, reductions_of(single.body)))
        return single if _each_once(expansion, separator, axes, joint) else Misfit(_REUSED)
    row = _row_axes(expansion, nodes)
    if row is None and not _over_one_row(expansion, nodes, axes):
        return Misfit(_several(nodes))
    elements = prod(extent for _, extent in nodes[0].axes)
    apart = row is not None and _apart(expansion, row)
    most = rows.apart if apart else rows.adjacent
    if apart and not most:
        return Misfit(_several(nodes))
    if elements > most:
        lying = " that lie apart" if apart else ""
        return Misfit(f"rows of {elements} elements{lying} exceed the limit of {most} for rows that are kept")
    outer = [name for name in axes if name not in (row or ())]
    if not _each_once(expansion, separator, outer):
        return Misfit(_REUSED)
    if row is None:
        first = nodes[0]
        return OneStage(_unified(expansion.body, nodes, first.bound), (), first.axes)
    return OneStage(_unified(expansion.body, nodes, row), row)


def _walked_forwards(expansion: Expansion, scans: tuple[Scan, ...]) -> Expansion:
    """The expansion with the axis of a scan from the end of its rows walked from that end."""
    first = scans[0]
    for name, extent in expansion.axes:
        if first.upto == Index.of(extent - 1) - Index.axis(name):
            return mirrored(expansion, name)
    return expansion


def _scanned(expansion: Expansion, separator: Separator) -> OneStage | Misfit:
    """One stage of scans over one axis of the result, each read at its own point, or why it is none."""
    nodes = list(reductions_of(expansion.body))
    if not all(isinstance(node, Scan) for node in nodes) or any(any(reductions_of(b)) for n in nodes for b in n.bodies):
        return Misfit("a scan shares a stage with scans of the same axis alone")
    if expansion.size > LARGEST_BODY:
        return Misfit(f"its {expansion.size} operations are too many for one stage")
    extents, (first, *others) = dict(expansion.axes), scans_of(expansion.body)
    axis = str(first.upto)
    if extents.get(axis) != first.axes[0][1] or any(node.upto != first.upto for node in others):
        return Misfit("prefixes are read elsewhere than at their own points")
    outer = [name for name, extent in expansion.axes if extent > 1 and name != axis]
    if any(set(outer) - free_axes(node) or axis in _free_in(node) for node in nodes):
        return Misfit(_REUSED)
    if not _each_once(expansion, separator, [*outer, axis]):
        return Misfit(_REUSED)
    return OneStage(_unified(expansion.body, nodes, (axis,)), (axis,))


def _free_in(node: Reduce) -> frozenset[str]:
    """Axes that the bodies of a reduction know besides its own."""
    return frozenset().union(*(free_axes(body) for body in node.bodies)) - set(node.bound)


def _single(expansion: Expansion, nodes: list[Reduce], axes: list[str]) -> OneStage | None:
    """One stage with one reduction over all points; equal reductions under other names are one, and sums that share a
    factor."""
    first = nodes[0]
    if any(len(node.axes) != len(first.axes) for node in nodes) or not set(axes) <= free_axes(first):
        return None
    if any(any(reductions_of(part)) for node in nodes for part in node.bodies):
        return None
    body = _unified(expansion.body, nodes, first.bound)
    unified = list(reductions_of(body))
    if len({node.key for node in unified}) > 1:
        joint = joint_sums(body, unified, axes)
        return None if joint is None else OneStage(joint, (), first.axes)
    return OneStage(body, (), first.axes)


def _row_axes(expansion: Expansion, nodes: list[Reduce]) -> tuple[str, ...] | None:
    """Adjacent axes of the result, the last ones first, if every reduction runs over as many of the same extents, in
    every row."""
    extents = tuple(extent for _, extent in nodes[0].axes)
    if any(tuple(extent for _, extent in node.axes) != extents for node in nodes):
        return None
    axes = expansion.axes
    for own in (axes, tuple(axis for axis in axes if axis[1] > 1)):
        for start in range(len(own) - len(extents), -1, -1):
            some = own[start : start + len(extents)]
            if tuple(extent for _, extent in some) != extents:
                continue
            row = tuple(name for name, _ in some)
            others = {name for name, _ in axes if name not in row}
            long = {name for name in others if expansion.extents[name] > 1}
            if all(long <= free_axes(node) <= others for node in nodes):
                return row
    return None


def _apart(expansion: Expansion, row: tuple[str, ...]) -> bool:
    """Whether longer axes follow those of the row: its elements are not neighbours in the result."""
    names = [name for name, extent in expansion.axes if extent > 1 or name in row]
    return names[-1] not in row


def _over_one_row(expansion: Expansion, nodes: list[Reduce], axes: list[str]) -> bool:
    """Whether all reductions run over axes of the same extents for every element of the result, and read
    neighbours one after another (else lanes go to neighbouring elements of the result, in a stage each)."""
    extents = tuple(extent for _, extent in nodes[0].axes)
    own = {name for name, _ in expansion.axes}
    return all(
        tuple(extent for _, extent in node.axes) == extents
        and set(axes) <= free_axes(node) <= own
        and all(_adjacent_along(load, node.bound) for body in node.bodies for load in loads(body))
        for node in nodes
    )


def _adjacent_along(load: Load, bound: tuple[str, ...]) -> bool:
    """Whether neighbours along the last of the axes `bound` that `load` uses are neighbours in memory."""
    used = load.axes()
    return not used & set(bound) or (
        bound[-1] in used and linear(load.indices, load.buffer.shape).coefficient(bound[-1]) == 1
    )


def _unified(body: Value, nodes: Iterable[Reduce], names: tuple[str, ...]) -> Value:
    """`body` with the axes of every reduction called `names`."""
    mapping = {bound: Index.axis(name) for node in nodes for bound, name in zip(node.bound, names, strict=True)}
    return substitute(body, {old: new for old, new in mapping.items() if str(new) != old})


def _each_once(expansion: Expansion, separator: Separator, axes: list[str], joint: bool = False) -> bool:
    """Whether every inlined reduction is computed once for each of its points that is needed: it is read at one place
    (not on either side of a choice between elements, as at a mirrored border), and there element by element.

    ``joint``: or at places that have no element in common, such as the two halves of a gated product."""
    reads = [read for read in expansion.reads if separator.has_reduction(read.tensor)]
    places = dict.fromkeys((id(read.tensor), read.indices) for read in reads)
    for (one, here), (other, there) in combinations(places, 2):
        if one == other and not (joint and _disjoint(here, there, expansion.extents)):
            return False
    return all(injective(read, expansion.extents, axes) for read in reads)


def _disjoint(here: tuple[Index, ...], there: tuple[Index, ...], extents: Mapping[str, int]) -> bool:
    """Whether the indices are far apart along some dimension."""
    ranges = {name: (0, extent - 1) for name, extent in extents.items()}
    bounds = ((a.bounds(ranges), b.bounds(ranges)) for a, b in zip(here, there, strict=True))
    return any(a[1] < b[0] or b[1] < a[0] for a, b in bounds)


def injective(read: Read, extents: Mapping[str, int], axes: Iterable[str]) -> bool:
    """Whether different values of `axes` read different elements (proven through the linear offset)."""
    plain = {str(index.terms[0][0]) for index in read.indices if len(index.terms) == 1 and index.is_affine}
    if plain >= set(axes):
        return True
    ranges = {name: (0, extent - 1) for name, extent in extents.items()}
    offset = reduced(linear(read.indices, read.tensor.shape), ranges)
    if not offset.is_affine or not offset.axes() >= set(axes):
        return False
    reach = 0
    for atom, coefficient in sorted(offset.terms, key=lambda term: abs(term[1])):
        if abs(coefficient) <= reach:
            return False
        reach += abs(coefficient) * (extents[str(atom)] - 1)
    return True


def _several(nodes: list[Reduce]) -> str:
    nested = any(any(reductions_of(body)) for node in nodes for body in node.bodies)
    return "a reduction reads it" if nested else "a stage holds one reduction, unless all are over the same row"
