"""Windows that a block stages: the halo once, by all its threads; the three readers agree, and the model's counts are
those of the addresses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.explain import explanation
from rollergen.expr.canonical import canonicalize
from rollergen.lower import windows as lowered
from rollergen.program.assemble.contraction import accumulator_dtype
from rollergen.program.check.program import check
from rollergen.program.interpreter import interpret
from rollergen.program.interpreter.copies import WindowLayout
from rollergen.program.model import block_windows
from rollergen.program.model.costs import costs_of
from rollergen.program.model.facts import facts_of
from rollergen.program.model.limiters.latency import latency_clocks
from rollergen.program.model.nest import nest_of
from rollergen.program.model.prediction import predict_stage
from rollergen.program.model.price import norms_of
from rollergen.program.model.wavefronts import wavefronts
from rollergen.program.model.work import work_of
from rollergen.program.rprogram import Accumulator, Compute, Copy, Loop, RProgram, Stage
from rollergen.program.serial import from_json, to_json
from rollergen.program.windows import needed, thread_digits, window_shape
from rollergen.tile.rules import main_instruction
from tests.agreement.readers import assert_traffic, assert_values, device, run_opencl, small_integers
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed

V100 = device("v100")
X = rg.tensor("X", (2, 3, 13, 18))
W = rg.tensor("W", (3, 1, 3, 5))
HALF = rg.tensor("X", (2, 3, 13, 18), "float16")
IMAGES = {
    "padded": lambda: rg.ops.conv2d(X, W, padding=1, groups=3),
    "stride 2, padded": lambda: rg.ops.conv2d(X, W, stride=2, padding=2, groups=3),
    "taps apart": lambda: rg.ops.conv2d(X, W, padding=2, dilation=2, groups=3),
    "largest of 3 x 3": lambda: rg.ops.max_pool2d(X, 3, stride=2, padding=1),
    "largest of halves": lambda: rg.ops.max_pool2d(HALF, 3, stride=1, padding=1),
}
BLOCKS = {"2 x 8, 2 x 1 a thread": (2, 8, 2, 1), "4 x 4, 1 x 3": (4, 4, 1, 3), "1 x 16, 3 x 2": (1, 16, 3, 2)}
ORDERS = ("taps outside", "a loop of rows", "copied ahead")


def program_of(expression, block, order="taps outside", padding=1, on=V100) -> RProgram:
    """Of a block of threads (down, across) and outputs a thread (down, across), a block apart."""
    down, across, rows, columns = block
    graph = canonicalize(expression)
    (op,) = graph.tensor_ops
    extents = {axis.name: axis.extent for axis in op.axes}
    *outer, y, x = (axis.name for axis in op.of_role("spatial"))
    grid = [Loop(axis, extents[axis], 1, "grid") for axis in outer]
    grid += [Loop(y, -(-extents[y] // (down * rows)), down * rows, "grid")]
    grid += [Loop(x, -(-extents[x] // (across * columns)), across * columns, "grid")]
    threads = [Loop(y, down, 1, "thread"), Loop(x, across, 1, "thread")]
    taps = [Loop(axis.name, axis.extent, 1, "unroll") for axis in op.of_role("reduce")]
    outputs = [Loop(y, rows, down, "unroll"), Loop(x, columns, across, "unroll")]
    if order == "a loop of rows":
        taps[0] = replace(taps[0], kind="serial")
    depth, load = len(grid) + 2, next(n for n, one in enumerate(op.loads()) if one.buffer.name == "X")
    inner = [*outputs, *taps] if order == "copied ahead" else [*taps, *outputs]
    varying = tuple(a.name for a in op.axes if a.name in {loop.axis for loop in [*threads, *inner]})
    copies = [Copy(load, on.backing.name, "shared", depth, varying, x, padding=padding, window=True)]
    if order == "copied ahead":
        copies.append(Copy(load, "shared", "registers", depth, varying, varying[-1]))
    dtype = accumulator_dtype(op)
    accumulator = Accumulator(depth + 2 if order == "copied ahead" else depth, dtype)
    guards = tuple((a, "mask") for a, tile in ((y, down * rows), (x, across * columns)) if extents[a] % tile)
    loops = (*grid, *threads, *inner)
    compute = Compute(main_instruction(on, dtype).name)
    stage = Stage("staged", op, loops, compute, accumulator, tuple(copies), guards=guards)
    return RProgram(on.name, graph.inputs, graph.outputs, (stage,))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("image", IMAGES)
def test_the_interpreter_gives_the_definition_and_its_bytes_are_the_closed_forms(image, block, order):
    expression = IMAGES[image]()
    program = program_of(expression, BLOCKS[block], order)
    check(program, V100)
    arrays = small_integers(program)
    found = interpret(program, arrays, V100)
    assert_values(expression, program, found.outputs, arrays)
    assert_traffic(program, found.traffic, V100, {})


SOURCES = (
    ("padded", "2 x 8, 2 x 1 a thread", "a loop of rows"),
    ("stride 2, padded", "1 x 16, 3 x 2", "taps outside"),
    ("taps apart", "4 x 4, 1 x 3", "copied ahead"),
    ("largest of 3 x 3", "2 x 8, 2 x 1 a thread", "taps outside"),
    ("largest of halves", "4 x 4, 1 x 3", "taps outside"),
)


@pytest.mark.parametrize("image, block, order", SOURCES)
def test_the_source_gives_the_definition(image, block, order):
    expression = IMAGES[image]()
    program = program_of(expression, BLOCKS[block], order)
    arrays = small_integers(program)
    assert_values(expression, program, run_opencl(program, arrays, V100), arrays)


def window_after_window(program) -> RProgram:
    """The same with the images' channels one after the other in a block, each with its own window."""
    (stage,) = program.stages
    channel = next(p for p, loop in enumerate(stage.loops) if loop.axis == "f")
    loops = [loop for p, loop in enumerate(stage.loops) if p != channel]
    at = stage.accumulator.at_loop
    loops.insert(at - 1, replace(stage.loops[channel], kind="serial"))
    return replace(program, stages=(replace(stage, loops=tuple(loops)),))


