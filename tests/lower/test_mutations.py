"""Seeded faults in the lowering: each must make a program differ from its oracle."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rollergen.expr.index import Index, linear
from rollergen.expr.values import Within
from rollergen.lower import (
    access,
    arithmetic,
    copies,
    loops,
    phases,
    pipelines,
    place,
    reductions,
    stage,
    stores,
    vectors,
)
from rollergen.lower.elements import Access
from rollergen.lower.expressions import Number, Operation, Position
from rollergen.lower.place import Place
from rollergen.lower.writer import Writer
from rollergen.program.rprogram import Accumulator
from tests import programs
from tests.forgetting import forget
from tests.lower.builders import row_reduction
from tests.lower.harness import difference, random_inputs

GPU, CPU = programs.ALL["gpu_matmul"], programs.ALL["cpu_matmul"]
BLOCKS = programs.ALL["cpu_row_sum_in_blocks"]
BIAS, PREFETCH = programs.ALL["cpu_matmul_bias"], programs.ALL["gpu_matmul_bias_prefetch"]


def guard_one_too_wide(patch):
    patch(Place, "axis_test", lambda self, axis: Within(Index.axis(axis), 0, self.nest.extents[axis] + 1))


def store_without_tests(patch):
    old = stores.output_access
    patch(stores, "output_access", lambda here, out: replace(old(here, out), tests=()))


def tile_taken_as_whole(patch):
    patch(phases, "_tile_fits", lambda here, axis, out: None)


def no_barriers(patch):
    patch(Writer, "barrier", lambda self, pending=None, products=False: None)


def every_other_barrier(patch):
    old, calls = Writer.barrier, []

    def barrier(self, pending=None, products=False):
        calls.append(1)
        if len(calls) % 2:
            old(self, pending, products)

    patch(Writer, "barrier", barrier)


def dropped_factor(patch):
    old = arithmetic._binary
    patch(arithmetic, "_binary", lambda out, op, a, b, dtype: a if op == "mul" else old(out, op, a, b, dtype))


def swapped_operands(patch):
    old = arithmetic._binary
    patch(arithmetic, "_binary", lambda out, op, a, b, dtype: old(out, op, b, a, dtype) if op == "sub" else old(out, op, a, b, dtype))


def wrong_identity(patch):
    patch(reductions, "identities", lambda acc, lanes: tuple(Number(1, r.dtype, lanes) for r in acc.components))


def zero_as_identity(patch):
    patch(reductions, "identities", lambda acc, lanes: tuple(Number(0, r.dtype, lanes) for r in acc.components))


def masked_points_count(patch):
    patch(reductions, "unmasked", lambda out, scope, reduction: None)


def swapped_index(patch):
    def load_access(out, here, load):
        if here.source(load) is not None:
            return copies.staged_access(out, here, here.source(load))
        shape = tuple(reversed(load.buffer.shape))
        offset = linear(tuple(reversed(load.indices)), shape).substitute(here.axes).simplify(out.ranges)
        return Access(here.nest.parameters[load.buffer.name], offset, here.tests(place.load_bounds(here, load), out.ranges))

    patch(copies, "load_access", load_access)


def dropped_tail_iteration(patch):
    old = place.trip_count

    def trip_count(here, p, uniform, ranges):
        count = old(here, p, uniform, ranges)
        clipped = not isinstance(count, int)
        return Operation("sub", (count, Number(1, "int32")), "int32") if clipped else count

    for module in (loops, reductions):
        patch(module, "trip_count", trip_count)


def no_clipping(patch):
    for module in (loops, reductions):
        patch(module, "trip_count", lambda here, p, uniform, ranges: here.nest.loops[p].extent)


def wrong_stride(patch):
    old = copies.axis_digits
    patch(copies, "axis_digits", lambda *a, **k: tuple((p, w + 1 if w > 1 else w) for p, w in old(*a, **k)))


def wrong_buffer_of_two(patch):
    old = pipelines.stages_of
    patch(pipelines, "stages_of", lambda staged, at, ranges: old(staged, at * 2, ranges))


def prefetch_of_the_same_tile(patch):
    old = pipelines.prefetch
    patch(pipelines, "prefetch", lambda context, here, one: old(context, Place.outermost(here.nest), one))


def padding_only_when_written(patch):
    old = copies.staged_access
    flat = lambda staged: replace(staged, copy=replace(staged.copy, padding=0))
    patch(copies, "staged_access", lambda out, here, staged: old(out, here, flat(staged)))


def swizzle_only_when_written(patch):
    old = copies.staged_access
    plain = lambda staged: replace(staged, copy=replace(staged.copy, swizzle=0))
    patch(copies, "staged_access", lambda out, here, staged: old(out, here, plain(staged)))


def every_visit_is_the_first(patch):
    old = phases.first_trip
    patch(phases, "first_trip", lambda here, out: Operation("or", (old(here, out), Number(1, "bool")), "bool"))


def every_visit_is_the_last(patch):
    patch(stores, "last_trip", lambda here, out: None)


def odd_lanes_dropped(patch):
    old = reductions._across_lanes

    def across(out, scope, acc, values):
        masks = tuple(Operation("mul", (v, v), v.dtype, v.lanes) for v in values)
        return old(out, scope, acc, masks)

    patch(reductions, "_across_lanes", across)


def second_chain_dropped(patch):
    patch(reductions, "_across_chains", lambda out, scope, acc: tuple(
        scope.place.bind({p: Index() for p in acc.positions}).element(r) for r in acc.components))  # fmt: skip


def blocks_started_at_other_depths(patch):
    """Only the outermost accumulators start at the identity: those of blocks go on with what the last one held."""
    old = phases._in_levels
    outermost = lambda context, phase, levels: replace(old(context, phase, levels), before=phase.before)
    patch(phases, "_in_levels", outermost)


def blocks_dropped(patch):
    patch(reductions, "flush", lambda out, scope, inner, outer: None)


def blocks_taken_as_whole(patch):
    patch(loops, "whole_iterations", lambda here, p, out: here.nest.loops[p].extent if p == here.nest.first_block else None)


def tree_of_half_the_threads(patch):
    old = reductions.thread_shares
    patch(stage, "thread_shares", lambda nest, thread: replace(old(nest, thread), count=old(nest, thread).count // 2))


def digits_without_division(patch):
    def define(out, nest, at, number, count):
        for p in at:
            extent = nest.loops[p].extent
            out.define(nest.variables[p], Position(Index.axis(number) % extent), (0, extent - 1))

    patch(stage, "_define_digits", define)


def first_register_for_all(patch):
    old = Place.element
    patch(Place, "element", lambda self, registers: old(self.bind({p: Index() for p, _ in registers.indices[-1]}), registers)
          if len(registers.indices) == 1 else old(self, registers))  # fmt: skip


def last_vector_taken_as_whole(patch):
    old = loops.whole_iterations
    patch(loops, "whole_iterations", lambda here, p, out: (lambda n: n + 1 if isinstance(n, int) else n)(old(here, p, out)))


def vector_test_of_the_first_lane_only(patch):
    patch(vectors, "_whole", lambda test, lane, ranges: (replace(test, index=test.index.substitute({lane.variable: Index()})),))


def masks_let_every_lane_pass(patch):
    patch(access, "lane_mask", lambda ranges, offset, tests, lane, bits: Number(-1, f"mask{bits}", lane.width))


def masks_without_their_lower_bound(patch):
    old = access.lane_mask
    upper = lambda tests: tuple(replace(test, low=None) for test in tests)
    patch(access, "lane_mask", lambda ranges, offset, tests, *rest: old(ranges, offset, upper(tests), *rest))


def wrap_inside_a_vector_unnoticed(patch):
    old = vectors.straighten
    patch(vectors, "straighten", lambda *a: (lambda found: found and (found[0], ()))(old(*a)))


def negative_rows():
    """A maximum of negative numbers over a masked axis."""
    from rollergen.expr.values import named_combiner
    from tests.lower.builders import ix, load

    return row_reduction(named_combiner("max", "float32"), (load("X", ix("i"), ix("j"), shape=(5, 77)),), 5, 77)


def two_chains():
    program = programs.row_sum(10, 64)
    return replace(program, stages=(replace(program.stages[0], accumulator=Accumulator(1, "float32", separate=(2,))),))


def gathered_rows():
    """Rows of 7 in lines of 10, four lanes at a time."""
    from rollergen.expr.tensor_op import Axis, TensorOp
    from rollergen.expr.values import Buffer, Load
    from rollergen.program.rprogram import Loop
    from tests.lower.builders import ix, program_of

    x = Load(Buffer("X", (12, 10)), (ix("p") // 7, ix("p") % 7))
    op = TensorOp(Buffer("Y", (84,), kind="output"), (Axis("p", 84),), (ix("p"),), x)
    return program_of("cpu", op, (Loop("p", 21, 4, "serial"), Loop("p", 4, 1, "lane")))


def padded_rows():
    """Rows of 18 between two zeros, sixteen lanes at a time."""
    from rollergen.expr.tensor_op import Axis, TensorOp
    from rollergen.expr.values import Buffer, Load
    from rollergen.program.rprogram import Loop
    from tests.lower.builders import ix, program_of

    x = Load(Buffer("X", (12, 18)), (ix("i"), ix("j") - 1), (Within(ix("j") - 1, 0, 18),))
    y = Buffer("Y", (12, 20), kind="output")
    op = TensorOp(y, (Axis("i", 12), Axis("j", 20)), (ix("i"), ix("j")), x)
    loops = (Loop("i", 12, 1, "serial"), Loop("j", 2, 16, "serial"), Loop("j", 16, 1, "lane"))
    return program_of("cpu", op, loops, guards=(("j", "mask"),))


MUTATIONS = [
    (guard_one_too_wide, programs.relu(1001)),
    (store_without_tests, programs.transpose(70, 50)),
    (tile_taken_as_whole, CPU),
    (no_barriers, GPU),
    (every_other_barrier, GPU),
    (dropped_factor, GPU),
    (swapped_operands, programs.ALL["cpu_softmax"]),
    (wrong_identity, CPU),
    (zero_as_identity, negative_rows()),
    (masked_points_count, negative_rows()),
    (swapped_index, GPU),
    (dropped_tail_iteration, CPU),
    (no_clipping, CPU),
    (wrong_stride, GPU),
    (wrong_buffer_of_two, PREFETCH),
    (prefetch_of_the_same_tile, PREFETCH),
    (padding_only_when_written, GPU),
    (swizzle_only_when_written, programs.ALL["gpu_matmul_swizzle"]),
    (every_visit_is_the_first, CPU),
    (every_visit_is_the_last, BIAS),
    (odd_lanes_dropped, programs.ALL["cpu_row_sum"]),
    (second_chain_dropped, two_chains()),
    (second_chain_dropped, BLOCKS),
    (blocks_started_at_other_depths, BLOCKS),
    (blocks_dropped, BLOCKS),
    (blocks_dropped, programs.ALL["gpu_matmul_in_blocks"]),
    (blocks_taken_as_whole, BLOCKS),
    (tree_of_half_the_threads, programs.ALL["gpu_row_sum"]),
    (digits_without_division, GPU),
    (first_register_for_all, CPU),
    (last_vector_taken_as_whole, programs.ALL["cpu_softmax"]),
    (vector_test_of_the_first_lane_only, programs.relu(1001)),
    (wrap_inside_a_vector_unnoticed, gathered_rows()),
    (masks_let_every_lane_pass, padded_rows()),
    (masks_without_their_lower_bound, padded_rows()),
]


@pytest.mark.parametrize(("mutate", "program"), MUTATIONS, ids=[m.__name__ for m, _ in MUTATIONS])
@pytest.mark.every(11)
def test_a_seeded_fault_is_noticed(mutate, program, monkeypatch):
    inputs = random_inputs(program, seed=3)
    if mutate.__name__ in ("zero_as_identity", "masked_points_count"):
        inputs = {name: -1 - abs(array) for name, array in inputs.items()}
    tolerance = 1e-6 if "softmax" in program.stages[0].name else 0.0
    assert difference(program, inputs, tolerance) is None
    with monkeypatch.context() as patches:
        mutate(patches.setattr)
        forget()
        try:
            found = difference(program, inputs, tolerance)
        except Exception as error:  # a fault may also show as text that does not compile
            found = repr(error)
    forget()
    assert found is not None, f"{mutate.__name__} went unnoticed"
