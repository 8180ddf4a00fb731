"""Which computed tensors are stored, so that each of them is one stage.

Elementwise and view producers are inlined (prologue), elementwise consumers of a reduction are
its epilogue.  A reduction that another reduction or several stages read is materialised, unless
all reductions are over one row.  A choice between elements is materialised where a reduction reads
it repeatedly.  What need not be stored but may be faster so, `Planner.choices` names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rollergen.expr.empties import is_empty
from rollergen.expr.inlining import Expansion, Inliner, Read, Separator, reductions_of
from rollergen.expr.joint_sums import is_joint
from rollergen.expr.language import Tensor
from rollergen.expr.one_stage import LARGEST_BODY, Misfit, OneStage, RowLimits, fitted, injective
from rollergen.expr.reads import computed_tensors, producers_first
from rollergen.expr.reductions import Reduce
from rollergen.expr.values import Binary, Cast, Load, Select, Unary, Value, loads, takes, walk


@dataclass(frozen=True, slots=True)
class Cut:
    """``tensor`` is stored, for which ``reader`` is why."""

    tensor: Tensor
    reader: Tensor
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The tensors that are stored (``roots``), each as one stage, by id."""

    roots: tuple[Tensor, ...]
    expansions: dict[int, Expansion]
    stages: dict[int, OneStage]
    cuts: tuple[Cut, ...]
    inliner: Inliner


class Planner:
    """Plans of some outputs that differ in what they store besides what has to be stored.

    ``bare``: whether a contraction alone may use units that one whose epilogue reads other tensors cannot.
    """

    def __init__(self, outputs: tuple[Tensor, ...], rows: RowLimits, bare: bool = False) -> None:
        self._outputs = tuple(one for one in outputs if not is_empty(one))
        self._rows, self._bare, self._separator = rows, bare, Separator()
        self._tables = tuple(_tables(self._outputs))

    def plan(self, stored: tuple[Cut, ...] = ()) -> Plan:
        """Everything inlined first but what is ``stored``; then tensors are materialised one by one until every root
        is one stage."""
        separator, rows = self._separator, self._rows
        cuts = [*stored, *self._tables]
        roots = list(dict.fromkeys((*self._outputs, *(one.tensor for one in cuts))))
        fits: dict[int, tuple[Expansion, OneStage | Misfit]] = {}
        while True:
            inliner = Inliner(separator, {id(root) for root in roots})
            for root in roots:
                if id(root) not in fits:
                    fits[id(root)] = fitted(inliner.expand(root), separator, rows)
            expansions = {id(root): fits[id(root)][0] for root in roots}
            tried = {id(root): fits[id(root)][1] for root in roots}
            stages = {key: one for key, one in tried.items() if isinstance(one, OneStage)}
            problem = _problem(expansions, tried, inliner)
            if problem is not None:
                root, shared, reason = problem
                cut = Cut(_to_materialise(expansions[id(root)], shared, inliner, rows), root, reason)
            else:
                found = _taken(expansions, stages, inliner) or _repeated_choice(expansions, stages, inliner)
                if found is None:
                    return Plan(tuple(roots), expansions, stages, tuple(cuts), inliner)
                cut = found
            roots.append(cut.tensor)
            cuts.append(cut)
            inlining = {id(root) for root in roots if any(r.tensor is cut.tensor for r in _reads(expansions, root))}
            fits = {key: one for key, one in fits.items() if key not in inlining}  # others stay as they are

    def all_stored(self) -> tuple[Cut, ...]:
        """What is stored where nothing is inlined that may be stored as well."""
        stored: tuple[Cut, ...] = ()
        while found := tuple(self.choices(self.plan(stored))):
            stored = (*stored, *found)
        return stored

    def choices(self, plan: Plan) -> Iterator[Cut]:
        """Tensors that are inlined in a reducing stage and may be stored as well, at most one of each stage: one of
        several contractions, as tiles are those of a single one; an operand that is computed anew at each use; where
        that may help, a contraction whose epilogue reads other tensors."""
        found: set[int] = set()
        for key, stage in plan.stages.items():
            expansion = plan.expansions[key]
            reduces = stage.reduce and not stage.chain
            cut = (self._contraction(plan, expansion, stage) or _operand(plan, expansion)) if reduces else None
            if cut is not None and id(cut.tensor) not in found:
                found.add(id(cut.tensor))
                yield cut

    def _contraction(self, plan: Plan, expansion: Expansion, stage: OneStage) -> Cut | None:
        """A contraction of a stage that holds more than it."""
        nodes = {node.key: node for node in reductions_of(stage.body)}.values()
        own = _own_axes(expansion)
        if all(injective(_read(load), expansion.extents, (*own, *_long(expansion, node.bound)))
               for node in nodes for body in node.bodies for load in loads(body)):  # fmt: skip
            return None
        if len(nodes) > 1 or any(map(is_joint, nodes)):
            tensor = _to_materialise(expansion, frozenset(), plan.inliner, self._rows)
            return Cut(tensor, expansion.root, "a contraction alone has tiles of its own")
        apart = [read.tensor for read in expansion.reads if self._separator.has_reduction(read.tensor)]
        if self._bare and apart and any(_outside(stage.body)):
            return Cut(apart[-1], expansion.root, "a contraction alone has units of its own")
        return None


