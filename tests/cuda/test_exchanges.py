"""Reductions whose threads exchange registers, from their CUDA text: right in either order of threads, and wrong as
soon as a step is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rollergen.emit import emit
from rollergen.expr.index import Index
from rollergen.expr.tensor_op import Axis, Reduction, TensorOp
from rollergen.expr.values import Binary, Buffer, Const, IndexValue, Partial, named_combiner
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.rprogram import Accumulator, Compute, Loop, RProgram, Stage
from tests.agreement.readers import device
from tests.cuda.host import HostError, compiler, run, seeded
from tests.lower.test_values import argmax, ix, load, welford

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
F32 = "float32"
ROWS, COLUMNS = 7, 333


def rows(combiner, bodies, parallel, combine, result=None, rows_a_block=1, steps=4):
    """``Y[i]`` = a reduction over j by the given (kind, extent) loops, the last one fastest; ``rows_a_block`` side by
    side, outside of these."""
    result = result or Partial("r", bodies[-1].dtype, len(bodies) - 1)
    op = TensorOp(
        Buffer("Y", (ROWS,), result.dtype, "output"),
        (Axis("i", ROWS), Axis("j", COLUMNS, "reduce")),
        (Index.axis("i"),),
        result,
        (Reduction("r", combiner, ("j",), tuple(bodies)),),
    )
    loops, stride = [], 1
    for kind, extent in reversed(parallel):
        loops.insert(0, Loop("j", extent, stride, kind))
        stride *= extent
    loops = [Loop("i", -(-ROWS // rows_a_block), rows_a_block, "grid"), Loop("i", rows_a_block, 1, "thread"), *loops]
    loops += [Loop("j", -(-COLUMNS // stride), stride, "serial")]
    loops = [x for x in loops if x.extent > 1]
    guards = [("j", "mask")] + ([("i", "mask")] if ROWS % rows_a_block else [])
    accumulator = Accumulator(len(loops) - 1, bodies[0].dtype, combine=combine)
    stage = Stage("rows", op, tuple(loops), Compute("fma"), accumulator, guards=tuple(guards))
    inputs = tuple({one.buffer.name: one.buffer for one in op.loads()}.values())
    return RProgram("v100", inputs, (op.output,), (stage,))


X = load("X", ix("i"), ix("j"), shape=(ROWS, COLUMNS))
VARIANCE = Binary("div", Partial("r", F32, 2), Partial("r", F32, 0), F32)
COMBINERS = {
    "sum": (named_combiner("sum", F32), (X,), None),
    "max": (named_combiner("max", F32), (X,), None),
    "argmax": (argmax(), (X, IndexValue(ix("j"))), None),
    "welford": (welford(), (Const(1.0, F32), X, Const(0.0, F32)), VARIANCE),
}
SHAPES = {
    "one width": ([("thread", 32)], "shuffle", 1),
    "a quarter of one": ([("thread", 8)], "shuffle", 4),
    "less than one": ([("thread", 8)], "shuffle", 2),
    "two loops of one": ([("thread", 4), ("thread", 8)], "shuffle", 1),
    "a width for each of four rows": ([("thread", 32)], "shuffle", 4),
    "two widths": ([("group", 2), ("thread", 32)], "groups", 1),
    "eight widths": ([("group", 8), ("thread", 32)], "groups", 1),
    "two widths for each of three rows": ([("group", 2), ("thread", 32)], "groups", 3),
}


def program(name, shape):
    combiner, bodies, result = COMBINERS[name]
    parallel, combine, rows_a_block = SHAPES[shape]
    return rows(combiner, bodies, parallel, combine, result, rows_a_block)


def inputs(seed=0):
    return np.random.default_rng(seed).integers(-9, 10, (ROWS, COLUMNS)).astype(np.float32)


def wanted(name, x):
    return {"sum": x.sum(1), "max": x.max(1), "argmax": x.argmax(1), "welford": x.astype(np.float64).var(1)}[name]


def executed(source, x, dtype=np.float32, reverse=False):
    return run(source, {"X": x, "Y": np.full(ROWS, -77, dtype)}, reverse).arrays["Y"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", COMBINERS)
@pytest.mark.every(13)
def test_text_and_interpreter_agree_with_the_definition(name, shape):
    one, x = program(name, shape), inputs()
    check(one, device("v100"))
    source = emit(one, device("v100"), "cuda")
    assert "shfl" in source.text and "_threads[" not in source.text
    got = executed(source, x, np.int32 if name == "argmax" else np.float32, reverse=shape in list(SHAPES)[::2])
    counted = interpret(one, {"X": x}, device("v100")).outputs["Y"]
    tolerance = 1e-5 if name == "welford" else 0  # the others are exact in either order
    assert np.allclose(got, wanted(name, x), rtol=tolerance, atol=tolerance)
    assert np.allclose(counted, got, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", COMBINERS)
def test_a_language_without_exchanges_folds_a_tree_instead(name):
    text = emit(program(name, "eight widths"), device("v100"), "opencl").text
    assert "shuffle" not in text and "r_threads" in text


@pytest.mark.parametrize(("extension", "prefix"), [("cl_khr_subgroup_shuffle", ""), ("cl_intel_subgroups", "intel_")])
def test_a_dialect_that_names_an_extension_exchanges_within_sub_groups(extension, prefix):
    spec = device("v100")
    targets = tuple(
        replace(t, dialect=(("exchange_extension", extension),)) if t.language == "opencl" else t
        for t in spec.targets
    )
    text = emit(program("sum", "eight widths"), replace(spec, targets=targets), "opencl").text
    assert text.startswith(f"#pragma OPENCL EXTENSION {extension} : enable")
    assert text.count(f" {prefix}sub_group_shuffle_xor(") == 5 + 3


def test_sums_and_maxima_exchange_both_ways_and_others_hand_the_result_out():
    text = emit(program("sum", "eight widths"), device("v100"), "cuda").text
    assert text.count("__shfl_xor_sync(0xffffffff") == 5 + 3 and text.count("__syncthreads") == 1
    text = emit(program("argmax", "one width"), device("v100"), "cuda").text
    assert text.count("__shfl_down_sync") == 2 * 5 and text.count("__shfl_sync") == 2


def test_the_mask_names_the_threads_that_there_are():
    text = emit(program("sum", "less than one"), device("v100"), "cuda").text
    assert "__shfl_xor_sync(0x0000ffff" in text


FAULTS = {
    "no barrier between the widths": ("sum", r"__syncthreads\(\);", ""),
    "half of a width": ("sum", r"(__shfl_xor_sync\(0xffffffff, \w+, )16", r"\g<1>8"),
    "an identity of another combiner": ("max", r"= __int_as_float\(0xff800000\)", "= 0.0f"),
    "a partial result of another width": ("sum", r"j1 % 8\]", "j1 % 4]"),
    "an unwritten partial result": ("sum", r"\[j0\] = ", "[j0/2] = "),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.every(3)
def test_a_seeded_fault_is_found_in_one_order_of_threads(fault):
    name, pattern, replacement = FAULTS[fault]
    source, x = emit(program(name, "eight widths"), device("v100"), "cuda"), inputs() - 50
    broken = seeded(source, pattern, replacement)
    right, wrong = ([executed(text, x, reverse=r) for r in (False, True)] for text in (source, broken))
    assert all(np.array_equal(got, wanted(name, x)) for got in right)
    assert not all(np.array_equal(got, wanted(name, x)) for got in wrong)


def test_a_lane_that_its_mask_leaves_out_is_named():
    source = emit(program("sum", "one width"), device("v100"), "cuda")
    with pytest.raises(HostError, match="warp 0: the mask of lane 0 is 0000ffff; its warp has ffffffff"):
        executed(seeded(source, "0xffffffff", "0x0000ffff"), inputs())


def test_lanes_at_different_exchanges_do_not_meet():
    source = emit(program("sum", "one width"), device("v100"), "cuda")
    split = r"float \1; if (j0 < 16) \1 = \2; else \1 = \2;"
    with pytest.raises(HostError, match="lanes 0 and 16 are at different warp-wide calls"):
        executed(seeded(source, r"const float (other) = (__shfl_xor_sync\([^;]*\));", split), inputs())