def test_a_window_replaces_another_where_a_block_goes_on():
    expression = IMAGES["padded"]()
    program = window_after_window(program_of(expression, BLOCKS["2 x 8, 2 x 1 a thread"]))
    check(program, V100)
    arrays = small_integers(program)
    found = interpret(program, arrays, V100)
    assert_values(expression, program, found.outputs, arrays)
    assert_traffic(program, found.traffic, V100, {})
    assert emit(program, V100, "opencl").text.count("barrier(CLK_LOCAL_MEM_FENCE)") == 2
    assert_values(expression, program, run_opencl(program, arrays, V100), arrays)
    steps = work_of(nest := nest_of(program.stages[0], facts_of(program.stages[0].op), V100), V100, costs_of(V100))
    assert steps.window_steps == 3 * block_windows.fill_steps(nest, program.stages[0].copies[0])


def test_peeled_tails_read_the_same_window():
    expression = IMAGES["padded"]()
    program = program_of(expression, BLOCKS["2 x 8, 2 x 1 a thread"])
    (stage,) = program.stages
    peeled = replace(program, stages=(replace(stage, guards=tuple((axis, "peel") for axis, _ in stage.guards)),))
    arrays = small_integers(peeled)
    assert_values(expression, peeled, interpret(peeled, arrays, V100).outputs, arrays)
    assert_values(expression, peeled, run_opencl(peeled, arrays, V100), arrays)


