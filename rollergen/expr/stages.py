"""Expressions cut into stages.

Elementwise and view producers are inlined (prologue), elementwise consumers of a reduction are
its epilogue.  A reduction that another reduction or several stages read is materialised, unless
all reductions are over one row.  A choice between elements is materialised where a reduction reads
it repeatedly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rollergen.errors import ExpressionError
from rollergen.expr.definition import Axis, Definition, Reduction
from rollergen.expr.forms import Form, Misfit, Rows, form_of, injective
from rollergen.expr.guarding import push_guards
from rollergen.expr.index import Index
from rollergen.expr.inlining import Expansion, Inliner, Separator
from rollergen.expr.inputs import checked_outputs, ordered_inputs, producers_first
from rollergen.expr.language import Tensor
from rollergen.expr.reductions import Reduce
from rollergen.expr.values import Buffer, Load, Partial, Select, Value, loads, transform, walk


@dataclass(frozen=True, slots=True)
class Graph:
    """Definitions in the order in which they run, and the buffers between them.

    ``inputs`` are in the order of the call and, like ``outputs`` and ``temporaries``, have their
    original shapes; a definition may view a buffer of the same name with another shape of as many
    elements.  ``cuts`` says, for people, why each temporary exists.
    """

    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    temporaries: tuple[Buffer, ...]
    definitions: tuple[Definition, ...]
    cuts: tuple[str, ...] = ()

    @property
    def points(self) -> int:
        """Points of all definitions."""
        return sum(definition.points for definition in self.definitions)

    def buffer(self, name: str) -> Buffer:
        return next(b for b in (*self.inputs, *self.outputs, *self.temporaries) if b.name == name)


def cut(
    outputs: Tensor | Sequence[Tensor],
    inputs: Sequence[Tensor] | None = None,
    rows: Rows = Rows(),
) -> Graph:
    """The stages of `outputs`.

    `inputs` gives the order of the call; by default tensors go in the order in which they first
    appear.  `rows` says which rows may be asked to be resident.

    Raises ExpressionError for outputs that are not computed, names used twice, and inputs that are
    missing from or foreign to the expression.
    """
    wanted = checked_outputs(outputs)
    given = ordered_inputs(wanted, inputs)
    plan = _planned(wanted, rows)
    order = _in_order(plan, wanted)
    buffers = _named_buffers(given, wanted, order)
    definitions = tuple(_definition(plan.expansions[id(t)], plan.forms[id(t)], buffers) for t in order)
    made = tuple(buffers[t.buffer.name] for t in order)
    cuts = tuple(
        f"{buffers[tensor.buffer.name].name} is materialised for {buffers[reader.buffer.name].name}: {reason}"
        for tensor, reader, reason in plan.cuts
    )
    return Graph(
        inputs=tuple(t.buffer for t in given),
        outputs=tuple(buffers[t.buffer.name] for t in wanted),
        temporaries=tuple(b for b in made if b.kind == "temporary"),
        definitions=definitions,
        cuts=cuts,
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    roots: tuple[Tensor, ...]
    expansions: dict[int, Expansion]
    forms: dict[int, Form]
    cuts: tuple[tuple[Tensor, Tensor, str], ...]


def _planned(outputs: tuple[Tensor, ...], rows: Rows) -> _Plan:
    """Everything inlined first; then tensors are materialised one by one until every root is one stage."""
    separator = Separator()
    roots = list(outputs)
    cuts: list[tuple[Tensor, Tensor, str]] = []
    while True:
        inliner = Inliner(separator, {id(root) for root in roots})
        expansions = {id(root): inliner.expand(root) for root in roots}
        forms = {key: form_of(expansion, separator, rows) for key, expansion in expansions.items()}
        problem = _problem(expansions, forms, inliner)
        fitting = {key: form for key, form in forms.items() if isinstance(form, Form)}
        if problem is not None:
            root, shared, reason = problem
            tensor = _to_materialise(expansions[id(root)], shared, inliner, rows)
        else:
            choice = _repeated_choice(expansions, fitting, inliner)
            if choice is None:
                return _Plan(tuple(roots), expansions, fitting, tuple(cuts))
            tensor, root = choice
            reason = "it chooses between elements that a reduction reads several times each"
        roots.append(tensor)
        cuts.append((tensor, root, reason))


def _problem(
    expansions: dict[int, Expansion], forms: dict[int, Form | Misfit], inliner: Inliner
) -> tuple[Tensor, frozenset[int], str] | None:
    """(root, tensors that two roots compute, reason) of the first thing that cannot stay as it is."""
    for key, form in forms.items():
        if isinstance(form, Misfit):
            return expansions[key].root, frozenset(), form.reason
    readers: dict[int, Tensor] = {}
    for expansion in expansions.values():
        read = {id(r.tensor) for r in expansion.reads if inliner.reduces(r.tensor)}
        if any(readers.get(key, expansion.root) is not expansion.root for key in read):
            return expansion.root, frozenset(read & readers.keys()), "several stages read it"
        readers.update(dict.fromkeys(read, expansion.root))
    return None


def _repeated_choice(
    expansions: dict[int, Expansion], forms: dict[int, Form], inliner: Inliner
) -> tuple[Tensor, Tensor] | None:
    """(tensor, root): a concatenation, a mirrored border, ... whose elements a reduction of the root reads several
    times each.  Stored, it is one operand again, which can be packed and staged; inlined, it would be a choice
    between several at every step.  Rows that stay resident read it as they go."""
    for key, expansion in expansions.items():
        if not forms[key].reduce:
            continue
        assert expansion.root.producer is not None
        own = [name for name, extent in expansion.root.producer.axes if extent > 1]
        for read in expansion.reads:
            axes = (*own, *(name for name in read.scope if expansion.extents[name] > 1))
            chooses = read.scope and _chooses(inliner.separator.body(read.tensor))
            if chooses and not injective(read, expansion.extents, axes):
                return read.tensor, expansion.root
    return None


def _chooses(body: Value) -> bool:
    """Whether `body` is an element of one tensor or of another (or of another place)."""
    selects = (node for node in walk(body) if isinstance(node, Select))
    sides = ((set(loads(node.a)), set(loads(node.b))) for node in selects)
    return any(a - b and b - a for a, b in sides)


def _to_materialise(
    expansion: Expansion, shared: frozenset[int], inliner: Inliner, rows: Rows
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
        worth = shared or separator.has_reduction(tensor) or _reused(expansion, tensor)
        if worth and isinstance(form_of(inliner.expand(tensor), separator, rows), Form):
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
    assert expansion.root.producer is not None
    own = [name for name, _ in expansion.root.producer.axes]
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


def _in_order(plan: _Plan, outputs: tuple[Tensor, ...]) -> list[Tensor]:
    """Roots, producers before consumers, outputs as they were given."""
    roots = {root.buffer.name: root for root in plan.roots}

    def read(root: Tensor) -> Iterator[Tensor]:
        for node in walk(plan.expansions[id(root)].body):
            if isinstance(node, Load) and node.buffer.name in roots:
                yield roots[node.buffer.name]

    return producers_first(outputs, read)


def _definition(expansion: Expansion, form: Form, buffers: dict[str, Buffer]) -> Definition:
    root = expansion.root
    assert root.producer is not None
    axes = tuple(Axis(n, extent, "row" if n in form.row else "spatial") for n, extent in root.producer.axes)
    axes += tuple(Axis(name, extent, "reduce") for name, extent in form.reduce)
    ranges = {axis.name: (0, axis.extent - 1) for axis in axes}
    result, reductions = _with_partials(form)

    def finished(value: Value) -> Value:
        return push_guards(transform(value, lambda node: _placed(node, buffers)), ranges)

    return Definition(
        output=buffers[root.buffer.name],
        axes=axes,
        target=tuple(Index.axis(name) for name, _ in root.producer.axes),
        result=finished(result),
        reductions=tuple(replace(r, bodies=tuple(finished(body) for body in r.bodies)) for r in reductions),
    )


def _placed(node: Value, buffers: dict[str, Buffer]) -> Value | None:
    if not isinstance(node, Load):
        return None
    return replace(node, buffer=buffers.get(node.buffer.name, node.buffer), source=None)


def _with_partials(form: Form) -> tuple[Value, tuple[Reduction, ...]]:
    """The body with every `Reduce` node as a `Partial`, and the reductions, inner ones first."""
    names: dict[object, Reduction] = {}
    several = form.row or len({node.key for node in walk(form.body) if isinstance(node, Reduce)}) > 1
    prefix = "r{}" if several else "r"

    def change(node: Value) -> Value | None:
        if not isinstance(node, Reduce):
            return None
        fresh = Reduction(prefix.format(len(names)), node.combiner, node.bound, node.bodies)
        return Partial(names.setdefault(node.key, fresh).name, node.dtype, node.component)

    result = transform(form.body, change)
    return result, tuple(names.values())


def _named_buffers(
    inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], order: list[Tensor]
) -> dict[str, Buffer]:
    """Final buffers of the tensors that stages write, by the name that `Load` nodes use so far."""
    taken = {t.buffer.name for t in inputs}
    buffers: dict[str, Buffer] = {}
    for position, tensor in enumerate(outputs):
        default = "out" if len(outputs) == 1 else f"out{position}"
        if tensor.name in taken:
            raise ExpressionError(f"the output {tensor.name!r} has the name of another tensor; names must differ")
        name = tensor.name or _unique(default, taken)
        taken.add(name)
        buffers[tensor.buffer.name] = Buffer(name, tensor.shape, tensor.dtype, "output")
    for tensor in order:
        if tensor.buffer.name not in buffers:
            name = _unique(tensor.name or "t", taken)
            taken.add(name)
            buffers[tensor.buffer.name] = Buffer(name, tensor.shape, tensor.dtype, "temporary")
    return buffers


def _unique(name: str, taken: set[str]) -> str:
    def candidates() -> Iterator[str]:
        yield name
        number = 1
        while True:
            yield f"{name}_{number}"
            number += 1

    return next(candidate for candidate in candidates() if candidate not in taken)
