"""Producers written into their consumers.

`Inliner` expands the body of one tensor (the root) until only given and materialised tensors are
read.  Reductions are left in place as `Reduce` nodes; each read of a computed tensor is recorded,
so that `one_stage.as_one_stage` can judge whether what was inlined may stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from itertools import count

from rollergen.expr.index import Atom, FloorDiv, Index
from rollergen.expr.language import Tensor, computed
from rollergen.expr.reductions import Reduce, Scan, free_axes, without_unit_axes
from rollergen.expr.values import IndexValue, Load, Take, Value, read_of, takes, transform, walk, with_read
from rollergen.expr.views import reduced
from rollergen.hal.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Read:
    """A computed tensor read at `indices` (over the root's axes and those in `scope`, reduced over outside)."""

    tensor: Tensor
    indices: tuple[Index, ...]
    scope: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expansion:
    """The root's body with producers inlined, and the reads that were inlined.

    ``axes``: the root's (name, extent), some of them split; ``target``: which element of the root a point of them is;
    ``extents`` gives that of every axis, the root's and the bound ones; ``size`` counts nodes.
    """

    root: Tensor
    axes: tuple[tuple[str, int], ...]
    target: tuple[Index, ...]
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
        self._trees: dict[int, tuple[Tensor, int]] = {}

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
        axes = root.producer.axes
        target = root.producer.target or tuple(Index.axis(name) for name, _ in axes)
        return Expansion(root, axes, target, value, tuple(self._reads), self._extents, self._size(value))

    def reduces(self, tensor: Tensor) -> bool:
        """Whether `tensor`, or anything that would be inlined into it, reduces."""
        known = self._reducing.get(id(tensor))
        if known is None:
            known = self._reducing[id(tensor)] = (tensor, self._reduces(tensor))
        return known[1]

    def size(self, tensor: Tensor) -> int:
        """``expand(tensor).size``, of which nothing is expanded."""
        known = self._trees.get(id(tensor))
        if known is None:
            known = self._trees[id(tensor)] = (tensor, self._nodes(self.separator.body(tensor)))
        return known[1]

    def _nodes(self, value: Value) -> int:
        if isinstance(value, Load) and self.is_inlined(value):
            return self.size(value.source)
        return 1 + sum(map(self._nodes, value.children()))

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
        if isinstance(node, Reduce):
            named = replace(node, axes=tuple((_name(mapping, name), extent) for name, extent in node.axes))
            return replace(named, upto=named.upto.substitute(mapping)) if isinstance(named, Scan) else named
        return _with_indices(node, lambda index: index.substitute(mapping))

    return transform(value, change)


def _with_indices(node: Value, change: Callable[[Index], Index]) -> Value | None:
    """A load, a take or a number of an index with its indices changed; None of any other."""
    if isinstance(node, (Load, Take)):
        read = read_of(node)
        return with_read(node, replace(read, indices=tuple([change(index) for index in read.indices])))
    if isinstance(node, IndexValue):
        return replace(node, index=change(node.index))
    return None


def grouped(whole: Expansion) -> Expansion:
    """The expansion with every axis of the root's in two, (group, element of it), that all reductions know by the
    number of the group alone."""
    for name, size in _divisions(whole.body, dict(whole.axes)):
        split, element = _split(whole, name, size)
        if not any(element in free_axes(node) for node in reductions_of(split.body)):
            return grouped(split)
    return whole


def _divisions(body: Value, extents: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """(axis, elements of a group) of the axes `extents` that a reduction in `body` divides into equal groups."""
    found = dict.fromkeys(
        (atom.index.names()[0], atom.divisor)
        for node in _outermost(body)
        for part in node.bodies
        for index in _all_indices(part)
        if not index.is_affine
        for atom in _atoms(index)
        if isinstance(atom, FloorDiv) and str(atom.index) in extents
    )
    return (one for one in found if extents[one[0]] % one[1] == 0)


def _outermost(value: Value) -> Iterator[Reduce]:
    """Reductions that no other holds."""
    if isinstance(value, Reduce):
        yield value
        return
    for child in value.children():
        yield from _outermost(child)


def _all_indices(value: Value) -> Iterator[Index]:
    for node in walk(value):
        if isinstance(node, Load):
            yield from node.indices
        elif isinstance(node, IndexValue):
            yield node.index


def _atoms(index: Index) -> Iterator[Atom]:
    for atom, _ in index.terms:
        yield atom
        if not isinstance(atom, str):
            yield from _atoms(atom.index)


def _split(whole: Expansion, name: str, size: int) -> tuple[Expansion, str]:
    """The expansion with the root's axis in two, groups of `size` elements, and what the inner one is called."""
    element = next(fresh for n in count(1) if (fresh := f"{name}_{n}") not in whole.extents)
    parts = {name: whole.extents[name] // size, element: size}
    extents = whole.extents | parts
    axes = [part for axis in whole.axes for part in (parts.items() if axis[0] == name else (axis,))]
    position = {name: Index.axis(name) * size + Index.axis(element)}
    ranges = {one: (0, extent - 1) for one, extent in extents.items()}

    def index(old: Index) -> Index:
        return reduced(old.substitute(position), ranges)

    reads = tuple(replace(read, indices=tuple(map(index, read.indices))) for read in whole.reads)
    target, body = tuple(map(index, whole.target)), transform(whole.body, lambda node: _with_indices(node, index))
    return replace(whole, axes=tuple(axes), target=target, body=body, reads=reads, extents=extents), element


def mirrored(whole: Expansion, name: str) -> Expansion:
    """The expansion with the root's axis `name` walked from its end."""
    back = {name: Index.of(whole.extents[name] - 1) - Index.axis(name)}
    change = lambda index: index.substitute(back)
    reads = tuple(replace(read, indices=tuple(map(change, read.indices))) for read in whole.reads)
    target = tuple(map(change, whole.target))
    return replace(whole, target=target, body=substitute(whole.body, back), reads=reads)


def _name(mapping: dict[str, Index], name: str) -> str:
    index = mapping.get(name)
    return name if index is None else str(index.terms[0][0])
