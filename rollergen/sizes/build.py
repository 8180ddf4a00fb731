"""`rollergen.build` of an expression with dims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from rollergen.construct.options import BuildOptions
from rollergen.dropped import collected_drops, drop, drop_notes
from rollergen.emit import Source
from rollergen.errors import ArgumentError, CheckFailedError, ExpressionError, RollergenError, shown
from rollergen.expr.dims import Dim, Sized, joined, refuse_ranks
from rollergen.expr.dtypes import described
from rollergen.expr.language import Tensor
from rollergen.expr.places import updated
from rollergen.expr.stages import Graph
from rollergen.expr.values import Buffer
from rollergen.gate.oracle import expression_oracle
from rollergen.hal.spec import Device
from rollergen.kernel import Kernel
from rollergen.measure.isolation import bench_for
from rollergen.measure.outcome import Outcome, Progress
from rollergen.runtime.executor import Compiled, RuntimeExecutor
from rollergen.sizes.kernel import Place, Program, SizedKernel, programs_of
from rollergen.sizes.regime import Expression, Reference, RegimeMap, regime_map
from rollergen.sizes.stored import MapCache

_CHECKED = 2
"""Sizes at which each program passes the gate before it is kept: the least at which it is best, and one between."""


def expression_of(outputs: Any, inputs: Sequence[Any] | None) -> Expression:
    """What is to be built.  Raises ExpressionError where dims are not those of one expression."""
    given = None if inputs is None else tuple(inputs)
    listed = outputs if isinstance(outputs, Sized) else tuple(outputs)
    parts = (listed,) if isinstance(listed, Sized) else listed
    dims = joined(one.dims for one in parts if isinstance(one, Sized))
    return Expression(listed, given, dims)


def build_sized(
    expression: Expression,
    device: Device,
    options: BuildOptions,
    executor: RuntimeExecutor | None,
    sizes: Mapping[str, Iterable[int]] | None,
    own: Callable[[Any, Any], Kernel],
    progress: Progress,
    cache: bool,
    quick: bool = False,
) -> SizedKernel:
    """The kernel for all sizes.  ``own``: builds the kernel of ordinary outputs and inputs, for one size; ``cache``:
    whether one that was built before is taken from the store, and this one kept there, as one entry; ``quick``: from
    fewer programs (see `choice_of`)."""
    extra = _checked_extra(sizes, expression.dims)
    graphs = _graphs(expression, device)
    places = places_of(expression.dims, [(sizes, _taken(graph)) for sizes, graph in graphs])
    low = prod(one.low for one in expression.dims.values())
    driver = None if executor is None else executor.driver
    kept = MapCache(graphs, expression.dims, extra, device, options, driver, quick) if cache else None
    found = kept.find() if kept else None
    if found is None:
        with collected_drops() as dropped:
            regime = None
            if device.kind.machine is None:
                regime = regime_map(expression, device, options, extra, quick=quick)
            programs = [] if regime is None else programs_of(regime, low, device)
            if executor is not None and regime is not None:
                programs = _passed(programs, regime, expression, device, executor, options, progress)
        notes = drop_notes(dropped)
        if kept and regime is not None and programs:
            kept.keep(regime, [one.plan for one in programs], notes)
    else:
        regime, notes = found
        programs = programs_of(regime, low, device)
    reference = Reference(expression, device)
    return SizedKernel(
        device, _signature(graphs[-1][1], places, graphs), places, regime if programs else None, programs,
        lambda sizes: None if reference.open_at(sizes) is None else expression.graph(sizes, device),
        lambda sizes: own(*expression.at(sizes)),
        notes,
    )  # fmt: skip


def _checked_extra(
    sizes: Mapping[str, Iterable[int]] | None, dims: Mapping[str, Dim]
) -> dict[str, tuple[int, ...]] | None:
    """Sizes that the caller wants sampled.  Raises ArgumentError."""
    if sizes is None:
        return None
    if not isinstance(sizes, Mapping):
        raise ArgumentError(f'sizes is {shown(sizes)}; expected a dictionary such as {{"S": [1, 17, 128]}}')
    found = {}
    for name, some in sizes.items():
        if name not in dims:
            raise ArgumentError(f"sizes names {name!r}; expected {', '.join(dims)}")
        one = dims[name]
        wanted = f"expected integers from {one.low} to {one.high}"
        if not isinstance(some, Iterable):
            raise ArgumentError(f"sizes[{name!r}] is {shown(some)}; {wanted}, such as [{one.low}, {one.high}]")
        found[name] = own = tuple(some)
        for size in own:
            if not isinstance(size, int) or isinstance(size, bool) or not one.low <= size <= one.high:
                raise ArgumentError(f"sizes[{name!r}] has {shown(size)}; {wanted}")
    return found


def _graphs(expression: Expression, device: Device) -> list[tuple[dict[str, int], Graph]]:
    """The expression at `differing_sizes`.  Raises ExpressionError where an output's number of dimensions differs."""
    graphs = [(sizes, expression.graph(sizes, device)) for sizes in differing_sizes(expression.dims)]
    for position, buffer in enumerate(graphs[-1][1].outputs):
        refuse_ranks(buffer.name, [(sizes, graph.outputs[position].shape) for sizes, graph in graphs])
    return graphs


