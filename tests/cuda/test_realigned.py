"""Factors whose rows begin anywhere, by whole vectors that threads put together in registers: the CUDA text, run here, and
the interpreter agree, in values and in traffic, the model counts what is emitted, and seeded faults are found."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.compilers import nvrtc
from rollergen.hal.load import load_device
from rollergen.program.assemble.matrix import MatrixPlan
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model.access import fill_accesses
from rollergen.program.model.costs import costs_of
from rollergen.program.model.facts import facts_of
from rollergen.program.model.limiters.issue import instructions_of_access
from rollergen.program.model.nest import nest_of
from rollergen.program.model.work import work_of
from rollergen.program.serial import from_text, to_text
from tests.agreement.readers import assert_traffic, assert_values, small_integers
from tests.cuda.beside import compiled, on_host
from tests.cuda.host import seeded
from tests.cuda.test_programs import executed
from tests.matrices import T, gated, matmul, planned

WMMA, MMA = MatrixPlan("wmma", 2, 2, 2, 2, 2, 2, realigned=True), MatrixPlan("mma", 2, 4, 2, 2, 2, 2, realigned=True)


def batched(batch, m, k, n):
    return rg.ops.batch_matmul(T("A", (batch, m, k), "float16"), T("B", (batch, k, n), "float16"))


CASES = {
    "all odd": ("v100", lambda: matmul(137, 265, 133), WMMA),
    "all odd, by mma": ("a100", lambda: matmul(137, 265, 133), MMA),
    "a tile at a time": ("v100", lambda: matmul(137, 265, 133), replace(WMMA, depth=1)),
    "one tile of the sum": ("a100", lambda: matmul(75, 31, 107), MMA),
    "the first factor alone": ("v100", lambda: matmul(70, 75, 136), WMMA),
    "the second factor alone": ("a100", lambda: matmul(71, 72, 135), MMA),
    "even rows": ("a100", lambda: matmul(71, 74, 134), MMA),
    "beside a ring": ("a100", lambda: matmul(71, 265, 136), replace(MMA, depth=3)),
    "tiles of three instructions": ("a100", lambda: matmul(171, 137, 203), replace(MMA, fn=3, gm=1, steps=4)),
    "turned factors": ("v100", lambda: matmul(75, 77, 107, transpose_a=True, transpose_b=True), WMMA),
    "two products of one factor": ("a100", lambda: gated(75, 77, 107), MMA),
    "batches": ("v100", lambda: batched(3, 37, 41, 43), replace(WMMA, gm=1, gn=1)),
    "a bias": ("a100", lambda: rg.ops.add(matmul(75, 77, 107), T("bias", (107,), "float16")), MMA),
    "bfloat16": ("a100", lambda: matmul(75, 77, 107, "bfloat16"), replace(MMA, instruction="mma_bf16")),
    "rows of less than two vectors": ("v100", lambda: matmul(37, 9, 11), replace(WMMA, steps=1)),
}  # fmt: skip


def made_of(name):
    device, expression, plan = CASES[name]
    expression, device = expression(), load_device(device)
    return expression, planned(expression, device, plan), device


@on_host
@pytest.mark.parametrize("name", CASES)
@pytest.mark.every(4)
def test_the_text_computes_what_the_interpreter_does(name):
    expression, made, device = made_of(name)
    assert any(copy.realigned and copy.vector == 8 for copy in made.stages[0].copies)
    arrays, source = small_integers(made), emit(made, device, "cuda")
    assert "load_around" in source.text and "store_around" in source.text
    got, wanted = executed(made, source, arrays), interpret(made, arrays, device).outputs
    assert all(np.array_equal(got[key], wanted[key]) for key in wanted)
    assert_values(expression, made, got, arrays, None, 2.0**-8 if "bf16" in made.stages[0].compute.instruction else 2.0**-11)
    assert from_text(to_text(made)) == made


@pytest.mark.parametrize("name", CASES)
@pytest.mark.every(4)
def test_counted_traffic_is_the_closed_form(name):
    _, made, device = made_of(name)
    assert_traffic(made, interpret(made, small_integers(made), device).traffic, device, {})


@on_host
@pytest.mark.parametrize("number", range(12))
@pytest.mark.every(4)
def test_random_odd_products_are_exact(number):
    random = np.random.default_rng(number)
    m, k, n = (int(random.integers(8, most)) for most in (260, 300, 280))
    device = load_device(("v100", "a100")[number % 2])
    tiles = ((1, 2, 2, 2), (2, 4, 1, 2), (4, 2, 2, 1), (2, 3, 2, 1))[number // 2 % 4]
    plan = replace(WMMA if number % 2 == 0 else MMA, depth=int(random.integers(1, 3)), steps=int(random.integers(1, 5)))
    plan = replace(plan, **dict(zip(("fm", "fn", "gm", "gn"), tiles, strict=True)))
    expression = matmul(m, k | 1, n | 1)
    made = planned(expression, device, plan)
    arrays = small_integers(made)
    assert_values(expression, made, executed(made, emit(made, device, "cuda"), arrays), arrays, None, 2.0**-11)


@on_host
def test_what_lies_around_a_row_reaches_no_other_row_and_column():
    _, made, device = made_of("all odd")
    arrays = small_integers(made)
    arrays["A"][[9, 64]] = np.nan
    arrays["B"][[3, 200], 0] = np.nan
    got = np.isnan(executed(made, emit(made, device, "cuda"), arrays)["out"])
    wanted = np.zeros_like(got)
    wanted[[9, 64]] = wanted[:, 0] = True
    assert np.array_equal(got, wanted)


FAULTS = {
    "two words not passed": (r"behind & 4 \? words\[i \+ 2\] : ", ""),
    "one word not passed": (r"behind & 2 \? two\[i \+ 1\] : ", ""),
    "half a word not passed": (r"\(behind & 1\) \* 16", "0"),
    "the first piece twice": (r"\[behind > 0\]", "[0]"),
    "elements beyond the sum": (r"wanted < 2 \* i \+ 1 \? 0 : wanted < 2 \* i \+ 2 \? own\[i\] & 0xffff : ", ""),
    "the array's last elements": (r"words\[0\] << 16 \| one", "words[0] << 16"),
    "no tile tested": (r"(?<=if \().*(?=\) \{\n +#pragma unroll\n.*\n +(load|store)_around\(A_next)", "true"),
}


@on_host
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.every(2)
def test_a_fault_in_the_text_is_found(fault):
    _, made, device = made_of("all odd")
    arrays = small_integers(made)
    if fault == "elements beyond the sum":
        arrays["A"][:, 0] = np.inf  # what lies behind a row's end is multiplied by 0 if it is not cut off
    source = emit(made, device, "cuda")
    wanted = interpret(made, arrays, device).outputs["out"]
    same = lambda text: np.array_equal(executed(made, text, arrays)["out"], wanted, equal_nan=True)
    assert same(source)
    assert not same(seeded(source, *FAULTS[fault], count=0))


def changed(**fields):
    _, made, _ = made_of("all odd")
    (stage,) = made.stages
    copies = (replace(stage.copies[0], **fields), *stage.copies[1:])
    return replace(made, stages=(replace(stage, copies=copies),))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"vector": 4}, "realigned with vectors of 4 float16 along k; expected, of a factor of a matrix instruction"),
        ({"swizzle": 4, "padding": 0}, "realigned with vectors of 8 float16"),
        ({"realigned": False}, "are not always adjacent, aligned and of one guard"),
    ],
)
def test_what_cannot_be_put_together_is_refused(fields, says):
    with pytest.raises(ProgramError, match=re.escape(says)):
        check(changed(**fields), load_device("v100"))


@compiled
@pytest.mark.parametrize("device", ["v100", "a100"])
def test_it_takes_no_more_registers_than_element_by_element(device):
    plan = MatrixPlan("wmma", 4, 2, 2, 4, 2, 2) if device == "v100" else MatrixPlan("mma", 4, 8, 2, 4, 2, 2)
    device, used = load_device(device), []
    for how in (plan, replace(plan, realigned=True)):
        source = emit(planned(matmul(1025, 1025, 1025), device, how), device, "cuda")
        (one,) = nvrtc.compile_cuda(source.text, device.targets[0].arch).kernels
        assert not one.spill_store_bytes and not one.stack_bytes
        used.append(one.registers)
    assert used[1] <= used[0]


def test_the_model_counts_two_reads_and_one_write_of_a_vector():
    _, made, device = made_of("all odd")
    (stage,) = made.stages
    nest, costs = nest_of(stage, facts_of(stage.op), device), costs_of(device)
    accesses = fill_accesses(nest, device, stage.copies[0])
    vectors = 64 * 32 // 8 // 128 * 9  # of nine tiles of 64 x 32, among 128 threads
    roles = "fill_read", "realigning_read", "fill_write"
    assert [(one.role, one.count, one.width_bytes) for one in accesses] == [(role, vectors, 16) for role in roles]
    plain, second, _ = (instructions_of_access(nest, costs, work_of(nest, device, costs), one) for one in accesses)
    assert second >= 16 > plain  # a load, 11 choices, 4 shifts


@pytest.mark.parametrize("on", [True, False])
def test_construction_realigns_rows_unless_it_is_switched_off(on):
    shapes = rg.CodeShapes(realigned_vectors=on, aligned_rows=False)
    found = construct(canonicalize(matmul(1025, 1025, 1025)), load_device("v100"), rg.BuildOptions(shapes=shapes), top_k=1)
    assert any(copy.realigned for stage in found[0].program.stages for copy in stage.copies) == on
