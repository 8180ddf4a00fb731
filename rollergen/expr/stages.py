"""Expressions cut into stages (`planning` says where), each a tensor op over named buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from rollergen.errors import ExpressionError, array_advice, shown
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.empties import is_empty, without_empties
from rollergen.expr.guards import push_guards
from rollergen.expr.inlining import Expansion
from rollergen.expr.language import Tensor
from rollergen.expr.one_stage import OneStage, RowLimits
from rollergen.expr.planning import Plan, Planner
from rollergen.expr.puts import InPlace
from rollergen.expr.reads import given_tensors, producers_first
from rollergen.expr.reductions import Reduce, Scan
from rollergen.expr.takes import checked_ids
from rollergen.expr.tensor_op import Axis, Reduction, Running, TensorOp
from rollergen.expr.values import Buffer, Load, Partial, Take, Value, read_of, transform, walk, with_read
from rollergen.hal.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Graph:
    """Tensor ops in the order in which they run, and the buffers between them.

    ``inputs`` are in the order of the call and, like ``outputs`` and ``temporaries``, have their
    original shapes; a tensor op may view a buffer of the same name with another shape of as many
    elements.  ``cuts`` says, for people, why each temporary exists.  ``definition``: what the tensor ops compute, as
    simpler ones, where that is something else than the expression (`activations`); else empty.
    """

    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    temporaries: tuple[Buffer, ...]
    tensor_ops: tuple[TensorOp, ...]
    cuts: tuple[str, ...] = ()
    definition: tuple[TensorOp, ...] = ()

    @property
    def points(self) -> int:
        """Points of all tensor ops."""
        return sum(op.points for op in self.tensor_ops)

    def buffer(self, name: str) -> Buffer:
        return next(b for b in (*self.inputs, *self.outputs, *self.temporaries) if b.name == name)


Seconds = Callable[[Graph, float], float]
"""``seconds(graph, at_most)``: what its stages take on a device; infinity where they take more than ``at_most``."""


def cut(
    outputs: Tensor | Sequence[Tensor],
    inputs: Sequence[Tensor] | None = None,
    rows: RowLimits = RowLimits(),
) -> Graph:
    """The stages of `outputs`, cut no more than they have to be.

    `inputs` gives the order of the call; by default tensors go in the order in which they first
    appear.  `rows` says how long rows may be that are kept.

    Raises ExpressionError for outputs that are not computed, names used twice, and inputs that are
    missing from or foreign to the expression.
    """
    wanted = checked_outputs(outputs)
    given = ordered_inputs(wanted, inputs)
    wanted = without_empties(wanted)
    return graph_of(Planner(wanted, rows).plan(), wanted, given)


def fastest_cut(
    outputs: Tensor | Sequence[Tensor],
    inputs: Sequence[Tensor] | None,
    rows: RowLimits,
    finished: Callable[[Graph], Graph],
    seconds: Seconds,
    bare: bool = False,
) -> Graph:
    """The `finished` stages of `outputs` that take the fewest `seconds`; ``bare`` as `Planner` has it, the other
    arguments and errors as `cut`.

    Compared are the stages of `cut`; those with all that may be stored besides (`Planner.choices`); and these without
    what is faster inlined after all, tried one at a time.
    """
    wanted = checked_outputs(outputs)
    given = ordered_inputs(wanted, inputs)
    wanted = without_empties(wanted)
    planner = Planner(wanted, rows, bare)
    graph = lambda plan: finished(graph_of(plan, wanted, given))
    plain = planner.plan()
    fused, stored = graph(plain), planner.all_stored(plain)
    if not stored:
        return fused
    whole, several = seconds(fused, inf), len(stored) > 1
    apart = graph(planner.plan(stored))
    least = seconds(apart, inf if several else whole)
    for one in reversed(stored) if several else ():
        fewer = tuple(other for other in stored if other is not one)
        other = graph(planner.plan(fewer))
        if (found := seconds(other, least)) <= least:
            apart, stored, least = other, fewer, found
    return apart if least < whole else fused


def graph_of(plan: Plan, outputs: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> Graph:
    """The stages of a plan, its buffers named."""
    order = _in_order(plan, outputs)
    buffers = _named_buffers(inputs, outputs, order)
    tensor_ops = []
    for t in order:
        op = _op(plan.expansions[id(t)], plan.stages[id(t)], buffers)
        tuple(checked_ids(op))  # refuses what no call could check
        if is_made_once(op):
            buffers[t.buffer.name] = constant = replace(op.output, constant=True)
            op = replace(op, output=constant)
        tensor_ops.append(op)
    made = tuple(buffers[t.buffer.name] for t in order)
    named = [(buffers.get(one.tensor.buffer.name), buffers.get(one.reader.buffer.name), one) for one in plan.cuts]
    cuts = tuple(f"{a.name} is materialised for {b.name}: {one.reason}" for a, b, one in named if a and b)
    return Graph(
        inputs=tuple(t.buffer for t in inputs),
        outputs=tuple(buffers[t.buffer.name] for t in outputs),
        temporaries=tuple(b for b in made if b.kind == "temporary"),
        tensor_ops=tuple(tensor_ops),
        cuts=cuts,
    )


def is_made_once(op: TensorOp) -> bool:
    """Whether what the op stores for others is made of constants alone."""
    read = op.buffers_read().values()
    return op.output.kind == "temporary" and bool(read) and all(buffer.constant for buffer in read)


def _in_order(plan: Plan, outputs: tuple[Tensor, ...]) -> list[Tensor]:
    """Roots, producers before consumers, outputs as they were given; those without elements are no roots."""
    roots = {root.buffer.name: root for root in plan.roots.tensors}

    def read(root: Tensor) -> Iterator[Tensor]:
        for node in walk(plan.expansions[id(root)].body):
            if isinstance(node, (Load, Take)) and read_of(node).buffer.name in roots:
                yield roots[read_of(node).buffer.name]

    return producers_first((one for one in outputs if not is_empty(one)), read)


def _op(expansion: Expansion, stage: OneStage, buffers: dict[str, Buffer]) -> TensorOp:
    root = expansion.root
    assert root.producer is not None
    axes = tuple(Axis(n, extent, "row" if n in stage.row else "spatial") for n, extent in expansion.axes)
    axes += tuple(Axis(name, extent, "reduce") for name, extent in stage.reduce)
    axes += tuple(Axis(name, extent, "inner") for name, extent in stage.chain.inner) if stage.chain else ()
    ranges = {axis.name: (0, axis.extent - 1) for axis in axes}
    result, reductions = _with_partials(stage)

    def finished(value: Value) -> Value:
        return push_guards(transform(value, lambda node: _placed(node, buffers)), ranges)

    return TensorOp(
        output=buffers[root.buffer.name],
        axes=axes,
        target=expansion.target,
        result=finished(result),
        reductions=tuple(replace(r, bodies=tuple(finished(body) for body in r.bodies)) for r in reductions),
    )


def _placed(node: Value, buffers: dict[str, Buffer]) -> Value | None:
    if not isinstance(node, (Load, Take)):
        return None
    read = read_of(node)
    return with_read(node, replace(read, buffer=buffers.get(read.buffer.name, read.buffer), source=None))


def _with_partials(stage: OneStage) -> tuple[Value, tuple[Reduction, ...]]:
    """The body with every `Reduce` node as a `Partial`, and the reductions, inner ones first."""
    if stage.chain:
        return stage.chain.result, stage.chain.reductions
    names: dict[object, Reduction] = {}
    several = stage.row or len({node.key for node in walk(stage.body) if isinstance(node, Reduce)}) > 1
    prefix = "r{}" if several else "r"

    def change(node: Value) -> Value | None:
        if not isinstance(node, Reduce):
            return None
        parts = prefix.format(len(names)), node.combiner, node.bound, node.bodies
        fresh = Running(*parts, node.exclusive) if isinstance(node, Scan) else Reduction(*parts)
        return Partial(names.setdefault(node.key, fresh).name, node.dtype, node.component)

    result = transform(stage.body, change)
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
        fresh = Buffer(name, tensor.shape, tensor.dtype, "output")
        buffers[tensor.buffer.name] = tensor.buffer if isinstance(tensor, InPlace) else fresh
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


def checked_outputs(outputs: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """`outputs` as a tuple; ExpressionError for what is not computed, or given twice."""
    if not isinstance(outputs, (Tensor, list, tuple)):
        raise ExpressionError(
            f"expr is {shown(outputs)}; expected a computed tensor, or a list of them{array_advice(outputs)}"
        )
    wanted = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
    if not wanted:
        raise ExpressionError("no outputs; expected a computed tensor or a sequence of them")
    for position, tensor in enumerate(wanted):
        if not isinstance(tensor, Tensor):
            raise ExpressionError(
                f"output {position} is {shown(tensor)}; expected one computed by rg.compute or rg.ops"
            )
        if tensor.producer is None:
            raise ExpressionError(f"output {position} is the given tensor {tensor.label}: there is nothing to compute")
        if any(tensor is other for other in wanted[:position]):
            raise ExpressionError(f"{tensor.label} is given twice as an output")
    _check_updates(wanted)
    return wanted


def _check_updates(outputs: tuple[Tensor, ...]) -> None:
    """ExpressionError where one kernel would update a tensor and read it, update it twice, or make a new one too."""
    targets = [one.label for one in outputs if isinstance(one, InPlace)]
    if not targets:
        return
    for one in outputs:
        if not isinstance(one, InPlace):
            raise ExpressionError(
                f"{targets[0]} is updated in place, and {one.label} is a new array; expected a kernel for each"
            )
    used = [*(one.label for one in given_tensors(outputs)), *targets]
    for name in targets:
        if used.count(name) > 1:
            raise ExpressionError(
                f"{name} is updated in place, and read or updated by the same kernel; expected two kernels"
            )


def ordered_inputs(outputs: tuple[Tensor, ...], inputs: Sequence[Tensor] | None) -> tuple[Tensor, ...]:
    """The given tensors in the order of `inputs`, or (None) in which they first appear."""
    found = given_tensors(outputs)
    if inputs is None:
        return found
    if not isinstance(inputs, (list, tuple)):
        raise ExpressionError(
            f"inputs= is {shown(inputs)}; expected a list of the tensors {', '.join(t.label for t in found)}"
        )
    targets = [one.target for one in outputs if isinstance(one, InPlace)]
    first = next((n for n, one in enumerate(inputs) if not any(one is t for t in targets)), len(inputs))
    order = tuple(map(_stored, inputs[first:]))  # what is updated comes first anyway
    for tensor in order:
        if not any(tensor is one for one in found):
            names = ", ".join(t.label for t in found)
            if not isinstance(tensor, Tensor):
                raise ExpressionError(
                    f"inputs= holds {shown(tensor)}; expected the tensors themselves: {names}, each once"
                )
            name = tensor.label
            if name in names.split(", "):
                raise ExpressionError(f"inputs= holds another tensor named {name}; expected the one that is read")
            raise ExpressionError(f"inputs= names {name}, which the expression does not read; it reads {names}")
    missing = [t.label for t in found if not any(t is one for one in order)]
    if missing or len(order) != len(found):
        what = f"lacks {', '.join(missing)}" if missing else "names a tensor twice"
        raise ExpressionError(f"inputs= {what}; expected each of {', '.join(t.label for t in found)} once")
    return order


def _stored(thing: Any) -> Tensor:
    """The given tensor of the bytes of one that `rg.tensor` packed, or behind an `rg.scalar`; any other as it is."""
    tensor: Tensor = thing if isinstance(thing, Tensor) else getattr(thing, "tensor", thing)
    if isinstance(tensor, Tensor) and tensor.producer is not None:
        read = given_tensors((tensor,))
        if len(read) == 1 and read[0].buffer.packs and read[0].name == tensor.name:
            return read[0]
    return tensor


def size_bytes(buffers: Iterable[Buffer]) -> int:
    return sum(buffer.elements * ITEMSIZE[buffer.dtype] for buffer in buffers)