def _read(load: Load) -> Read:
    return Read(load.source, load.indices, ())


def _reads(expansions: dict[int, Expansion], root: Tensor) -> tuple[Read, ...]:
    return expansions[id(root)].reads if id(root) in expansions else ()


def _long(expansion: Expansion, names: Iterable[str]) -> list[str]:
    return [name for name in names if expansion.extents[name] > 1]


def _own_axes(expansion: Expansion) -> list[str]:
    """Axes of the root that are longer than 1."""
    return _long(expansion, (name for name, _ in expansion.axes))


def _outside(value: Value) -> Iterator[Load]:
    """Loads that no reduction in `value` reads."""
    if isinstance(value, Load):
        yield value
    for child in () if isinstance(value, Reduce) else value.children():
        yield from _outside(child)


def _operand(plan: Plan, expansion: Expansion) -> Cut | None:
    """A tensor that is computed anew at each of several reads of its elements by a reduction."""
    for read in expansion.reads:
        axes = (*_own_axes(expansion), *_long(expansion, read.scope))
        if read.scope and not injective(read, expansion.extents, axes) and _computes(read.tensor, plan.inliner):
            return Cut(read.tensor, expansion.root, "a reduction reads its elements several times each")
    return None


def _computes(tensor: Tensor, inliner: Inliner) -> bool:
    """Whether `tensor`, with what is inlined into it, is more than elements of others, or a constant at some places."""
    waiting, seen = [tensor], {id(tensor)}
    while waiting:
        for node in walk(inliner.separator.body(waiting.pop())):
            if isinstance(node, (Binary, Unary, Cast)) and node.dtype != "bool":
                return True
            if isinstance(node, Load) and inliner.is_inlined(node) and id(node.source) not in seen:
                seen.add(id(node.source))
                waiting.append(node.source)
    return False


def _problem(
    expansions: dict[int, Expansion], tried: dict[int, OneStage | Misfit], inliner: Inliner
) -> tuple[Tensor, frozenset[int], str] | None:
    """(root, tensors that two roots compute, reason) of the first thing that cannot stay as it is."""
    for key, one in tried.items():
        if isinstance(one, Misfit):
            return expansions[key].root, frozenset(), one.reason
    readers: dict[int, Tensor] = {}
    for expansion in expansions.values():
        read = {id(r.tensor) for r in expansion.reads if inliner.reduces(r.tensor)}
        if any(readers.get(key, expansion.root) is not expansion.root for key in read):
            return expansion.root, frozenset(read & readers.keys()), "several stages read it"
        readers.update(dict.fromkeys(read, expansion.root))
    return None


def _tables(outputs: tuple[Tensor, ...]) -> Iterator[Cut]:
    """Computed tensors of which elements are taken: where these lie is not known before the call."""
    seen: set[int] = set()
    for reader in computed_tensors(outputs):
        for take in takes(reader.producer.body) if reader.producer else ():
            table = take.row.source
            if table.producer is not None and id(table) not in seen and not any(table is one for one in outputs):
                seen.add(id(table))
                yield Cut(table, reader, "its elements are taken at places that are read")