def differing_sizes(dims: Mapping[str, Dim]) -> list[dict[str, int]]:
    """Sizes that differ in each dim, which is least, in the middle and largest; the largest of all last."""
    largest = {name: one.high for name, one in dims.items()}
    every = [largest | {name: one.low} for name, one in dims.items() if one.low < one.high]
    every += [largest | {name: (one.low + one.high) // 2} for name, one in dims.items()]
    return [*every, largest]


def _taken(graph: Graph) -> tuple[Buffer, ...]:
    """What a call takes, in its order: what it updates comes first."""
    return (*updated(graph.outputs), *graph.inputs)


Taken = Sequence[tuple[Mapping[str, int], Sequence[Any]]]
"""What a call takes, with names and shapes, at sizes that differ in each dim, the largest last."""


def places_of(dims: Mapping[str, Dim], taken: Taken) -> list[Place]:
    """Where a call tells each dim.  Raises ExpressionError for a dim that nothing tells."""
    found = []
    for name, one in dims.items():
        place = next(_telling(one, taken), None)
        if place is None:
            untold = f"{name} is the extent of no input, or a multiple of one: a call could not tell it"
            raise ExpressionError(untold + _packed_advice(taken))
        found.append(place)
    return found


def _packed_advice(taken: Taken) -> str:
    """What helps where a dim is the last extent of an input with two elements to a byte; "" where none is."""
    for position, buffer in enumerate(taken[-1][1]):
        if buffer.packs and len({every[position].shape[-1] for _, every in taken}) > 1:
            return (
                f"; {buffer.name} holds two elements to a byte along its last axis: expected a number or twice a dim "
                "there, or an input that is not packed and has the extent"
            )
    return ""


def _telling(one: Dim, taken: Taken) -> Iterator[Place]:
    """Dimensions of arguments that are a multiple of the dim at all the sizes, plain ones first."""
    sizes, largest = taken[-1]
    found = []
    for position, buffer in enumerate(largest):
        for axis, extent in enumerate(buffer.shape):
            factor, rest = divmod(extent, sizes[one.name])
            each = [every[position].shape[axis] == factor * at[one.name] for at, every in taken]
            if not rest and factor and all(each) and (one.low < one.high or factor == 1):
                found.append(Place(one, buffer.name, position, axis, factor))
    return iter(sorted(found, key=lambda place: place.factor))


def _signature(largest: Graph, places: Sequence[Place], graphs: Sequence[tuple[dict[str, int], Graph]]) -> str:
    """As of other kernels, with dims where extents are theirs and ... where they follow from sizes."""

    def described_at(group: Callable[[Graph], Sequence[Buffer]], position: int, buffer: Buffer) -> str:
        shapes = [(at, group(graph)[position].shape) for at, graph in graphs]
        return described(buffer.dtype, [extent(shapes, n, e) for n, e in enumerate(buffer.shape)])  # type: ignore[misc]

    def extent(shapes: Sequence[tuple[dict[str, int], tuple[int, ...]]], axis: int, largest: int) -> object:
        each = [(at, shape[axis]) for at, shape in shapes]
        if all(one == largest for _, one in each):
            return largest
        same = (one.dim.name for one in places if all(at[one.dim.name] == size for at, size in each))
        return next(same, "...")

    named = lambda group: [f"{one.name}: {described_at(group, n, one)}" for n, one in enumerate(group(largest))]
    count = len(updated(largest.outputs))
    given = [f"{'updated ' if n < count else ''}{text}" for n, text in enumerate(named(_taken))]
    made = [one.name for one in largest.outputs] if count else named(lambda graph: graph.outputs)
    return f"kernel({', '.join(given)}) -> {', '.join(made)}"


def _passed(
    programs: Sequence[Program],
    regime: RegimeMap,
    expression: Expression,
    device: Device,
    executor: RuntimeExecutor,
    options: BuildOptions,
    progress: Progress,
) -> list[Program]:
    """The programs that pass the gate at each size at which they are checked; others are dropped.

    Raises CheckFailedError where none does.
    """
    best = regime.seconds.argmin(axis=0)
    kept, why = [], []
    for number, one in enumerate(programs):
        own = [at for at, plan in enumerate(best) if plan == number]
        problems: tuple[str, ...] = ()
        for at in own[:: max(1, (len(own) + 1) // _CHECKED)][:_CHECKED]:
            problems = problems or _problems(one, expression, regime.sizes[at], device, executor, options)
        if problems:
            why.append(f"program {number + 1}: {'; '.join(problems[:2])}")
            drop(f"program {number + 1} of the map", CheckFailedError("; ".join(problems)))
        else:
            kept.append(one)
        progress("compiled and checked", number + 1, len(programs))
    if programs and not kept:
        raise CheckFailedError(f"no program of the map passed the check against the definition: {' | '.join(why)}")
    return kept


class _Compiled:
    """An executor of one program's machine code, which is compiled once for all sizes."""

    def __init__(self, one: Program, executor: RuntimeExecutor) -> None:
        self._code, self.memory = one.code, executor.memory

    def prepare(self, source: Source) -> Compiled:
        return self._code.launching(source.launches)[0]


def _problems(
    one: Program,
    expression: Expression,
    sizes: Mapping[str, int],
    device: Device,
    executor: RuntimeExecutor,
    options: BuildOptions,
) -> tuple[str, ...]:
    """What the gate finds wrong with the program at these sizes."""
    outputs: Any = expression.at(sizes)[0]
    graph, count = expression.graph(sizes, device), expression.count(sizes)
    try:
        program, source = one.plan.launched(one.source, count, device, graph)
    except RollergenError as error:
        return (str(error),)
    oracle = expression_oracle((outputs,) if isinstance(outputs, Tensor) else tuple(outputs), program.outputs)
    with bench_for(device, _Compiled(one, executor), program, oracle, options) as bench:
        return bench.check(Outcome(0, program, source, 0.0)).problems
