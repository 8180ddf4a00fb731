"""What `check` promises: every valid program passes, every broken one is refused by name, quickly."""

import pickle
from dataclasses import replace

import pytest

from rollergen.errors import ProgramError
from rollergen.expr.index import Index
from rollergen.expr.tensor_op import Axis
from rollergen.expr.values import Buffer, Cast, Partial
from rollergen.program.check import check, check_each
from rollergen.program.rprogram import Accumulator, BlockOrder, Compute, Copy, KeptRow, Loop, RProgram, Store
from tests.costs import calls_of
from tests.program.hand_devices import AVX512, TURING
from tests.programs import ALL, F32

GPU, CPU, PACKED, EXACT = "gpu_matmul", "cpu_matmul_masked", "cpu_matmul", "gpu_matmul_exact"


def device_of(program):
    return AVX512 if program.device == "cpu" else TURING


@pytest.mark.parametrize("name", ALL)
def test_hand_written_programs_are_valid_with_and_without_their_device(name):
    check(ALL[name])
    check(ALL[name], device_of(ALL[name]))


def test_of_several_programs_each_is_checked_though_they_share_a_definition():
    sound = ALL[GPU]
    check_each([sound, sound], TURING)
    op = sound.stages[-1].op
    unsound = replace(op, axes=(*op.axes, op.axes[0]))
    with pytest.raises(ProgramError, match="occurs twice"):
        check_each([sound, last(sound, op=unsound)], TURING)
    with pytest.raises(ProgramError, match="lanes is 3"):
        check_each([sound, last(sound, compute=replace(sound.stages[-1].compute, lanes=3))], TURING)


def test_a_stage_remembers_its_own_hash_only():
    one = ALL[GPU].stages[-1]
    other = replace(one, name="another")
    assert hash(one) == hash(one) == hash(replace(one)) != hash(other)
    # Hashes of texts differ from process to process.
    assert not hasattr(pickle.loads(pickle.dumps(one)), "_hash") and hash(pickle.loads(pickle.dumps(one))) == hash(one)


def last(program: RProgram, **changes) -> RProgram:
    """The program with its last stage changed."""
    return replace(program, stages=(*program.stages[:-1], replace(program.stages[-1], **changes)))


def loop(position, **changes):
    def change(program):
        loops = list(program.stages[-1].loops)
        loops[position] = replace(loops[position], **changes)
        return last(program, loops=tuple(loops))

    return change


def loops(order):
    return lambda p: last(p, loops=tuple(order(list(p.stages[-1].loops))))


def copy(number, **changes):
    def change(program):
        copies = list(program.stages[-1].copies)
        copies[number] = replace(copies[number], **changes)
        return last(program, copies=tuple(copies))

    return change


def stage(**changes):
    return lambda p: last(p, **changes)


def accumulator(**changes):
    return lambda p: last(p, accumulator=replace(p.stages[-1].accumulator, **changes))


def kept_row(**changes):
    return lambda p: last(p, kept_rows=(replace(p.stages[-1].kept_rows[-1], **changes),))


def output(**changes):
    def change(program):
        op = program.stages[-1].op
        return last(program, op=replace(op, output=replace(op.output, **changes)))

    return change


def op(**changes):
    return lambda p: last(p, op=replace(p.stages[-1].op, **changes))


def result(value):
    return op(result=value)


def target(index):
    return op(target=(index, Index.axis("j")))


def reduction(**changes):
    return lambda p: op(reductions=(replace(p.stages[-1].op.reductions[0], **changes),))(p)


def outputs(*more):
    return lambda p: replace(p, outputs=(*p.outputs, *more))


def with_copy(*copies):
    return lambda p: last(p, copies=(*p.stages[-1].copies, *copies))