def _taken(expansions: dict[int, Expansion], stages: dict[int, OneStage], inliner: Inliner) -> Cut | None:
    """A tensor of elements that are taken from another, which a reduction reads: stored, it is an operand as others
    are, with tiles in the memory of blocks.  Rows that are kept take their elements as they go."""
    for key, expansion in expansions.items():
        for read in expansion.reads if stages[key].reduce else ():
            if read.scope and takes(inliner.separator.body(read.tensor)):
                return Cut(read.tensor, expansion.root, "a reduction reads what is taken at places that are read")
    return None


def _repeated_choice(
    expansions: dict[int, Expansion], stages: dict[int, OneStage], inliner: Inliner
) -> Cut | None:
    """A concatenation, a mirrored border, ... whose elements a reduction of the root reads several times each.

    Stored, it is one operand again, which can be packed and staged; inlined, it would be a choice between several at
    every step.  Rows that are kept read it as they go."""
    for key, expansion in expansions.items():
        if not stages[key].reduce:
            continue
        own = _own_axes(expansion)
        for read in expansion.reads:
            axes = (*own, *_long(expansion, read.scope))
            chooses = read.scope and _chooses(inliner.separator.body(read.tensor))
            if chooses and not injective(read, expansion.extents, axes):
                reason = "it chooses between elements that a reduction reads several times each"
                return Cut(read.tensor, expansion.root, reason)
    return None


def _chooses(body: Value) -> bool:
    """Whether `body` is an element of one tensor or of another (or of another place)."""
    selects = (node for node in walk(body) if isinstance(node, Select))
    sides = ((set(loads(node.a)), set(loads(node.b))) for node in selects)
    return any(a - b and b - a for a, b in sides)


def _to_materialise(
    expansion: Expansion, shared: frozenset[int], inliner: Inliner, rows: RowLimits
) -> Tensor:
    """The last inlined tensor, in order of computation, that is one stage and worth storing.

    Worth storing are reductions, and what is computed from them if it is used more than once.
    """
    inlined = {id(read.tensor): read.tensor for read in reversed(expansion.reads)}
    separator = inliner.separator
    ordered = [t for t in _topological(expansion.root, separator) if id(t) in inlined]
    if shared:
        ordered = [t for t in ordered if id(t) in shared]
    reducing = [t for t in ordered if inliner.reduces(t)]
    for tensor in reversed(reducing):
        if inliner.size(tensor) > LARGEST_BODY:
            continue  # it is not one stage, whatever it is
        worth = shared or separator.has_reduction(tensor) or _reused(expansion, tensor)
        if worth and isinstance(fitted(inliner.expand(tensor), separator, rows)[1], OneStage):
            return tensor
    if reducing:
        return next(t for t in reducing if separator.has_reduction(t))
    return _cut_point(ordered, inliner)


def _cut_point(ordered: list[Tensor], inliner: Inliner) -> Tensor:
    """Where to cut an elementwise chain that grew too large: the last tensor of half the way there."""
    sizes = [inliner.expand(t).size for t in ordered]
    small = [t for t, size in zip(ordered, sizes, strict=True) if size * size <= max(sizes)]
    return small[-1] if small else ordered[0]


def _reused(expansion: Expansion, tensor: Tensor) -> bool:
    """Whether a reduction reads elements of `tensor` repeatedly, along an axis that does not index it."""
    own = _own_axes(expansion)
    for read in expansion.reads:
        if read.tensor is tensor and read.scope:
            used = frozenset().union(*(index.axes() for index in read.indices))
            if any(expansion.extents[name] > 1 and name not in used for name in (*own, *read.scope)):
                return True
    return False


def _topological(root: Tensor, separator: Separator) -> list[Tensor]:
    """Computed tensors below `root`, producers before consumers."""

    def read(tensor: Tensor) -> Iterator[Tensor]:
        for node in walk(separator.body(tensor)):
            if isinstance(node, Load) and node.source is not None and node.source.producer is not None:
                yield node.source

    return producers_first([root], read)
