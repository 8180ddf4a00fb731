"""Seeded faults in the printers and the launches, beside those in the lowering; and how the gate is shown a mutant.

A mutant is the source of a program emitted while a fault is patched into a module.  It runs in a process of its own,
because some of them write far outside their arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import rollergen as rg
from rollergen.emit import Source, c_expressions, emit, index_code, opencl
from rollergen.emit.c_family import CFamily
from rollergen.emit.opencl import OpenCL
from rollergen.expr.index import Mod
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import Buffer, Load, Within
from rollergen.gate.program_oracle import program_oracle
from rollergen.hal.spec import Device
from rollergen.lower.expressions import Operation
from rollergen.measure.bench import Lost
from rollergen.measure.isolation import Worker
from rollergen.measure.outcome import Outcome
from rollergen.measure.worker import Limits, Setup
from rollergen.program.rprogram import Loop, RProgram
from rollergen.targets import resolve
from tests import programs
from tests.forgetting import forget
from tests.gate.planted import Planted, built, planted
from tests.lower.builders import ix, program_of
from tests.lower.devices import DEVICES
from tests.lower.test_mutations import MUTATIONS as LOWERING
from tests.lower.test_mutations import negative_rows, padded_rows

Patch = Callable[[Any, str, Any], None]
Mutate = Callable[[Patch], None]


@dataclass(frozen=True)
class Mutant:
    """``part``: what of the generator is at fault: lowering, printer or launch."""

    name: str
    part: str
    mutate: Mutate
    program: RProgram

    def sources(self) -> tuple[Source, Source]:
        """The right one and the one with the fault.  Raises RollergenError where that cannot be emitted."""
        return source_of(self.program, None), source_of(self.program, self)


# Printers


def _printed(patch: Patch, method: str, change: Callable[[str], str], where: type = OpenCL) -> None:
    """The text that a printer's method returns, changed."""
    old = getattr(where, method)
    patch(where, method, lambda self, *a, **k: change(old(self, *a, **k)))


def division_truncates(patch):
    def division(atom, known, long, old=index_code._division):
        ranges = dict(zip(atom.index.names(), known, strict=True))
        text = f"({index_code.index_code(atom.index, ranges, False, long)})"
        text = f"{text} % {atom.divisor}" if isinstance(atom, Mod) else f"{text}/{atom.divisor}"
        return text, old(atom, known, long)[1]

    patch(index_code, "_division", lru_cache(division))


def constants_of_indices_dropped(patch):
    old = c_expressions.index_code
    patch(c_expressions, "index_code", lambda index, *rest: old(index - index.const, *rest))


def last_iteration_dropped(patch):
    def add_loop(self, lines, node, depth, old=CFamily.add_loop):
        short = node.stop - 1 if isinstance(node.stop, int) and node.stop > 1 and not node.unroll else node.stop
        old(self, lines, replace(node, stop=short), depth)

    patch(CFamily, "add_loop", add_loop)


def one_iteration_more(patch):
    def add_loop(self, lines, node, depth, old=CFamily.add_loop):
        longer = node.stop + 1 if isinstance(node.stop, int) and not node.unroll else node.stop
        old(self, lines, replace(node, stop=longer), depth)

    patch(CFamily, "add_loop", add_loop)


def bounds_include_their_end(patch):
    old = CFamily.inside
    patch(CFamily, "inside", lambda self, n: old(self, n if n.high is None else replace(n, high=n.high + 1)))


def lower_bounds_one_too_low(patch):
    old = CFamily.inside
    patch(CFamily, "inside", lambda self, n: old(self, n if n.low is None else replace(n, low=n.low - 1)))


def barrier_not_printed(patch):
    _printed(patch, "barrier", lambda text: ";")


def groups_and_threads_swapped(patch):
    swap = {"get_group_id": "get_local_id", "get_local_id": "get_group_id"}
    old = OpenCL.ids
    patch(OpenCL, "ids", lambda self, kernel: [_replaced(line, swap) for line in old(self, kernel)])


def _replaced(line: str, names: dict[str, str]) -> str:
    return next((line.replace(a, b) for a, b in names.items() if a in line), line)


def infinity_printed_as_zero(patch):
    old = CFamily.literal
    patch(CFamily, "literal", lambda self, v, dtype: old(self, 0.0 if v in (float("inf"), float("-inf")) else v, dtype))


def constants_of_three_digits(patch):
    def literal(self, value, dtype, old=CFamily.literal):
        return old(self, float(f"{value:.3g}") if isinstance(value, float) else value, dtype)

    patch(CFamily, "literal", literal)