BROKEN = {
    # digits of an axis
    "a stride that is no product of extents": (GPU, loop(2, stride=4), r"loops\[2\]\.stride is 4; expected 2"),
    "a loop of an unknown axis": (GPU, loop(0, axis="z"), r"loops\[0\]\.axis is 'z'; expected one of i, j, k"),
    "an unknown kind": (GPU, loop(0, kind="warp"), r"loops\[0\]\.kind is 'warp'; expected one of grid"),
    "no iterations": (GPU, loop(0, extent=0), r"loops\[0\] has extent 0"),
    "an axis that is not covered": (GPU, loop(0, extent=1), r"axis i cover 64 elements; expected its extent 70"),
    "blocks beyond the end": (GPU, loop(0, extent=3), r"loops\[0\]\.extent is 3; expected 2, where axis i ends"),
    # order of the nest
    "a grid loop inside a thread loop": (GPU, loops(lambda x: [x[0], x[2], x[1], *x[3:]]), "grid loop inside loops"),
    "a thread loop inside a serial loop": (GPU, loops(lambda x: [*x[:3], x[4], x[3], *x[5:]]), "thread loop inside"),
    "a lane loop that is not the last": (CPU, loops(lambda x: [*x[:-2], x[-1], x[-2]]), "unroll loop inside"),
    "two lane loops": (CPU, loop(-2, kind="lane"), "at most one lane loop"),
    "lanes that differ from the lane loop": (CPU, stage(compute=Compute("vfma", 8)), "compute.lanes is 8; expected 16"),
    "descending rows around no divisor of the others": (
        GPU, stage(block_order=BlockOrder(descending=5)), r"block_order\.descending is 5; expected 0, or without other orders a divisor of 2",
    ),
    "descending rows in groups": (
        GPU, stage(block_order=BlockOrder(2, descending=1)), r"block_order\.descending is 1; expected 0, or without other orders",
    ),
    "a swizzle of one grid loop": ("relu", stage(block_order=BlockOrder(2)), "block_order.group_rows is 2 with 1 grid loops"),
    # guards
    "a missing guard": (GPU, stage(guards=(("i", "mask"), ("j", "mask"))), "axis k has no guard; expected one"),
    "a guard that is not needed": (EXACT, stage(guards=(("i", "mask"),)), "axis i has a guard; expected none"),
    "a guard of an unknown axis": (EXACT, stage(guards=(("z", "mask"),)), "guards name axis 'z'"),
    "an unknown guard": (CPU, stage(guards=(("i", "test"), ("j", "mask"))), "is 'test'; expected one of mask, peel"),
    "a peeled reduce axis": ("cpu_row_sum", stage(guards=(("k", "peel"),)), "a reduce axis, is 'peel'"),
    "a guard given twice": (CPU, stage(guards=(("i", "mask"), ("j", "mask"), ("j", "mask"))), "each axis once"),
    # copies
    "a copy of no load": (GPU, copy(0, load=2), r"copies\[0\]\.load is 2; expected 0 to 1"),
    "a copy outside the threads": (GPU, copy(0, at_loop=3), "at_loop is 3; expected 4 to 10"),
    "a copy deeper than the nest": (GPU, copy(0, at_loop=11), "at_loop is 11; expected 4 to 10"),
    "a copy without one of its axes": (GPU, copy(0, order=("k",)), "expected the axes that vary inside: i, k"),
    "a copy with an axis twice": (GPU, copy(0, order=("k", "i", "i")), "expected the axes that vary inside: i, k"),
    "a copy with another load's axis": (GPU, copy(0, order=("k", "i", "j")), "expected the axes that vary inside"),
    "a copy along another axis": (GPU, copy(0, along="j"), "along is 'j'; expected one of k, i"),
    "vectors of three": (GPU, copy(2, vector=3), "vector is 3; expected a power of 2"),
    "vectors longer than the tile": (GPU, copy(2, vector=8), "vector is 8; expected a divisor of 4"),
    "vectors that are not aligned": (GPU, copy(0, vector=2), "vector is 2; expected 1, as 2 elements along k"),
    "a swizzle of three": (GPU, copy(1, swizzle=3), "swizzle is 3; expected 0 or a power of 2"),
    "a swizzle out of its row": (GPU, copy(1, swizzle=32), "expected their product to divide the row of 64"),
    "runs that cut no tile": (GPU, copy(1, runs=(3, 4)), "divisors of the tile"),
    "runs within a vector": (GPU, copy(1, runs=(1, 2)), "a multiple of the vectors of 4"),
    "runs of a thread's own": (GPU, copy(2, runs=(2,)), "as no block fills it"),
    "negative padding": (GPU, copy(0, padding=-1), "padding is -1"),
    "no buffers": (GPU, copy(0, depth=0), "depth 0; expected at least 0 and at least 1"),
    "an unknown layer": (GPU, copy(0, to_layer="lds"), "to_layer is 'lds'; expected a layer of turing"),
    "a layer never filled": (CPU, with_copy(Copy(0, "l1", "registers", 6, ("i",), "i")), "from_layer is l1"),
    "two copies into a layer": (GPU, with_copy(Copy(0, "dram", "shared", 5, ("k", "i"), "k")), "as of an earlier copy"),
    "a source filled deeper": (GPU, copy(0, at_loop=7, order=("i",), along="i"), "at_loop is 6; expected at least 7"),
    "vectors across padding": (GPU, copy(1, padding=2), "padding is 2; expected a multiple of 4"),
    "a copy away from the registers": (GPU, with_copy(Copy(0, "shared", "l2", 5, ("k", "i"), "k")), "beyond l2"),
    "registers filled ahead": (GPU, copy(2, depth=2), "depth is 2; expected 1 in registers"),
    "a copy of the result's operand inside the reduction": (
        "gpu_matmul_bias_prefetch",
        with_copy(Copy(2, "dram", "registers", 6, ("j",), "j")),
        "at_loop is 6; expected at most 4, as only the result reads it",
    ),
    # accumulators
    "accumulators among the threads": (GPU, accumulator(at_loop=3), "at_loop is 3; expected 4 to 10"),
    "partial sums that are lost": (CPU, accumulator(carry=False), "carry is False; expected True"),
    "partial sums that nobody made": (GPU, accumulator(carry=True), "carry is True; expected False"),
    "accumulators of another dtype": (GPU, accumulator(dtype="float64"), "dtype is float64; expected float32"),
    "a carried sum in a narrower output": (CPU, output(dtype="float16"), "uses C as float16"),
    "separate spatial accumulators": (GPU, accumulator(separate=(6,)), "separate names loop 6"),
    "separate accumulators of a serial loop": ("cpu_row_sum", accumulator(separate=(1,)), "separate names loop 1"),
    "blocks that begin outside the accumulators": ("cpu_row_sum", accumulator(flush=(1,)), "expected rising depths"),
    "blocks in blocks of the same loops": ("cpu_row_sum_in_blocks", accumulator(flush=(3, 3)), "expected rising depths"),
    "blocks inside a separate loop": ("cpu_row_sum", accumulator(flush=(3,)), "inside the innermost blocks"),
    "blocks within a register tile": ("gpu_matmul", accumulator(flush=(8,)), "no loop of the spatial axis"),
    "a separate loop named twice": ("cpu_row_sum", accumulator(separate=(2, 2)), "expected each position once"),
    "threads that do not combine": ("gpu_row_sum", accumulator(combine="none"), "shuffle, groups, tree or at_once, as 64"),
    "a combination of nothing": (GPU, accumulator(combine="tree"), "combine is 'tree'; expected none, as 1 threads"),
    "an unknown combination": ("gpu_row_sum", accumulator(combine="sum"), "expected one of none, shuffle, groups, tree"),
    "sums at once without matrices": ("gpu_row_sum", accumulator(combine="at_once"), "'at_once' of fma; expected a matrix"),
    "a shuffle beyond a warp": ("gpu_row_sum", accumulator(combine="shuffle"), "over 64 threads, 1 apart"),
    "groups without group loops": ("gpu_row_sum", accumulator(combine="groups"), "group loops of .* and thread loops of"),
    "a reduced axis on the grid": ("gpu_row_sum", loop(1, kind="grid"), "a grid loop, is of the reduce axis k"),
    "a row axis outside its accumulators": ("cpu_softmax", accumulator(at_loop=2), "a row axis runs outside"),
    # kept rows
    "a kept row of no phase": ("cpu_softmax", kept_row(phase=2), "phase is 2; expected 0 to 1"),
    "a kept row before what it needs": ("cpu_softmax", kept_row(phase=0), "its value needs reduction m"),
    "a kept row in no layer": ("cpu_softmax", kept_row(layer="lds"), "layer is 'lds'; expected a layer of avx512"),
    "kept rows of one name": (
        "gpu_softmax",
        stage(kept_rows=(KeptRow("x", Partial("m", F32), "registers", 1),) * 2),
        "kept rows are named x, x",
    ),
    "a kept row that is the same for the whole row": (
        "cpu_softmax",
        kept_row(value=Partial("m", F32)),
        "its value varies along none of the axes reduced over",
    ),
    # definition
    "an axis twice": (GPU, op(axes=(Axis("i", 70), Axis("i", 70))), "axis 'i' occurs twice"),
    "a reduction over a spatial axis": (GPU, reduction(axes=("j",)), r"is over \['j'\]; expected exactly \['k'\]"),
    "a body of another dtype": (GPU, reduction(bodies=(Cast(Partial("r", F32), "int32"),)), "has bodies of"),
    "a result of another dtype": (GPU, result(Cast(Partial("r", F32), "int32")), "result is int32; expected float32"),
    "a result of no reduction": (GPU, result(Partial("q", F32)), "result uses the reduction 'q'"),
    "a store beyond the output": (GPU, target(Index.axis("i") + 1), "runs from 1 to 70; expected 0 to 69"),
    "a store that depends on a reduced axis": (GPU, target(Index.axis("k")), "target index 0 depends on"),
    # store and device
    "stores of three": (GPU, stage(store=Store(vector=3)), "store.vector is 3; expected a power of 2"),
    "stores that are not adjacent": ("transpose", stage(store=Store(vector=2)), "store.vector is 2; expected 1"),
    "an unknown instruction": (GPU, stage(compute=Compute("mma")), "expected one of turing's: fma"),
    "buffers beyond the shared layer": (GPU, copy(0, depth=32), "bytes of shared; expected at most 65536"),
    # buffers
    "a stage that writes an input": (GPU, output(name="A", shape=(70, 37)), "writes A, an input"),
    "an unknown buffer": (GPU, output(name="Z"), "uses Z; expected one of the program's buffers: A, B, C"),
    "a buffer of another size": (GPU, output(shape=(70, 99)), "expected 7000 elements of float32"),
    "an output never written": (GPU, outputs(Buffer("E", (1,))), "E is never written"),
    "two stages of one name": (PACKED, stage(name="pack_B"), "the stages are named pack_B, pack_B"),
    "one name for two buffers": (GPU, lambda p: replace(p, inputs=(*p.inputs, p.inputs[0])), "two buffers are named A"),
    "a temporary read before it is written": (PACKED, lambda p: replace(p, stages=p.stages[::-1]), "reads B_packed"),
    "a stage run once on what may change": (GPU, stage(once=True), "runs once but reads A, B"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_program_is_refused_by_stage_thing_value_and_what_is_accepted(case):
    name, change, message = BROKEN[case]
    program = change(ALL[name])
    with pytest.raises(ProgramError, match=message):
        check(program, device_of(ALL[name]))


def test_carried_partial_sums_need_an_output_of_the_accumulators_dtype():
    """The sum is widened as it is stored: only where partial sums wait is the dtype wrong."""
    program = output(dtype="float64")(ALL[CPU])
    op = program.stages[-1].op
    program = last(program, op=replace(op, result=Cast(op.result, "float64")))
    program = replace(program, outputs=(program.stages[-1].op.output,))
    with pytest.raises(ProgramError, match="dtype is float32 with carry; expected float64"):
        check(program)


def test_a_constant_tensor_may_be_packed_once_and_read_by_any_stage():
    packed = ALL[PACKED]
    constant = replace(packed, stages=(replace(packed.stages[0], once=True), *packed.stages[1:]))
    with pytest.raises(ProgramError, match="runs once but reads B"):
        check(constant)
    check(replace(constant, inputs=tuple(replace(b, constant=b.name == "B") for b in constant.inputs)))


def test_a_block_may_have_as_many_threads_as_the_device_allows_and_no_more():
    check(ALL[GPU], replace(TURING, limits=replace(TURING.limits, threads_per_block=16 * 16)))
    with pytest.raises(ProgramError, match="a block has 256 threads; expected at most 255"):
        check(ALL[GPU], replace(TURING, limits=replace(TURING.limits, threads_per_block=16 * 16 - 1)))


def test_buffers_may_fill_a_blocks_memory_to_the_byte():
    used = (8 * (64 + 4) + 8 * 64) * 4  # k x (i, padded) and k x j, float32
    check(ALL[GPU], replace(TURING, limits=replace(TURING.limits, block_memory_bytes=used)))
    with pytest.raises(ProgramError, match=f"take {used} bytes of shared; expected at most {used - 1}"):
        check(ALL[GPU], replace(TURING, limits=replace(TURING.limits, block_memory_bytes=used - 1)))


def test_group_loops_hold_whole_execution_widths():
    changed = loop(2, kind="group")(ALL[GPU])
    with pytest.raises(ProgramError, match="a group loop around 16 threads; expected a multiple of 32"):
        check(changed, TURING)
    check(changed, replace(TURING, execution_width=16))


def test_a_unit_loop_may_stand_anywhere_among_the_digits_of_its_axis():
    loops_ = ALL[GPU].stages[0].loops
    check(last(ALL[GPU], loops=(*loops_, Loop("i", 1, 1, "unroll"), Loop("j", 1, 64, "unroll"))))


def test_checking_a_matmul_takes_few_calls():
    """Every constructed candidate is checked: 362 calls take 80 us."""
    assert calls_of(lambda: check(ALL[GPU], TURING)) < 1000


def test_accumulators_may_stand_at_the_end_of_the_nest():
    check(last(ALL["relu"], accumulator=Accumulator(3, F32)))