@pytest.mark.parametrize("lanes", [1, 8])
def test_a_thread_alone_stages_its_window_in_a_cache_and_reads_it_by_vectors(lanes):
    expression = IMAGES["stride 2, padded"]()
    cpu = device("cpu")
    program = program_of(expression, (1, 1, 2, 2), on=cpu)
    (stage,) = program.stages
    op = stage.op
    extents = {axis.name: axis.extent for axis in op.axes}
    *_, y, x = (axis.name for axis in op.of_role("spatial"))
    wide = {loop.axis: loop for loop in stage.loops if loop.kind == "grid"}
    wide[x] = Loop(x, -(-extents[x] // (2 * lanes)), 2 * lanes, "grid")
    taps = [loop for loop in stage.loops if loop.axis in ("ky", "kx")]
    lane = [Loop(x, lanes, 1, "lane")] if lanes > 1 else []
    loops = (*wide.values(), *taps, Loop(y, 2, 1, "unroll"), Loop(x, 2, lanes, "unroll"), *lane)
    instruction = "vfma" if lanes > 1 else "fma"
    alone = replace(
        stage,
        loops=loops,
        copies=(replace(stage.copies[0], at_loop=len(wide), to_layer="l1"),),
        accumulator=Accumulator(len(wide), "float32"),
        guards=tuple((axis, "mask") for axis, tile in ((y, 2), (x, 2 * lanes)) if extents[axis] % tile),
        compute=Compute(instruction, lanes),
    )
    program = replace(program, stages=(alone,))
    check(program, cpu)
    arrays = small_integers(program)
    assert_values(expression, program, interpret(program, arrays, cpu).outputs, arrays)
    assert_values(expression, program, run_opencl(program, arrays, cpu), arrays)
    assert 0 < predict_stage(alone, cpu).seconds < 1


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_cuda_text_gives_the_definition_with_threads_in_the_reverse_order():
    expression = IMAGES["stride 2, padded"]()
    program = program_of(expression, BLOCKS["2 x 8, 2 x 1 a thread"])
    arrays = small_integers(program)
    got = executed(program, emit(program, V100, "cuda"), arrays, True)
    assert_values(expression, program, got, arrays)


def test_the_halo_is_staged_once_and_counts_as_the_blocks_memory():
    program = program_of(IMAGES["padded"](), BLOCKS["2 x 8, 2 x 1 a thread"], padding=3)
    (stage,) = program.stages
    assert window_shape(stage, stage.copies[0]) == (1, 1, 2 * 2 + 2, 8 + 4)
    assert predict_stage(stage, V100).shared_bytes == 6 * (12 + 3) * 4
    text = emit(program, V100, "opencl").text
    assert "X in shared: [1 x 1 x 6 x 12 + 3], the window of a block's tile, 360 bytes" in text
    assert "local float X_shared[90]" in text
    said = str(explanation._stage(stage, predict_stage(stage, V100), program, V100))
    assert "the window 1 x 1 x 6 x 12 of a block's tile, rows padded by 3" in said


def test_programs_survive_their_text():
    program = program_of(IMAGES["padded"](), BLOCKS["4 x 4, 1 x 3"], "copied ahead")
    assert from_json(to_json(program)) == program


@pytest.mark.parametrize(
    "change, message",
    [
        ({"vector": 2}, "by vectors of 2"),
        ({"swizzle": 2}, "without swizzle"),
        ({"depth": 2}, "without swizzle or depth"),
        ({"asynchronous": True, "depth": 2}, "element by element"),
        ({"to_layer": "registers", "padding": 1}, "in registers without padding"),
        ({"runs": (1, 1, 1, 1)}, "expected (), as no block fills it"),
    ],
)
def test_what_no_block_stages_so_is_refused(change, message):
    program = program_of(IMAGES["padded"](), BLOCKS["2 x 8, 2 x 1 a thread"])
    (stage,) = program.stages
    wrong = replace(stage, copies=(replace(stage.copies[0], **change),))
    with pytest.raises(ProgramError, match=message.replace("(", r"\(").replace(")", r"\)")):
        check(replace(program, stages=(wrong,)), V100)


def test_threads_that_move_no_dimension_of_the_window_are_refused():
    program = program_of(IMAGES["padded"](), BLOCKS["2 x 8, 2 x 1 a thread"])
    (stage,) = program.stages
    channel = next(p for p, loop in enumerate(stage.loops) if loop.axis == "f")
    loops = (*stage.loops[:channel], *stage.loops[channel + 1 : 4], Loop("f", 3, 1, "thread"), *stage.loops[4:])
    op = canonicalize(rg.ops.conv2d(X, rg.tensor("W", (3, 3, 3, 5)), padding=1)).tensor_ops[0]
    taps = tuple(Loop(a.name, a.extent, 1, "unroll") for a in op.of_role("reduce"))
    spatial = tuple(loop for loop in loops if loop.axis not in {a.name for a in op.of_role("reduce")})
    inner = tuple(loop for loop in spatial if loop.kind == "unroll")
    loops = (*(loop for loop in spatial if loop.kind != "unroll"), *taps, *inner)
    axes = {"oy", "ox"} | {a.name for a in op.of_role("reduce")}
    order = tuple(a.name for a in op.axes if a.name in axes)
    load = next(n for n, one in enumerate(op.loads()) if one.buffer.name == "X")
    copy = replace(stage.copies[0], load=load, order=order, at_loop=6)
    wrong = replace(stage, op=op, loops=loops, copies=(copy,), accumulator=Accumulator(6, "float32"))
    with pytest.raises(ProgramError, match="the 3 threads along f move 0 of its tensor's dimensions"):
        check(replace(program, inputs=tuple(x.buffer for x in op.loads()), stages=(wrong,)), V100)


# The model's counts against addresses ----------------------------------------------------------


def enumerated(stage, copy):
    """(addresses read by each thread at its first tap and output, distinct addresses of thread 0, positions that
    thread 0 stages), element by element."""
    shape = window_shape(stage, copy)
    pitch = np.array([*np.cumprod([1, shape[-1] + copy.padding, *shape[-2:0:-1]])[::-1]])
    load = stage.load(copy)
    inner = [p for p, loop in enumerate(stage.loops) if loop.kind != "grid"]
    points = np.stack(np.meshgrid(*(np.arange(stage.loops[p].extent) for p in inner), indexing="ij"), -1)
    place = 0
    for index, step in zip(load.indices, pitch, strict=True):
        own = [stage.loops[p].stride * index.coefficient(stage.loops[p].axis) for p in inner]
        place = place + (points @ np.array(own)) * step
    by_thread = place.reshape(stage.threads, -1)
    return by_thread


@pytest.mark.parametrize("block", [(2, 48, 2, 2), (4, 16, 3, 1), (16, 16, 1, 2)])
@pytest.mark.parametrize("padding", [0, 5])
def test_wavefronts_and_distinct_reads_are_those_of_the_addresses(block, padding):
    expression = rg.ops.conv2d(rg.tensor("X", (1, 1, 70, 210)), rg.tensor("W", (1, 1, 7, 9)))
    (stage,) = program_of(expression, block, padding=padding).stages
    (copy,) = stage.copies
    by_thread = enumerated(stage, copy)
    nest = nest_of(stage, facts_of(stage.op), V100)
    work = work_of(nest, V100, costs_of(V100))
    read = next(a for a in work.accesses if a.role == "read" and a.load == copy.load)
    assert read.count == len(np.unique(by_thread[0]))
    layer = V100.layer("shared")
    warps = [by_thread[at : at + 32, 0] * 4 for at in range(0, stage.threads, 32)]
    assert read.service == pytest.approx(np.mean([wavefronts(w, 4, layer, merge_pairs=True) for w in warps]))
    rows, columns = window_shape(stage, copy)[-2:]
    steps = -(-rows // block[0]) * -(-columns // block[1])
    filled = next(a for a in work.accesses if a.role == "fill_write")
    assert filled.count == work.window_steps == steps
    staged = np.array([(t // block[1]) * (columns + padding) + t % block[1] for t in range(stage.threads)])
    warps = [staged[at : at + 32] * 4 for at in range(0, stage.threads, 32)]
    assert filled.service == pytest.approx(np.mean([wavefronts(w, 4, layer, merge_pairs=False) for w in warps]))


def test_values_that_wait_for_a_later_tap_are_counted_in_the_order_of_the_nest():
    # Rows 0 to 2 and 2 to 4 of a thread with outputs two rows apart: row 2 is read first and last.
    found = block_windows._reuse((3, 2, 1, 2))
    assert found == block_windows.Reuse(distinct=5, kept=1, again=1, live=1)
    # Rows one apart: each but the first and last is used by the next tap.
    assert block_windows._reuse((3, 2, 1, 1)) == block_windows.Reuse(distinct=4, kept=2, again=2, live=1)
    assert block_windows._reuse((3, 2, 1, 3)) == block_windows.Reuse(distinct=6, kept=0, again=0, live=0)


def test_what_is_copied_ahead_of_many_outputs_finds_no_registers():
    expression = rg.ops.conv2d(rg.tensor("X", (1, 1, 70, 210)), rg.tensor("W", (1, 1, 15, 15)))
    (near,) = program_of(expression, (2, 32, 2, 2)).stages
    (ahead,) = program_of(expression, (2, 32, 2, 2), "copied ahead").stages
    one, other = predict_stage(near, V100), predict_stage(ahead, V100)
    assert one.spilled == 0
    assert other.spilled > 3 * 225 - 255
    assert other.seconds > 1.5 * one.seconds


def test_a_thread_waits_for_each_spilled_element_that_was_copied_ahead():
    expression = rg.ops.conv2d(rg.tensor("X", (1, 1, 70, 210)), rg.tensor("W", (1, 1, 15, 15)))
    reused = replace(V100, costs=tuple(sorted((dict(V100.costs) | {"reuse_registers": 1}).items())))
    found = {}
    for order, registers in (("taps outside", 32), ("copied ahead", 500)):
        few = replace(reused, limits=replace(reused.limits, registers_per_thread=registers))
        (stage,) = program_of(expression, (2, 32, 2, 2), order).stages
        costs = costs_of(few)
        nest = nest_of(stage, facts_of(stage.op), few)
        work = work_of(nest, few, costs)
        alike = replace(work, window_spills=work.window_spills._replace(waits=0))
        waited, unhidden = (latency_clocks(nest, few, costs, one, 0) for one in (work, alike))
        found[order] = work.window_spills.loads, (waited - unhidden) / costs.exposed_staging_clocks
    assert found["taps outside"][0] > 0 and found["taps outside"][1] == 0
    loads, waits = found["copied ahead"]
    assert 3 * 225 - 500 < loads < 3 * 225 - 200 and waits == pytest.approx(loads, rel=0.01)


def test_a_batch_is_priced_as_its_programs():
    expression = rg.ops.conv2d(rg.tensor("X", (1, 1, 270, 526)), rg.tensor("W", (1, 1, 15, 15)))
    blocks = [(2, 48, 2, 2), (4, 16, 3, 1), (1, 80, 4, 2)]
    stages = [program_of(expression, block, padding=0).stages[0] for block in blocks]
    of_all = lambda p, field: np.array([getattr(stage.loops[p], field) for stage in stages])
    joined = tuple(
        replace(loop, extent=of_all(p, "extent"), stride=of_all(p, "stride")) for p, loop in enumerate(stages[0].loops)
    )
    together = replace(stages[0], loops=joined, guards=tuple((axis, "mask") for axis in ("oy", "ox")))
    for name in ("v100", "mi50"):
        singly = [predict_stage(replace(stage, guards=together.guards), device(name)).seconds for stage in stages]
        assert predict_stage(together, device(name)).seconds == pytest.approx(singly)


def test_memory_overlaps_with_what_other_blocks_compute_of_their_windows():
    expression = rg.ops.conv2d(rg.tensor("X", (1, 1, 270, 526)), rg.tensor("W", (1, 1, 15, 15)))
    (stage,) = program_of(expression, (4, 64, 2, 4)).stages
    nest, costs = nest_of(stage, facts_of(stage.op), V100), costs_of(V100)
    norms = [norms_of(nest, V100, costs, work_of(nest, V100, costs), resident).memory for resident in (1, 8)]
    assert norms == pytest.approx([costs.memory_exponent, 2 * costs.memory_exponent])


@pytest.mark.parametrize(
    "cost, value, slower",
    [
        ("window_step_clocks", 5000, True),
        ("loop_instructions", 50, True),
        ("reuse_registers", 1, True),
        ("uniform_loads", 1, False),
    ],
)
def test_each_cost_of_windows_moves_predictions(cost, value, slower):
    expression = rg.ops.conv2d(rg.tensor("X", (1, 1, 270, 526)), rg.tensor("W", (1, 1, 15, 15)))
    (stage,) = program_of(expression, (4, 64, 2, 4)).stages
    changed = replace(V100, costs=tuple(sorted((dict(V100.costs) | {cost: value}).items())))
    before, after = predict_stage(stage, V100).seconds, predict_stage(stage, changed).seconds
    assert after > 1.001 * before if slower else after < 0.999 * before


# Faults ----------------------------------------------------------------------------------------


def threads_two_apart(patch):
    twice = lambda stage, copy: tuple(tuple((p, 2 * weight) for p, weight in d) for d in thread_digits(stage, copy))
    patch(lowered, "thread_digits", twice)


def one_row_too_few(patch):
    patch(lowered, "needed", lambda load, d, ranges: (needed(load, d, ranges)[0] + (d == 2), needed(load, d, ranges)[1]))


@pytest.mark.parametrize("fault", [threads_two_apart, one_row_too_few])
def test_faults_of_the_lowering_are_seen(fault, monkeypatch):
    expression = IMAGES["padded"]()
    program = program_of(expression, BLOCKS["2 x 8, 2 x 1 a thread"])
    arrays = small_integers(program)
    fault(monkeypatch.setattr)
    with pytest.raises(AssertionError):
        assert_values(expression, program, run_opencl(program, arrays, V100), arrays)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_a_barrier_left_out_is_seen():
    expression = IMAGES["padded"]()
    program = program_of(expression, BLOCKS["2 x 8, 2 x 1 a thread"])
    arrays = small_integers(program)
    source = emit(program, V100, "cuda")
    assert source.text.count("__syncthreads();") == 1
    broken = replace(source, text=source.text.replace("__syncthreads();", ""))
    with pytest.raises(AssertionError):
        assert_values(expression, program, executed(program, broken, arrays, True), arrays)


def test_a_fault_of_the_interpreters_padding_is_seen(monkeypatch):
    expression = IMAGES["padded"]()
    program = program_of(expression, BLOCKS["2 x 8, 2 x 1 a thread"])
    monkeypatch.setattr(WindowLayout, "pitches", property(lambda self: (*self.shape[:-1], self.shape[-1] // 2)))
    with pytest.raises((AssertionError, ProgramError)):
        arrays = small_integers(program)
        assert_values(expression, program, interpret(program, arrays, V100).outputs, arrays)