def choice_turned_round(patch):
    def operation(self, node, old=CFamily.operation):
        if node.op == "select":
            condition, yes, no = node.operands
            node = replace(node, operands=(condition, no, yes))
        return old(self, node)

    patch(CFamily, "operation", operation)


def parentheses_forgotten(patch):
    def within(self, node, limit, old=CFamily.within):
        is_sum = isinstance(node, Operation) and node.op in ("add", "sub")
        return self.expression(node) if is_sum else old(self, node, limit)

    patch(CFamily, "within", within)


def less_printed_as_less_or_equal(patch):
    patch(c_expressions, "BINARY", {**c_expressions.BINARY, "lt": ("<=", c_expressions.ORDER)})


def greater_printed_as_less(patch):
    patch(c_expressions, "BINARY", {**c_expressions.BINARY, "gt": ("<", c_expressions.ORDER)})


def odd_lanes_picked_only(patch):
    old = OpenCL.picked
    patch(OpenCL, "picked", lambda self, n: old(self, replace(n, which=n.which | 1) if isinstance(n.which, int) else n))


def shuffle_reversed(patch):
    old = OpenCL.shuffled
    patch(OpenCL, "shuffled", lambda self, node: old(self, replace(node, order=node.order[::-1])))


def places_one_element_further(patch):
    old = CFamily.point
    patch(CFamily, "point", lambda self, node: old(self, replace(node, offset=node.offset + 1)))


def every_address_taken_as_aligned(patch):
    old = OpenCL.memory_type
    patch(OpenCL, "memory_type", lambda self, dtype, lanes, aligned: old(self, dtype, lanes, True))


def halves_truncated(patch):
    """bfloat16 without rounding to nearest."""
    _printed(patch, "source", lambda text: text.replace("0x7fffu", "0u").replace("32767u", "0u"), CFamily)


def integers_converted_by_their_bits(patch):
    old = OpenCL.converted

    def converted(self, node):
        mixed = node.operand.dtype == "int32" and node.dtype == "float32"
        return old(self, replace(node, bits=node.bits or mixed))

    patch(OpenCL, "converted", converted)


def bytes_read_without_their_sign(patch):
    unsigned = {**c_expressions.SCALARS, "int8": "uchar"}
    patch(c_expressions, "SCALARS", unsigned)
    patch(opencl, "SCALARS", unsigned)
    patch(CFamily, "scalars", unsigned)


# Launches


def last_block_not_launched(source: Source) -> Source:
    return replace(source, launches=tuple(replace(one, blocks=max(1, one.blocks - 1)) for one in source.launches))


def first_launch_dropped(source: Source) -> Source:
    return replace(source, launches=source.launches[1:])


def launches_turned_round(source: Source) -> Source:
    return replace(source, launches=source.launches[::-1])


def operands_swapped(source: Source) -> Source:
    turned = tuple(replace(one, arguments=(*one.arguments[1::-1], *one.arguments[2:])) for one in source.launches)
    return replace(source, launches=turned)


# Programs


def floored_rows() -> RProgram:
    """Y[i, j] = X[(i - j) // 4], or 0 before its first element: a floor division of negative numbers."""
    at = (ix("i") - ix("j")) // 4
    load = Load(Buffer("X", (12,)), (at,), (Within(at, 0, 12),))
    axes = (Axis("i", 30), Axis("j", 20))
    op = TensorOp(Buffer("Y", (30, 20), kind="output"), axes, (ix("i"), ix("j")), load)
    return program_of("cpu", op, (Loop("i", 30, 1, "serial"), Loop("j", 20, 1, "serial")))


def _square(size: int = 48) -> RProgram:
    return built(rg.ops.matmul(rg.tensor("A", (size, size)), rg.tensor("B", (size, size))))


