"""Which computed tensors are stored, so that each of them is one stage.

Elementwise and view producers are inlined (prologue), elementwise consumers of a reduction are
its epilogue.  A reduction that another reduction or several stages read is materialised, unless
all reductions are over one row.  A choice between elements is materialised where a reduction reads
it repeatedly.  What need not be stored but may be faster so, `Planner.choices` names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from rollergen.expr.empties import is_empty
from rollergen.expr.inlining import Expansion, Inliner, Read, Separator, reductions_of
from rollergen.expr.joint_sums import is_joint
from rollergen.expr.language import Tensor
from rollergen.expr.one_stage import LARGEST_BODY, Misfit, OneStage, RowLimits, fitted, injective
from rollergen.expr.primitives import PRIMITIVES
from rollergen.expr.reads import computed_tensors, producers_first
from rollergen.expr.reductions import Reduce
from rollergen.expr.values import Binary, Cast, Load, Select, Unary, Value, loads, takes, walk
from rollergen.hal.dataclass import dataclass

LARGEST_LOOK = 100  # nodes; of an expression too large for one stage, what is looked at together (found by trial)


@dataclass(frozen=True, slots=True)
class Cut:
    """``tensor`` is stored, for which ``reader`` is why."""

    tensor: Tensor
    reader: Tensor
    reason: str


class Roots:
    """The tensors that are stored, and each of them as one stage that reads the others."""

    def __init__(self, tensors: Iterable[Tensor], separator: Separator, rows: RowLimits) -> None:
        self.tensors = list(dict.fromkeys(tensors))
        self.separator, self._rows = separator, rows
        self._known: dict[int, tuple[Expansion, OneStage | Misfit]] = {}
        self._renew()

    def _renew(self) -> None:
        self.inliner = Inliner(self.separator, {id(one) for one in self.tensors})

    def fitted(self, tensor: Tensor) -> tuple[Expansion, OneStage | Misfit]:
        if id(tensor) not in self._known:
            self._known[id(tensor)] = fitted(self.inliner.expand(tensor), self.separator, self._rows)
        return self._known[id(tensor)]

    def store(self, tensor: Tensor) -> None:
        """Stores one more tensor.  Stages into which it was inlined are made anew, all others stay."""
        self.tensors.append(tensor)
        self._known = {
            key: one for key, one in self._known.items() if not any(read.tensor is tensor for read in one[0].reads)
        }
        self._renew()


@dataclass(frozen=True, slots=True)
class Plan:
    """The tensors that are stored, each as one stage, by id."""

    roots: Roots
    expansions: dict[int, Expansion]
    stages: dict[int, OneStage]
    cuts: tuple[Cut, ...]


class Planner:
    """Plans of some outputs that differ in what they store besides what has to be stored.

    ``bare``: whether a contraction alone may use units that one whose epilogue reads other tensors cannot.
    """

    def __init__(self, outputs: tuple[Tensor, ...], rows: RowLimits, bare: bool = False) -> None:
        self._outputs = tuple(one for one in outputs if not is_empty(one))
        self._rows, self._bare, self._separator = rows, bare, Separator()
        self._tables = tuple(_tables(self._outputs))

    def plan(self, stored: tuple[Cut, ...] = ()) -> Plan:
        """Inlines everything but what is ``stored``, then stores tensors one by one until every root is one stage."""
        cuts = [*stored, *self._tables]
        roots = Roots((*self._outputs, *(one.tensor for one in cuts)), self._separator, self._rows)
        cuts += _below_large(roots)
        while True:
            tried = {id(root): roots.fitted(root) for root in roots.tensors}
            expansions = {key: expansion for key, (expansion, _) in tried.items()}
            stages = {key: one for key, (_, one) in tried.items() if isinstance(one, OneStage)}
            found = _problem(tried, roots) or _taken(expansions, stages, roots)
            found = found or _repeated_choice(expansions, stages, roots)
            if found is None:
                return Plan(roots, expansions, stages, tuple(cuts))
            roots.store(found.tensor)
            cuts.append(found)

    def all_stored(self, fused: Plan) -> tuple[Cut, ...]:
        """What is stored where nothing is inlined that may be as well; ``fused``: the `plan` of nothing stored."""
        stored: tuple[Cut, ...] = ()
        plan = fused
        while found := tuple(self.choices(plan)):
            stored = (*stored, *found)
            plan = self.plan(stored)
        return stored

    def choices(self, plan: Plan) -> Iterator[Cut]:
        """Tensors that are inlined and may be stored as well, at most one of each stage.  In a reducing one: one of
        several contractions, as tiles are those of a single one; an operand that is computed anew at each use; where
        that may help, a contraction whose epilogue reads other tensors.  In an elementwise one: what is computed anew
        for several elements.  Besides, functions that several stages compute of the same elements."""
        found: set[int] = set()
        for key, stage in plan.stages.items():
            expansion = plan.expansions[key]
            cut = None
            if stage.reduce and not stage.chain:
                cut = self._contraction(plan, expansion, stage) or _operand(plan, expansion)
            elif not any(reductions_of(stage.body)):
                cut = _neighbours(plan, expansion)
            if cut is not None and id(cut.tensor) not in found:
                found.add(id(cut.tensor))
                yield cut
        yield from [one for one in _shared_functions(plan) if id(one.tensor) not in found]

    def _contraction(self, plan: Plan, expansion: Expansion, stage: OneStage) -> Cut | None:
        """A contraction of a stage that holds more than it."""
        nodes = {node.key: node for node in reductions_of(stage.body)}.values()
        own = _own_axes(expansion)
        if all(injective(_read(load), expansion.extents, (*own, *_long(expansion, node.bound)))
               for node in nodes for body in node.bodies for load in loads(body)):  # fmt: skip
            return None
        if len(nodes) > 1 or any(map(is_joint, nodes)):
            tensor = _to_materialise(expansion, frozenset(), plan.roots)
            return Cut(tensor, expansion.root, "a contraction alone has tiles of its own")
        apart = [read.tensor for read in expansion.reads if self._separator.has_reduction(read.tensor)]
        if self._bare and apart and any(_outside(stage.body)):
            return Cut(apart[-1], expansion.root, "a contraction alone has units of its own")
        return None


def _read(load: Load) -> Read:
    return Read(load.source, load.indices, ())


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
        if read.scope and not injective(read, expansion.extents, axes) and _computes(read.tensor, plan.roots.inliner):
            return Cut(read.tensor, expansion.root, "a reduction reads its elements several times each")
    return None


def _neighbours(plan: Plan, expansion: Expansion) -> Cut | None:
    """A tensor of which several elements are computed for each of the root's: a picture that is resized along one axis
    after the other, whose neighbours in a column are each interpolated between neighbours in a row."""
    places = Counter(read.tensor for read in expansion.reads)
    for tensor, several in places.items():
        if several > 1 and _computes(tensor, plan.roots.inliner):
            return Cut(tensor, expansion.root, "several of its elements are read for each of the result's")
    return None


def _shared_functions(plan: Plan) -> Iterator[Cut]:
    """Tensors whose own functions several stages compute anew."""
    readers: dict[Tensor, list[Tensor]] = {}
    for expansion in plan.expansions.values():
        for tensor in dict.fromkeys(read.tensor for read in expansion.reads):
            readers.setdefault(tensor, []).append(expansion.root)
    for tensor, roots in readers.items():
        nodes = walk(plan.roots.separator.body(tensor)) if len(roots) > 1 else ()
        if any(isinstance(node, Unary) and PRIMITIVES[node.op].cost for node in nodes):
            yield Cut(tensor, roots[-1], "several stages read its functions")


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


def _below_large(roots: Roots) -> Iterator[Cut]:
    """Stores what has to be below roots that are too large to be expanded whole.

    Tensors are taken from the first on, each expanded down to what is stored by then: this takes time in proportion to
    their number, where roots that are expanded anew after each cut take the square of it."""
    large = {id(one): size for one in roots.tensors if (size := roots.inliner.size(one)) > LARGEST_BODY}
    for root in [one for one in roots.tensors if id(one) in large]:
        reason = f"its {large[id(root)]} operations are too many for one stage"
        for tensor in _topological(root, roots.separator):
            while roots.inliner.size(tensor) > LARGEST_LOOK:
                expansion, stage = roots.fitted(tensor)
                if isinstance(stage, OneStage):
                    break
                cut = Cut(_to_materialise(expansion, frozenset(), roots), root, reason)
                roots.store(cut.tensor)
                yield cut


def _problem(tried: dict[int, tuple[Expansion, OneStage | Misfit]], roots: Roots) -> Cut | None:
    """What to store for the first root that is not one stage, or that reads what another root computes too."""
    for expansion, one in tried.values():
        if isinstance(one, Misfit):
            return Cut(_to_materialise(expansion, frozenset(), roots), expansion.root, one.reason)
    readers: dict[int, Tensor] = {}
    for expansion, _ in tried.values():
        root = expansion.root
        read = {id(r.tensor) for r in expansion.reads if roots.inliner.reduces(r.tensor)}
        if any(readers.get(key, root) is not root for key in read):
            shared = frozenset(read & readers.keys())
            return Cut(_to_materialise(expansion, shared, roots), root, "several stages read it")
        readers.update(dict.fromkeys(read, root))
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


def _taken(expansions: dict[int, Expansion], stages: dict[int, OneStage], roots: Roots) -> Cut | None:
    """A tensor of elements that are taken from another, which a reduction reads: stored, it is an operand as others
    are, with tiles in the memory of blocks.  Rows that are kept take their elements as they go."""
    for key, expansion in expansions.items():
        for read in expansion.reads if stages[key].reduce else ():
            if read.scope and takes(roots.separator.body(read.tensor)):
                return Cut(read.tensor, expansion.root, "a reduction reads what is taken at places that are read")
    return None


def _repeated_choice(
    expansions: dict[int, Expansion], stages: dict[int, OneStage], roots: Roots
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
            chooses = read.scope and _chooses(roots.separator.body(read.tensor))
            if chooses and not injective(read, expansion.extents, axes):
                reason = "it chooses between elements that a reduction reads several times each"
                return Cut(read.tensor, expansion.root, reason)
    return None


def _chooses(body: Value) -> bool:
    """Whether `body` is an element of one tensor or of another (or of another place)."""
    selects = (node for node in walk(body) if isinstance(node, Select))
    sides = ((set(loads(node.a)), set(loads(node.b))) for node in selects)
    return any(a - b and b - a for a, b in sides)


def _to_materialise(expansion: Expansion, shared: frozenset[int], roots: Roots) -> Tensor:
    """The last inlined tensor, in order of computation, that is one stage and worth storing.

    Worth storing are reductions, and what is computed from them if it is used more than once.
    """
    inlined = {id(read.tensor): read.tensor for read in reversed(expansion.reads)}
    separator, inliner = roots.separator, roots.inliner
    ordered = [t for t in _topological(expansion.root, separator) if id(t) in inlined]
    if shared:
        ordered = [t for t in ordered if id(t) in shared]
    reducing = [t for t in ordered if inliner.reduces(t)]
    for tensor in reversed(reducing):
        if inliner.size(tensor) > LARGEST_BODY:
            continue  # it is not one stage, whatever it is
        worth = shared or separator.has_reduction(tensor) or _reused(expansion, tensor)
        if worth and isinstance(roots.fitted(tensor)[1], OneStage):
            return tensor
    if reducing:
        return next(t for t in reducing if separator.has_reduction(t))
    return _cut_point(ordered, roots)


def _cut_point(ordered: list[Tensor], roots: Roots) -> Tensor:
    """Where to cut an elementwise chain that grew too large: the last tensor of half the way there."""
    sizes = [roots.inliner.size(t) for t in ordered]
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
    """`root` and the computed tensors below it, producers before consumers."""

    def read(tensor: Tensor) -> Iterator[Tensor]:
        for node in walk(separator.body(tensor)):
            if isinstance(node, Load) and node.source is not None and node.source.producer is not None:
                yield node.source

    return producers_first([root], read)
