"""Producers written into their consumers.

`Inliner` expands the body of one tensor (the root) until only given and materialised tensors are
read.  Reductions are left in place as `Reduce` nodes; each read of a computed tensor is recorded,
so that `as_one_stage` can judge whether what was inlined may stay: elementwise, a reduction with its
epilogue, several over a row, or a kept row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod

from rollergen.expr.index import Index, linear
from rollergen.expr.joint_sums import is_joint, joint_sums
from rollergen.expr.language import Tensor, computed
from rollergen.expr.reductions import Reduce, free_axes, without_unit_axes
from rollergen.expr.values import IndexValue, Load, Take, Value, loads, read_of, takes, transform, walk, with_read
from rollergen.expr.views import reduced


@dataclass(frozen=True, slots=True)
class Read:
    """A computed tensor read at `indices` (over the root's axes and those in `scope`, reduced over outside)."""

    tensor: Tensor
    indices: tuple[Index, ...]
    scope: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expansion:
    """The root's body with producers inlined, and the reads that were inlined.

    ``extents`` gives that of every axis, the root's and the bound ones; ``size`` counts nodes.
    """

    root: Tensor
    body: Value
    reads: tuple[Read, ...]
    extents: dict[str, int]
    size: int


def reductions_of(value: Value) -> Iterator[Reduce]:
    """Every `Reduce` node, inner ones first."""
    return (node for node in walk(value) if isinstance(node, Reduce))


class Separator:
    """Tensors in normal form: a body holds one reduction at most, over axes longer than 1 and all points of the tensor.

    Others (nested ones, a second one, one that broadcasts) become tensors of their own.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Tensor, Value]] = {}
        self._made: dict[Value, Tensor] = {}

    def body(self, tensor: Tensor) -> Value:
        found = self._known.get(id(tensor))
        if found is None:
            found = self._known[id(tensor)] = (tensor, self._separated(tensor))
        return found[1]

    def has_reduction(self, tensor: Tensor) -> bool:
        """Whether its own body reduces, after separation."""
        return tensor.producer is not None and any(reductions_of(self.body(tensor)))

    def _separated(self, tensor: Tensor) -> Value:
        assert tensor.producer is not None
        body = without_unit_axes(self._taken_apart(tensor))
        nodes = list(reductions_of(body))
        if not nodes or self._is_normal(tensor, nodes):
            return body
        extents = dict(tensor.producer.axes) | {name: extent for node in nodes for name, extent in node.axes}

        def change(node: Value) -> Value | None:
            return self._extracted(tensor, node, extents) if isinstance(node, Reduce) else None

        return transform(body, change)

    def _taken_apart(self, tensor: Tensor) -> Value:
        """The body with each take that a reduction reads as a tensor of its own."""
        assert tensor.producer is not None
        body = tensor.producer.body
        nodes = [node for node in reductions_of(body) if takes(*node.bodies)]
        extents = dict(tensor.producer.axes) | {name: extent for node in nodes for name, extent in node.axes}

        def change(node: Value) -> Value | None:
            return self._extracted(tensor, node, extents) if isinstance(node, Take) else None

        def within(node: Value) -> Value | None:
            return transform(node, change) if node in nodes else None

        return transform(body, within) if nodes else body

    def _is_normal(self, tensor: Tensor, nodes: list[Reduce]) -> bool:
        assert tensor.producer is not None
        own = {name for name, extent in tensor.producer.axes if extent > 1}
        nested = any(any(reductions_of(body)) for node in nodes for body in node.bodies)
        return not nested and len({node.key for node in nodes}) == 1 and own <= free_axes(nodes[0])

    def _extracted(self, tensor: Tensor, node: Reduce | Take, extents: dict[str, int]) -> Value:
        free = free_axes(node)
        axes = tuple((name, extent) for name, extent in extents.items() if name in free)
        made = self._made.get(node)
        if made is None:
            kind = "take" if isinstance(node, Take) else node.combiner.name
            name = f"{tensor.name}_{kind}" if tensor.name else None
            made = self._made[node] = computed(name, axes, node)
        return Load(made.buffer, tuple(Index.axis(name) for name, _ in axes), source=made)


class Inliner:
    """Expands roots; reads of tensors in `materialised` (by id) stay."""

    def __init__(self, separator: Separator, materialised: Collection[int]) -> None:
        self.separator = separator
        self._materialised = materialised
        self._reducing: dict[int, tuple[Tensor, bool]] = {}

    def expand(self, root: Tensor) -> Expansion:
        """The root's body, everything inlined that is not materialised."""
        assert root.producer is not None
        body = self.separator.body(root)
        self._names = {name for name, _ in root.producer.axes}
        self._extents = dict(root.producer.axes)
        self._bound: dict[tuple[int, str], str] = {}
        self._memo: dict[tuple[int, tuple[Index, ...]], Value] = {}
        self._sizes: dict[int, int] = {}
        self._kept: list[Value] = []
        self._reads: dict[Read, None] = {}
        value = self._resolve(self._renamed(root, body, {}), ())
        return Expansion(root, value, tuple(self._reads), self._extents, self._size(value))

    def reduces(self, tensor: Tensor) -> bool:
        """Whether `tensor`, or anything that would be inlined into it, reduces."""
        known = self._reducing.get(id(tensor))
        if known is None:
            known = self._reducing[id(tensor)] = (tensor, self._reduces(tensor))
        return known[1]

    def _reduces(self, tensor: Tensor) -> bool:
        if self.separator.has_reduction(tensor):
            return True
        loads = (node for node in walk(self.separator.body(tensor)) if isinstance(node, Load))
        return any(self.is_inlined(load) and self.reduces(load.source) for load in loads)

    def is_inlined(self, load: Load) -> bool:
        return load.source.producer is not None and id(load.source) not in self._materialised

    def _resolve(self, value: Value, scope: tuple[str, ...]) -> Value:
        if isinstance(value, Load):
            return self._inlined(value.source, value.indices, scope) if self.is_inlined(value) else value
        children = value.children()
        if not children:
            return value
        inner = scope + value.bound if isinstance(value, Reduce) else scope
        new = tuple(self._resolve(child, inner) for child in children)
        return value if all(a is b for a, b in zip(new, children, strict=True)) else value.with_children(new)

    def _inlined(self, source: Tensor, indices: tuple[Index, ...], scope: tuple[str, ...]) -> Value:
        self._reads.setdefault(Read(source, indices, scope))
        key = (id(source), indices)
        known = self._memo.get(key)
        if known is None:
            assert source.producer is not None
            at = {name: index for (name, _), index in zip(source.producer.axes, indices, strict=True)}
            known = self._memo[key] = self._resolve(self._renamed(source, self.separator.body(source), at), scope)
        return known

    def _renamed(self, tensor: Tensor, body: Value, at: dict[str, Index]) -> Value:
        """`body` with the tensor's axes replaced as `at` says, its bound axes under names free in the root."""
        mapping = dict(at)
        for node in reductions_of(body):
            for name, extent in node.axes:
                mapping[name] = Index.axis(self._fresh(tensor, name, extent))
        return substitute(body, mapping) if mapping else body

    def _fresh(self, tensor: Tensor, name: str, extent: int) -> str:
        key = (id(tensor), name)
        if key not in self._bound:
            fresh, number = name, 1
            while fresh in self._names:
                fresh, number = f"{name}_{number}", number + 1
            self._names.add(fresh)
            self._extents[fresh] = extent
            self._bound[key] = fresh
        return self._bound[key]

    def _size(self, value: Value) -> int:
        """Nodes of the tree; shared parts are counted once each time they occur, but visited once."""
        known = self._sizes.get(id(value))
        if known is None:
            known = self._sizes[id(value)] = 1 + sum(self._size(child) for child in value.children())
            self._kept.append(value)
        return known


def substitute(value: Value, mapping: dict[str, Index]) -> Value:
    """As `values.substitute_axes`, renaming the axes that reductions bind too."""

    def change(node: Value) -> Value | None:
        if isinstance(node, (Load, Take)):
            read = read_of(node)
            return with_read(node, replace(read, indices=tuple([i.substitute(mapping) for i in read.indices])))
        if isinstance(node, IndexValue):
            return replace(node, index=node.index.substitute(mapping))
        if isinstance(node, Reduce):
            return replace(node, axes=tuple((_name(mapping, name), extent) for name, extent in node.axes))
        return None

    return transform(value, change)


def _name(mapping: dict[str, Index], name: str) -> str:
    index = mapping.get(name)
    return name if index is None else str(index.terms[0][0])


LARGEST_BODY = 4000  # nodes; beyond it a stage is cut rather than grown
_REUSED = "its elements are used several times each"


@dataclass(frozen=True, slots=True)
class RowLimits:
    """How many elements a row may have that is kept while it is reduced and read again.

    ``adjacent``: where they are neighbours in memory; ``apart``: where they are not, so that each comes with neighbours
    of other rows.
    """

    adjacent: int = 65536
    apart: int = 0


@dataclass(frozen=True, slots=True)
class OneStage:
    """One stage: the body with bound axes unified; ``row`` and ``reduce`` axes (name, extent)."""

    body: Value
    row: tuple[str, ...] = ()
    reduce: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why an expansion is not one stage."""

    reason: str


def as_one_stage(expansion: Expansion, separator: Separator, rows: RowLimits) -> OneStage | Misfit:
    """`expansion` as one stage, or why it is none.

    A kept row needs its reductions to run over adjacent axes of the result, for every row of it, and
    no more elements than `rows` allows.  Several reductions for each element of the result (a variance
    and its mean) are one stage where they run over the same row of adjacent elements, under the same limit.
    """
    if expansion.size > LARGEST_BODY:
        return Misfit(f"its {expansion.size} operations are too many for one stage")
    nodes = list(reductions_of(expansion.body))
    if not nodes:
        return OneStage(expansion.body)
    axes = [name for name, extent in _axes(expansion) if extent > 1]
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


def _axes(expansion: Expansion) -> tuple[tuple[str, int], ...]:
    assert expansion.root.producer is not None
    return expansion.root.producer.axes


def _single(expansion: Expansion, nodes: list[Reduce], axes: list[str]) -> OneStage | None:
    """One stage with one reduction over all points; equal reductions under other names are one, and sums that share a
    factor."""
    first = nodes[0]
    if any(len(node.axes) != len(first.axes) for node in nodes) or not set(axes) <= free_axes(first):
        return None
    body = _unified(expansion.body, nodes, first.bound)
    unified = list(reductions_of(body))
    nested = any(any(reductions_of(part)) for node in unified for part in node.bodies)
    if nested:
        return None
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
    axes = _axes(expansion)
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
    names = [name for name, extent in _axes(expansion) if extent > 1 or name in row]
    return names[-1] not in row


def _over_one_row(expansion: Expansion, nodes: list[Reduce], axes: list[str]) -> bool:
    """Whether all reductions run over axes of the same extents for every element of the result, and read
    neighbours one after another (else lanes go to neighbouring elements of the result, in a stage each)."""
    extents = tuple(extent for _, extent in nodes[0].axes)
    own = {name for name, _ in _axes(expansion)}
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