def mutants() -> tuple[Mutant | Planted, ...]:
    """All of them, the lowering's first, those planted into kernels written by hand last."""
    tensor, ops, all_ = rg.tensor, rg.ops, programs.ALL
    half = built(ops.cast(tensor("X", (100,)), "bfloat16"))
    small = built(ops.matmul(tensor("A", (20, 30), "int8"), tensor("B", (30, 48), "int8")))
    difference = built(ops.mul(ops.sub(tensor("X", (100,)), tensor("Y", (100,))), tensor("Z", (100,))))
    printed: list[tuple[Mutate, RProgram]] = [
        (division_truncates, floored_rows()),
        (constants_of_indices_dropped, padded_rows()),
        (last_iteration_dropped, all_["gpu_matmul"]),
        (one_iteration_more, all_["gpu_matmul_exact"]),
        (bounds_include_their_end, all_["gpu_matmul"]),
        (lower_bounds_one_too_low, floored_rows()),
        (barrier_not_printed, all_["transpose"]),
        (groups_and_threads_swapped, all_["gpu_row_sum"]),
        (infinity_printed_as_zero, negative_rows()),
        (constants_of_three_digits, all_["cpu_softmax"]),
        (choice_turned_round, programs.relu(100)),
        (parentheses_forgotten, difference),
        (less_printed_as_less_or_equal, built(ops.less(tensor("X", (100,), "int32"), tensor("Y", (100,), "int32")))),
        (greater_printed_as_less, programs.relu(100)),
        (odd_lanes_picked_only, all_["cpu_row_sum"]),
        (shuffle_reversed, programs.relu(1000)),
        (places_one_element_further, all_["cpu_matmul"]),
        (every_address_taken_as_aligned, built(ops.add(tensor("X", (64,)), tensor("Y", (64,))))),
        (halves_truncated, half),
        (integers_converted_by_their_bits, built(ops.cast(tensor("X", (100,), "int32"), "float32"))),
        (bytes_read_without_their_sign, small),
    ]
    launched = [
        (last_block_not_launched, all_["gpu_matmul"]),
        (first_launch_dropped, all_["cpu_matmul"]),
        (launches_turned_round, all_["cpu_matmul"]),
        (operands_swapped, _square()),
    ]
    return (
        *(Mutant(mutate.__name__, "lowering", mutate, program) for mutate, program in LOWERING),
        *(Mutant(mutate.__name__, "printer", mutate, program) for mutate, program in printed),
        *(Mutant(change.__name__, "launch", change, program) for change, program in launched),
        *planted(),
    )


# The gate


@contextmanager
def patched(mutate: Mutate) -> Iterator[None]:
    """The generator with a fault, for the time being; nothing that was found without it is kept, or found with it."""
    undo: list[tuple[Any, str, Any]] = []

    def patch(target: Any, name: str, value: Any) -> None:
        undo.append((target, name, getattr(target, name)))
        setattr(target, name, value)

    mutate(patch)
    OpenCL.find_methods()
    forget()
    try:
        yield
    finally:
        for target, name, value in reversed(undo):
            setattr(target, name, value)
        OpenCL.find_methods()
        forget()


def source_of(program: RProgram, mutant: Mutant | None) -> Source:
    device = DEVICES[program.device]
    if mutant is None:
        return emit(program, device)
    if mutant.part == "launch":
        return mutant.mutate(emit(program, device))
    with patched(mutant.mutate):
        return emit(program, device)


class Bench:
    """One process for many mutants, which runs them on `device`; a new one where a mutant ends it."""

    def __init__(self, device: Device | None = None) -> None:
        self._device = device or resolve("cpu")
        self._worker: Worker | None = None

    def problems(self, program: RProgram, *sources: Source) -> tuple[str, ...]:
        """What the gate says of the first of these sources of the program, the others being candidates that follow."""
        setup = Setup(self._device, program, program_oracle(program), limits=Limits(30.0, 5.0))
        if self._worker is None:
            self._worker = Worker(setup)
        else:
            self._worker.ask("open", setup)
        try:
            first, *others = (
                self._worker.ask("check", Outcome(rank, program, one, 0.0)) for rank, one in enumerate(sources)
            )
            revoked = self._worker.ask("revoked", ())
        except Lost as lost:
            self.close()
            return (str(lost),)
        assert not any(other.problems for other in others), others[0].problems
        return first.problems or tuple(text for rank, text in revoked.items() if rank == 0)

    def close(self) -> None:
        if self._worker is not None:
            self._worker.end()
        self._worker = None

    def caught(self, mutant: Mutant | Planted) -> tuple[str, ...]:
        """What the gate says of a mutant; AssertionError where it refuses the program without its fault as well, or
        where the fault changes no text."""
        try:
            right, wrong = mutant.sources()
        except rg.errors.RollergenError as error:
            return (f"not emitted: {error}",)
        assert wrong != right, f"{mutant.name} changes nothing in this program"
        assert (found := self.problems(mutant.program, right)) == (), f"{mutant.name}, without the fault: {found}"
        followed = isinstance(mutant, Planted) and mutant.followed
        return self.problems(mutant.program, wrong, *((right,) if followed else ()))
