"""Shapes of nests, copies and tails: what a program may decide, written faithfully."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollergen.expr.tensor_op import Axis, Reduction, TensorOp
from rollergen.expr.values import Binary, Buffer, Load, Partial, named_combiner
from rollergen.lower import lower
from rollergen.lower.ir import Barrier, walk
from rollergen.program.rprogram import Accumulator, BlockOrder, Compute, Copy, Loop, RProgram, Stage, Store
from tests import programs
from tests.lower.builders import ix, program_of
from tests.lower.devices import DEVICES
from tests.lower.harness import difference

F32 = "float32"
QUICK = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def with_stage(program, **changes):
    return replace(program, stages=(*program.stages[:-1], replace(program.stages[-1], **changes)))


@QUICK
@given(m=st.integers(1, 140), n=st.integers(1, 140), k=st.integers(1, 40), depth=st.sampled_from([1, 2, 3, 4]))
def test_gpu_matmuls_of_any_size_and_pipeline_depth(m, n, k, depth):
    assert difference(programs.gpu_matmul(m, n, k, bias=bool(k % 2), depth=depth)) is None


@QUICK
@given(
    m=st.integers(1, 60), n=st.integers(1, 150), k=st.integers(1, 50), kc=st.sampled_from([4, 16, 64]),
    guard=st.sampled_from(["peel", "mask"]), pack=st.booleans(), bias=st.booleans(),
)  # fmt: skip
def test_cpu_matmuls_of_any_size_and_k_block(m, n, k, kc, guard, pack, bias):
    assert difference(programs.cpu_matmul(m, n, k, bias, kc, guard=guard, pack=pack)) is None


@QUICK
@given(rows=st.integers(1, 9), columns=st.integers(1, 140), shape=st.sampled_from(["cpu", "gpu"]))
def test_rows_of_any_length(rows, columns, shape):
    assert difference(programs.row_sum(rows, columns, shape)) is None
    assert difference(programs.softmax(rows, columns, shape), tolerance=1e-6) is None


@QUICK
@given(ci=st.integers(1, 5), h=st.integers(3, 13), w=st.integers(3, 13), co=st.integers(1, 20), stride=st.sampled_from([1, 2]))
def test_convolutions_gathered_on_load(ci, h, w, co, stride):
    assert difference(programs.gpu_conv(ci, h, w, co, stride)) is None


@QUICK
@given(rows=st.integers(1, 80), columns=st.integers(1, 80))
def test_transposes_of_any_size(rows, columns):
    assert difference(programs.transpose(rows, columns)) is None


@QUICK
@given(elements=st.integers(1, 1200))
def test_streams_of_any_length(elements):
    assert difference(programs.relu(elements)) is None


@pytest.mark.parametrize("width", [0, 2, 5, 8])
def test_swizzled_blocks_are_each_run_once(width):
    program = programs.gpu_matmul(64 * 5, 64 * 3, 8)
    assert difference(with_stage(program, block_order=BlockOrder(width))) is None


@pytest.mark.parametrize(("padding", "vector"), [(0, 1), (4, 2), (4, 4)])
def test_shared_tiles_with_any_padding_and_vector(vector, padding):
    program = programs.gpu_matmul(70, 100, 36, padding=padding)
    a, b, *fragments = program.stages[0].copies
    copies = (replace(a, vector=vector), replace(b, vector=vector), *fragments)
    assert difference(with_stage(program, copies=copies)) is None


@pytest.mark.parametrize(("swizzle", "vector"), [(2, 1), (4, 2), (8, 4)])
def test_swizzled_tiles_are_read_where_they_were_written(vector, swizzle):
    program = programs.gpu_matmul(64, 64, 40, swizzle=swizzle, padding=0)
    a, b, *fragments = program.stages[0].copies
    fragments = [replace(f, vector=1) for f in fragments]
    assert difference(with_stage(program, copies=(a, replace(b, vector=vector), *fragments))) is None


def test_a_tile_that_stays_out_of_shared_memory_is_read_through_the_cache():
    program = programs.gpu_matmul()
    a, _, fragment, _ = program.stages[0].copies
    direct = Copy(1, "dram", "registers", 6, ("j",), "j", vector=2)
    assert difference(with_stage(program, copies=(a, fragment, direct))) is None
    assert difference(with_stage(program, copies=(a, fragment))) is None
    assert difference(with_stage(program, copies=())) is None


def test_group_loops_give_warps_a_shape_of_their_own():
    program = programs.gpu_matmul()
    loops = list(program.stages[0].loops)
    threads = [Loop("i", 2, 16, "group"), Loop("j", 4, 8, "group"), Loop("i", 8, 2, "thread"), Loop("j", 4, 2, "thread")]
    loops[2:4] = threads
    shifted = [replace(c, at_loop=c.at_loop + 2) for c in program.stages[0].copies]
    accumulator = Accumulator(6, F32)
    assert difference(with_stage(program, loops=tuple(loops), copies=tuple(shifted), accumulator=accumulator)) is None


def transposing_program(rows, columns, order, along, vector, padding, tile=32, lanes=16):
    """Y[j, i] = X[i, j] through a private array."""
    x = Load(Buffer("X", (rows, columns)), (ix("i"), ix("j")))
    op = TensorOp(Buffer("Y", (columns, rows), kind="output"), (Axis("j", columns), Axis("i", rows)), (ix("j"), ix("i")), x)
    loops = (
        Loop("j", -(-columns // tile), tile, "grid"),
        Loop("i", -(-rows // tile), tile, "grid"),
        Loop("j", tile, 1, "serial"),
        Loop("i", tile // lanes, lanes, "serial"),
        Loop("i", lanes, 1, "lane"),
    )
    guards = (("i", "mask"),) if rows % lanes else ()
    copies = (Copy(0, "dram", "l1", 2, order, along, vector, padding),)
    return program_of("cpu", op, loops, Accumulator(4, F32), copies=copies, guards=guards, store=Store(streaming=True))


@pytest.mark.every(7)
@pytest.mark.parametrize(("rows", "columns"), [(64, 96), (50, 70), (5, 3)])
@pytest.mark.parametrize(
    ("order", "along", "vector"),
    [(("j", "i"), "j", 16), (("i", "j"), "j", 16), (("j", "i"), "j", 1), (("j", "i"), "i", 4), (("i", "j"), "j", 8)],
)
def test_private_tiles_in_any_order_turned_or_not(rows, columns, order, along, vector):
    assert difference(transposing_program(rows, columns, order, along, vector, 16)) is None


def test_an_operand_packed_inside_the_kernel_serves_several_tiles():
    program = programs.cpu_matmul(70, 100, 37, pack=False, guard="peel")
    copy = Copy(1, "dram", "l2", 3, ("k", "j"), "j", vector=16)
    assert difference(with_stage(program, copies=(copy,))) is None


def reduction_over_two_axes(m, n, k, taps, carry_axis):
    """C[i, j] = sum over k, t of A[i, k, t] B[k, t, j], partial sums in C over `carry_axis`."""
    a, b = Buffer("A", (m, k, taps)), Buffer("B", (k, taps, n))
    body = Binary("mul", Load(a, (ix("i"), ix("k"), ix("t"))), Load(b, (ix("k"), ix("t"), ix("j"))), F32)
    op = TensorOp(
        Buffer("C", (m, n), kind="output"),
        (Axis("i", m), Axis("j", n), Axis("k", k, "reduce"), Axis("t", taps, "reduce")),
        (ix("i"), ix("j")),
        Binary("add", Partial("r", F32), Load(Buffer("D", (n,)), (ix("j"),)), F32),
        (Reduction("r", named_combiner("sum", F32), ("k", "t"), (body,)),),
    )
    outer = [Loop("k", -(-k // 4), 4, "serial")] if carry_axis == "k" else [Loop("t", taps, 1, "serial")]
    if carry_axis == "both":
        outer.append(Loop("k", -(-k // 4), 4, "serial"))
    inner = [Loop("k", 4, 1, "serial")] if carry_axis != "t" else [Loop("k", k, 1, "serial")]
    inner += [Loop("t", taps, 1, "unroll")] if carry_axis == "k" else []
    loops = (
        Loop("i", -(-m // 4), 4, "grid"), *outer, Loop("j", -(-n // 32), 32, "serial"), *inner,
        Loop("i", 4, 1, "unroll"), Loop("j", 2, 16, "unroll"), Loop("j", 16, 1, "lane"),
    )  # fmt: skip
    guards = tuple((x, "peel") for x, e, s in (("i", m, 4), ("j", n, 32)) if e % s)
    stage = Stage("sum", op, loops, Compute("vfma", 16), Accumulator(len(outer) + 2, F32, carry=True), guards=guards)
    return RProgram("cpu", (a, b, Buffer("D", (n,))), (op.output,), (stage,))


@pytest.mark.every(7)
@pytest.mark.parametrize("carry_axis", ["k", "t", "both"])
@pytest.mark.parametrize("k", [4, 8, 10])
def test_partial_sums_wait_in_the_output_over_any_reduce_axes(k, carry_axis):
    assert difference(reduction_over_two_axes(9, 40, k, 3, carry_axis)) is None


def test_carried_sums_may_be_split_over_lanes():
    x = Load(Buffer("X", (6, 100)), (ix("i"), ix("k")))
    op = TensorOp(
        Buffer("S", (6,), kind="output"), (Axis("i", 6), Axis("k", 100, "reduce")), (ix("i"),),
        Partial("r", F32), (Reduction("r", named_combiner("sum", F32), ("k",), (x,)),),
    )  # fmt: skip
    loops = (Loop("k", 2, 64, "serial"), Loop("i", 6, 1, "serial"), Loop("k", 4, 16, "serial"), Loop("k", 16, 1, "lane"))
    program = program_of("cpu", op, loops, Accumulator(2, F32, carry=True), guards=(("k", "mask"),))
    assert difference(program) is None


def test_points_outside_the_definition_are_computed_and_not_stored():
    """Rows of 7 laid out in lines of 10: the last 3 positions of a line belong to no row."""
    from rollergen.expr.values import Within

    x = Load(Buffer("X", (12, 10)), (ix("p") // 10, ix("p") % 10))
    op = TensorOp(
        Buffer("Y", (12, 7), kind="output"), (Axis("p", 120),), (ix("p") // 10, ix("p") % 10), x,
        where=(Within(ix("p") % 10, 0, 7),),
    )  # fmt: skip
    for lanes in (2, 4, 8, 16):
        loops = (Loop("p", -(-120 // (4 * lanes)), 4 * lanes, "grid"), Loop("p", 4, lanes, "unroll"), Loop("p", lanes, 1, "lane"))
        guards = (("p", "mask"),) if 120 % (4 * lanes) else ()
        assert difference(program_of("cpu", op, loops, Accumulator(1, F32), guards=guards)) is None


def barriers(program):
    return sum(isinstance(s, Barrier) for kernel in lower(program, DEVICES[program.device]) for s in walk(kernel.body))


def test_every_shared_tile_has_the_barriers_it_needs_and_no_more():
    assert barriers(programs.gpu_matmul()) == 2  # before the tiles are overwritten, after they are
    assert barriers(programs.gpu_matmul(depth=2)) == 2  # the first tile in place; end of an iteration
    assert barriers(programs.gpu_matmul(depth=3)) == 2  # start of an iteration; after the loop
    assert barriers(programs.transpose()) == 1  # used once: nothing to wait for before
    assert barriers(programs.row_sum(shape="gpu")) == 1 + 6 + 1  # written, log2(64) halvings, read
    assert barriers(programs.cpu_matmul()) == 0


def test_one_program_always_gives_the_same_kernels():
    for program in programs.ALL.values():
        assert lower(program, DEVICES[program.device]) == lower(program, DEVICES[program.device])
