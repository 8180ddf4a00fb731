"""What the interpreter promises: every program gives what its definition says, exactly, or is refused by name."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from rollergen.expr.index import Index
from rollergen.expr.tensor_op import Axis, Reduction, TensorOp
from rollergen.expr.values import (
    Binary,
    Buffer,
    Cast,
    Combiner,
    Const,
    IndexValue,
    Load,
    Partial,
    Select,
    Unary,
    Var,
    Within,
    named_combiner,
)  # fmt: skip
from rollergen.program.blocks import grid_positions
from rollergen.program.interpreter import plan as interpret_plan
from rollergen.program.interpreter.execute import interpret
from rollergen.program.rprogram import Accumulator, BlockOrder, Compute, Copy, Loop, RProgram, Stage
from tests.program.hand_devices import AVX512, TURING
from tests.programs import ALL, cpu_matmul, gpu_conv, gpu_matmul, row_sum, softmax, transpose
from tests.sampling import edge_blocks, edge_classes
from tests.tensor_ops import evaluate_op, evaluate_program, small_integers

F32 = "float32"
ix = Index.axis
EXPONENTIAL = 1e-6  # relative; exp in float32 against float64


def device_of(program):
    return AVX512 if program.device == "cpu" else TURING


def stage_named(name, op, loops, accumulator, lanes=1, **more):
    instruction = "vfma" if lanes > 1 else "fma"
    return Stage(name, op, tuple(loops), Compute(instruction, lanes), accumulator, **more)


def program_of(*stages, device="v100", temporaries=()):
    made = {buffer.name for buffer in temporaries}
    inputs = {load.buffer.name: load.buffer for s in stages for load in s.op.loads()}
    given = tuple(buffer for buffer in inputs.values() if buffer.name not in made)
    return RProgram(device, given, (stages[-1].op.output,), stages, tuple(temporaries))


def assert_equal(program, arrays, result, tolerance=0.0):
    expected = evaluate_program(program, arrays)
    for buffer in program.outputs:
        got, want = result.outputs[buffer.name], expected[buffer.name].reshape(buffer.shape)
        assert got.shape == buffer.shape
        assert result.written[buffer.name].all()
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=0)


# Results ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_every_program_gives_what_its_definition_says(name):
    program, arrays = ALL[name], small_integers(ALL[name])
    result = interpret(program, arrays, device_of(program))
    assert_equal(program, arrays, result, EXPONENTIAL if "softmax" in name else 0.0)


@pytest.mark.parametrize("name", ALL)
def test_a_sample_of_blocks_writes_the_same_elements_and_nothing_else(name):
    program, arrays = ALL[name], small_integers(ALL[name])
    whole = interpret(program, arrays, device_of(program))
    last, output = program.stages[-1], program.outputs[0].name
    chosen = edge_blocks(last)[::2]
    part = interpret(program, arrays, device_of(program), {last.name: chosen})
    written = part.written[output]
    np.testing.assert_array_equal(part.outputs[output][written], whole.outputs[output][written])
    assert np.isnan(part.outputs[output][~written]).all()
    assert written.any() and (len(chosen) == last.blocks) == written.all()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.every(13)
def test_cutting_the_points_into_many_small_arrays_changes_nothing(name, monkeypatch):
    program, arrays = ALL[name], small_integers(ALL[name])
    whole = interpret(program, arrays, device_of(program))
    monkeypatch.setattr(interpret_plan, "POINTS_AT_ONCE", 64)
    cut = interpret(program, arrays, device_of(program))
    output = program.outputs[0].name
    np.testing.assert_allclose(cut.outputs[output], whole.outputs[output], rtol=EXPONENTIAL if "softmax" in name else 0)
    assert cut.traffic == whole.traffic


def test_results_are_the_same_bits_every_time():
    program = softmax(shape="gpu")
    arrays = {"X": np.random.default_rng(1).standard_normal((10, 100)).astype(np.float32)}
    first, second = (interpret(program, arrays, TURING).outputs["Y"] for _ in range(2))
    assert first.tobytes() == second.tobytes()


FULL_SIZE = {
    "matmul 1024^3, GPU": lambda: gpu_matmul(1024, 1024, 1024),
    "matmul 997^3, GPU": lambda: gpu_matmul(997, 997, 997),
    "matmul 128x4096x4096, GPU": lambda: gpu_matmul(128, 4096, 4096),
    "matmul 1024^3, CPU": lambda: cpu_matmul(1024, 1024, 1024, kc=256),
    "matmul 997^3, CPU, nothing packed": lambda: cpu_matmul(997, 997, 997, kc=256, pack=False, guard="mask"),
    "convolution 3x3, 64 channels": lambda: gpu_conv(64, 56, 56, 64),
    "convolution 3x3, stride 2": lambda: gpu_conv(3, 112, 112, 64, 2),
}


@pytest.mark.parametrize("name", FULL_SIZE)
@pytest.mark.every(11)
def test_full_size_on_sampled_blocks_of_every_edge_class(name):
    program = FULL_SIZE[name]()
    arrays = small_integers(program)
    last = program.stages[-1]
    result = interpret(program, arrays, device_of(program), {last.name: edge_blocks(last)})
    output = program.outputs[0].name
    got, written = result.outputs[output], result.written[output]
    expected = convolution(arrays, 2 if "stride" in name else 1) if "X" in arrays else product(arrays)
    np.testing.assert_array_equal(got[written], expected[written])
    assert written.sum() > len(edge_blocks(last))


def product(arrays):
    return arrays["A"].astype(np.float64) @ arrays["B"].astype(np.float64)


def convolution(arrays, stride):
    """3x3, padding 1, as nine shifted matrix products."""
    image = np.pad(arrays["X"][0].astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    height, width = ((extent - 3) // stride + 1 for extent in image.shape[1:])
    total = 0
    for y in range(3):
        for x in range(3):
            window = image[:, y : y + stride * height : stride, x : x + stride * width : stride][:, :height, :width]
            total = total + np.tensordot(arrays["W"][:, :, y, x].astype(np.float64), window, 1)
    return total[None]


# Dtypes and combiners --------------------------------------------------------------------------


def narrow_matmul(dtype, wide, out, m=20, n=18, k=13):
    a, b = Buffer("A", (m, k), dtype), Buffer("B", (k, n), dtype)
    body = Binary("mul", Cast(Load(a, (ix("i"), ix("k"))), wide), Cast(Load(b, (ix("k"), ix("j"))), wide), wide)
    result = Partial("r", wide) if wide == out else Cast(Partial("r", wide), out)
    op = TensorOp(
        Buffer("C", (m, n), out, kind="output"), (Axis("i", m), Axis("j", n), Axis("k", k, "reduce")),
        (ix("i"), ix("j")), result, (Reduction("r", named_combiner("sum", wide), ("k",), (body,)),),
    )  # fmt: skip
    loops = (
        Loop("i", -(-m // 8), 8, "grid"), Loop("i", 4, 2, "thread"), Loop("j", 8, 1, "thread"),
        Loop("k", -(-k // 4), 4, "serial"), Loop("k", 4, 1, "unroll"), Loop("j", -(-n // 8), 8, "serial"),
        Loop("i", 2, 1, "unroll"),
    )  # fmt: skip
    copies = (Copy(0, "dram", "shared", 4, ("i", "k"), "k", padding=1), Copy(1, "dram", "shared", 4, ("j", "k"), "j"))
    guards = (("i", "mask"), ("j", "mask"), ("k", "mask"))
    return program_of(stage_named("matmul", op, loops, Accumulator(3, wide), copies=copies, guards=guards))


@pytest.mark.parametrize("dtype, wide, out", [
    ("int8", "int32", "int32"), ("float16", F32, "float16"), ("bfloat16", F32, "bfloat16"), (F32, F32, F32),
    ("int32", "int32", "int32"), ("float64", "float64", "float64"), ("bfloat16", F32, F32),
])  # fmt: skip
def test_each_dtype_is_read_accumulated_and_stored_as_the_definition_says(dtype, wide, out):
    program = narrow_matmul(dtype, wide, out)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    random = np.random.default_rng(2)
    arrays = {b.name: random.integers(-3, 4, b.shape).astype(kind) for b in program.inputs}
    result = interpret(program, arrays, TURING).outputs["C"]
    wanted = (arrays["A"].astype(np.float64) @ arrays["B"].astype(np.float64)).astype(result.dtype)
    np.testing.assert_array_equal(result, wanted)
    assert result.dtype.name == out


def argmax_program(shape="gpu", rows=5, columns=37):
    """Index of the largest element of each row, the first among equals: a tuple-valued reduction."""
    value, index = Load(Buffer("X", (rows, columns)), (ix("i"), ix("k"))), IndexValue(ix("k"))
    larger = Binary("gt", Var("rhs0", F32), Var("lhs0", F32), "bool")
    same = Binary("eq", Var("rhs0", F32), Var("lhs0", F32), "bool")
    earlier = Binary("lt", Var("rhs1", "int32"), Var("lhs1", "int32"), "bool")
    second = Binary("or", larger, Binary("and", same, earlier, "bool"), "bool")
    combiner = Combiner(
        "argmax",
        (Const(float("-inf"), F32), Const(2**31 - 1, "int32")),
        (Select(second, Var("rhs0", F32), Var("lhs0", F32), F32),
         Select(second, Var("rhs1", "int32"), Var("lhs1", "int32"), "int32")),
    )  # fmt: skip
    op = TensorOp(
        Buffer("Y", (rows,), "int32", kind="output"), (Axis("i", rows), Axis("k", columns, "reduce")), (ix("i"),),
        Partial("r", "int32", 1), (Reduction("r", combiner, ("k",), (value, index)),),
    )  # fmt: skip
    guards = (("k", "mask"),)
    if shape == "gpu":
        loops = (Loop("i", rows, 1, "grid"), Loop("k", 7, 1, "thread"), Loop("k", 6, 7, "serial"))
        return program_of(stage_named("argmax", op, loops, Accumulator(2, F32, combine="tree"), guards=guards))
    loops = (Loop("i", rows, 1, "grid"), Loop("k", 5, 8, "serial"), Loop("k", 2, 4, "unroll"), Loop("k", 4, 1, "lane"))
    stage = stage_named("argmax", op, loops, Accumulator(1, F32, separate=(2,)), 4, guards=guards)
    return program_of(stage, device="cpu")


@pytest.mark.parametrize("shape", ["gpu", "cpu"])
def test_tuple_valued_reductions_combine_across_threads_lanes_and_positions(shape):
    program = argmax_program(shape)
    arrays = {"X": np.random.default_rng(3).integers(-5, 6, (5, 37)).astype(np.float32)}
    result = interpret(program, arrays, device_of(program)).outputs["Y"]
    np.testing.assert_array_equal(result, arrays["X"].argmax(axis=1))


@pytest.mark.parametrize("combiner", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("shape", ["cpu", "gpu"])
def test_named_combiners_start_from_their_identity(combiner, shape):
    program = row_sum(shape=shape)
    stage = program.stages[0]
    reduction = replace(stage.op.reductions[0], combiner=named_combiner(combiner, F32))
    program = replace(program, stages=(replace(stage, op=replace(stage.op, reductions=(reduction,))),))
    values = np.random.default_rng(4).choice([-2.0, -1.0, 1.0, 2.0], (10, 100))
    arrays = {"X": values.astype(np.float32)}
    assert_equal(program, arrays, interpret(program, arrays, device_of(program)))


def test_every_operation_of_a_value_is_executed_in_its_dtype():
    x = Load(Buffer("X", (64,)), (ix("i"),))
    positive = Binary("add", Unary("abs", x, F32), Const(0.5, F32), F32)
    value = positive
    for op in ("exp", "log", "sqrt", "rsqrt", "tanh", "erf", "floor", "neg"):
        value = Binary("add", value, Unary(op, positive, F32), F32)
    for op in ("sub", "mul", "div", "max", "min", "pow"):
        value = Binary("add", value, Binary(op, positive, Const(1.5, F32), F32), F32)
    order = Const(True, "bool")
    for op in ("lt", "le", "gt", "ge", "eq", "ne"):
        compared = Binary("and", order, Binary(op, x, Const(0.0, F32), "bool"), "bool")
        order = Binary("or", compared, Unary("not", order, "bool"), "bool")
    value = Select(order, value, Cast(IndexValue(ix("i") % 5), F32), F32)
    op = TensorOp(Buffer("Y", (64,), kind="output"), (Axis("i", 64),), (ix("i"),), value)
    loops = (Loop("i", 4, 16, "grid"), Loop("i", 16, 1, "thread"))
    program = program_of(stage_named("values", op, loops, Accumulator(2, F32)))
    arrays = {"X": np.random.default_rng(5).standard_normal(64).astype(np.float32)}
    assert_equal(program, arrays, interpret(program, arrays, TURING), 1e-5)


def test_only_the_chosen_side_of_a_select_is_read():
    x = Buffer("X", (8,))
    shifted = Load(x, (ix("i") - 1,))
    value = Select(Binary("ge", IndexValue(ix("i")), Const(1, "int32"), "bool"), shifted, Const(7.0, F32), F32)
    op = TensorOp(Buffer("Y", (8,), kind="output"), (Axis("i", 8),), (ix("i"),), value)
    program = program_of(stage_named("shift", op, (Loop("i", 8, 1, "thread"),), Accumulator(1, F32)))
    result = interpret(program, {"X": np.arange(8, dtype=np.float32)}, TURING).outputs["Y"]
    np.testing.assert_array_equal(result, [7, 0, 1, 2, 3, 4, 5, 6])


def test_not_a_number_is_computed_with_and_not_mistaken_for_an_unwritten_cell():
    program = gpu_matmul(64, 64, 16)
    arrays = small_integers(program)
    arrays["A"][3, 5] = np.nan
    result = interpret(program, arrays, TURING)
    np.testing.assert_array_equal(np.isnan(result.outputs["C"]).any(axis=1), np.arange(64) == 3)
    assert result.written["C"].all()


def test_a_scalar_output_and_a_stage_without_loops():
    op = TensorOp(
        Buffer("Y", (), kind="output"), (Axis("k", 9, "reduce"),), (), Partial("r", F32),
        (Reduction("r", named_combiner("sum", F32), ("k",), (Load(Buffer("X", (9,)), (ix("k"),)),)),),
    )  # fmt: skip
    total = program_of(stage_named("total", op, (Loop("k", 9, 1, "serial"),), Accumulator(0, F32)))
    assert interpret(total, {"X": np.arange(9, dtype=np.float32)}, TURING).outputs["Y"] == 36
    copy = TensorOp(Buffer("Y", (), kind="output"), (), (), Load(Buffer("X", ()), ()))
    single = program_of(stage_named("copy", copy, (), Accumulator(0, F32)))
    assert interpret(single, {"X": np.float32(5)}, TURING).outputs["Y"] == 5


def test_elements_that_the_definition_does_not_store_stay_unwritten():
    load = Load(Buffer("X", (4, 8)), (ix("i") // 8, ix("i") % 8))
    op = TensorOp(
        Buffer("Y", (4, 5), kind="output"), (Axis("i", 32),), (ix("i") // 8, ix("i") % 8), load,
        where=(Within(ix("i") % 8, 0, 5), Within(ix("i"), 0, 20)),
    )  # fmt: skip
    loops = (Loop("i", 4, 8, "grid"), Loop("i", 8, 1, "thread"))
    program = program_of(stage_named("cut", op, loops, Accumulator(2, F32)))
    arrays = {"X": np.arange(32, dtype=np.float32).reshape(4, 8)}
    result = interpret(program, arrays, TURING)
    np.testing.assert_array_equal(result.outputs["Y"], evaluate_op(op, arrays))
    assert result.written["Y"].sum() == 5 + 5 + 4


# Blocks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [0, 1, 2, 3, 5])
def test_block_numbers_reach_every_grid_position_once(width):
    stage = replace(gpu_matmul(330, 450, 8).stages[0], block_order=BlockOrder(width))
    rows, columns = (grid_positions(stage, np.arange(stage.blocks))[p] for p in (0, 1))
    assert sorted(zip(rows.tolist(), columns.tolist(), strict=True)) == [(p, q) for p in range(6) for q in range(8)]


@pytest.mark.parametrize("descending", [1, 2, 3, 6])
def test_blocks_with_descending_rows_reach_every_grid_position_once(descending):
    stage = replace(gpu_matmul(330, 450, 8).stages[0], block_order=BlockOrder(descending=descending))
    others, rows = (grid_positions(stage, np.arange(stage.blocks))[p] for p in (0, 1))
    assert sorted(zip(others.tolist(), rows.tolist(), strict=True)) == [(p, q) for p in range(6) for q in range(8)]
    runs = rows.reshape(6 // descending, 8, descending)
    assert (runs == np.arange(7, -1, -1)[:, None]).all()


def test_swizzled_blocks_run_through_groups_of_rows_column_by_column():
    stage = replace(gpu_matmul(64 * 5, 64 * 3, 8).stages[0], block_order=BlockOrder(2))
    rows, columns = (grid_positions(stage, np.arange(15))[p] for p in (0, 1))
    # Two groups of 2 rows x 3 columns, then one of the single row that is left.
    assert rows.tolist() == [0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 4, 4, 4]
    assert columns.tolist() == [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2, 0, 1, 2]


@pytest.mark.parametrize("shape, classes", [
    ((64, 64), 1), ((128, 64), 2), ((300, 130), 9), ((700, 1000), 9), ((100, 64), 2),
])  # fmt: skip
def test_edge_blocks_cover_first_interior_and_last_of_every_axis(shape, classes):
    stage = gpu_matmul(*shape, 8).stages[0]
    chosen = edge_blocks(stage)
    assert len(chosen) == edge_classes(stage) == classes
    at = grid_positions(stage, np.array(chosen))
    kinds = []
    for position in (0, 1):
        last = stage.loops[position].extent - 1
        kinds.append(["first" if v == 0 else "last" if v == last else "interior" for v in at[position].tolist()])
    assert len(set(zip(*kinds, strict=True))) == classes


def test_edge_blocks_depend_on_the_seed_alone():
    stage = gpu_matmul(1024, 1024, 8).stages[0]
    assert edge_blocks(stage, 2, seed=1) == edge_blocks(stage, 2, seed=1) != edge_blocks(stage, 2, seed=2)
    assert len(edge_blocks(stage, 2)) == 4 * 1 + 5 * 2  # corners exist once; edges and the interior give two


# Refusals --------------------------------------------------------------------------------------


def test_transposing_through_a_tile_keeps_every_element():
    program = transpose(33, 65)
    arrays = small_integers(program)
    np.testing.assert_array_equal(interpret(program, arrays, TURING).outputs["Y"], arrays["X"].T)
